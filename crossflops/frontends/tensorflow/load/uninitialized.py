"""Keras models whose large weights have a shape and no numbers: a count reads none."""

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
_READ = "it reads the values of its weights"


@contextmanager
def omitting_initial_weights() -> Iterator[None]:
    """Let Keras create large float weights without memory in this context.

    keras/src/backend/tensorflow/core.py: `Variable._initialize_with_initializer` draws the
    numbers, with three times the memory of the result. Raises ValuesNeededError where one is read.
    """
    core: Any = importlib.import_module("keras.src.backend.tensorflow.core")
    initialize, kind = core.Variable._initialize_with_initializer, _valueless_variable_class()
    kind.reads = 0

    def without_numbers(self: Any, initializer: Any) -> None:
        """Initialize a Keras variable; a large one of floats gets a shape and no numbers."""
        if prod(self._shape) < _LARGE or not self._dtype.startswith(("float", "bfloat")):
            initialize(self, initializer)
            return
        options = {"trainable": self.trainable, "shape": self._shape, "dtype": self._dtype}
        self._initialize(kind(name=self.name, **options))

    with patching_attribute(
        core.Variable, "_initialize_with_initializer", without_numbers, inventory.WEIGHTS
    ):
        try:
            yield
        except Exception as error:  # Keras, or the model, may make another one of it
            if kind.reads:
                raise ValuesNeededError(_READ) from error
            raise
    if kind.reads:
        raise ValuesNeededError(_READ)


def require_numbers(variables: Any) -> None:
    """Raise ValuesNeededError if a variable was created without values."""
    kind = _valueless_variable_class()
    if any(isinstance(variable, kind) for variable in variables):
        raise ValuesNeededError("its sizes depend on the values of its weights")


@functools.cache
def _valueless_variable_class() -> Any:
    """Return a class of Keras variables without values, which can only be traced.

    TensorFlow itself would return one zero.
    """
    import tensorflow as tf
    from tensorflow.python.ops.resource_variable_ops import UninitializedVariable

    class UnfilledVariable(UninitializedVariable):
        """A variable that counts how often it is read without a value."""

        reads = 0

        def _read_variable_op(self, no_copy: bool = False) -> Any:
            """Read the value. Raises ValuesNeededError if it is read eagerly."""
            self._refuse()
            return super()._read_variable_op(no_copy)

        def sparse_read(self, indices: Any, name: str | None = None) -> Any:
            """Read rows of the value. Raises ValuesNeededError if it is read eagerly."""
            self._refuse()
            return super().sparse_read(indices, name)

        def gather_nd(self, indices: Any, name: str | None = None) -> Any:
            """Read elements of the value. Raises ValuesNeededError if it is read eagerly."""
            self._refuse()
            return super().gather_nd(indices, name)

        def _refuse(self) -> None:
            """Count a read outside of tracing, and raise ValuesNeededError."""
            if tf.executing_eagerly():
                type(self).reads += 1
                raise ValuesNeededError(_READ)

    return UnfilledVariable
