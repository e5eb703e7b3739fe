"""Models of Keras, JAX and scikit-learn for tools of other frameworks."""


def block():
    """A small transformer of Keras: embedding, attention, two layers with GELU, a classifier."""
    import keras
    from keras import layers

    tokens = layers.Input((16,), dtype="int32")
    x = layers.Embedding(100, 32)(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 8)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(32)(layers.Dense(64, "gelu")(x)))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(tokens, layers.Dense(5, activation="softmax")(x))


def separable():
    """A depthwise convolution, whose weights tf2onnx writes behind a Reshape."""
    import keras
    from keras import layers

    return keras.Sequential(
        [
            layers.Input((12, 12, 3)),
            layers.Conv2D(8, 3, strides=2, padding="same"),
            layers.DepthwiseConv2D(3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(6.0),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5),
        ]
    )


def perceptron():
    """Two linear layers of Flax NNX."""
    import jax
    from flax import nnx

    class Perceptron(nnx.Module):
        """8 -> 16 -> 4."""

        def __init__(self, rngs):
            self.first = nnx.Linear(8, 16, rngs=rngs)
            self.second = nnx.Linear(16, 4, rngs=rngs)

        def __call__(self, x):
            """With a ReLU between them."""
            return self.second(jax.nn.relu(self.first(x)))

    return Perceptron(nnx.Rngs(0))


def classifier():
    """A pipeline of scikit-learn."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = np.random.default_rng(0).normal(size=(30, 4))
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(x, np.arange(30) % 3)
