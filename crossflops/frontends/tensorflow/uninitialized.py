"""Keras models whose large weights have a shape and no numbers: a count reads none."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any
from unittest.mock import patch

_LARGE = 4096  # elements from which on it is worth it; smaller ones may decide about the graph


@contextmanager
def uninitialized() -> Iterator[None]:
    """While this is open, Keras gives large weights of floats no memory.

    keras/src/backend/tensorflow/core.py: `Variable._initialize_with_initializer` draws the numbers,
    three times as many bytes as are kept. Reading such a weight is an error of TensorFlow.
    """
    core: Any = importlib.import_module("keras.src.backend.tensorflow.core")
    variables: Any = importlib.import_module("tensorflow.python.ops.resource_variable_ops")
    initialize = core.Variable._initialize_with_initializer

    def without_numbers(self: Any, initializer: Any) -> None:
        if prod(self._shape) < _LARGE or not self._dtype.startswith(("float", "bfloat")):
            initialize(self, initializer)
            return
        self._initialize(
            variables.UninitializedVariable(
                trainable=self.trainable, shape=self._shape, dtype=self._dtype, name=self.name
            )
        )

    with patch.object(core.Variable, "_initialize_with_initializer", without_numbers):
        yield
