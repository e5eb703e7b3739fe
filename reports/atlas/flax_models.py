"""Build models of Flax NNX for the atlas: those of its examples, and usual networks for images.

Each function returns a model without weights and the shapes of its inputs. The sizes are those of
the example or of the paper that a docstring names.
"""

import functools
from collections.abc import Callable
from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import nnx

WORDS = 32_000
Case = tuple[nnx.Module, tuple[jax.ShapeDtypeStruct, ...]]


def build_case(
    build: Callable[[nnx.Rngs], nnx.Module],
    *shape: int,
    dtype: type = float,
    has_weights: bool = False,
) -> Case:
    """Return the module in inference mode and one input of a shape.

    Its weights are shapes, unless it needs a generator of random numbers (as cells with a state
    do), which cannot be a shape.
    """
    model = build(nnx.Rngs(0)) if has_weights else nnx.eval_shape(lambda: build(nnx.Rngs(0)))
    model.eval()
    kind = jnp.int32 if dtype is int else jnp.float32
    return model, (jax.ShapeDtypeStruct(shape, kind),)


class Perceptron(nnx.Module):
    """Dense layers with an activation between."""

    def __init__(self, *widths: int, rngs: nnx.Rngs, activation: Callable = nnx.relu) -> None:
        self.layers = nnx.List(
            [nnx.Linear(*pair, rngs=rngs) for pair in pairwise(widths)],
        )
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return batch x the last width."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


def mlp() -> Case:
    """Return a network of three dense layers for a digit of 28x28."""
    return build_case(lambda rngs: Perceptron(784, 512, 512, 10, rngs=rngs), 1, 784)


class DigitNetwork(nnx.Module):
    """Two convolutions with average pools, and two dense layers."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(1, 32, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(32, 64, (3, 3), rngs=rngs)
        self.linear1 = nnx.Linear(3136, 256, rngs=rngs)
        self.linear2 = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return batch x 10 classes from images: batch x 28 x 28 x 1."""
        pool = functools.partial(nnx.avg_pool, window_shape=(2, 2), strides=(2, 2))
        x = pool(nnx.relu(self.conv1(x)))
        x = pool(nnx.relu(self.conv2(x)))
        return self.linear2(nnx.relu(self.linear1(x.reshape(x.shape[0], -1))))


def cnn() -> Case:
    """Return the network of the example `mnist`."""
    return build_case(DigitNetwork, 1, 28, 28, 1)


class Autoencoder(nnx.Module):
    """The mean of a variational autoencoder, decoded."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.encoder = Perceptron(784, 500, 20, rngs=rngs)
        self.decoder = Perceptron(20, 500, 784, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return batch x 784 probabilities."""
        return nnx.sigmoid(self.decoder(self.encoder(x)))


def vae() -> Case:
    """Return the network of the example `vae`: 500 hidden features, 20 latent ones."""
    return build_case(Autoencoder, 1, 784)


