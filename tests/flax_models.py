"""Models of Flax NNX that tests look at. Imports Flax: only for tests that skip without it."""

import functools

from flax import nnx

LAYERS = ((64, 3), (128, 4), (256, 6), (512, 3))


class Bottleneck(nnx.Module):
    """Three convolutions, of which the middle one strides, and a shortcut."""

    def __init__(self, inputs, width, stride, rngs):
        conv = functools.partial(nnx.Conv, use_bias=False, rngs=rngs)
        self.conv1 = conv(inputs, width, (1, 1))
        self.bn1 = nnx.BatchNorm(width, rngs=rngs)
        self.conv2 = conv(width, width, (3, 3), strides=stride, padding=1)
        self.bn2 = nnx.BatchNorm(width, rngs=rngs)
        self.conv3 = conv(width, 4 * width, (1, 1))
        self.bn3 = nnx.BatchNorm(4 * width, rngs=rngs)
        if stride != 1 or inputs != 4 * width:
            self.downsample = nnx.Sequential(
                conv(inputs, 4 * width, (1, 1), strides=stride),
                nnx.BatchNorm(4 * width, rngs=rngs),
            )
        else:
            self.downsample = None

    def __call__(self, x):
        y = nnx.relu(self.bn1(self.conv1(x)))
        y = nnx.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return nnx.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nnx.Module):
    """As torchvision builds it: the 3x3 convolutions stride, and no convolution has a bias."""

    def __init__(self, rngs):
        self.conv1 = nnx.Conv(3, 64, (7, 7), strides=2, padding=3, use_bias=False, rngs=rngs)
        self.bn1 = nnx.BatchNorm(64, rngs=rngs)
        blocks, inputs = [], 64
        for stage, (width, times) in enumerate(LAYERS):
            for number in range(times):
                stride = 2 if stage and not number else 1
                blocks.append(Bottleneck(inputs, width, stride, rngs))
                inputs = 4 * width
        self.blocks = nnx.List(blocks)
        self.fc = nnx.Linear(2048, 1000, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.bn1(self.conv1(x)))
        x = nnx.max_pool(x, window_shape=(3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((1, 2)))


def resnet50():
    """Shapes alone: no weights are made."""
    return nnx.eval_shape(lambda: ResNet50(nnx.Rngs(0)))


class SmallCNN(nnx.Module):
    """Two convolutions with biases, of which one has a norm; pools, and a dense layer."""

    def __init__(self, rngs):
        self.conv1 = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.conv2 = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs)
        self.head = nnx.Linear(16, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv1(x)))
        x = nnx.max_pool(x, (2, 2), (2, 2))
        return self.head(nnx.relu(self.conv2(x)).mean((1, 2)))


class Block(nnx.Module):
    """A block of a transformer, norms first."""

    def __init__(self, width, heads, inside, rngs):
        self.norm1 = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.norm2 = nnx.LayerNorm(width, rngs=rngs)
        self.up = nnx.Linear(width, inside, rngs=rngs)
        self.down = nnx.Linear(inside, width, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))
