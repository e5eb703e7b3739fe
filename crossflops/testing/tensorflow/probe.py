"""What a probe of a TensorFlow tool is, and how the ones beside it are written."""

from collections.abc import Callable
from typing import Any

import msgspec

from crossflops.normalize.inputs import parse

Built = tuple[Any, tuple[Any, ...], dict[str, Any]]


class Probe(msgspec.Struct, frozen=True):
    """A named model with its inputs, written as on the command line.

    `macs` is what a hand calculation gives; None where nobody can say, or where the native count
    has no operator for it.
    """

    name: str
    model: Callable[[], Any]
    inputs: tuple[str, ...]
    macs: int | None

    def build(self) -> Built:
        """The model, with positional and keyword inputs."""
        from crossflops.normalize.tensorflow.inputs import make

        return (self.model(), *make(parse(self.inputs)))


def stack(*layers: Callable[[Any], Any]) -> Callable[[], Any]:
    """A Keras model of layers one behind the other, each made from `keras.layers`."""

    def build() -> Any:
        import keras

        return keras.Sequential([layer(keras.layers) for layer in layers])

    return build


def layer(name: str, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """A layer of Keras by its name, made when the probe is built."""
    return lambda layers: getattr(layers, name)(*args, **kwargs)


def function(body: Callable[..., Any]) -> Callable[[], Any]:
    """A tf.function that is `body(tf, *inputs)`."""

    def build() -> Any:
        import tensorflow as tf

        def run(*inputs: Any) -> Any:
            return body(tf, *inputs)

        return tf.function(run, autograph=False)

    return build