class ResidualBlock(nnx.Module):
    """Convolutions with norms and a shortcut, of a basic block or of a bottleneck."""

    def __init__(
        self, inputs: int, width: int, stride: int, is_wide: bool, rngs: nnx.Rngs
    ) -> None:
        outputs = 4 * width if is_wide else width
        sizes = ((1, 1), (3, stride), (1, 1)) if is_wide else ((3, stride), (3, 1))
        widths = (inputs, width, width, outputs) if is_wide else (inputs, width, width)
        self.convs = nnx.List(
            [
                nnx.Conv(*pair, (side, side), strides=step, use_bias=False, rngs=rngs)
                for pair, (side, step) in zip(pairwise(widths), sizes, strict=True)
            ]
        )
        self.norms = nnx.List([nnx.BatchNorm(count, rngs=rngs) for count in widths[1:]])
        conv = nnx.Conv(inputs, outputs, (1, 1), strides=stride, use_bias=False, rngs=rngs)
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nnx.Sequential(
            *(() if is_same else (conv, nnx.BatchNorm(outputs, rngs=rngs)))
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return batch x height x width x outputs."""
        y = x
        for conv, norm in zip(self.convs, self.norms, strict=True):
            y = norm(conv(y))
            if conv is not self.convs[-1]:
                y = nnx.relu(y)
        return nnx.relu(y + self.shortcut(x))


class ResNet(nnx.Module):
    """A ResNet of four stages for images of 224x224."""

    def __init__(self, depths: tuple[int, ...], is_wide: bool, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(3, 64, (7, 7), strides=2, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        blocks, inputs = [], 64
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            for number in range(depth):
                stride = 2 if stage and not number else 1
                blocks.append(ResidualBlock(inputs, width, stride, is_wide, rngs))
                inputs = 4 * width if is_wide else width
        self.blocks = nnx.List(blocks)
        self.head = nnx.Linear(inputs, 1000, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return batch x 1000 classes."""
        x = nnx.relu(self.norm(self.conv(x)))
        x = nnx.max_pool(x, (3, 3), (2, 2), padding="SAME")
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


def resnet18() -> Case:
    """Return ResNet-18 as the example `imagenet` has it (He et al. 2016)."""
    return build_case(lambda rngs: ResNet((2, 2, 2, 2), False, rngs), 1, 224, 224, 3)


def resnet50() -> Case:
    """Return ResNet-50 as the example `imagenet` has it (He et al. 2016)."""
    return build_case(lambda rngs: ResNet((3, 4, 6, 3), True, rngs), 1, 224, 224, 3)


class TransformerBlock(nnx.Module):
    """Attention and a perceptron, each behind a norm and beside a shortcut."""

    def __init__(self, width: int, hidden: int, heads: int, is_causal: bool, rngs: nnx.Rngs):
        self.norm1 = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.norm2 = nnx.LayerNorm(width, rngs=rngs)
        self.mlp = Perceptron(width, hidden, width, rngs=rngs, activation=nnx.gelu)
        self.is_causal = is_causal

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return batch x length x width."""
        mask = nnx.make_causal_mask(jnp.ones(x.shape[:2])) if self.is_causal else None
        x = x + self.attention(self.norm1(x), mask=mask)
        return x + self.mlp(self.norm2(x))


class LanguageModel(nnx.Module):
    """A decoder of text: embeddings of words and positions, blocks, a norm and a head."""

    def __init__(self, depth: int, width: int, hidden: int, heads: int, rngs: nnx.Rngs) -> None:
        self.words = nnx.Embed(WORDS, width, rngs=rngs)
        self.positions = nnx.Embed(512, width, rngs=rngs)
        self.blocks = nnx.List(
            [TransformerBlock(width, hidden, heads, True, rngs) for _ in range(depth)]
        )
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, WORDS, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Return batch x length x words."""
        x = self.words(tokens) + self.positions(jnp.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def language_model() -> Case:
    """Return the decoder of the example `lm1b` (6 layers, 512 features, 8 heads): 128 tokens."""
    return build_case(lambda rngs: LanguageModel(6, 512, 2048, 8, rngs), 1, 128, dtype=int)


class VisionTransformer(nnx.Module):
    """Patches of 16x16, blocks, and a head on the mean."""

    def __init__(self, depth: int, width: int, heads: int, rngs: nnx.Rngs) -> None:
        self.patches = nnx.Conv(3, width, (16, 16), strides=16, padding="VALID", rngs=rngs)
        self.positions = nnx.Param(jnp.zeros((1, 196, width)))
        self.blocks = nnx.List(
            [TransformerBlock(width, 4 * width, heads, False, rngs) for _ in range(depth)]
        )
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, 1000, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return batch x 1000 classes from images: batch x 224 x 224 x 3."""
        x = self.patches(images)
        x = x.reshape(x.shape[0], -1, x.shape[-1]) + self.positions[...]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def vit_tiny() -> Case:
    """Return ViT-Ti/16 (Touvron et al. 2021) with a mean in place of a class token."""
    return build_case(lambda rngs: VisionTransformer(12, 192, 3, rngs), 1, 224, 224, 3)


def vit_small() -> Case:
    """Return ViT-S/16 (Touvron et al. 2021) with a mean in place of a class token."""
    return build_case(lambda rngs: VisionTransformer(12, 384, 6, rngs), 1, 224, 224, 3)


class MixerBlock(nnx.Module):
    """A perceptron over patches and one over channels, each with a norm and a shortcut."""

    def __init__(self, patches: int, width: int, rngs: nnx.Rngs) -> None:
        self.norm1 = nnx.LayerNorm(width, rngs=rngs)
        self.over_patches = Perceptron(
            patches, width // 2, patches, rngs=rngs, activation=nnx.gelu
        )
        self.norm2 = nnx.LayerNorm(width, rngs=rngs)
        self.over_channels = Perceptron(width, 4 * width, width, rngs=rngs, activation=nnx.gelu)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return batch x patches x width."""
        x = x + self.over_patches(self.norm1(x).swapaxes(1, 2)).swapaxes(1, 2)
        return x + self.over_channels(self.norm2(x))


class Mixer(nnx.Module):
    """MLP-Mixer for images of 224x224."""

    def __init__(self, depth: int, width: int, rngs: nnx.Rngs) -> None:
        self.patches = nnx.Conv(3, width, (16, 16), strides=16, padding="VALID", rngs=rngs)
        self.blocks = nnx.List([MixerBlock(196, width, rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, 1000, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return batch x 1000 classes."""
        x = self.patches(images)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def mixer_small() -> Case:
    """Return Mixer-S/16 (Tolstikhin et al. 2021)."""
    return build_case(lambda rngs: Mixer(8, 512, rngs), 1, 224, 224, 3)


class TextClassifier(nnx.Module):
    """Embeddings, a recurrent cell over the words, and a perceptron on its last state."""

    def __init__(self, cell: type[nnx.Module], rngs: nnx.Rngs) -> None:
        self.words = nnx.Embed(WORDS, 300, rngs=rngs)
        self.rnn = nnx.RNN(cell(300, 256, rngs=rngs))
        self.head = Perceptron(256, 256, 1, rngs=rngs, activation=nnx.tanh)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Return batch x 1 from tokens: batch x length."""
        return self.head(self.rnn(self.words(tokens))[:, -1])


def build_text_classifier(cell: type[nnx.Module]) -> Case:
    """Return a classifier with this cell, and 64 words."""
    return build_case(lambda rngs: TextClassifier(cell, rngs), 1, 64, dtype=int, has_weights=True)


def lstm_classifier() -> Case:
    """Return a classifier of text with the sizes of the example `sst2`: 64 words."""
    return build_text_classifier(nnx.LSTMCell)


def gru_classifier() -> Case:
    """Return a classifier of text with the sizes of the example `sst2` and a GRU: 64 words."""
    return build_text_classifier(nnx.GRUCell)


class ActorCritic(nnx.Module):
    """Three convolutions over four frames, a dense layer, a policy and a value."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        conv = functools.partial(nnx.Conv, padding="VALID", rngs=rngs)
        self.conv1 = conv(4, 32, (8, 8), strides=4)
        self.conv2 = conv(32, 64, (4, 4), strides=2)
        self.conv3 = conv(64, 64, (3, 3))
        self.hidden = nnx.Linear(3136, 512, rngs=rngs)
        self.policy = nnx.Linear(512, 6, rngs=rngs)
        self.value = nnx.Linear(512, 1, rngs=rngs)

    def __call__(self, frames: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the logarithms of the probabilities of 6 actions, and a value."""
        x = nnx.relu(self.conv3(nnx.relu(self.conv2(nnx.relu(self.conv1(frames / 255.0))))))
        x = nnx.relu(self.hidden(x.reshape(x.shape[0], -1)))
        return nnx.log_softmax(self.policy(x)), self.value(x)


def actor_critic() -> Case:
    """Return the network of the example `ppo` for Atari (Mnih et al. 2015): 84x84, four frames."""
    return build_case(ActorCritic, 1, 84, 84, 4)
