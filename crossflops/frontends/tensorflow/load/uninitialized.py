"""Create Keras models whose large weights have a shape but no values."""

import functools
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from crossflops.errors import ValuesNeededError
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

_LARGE = 4096  # elements from which on it is worth it; smaller ones may decide about the graph
_READ = "the model reads the values of its weights"


@contextmanager
def omitting_initial_weights() -> Iterator[None]:
    """Return a context in which large float weights of new Keras models have no values.

    keras/src/backend/tensorflow/core.py: `Variable._initialize_with_initializer` draws the
    numbers, with three times the memory of the result. Raises ValuesNeededError where one is read.
    """
    core: Any = importlib.import_module("keras.src.backend.tensorflow.core")
    initialize, kind = core.Variable._initialize_with_initializer, _valueless_variable_class()
    kind.reads = 0

    def initialize_without_values(self: Any, initializer: Any) -> None:
        """Initialize a Keras variable; a large one of floats gets a shape but no values."""
        if prod(self._shape) < _LARGE or not self._dtype.startswith(("float", "bfloat")):
            initialize(self, initializer)
            return
        options = {"trainable": self.trainable, "shape": self._shape, "dtype": self._dtype}
        self._initialize(kind(name=self.name, **options))

    with patching_attribute(
        core.Variable, "_initialize_with_initializer", initialize_without_values, inventory.WEIGHTS
    ):
        try:
            yield
        except Exception as error:  # Keras, or the model, may make another one of it
            if kind.reads:
                raise ValuesNeededError(_READ) from error
            raise
    if kind.reads:
        raise ValuesNeededError(_READ)


def require_variable_values(variables: Any) -> None:
    """Raise ValuesNeededError if one of the variables was created without values."""
    kind = _valueless_variable_class()
    if any(isinstance(variable, kind) for variable in variables):
        raise ValuesNeededError("sizes of the model depend on the values of its weights")


@functools.cache
def _valueless_variable_class() -> Any:
    """Return the class of variables without values, which can be traced but not read.

    TensorFlow itself would return one zero.
    """
    import tensorflow as tf
    from tensorflow.python.ops.resource_variable_ops import UninitializedVariable

    class UnfilledVariable(UninitializedVariable):
        """A variable without values, which counts the attempts to read them."""

        reads = 0

        def _read_variable_op(self, no_copy: bool = False) -> Any:
            """Return the value while tracing. Raises ValuesNeededError if read eagerly."""
            self._reject_eager_read()
            return super()._read_variable_op(no_copy)

        def sparse_read(self, indices: Any, name: str | None = None) -> Any:
            """Return rows of the value while tracing. Raises ValuesNeededError if read eagerly."""
            self._reject_eager_read()
            return super().sparse_read(indices, name)

        def gather_nd(self, indices: Any, name: str | None = None) -> Any:
            """Return elements of the value in tracing. Raises ValuesNeededError if eager."""
            self._reject_eager_read()
            return super().gather_nd(indices, name)

        def _reject_eager_read(self) -> None:
            """Raise ValuesNeededError, and count the read, unless a function is being traced."""
            if tf.executing_eagerly():
                type(self).reads += 1
                raise ValuesNeededError(_READ)

    return UnfilledVariable
