"""A traced function -> the same with its variables as constants, and what stands in the way."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from crossflops.errors import NormalizeError
from crossflops.load.hollow import NUMBER
from crossflops.normalize.tensorflow.messages import shortened

_LARGE = 1024  # elements from which on a variable of floats is there by shape
_STORES = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_CHANGES = (
    "ResourceScatter",
    "ResourceApply",
    "ResourceSparseApply",
    "ResourceStridedSliceAssign",
)


def writes(function: Any) -> bool:
    """Whether a concrete function, or one that it calls, stores something in variables."""
    graph = function.graph.as_graph_def()
    bodies = (graph.node, *(one.node_def for one in graph.library.function))
    return any(
        node.op in _STORES or node.op.startswith(_CHANGES) for nodes in bodies for node in nodes
    )


def freeze(function: Any, lowered: bool, weighted: bool = False) -> Any:
    """The concrete function with its variables as constants, its functions inlined.

    Large variables of floats are there by shape: all their elements are one number, which a
    constant holds once, unless they are wanted (`weighted`). TensorFlow would write several copies
    of all weights.

    `lowered` turns loops and branches into the operations that TensorFlow runs (Enter, Merge,
    Switch ...); without it they stay whole. Raises NormalizeError.
    """
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    try:
        with nullcontext() if weighted else _by_shape():
            return convert_variables_to_constants_v2(
                function, lower_control_flow=lowered, aggressive_inlining=not lowered
            )
    except Exception as error:
        if writes(function):
            raise NormalizeError(
                "the model stores something in its variables, and so it cannot be frozen",
                "give the Keras model itself, or a function that returns what it would store",
            ) from error
        raise NormalizeError(
            f"TensorFlow cannot freeze the model: {type(error).__name__}: {shortened(error)}",
            "see what convert_variables_to_constants_v2 says about its concrete function",
        ) from error


@contextmanager
def _by_shape() -> Iterator[None]:
    """While this is open, large variables of floats are not copied into constants.

    tensorflow/python/framework/convert_to_constants.py: `_FunctionConverterDataInEager._eval`
    reads a variable, `make_tensor_proto` writes it.
    """
    module: Any = importlib.import_module("tensorflow.python.framework.convert_to_constants")
    kind, write = module._FunctionConverterDataInEager, module.tensor_util.make_tensor_proto
    read = kind._eval

    def value(self: Any, tensor: Any) -> Any:
        shape = tensor.shape
        if not tensor.dtype.is_floating or not shape.is_fully_defined():
            return read(self, tensor)
        return _spread(tensor) if shape.num_elements() > _LARGE else read(self, tensor)

    def written(values: Any, *given: Any, **named: Any) -> Any:
        if not getattr(values, "ndim", 0) or any(values.strides) or values.size <= _LARGE:
            return write(values, *given, **named)
        told = values.flat[0]
        return write(told, dtype=values.dtype, shape=values.shape, allow_broadcast=True)

    with (
        patch.object(kind, "_eval", value),
        patch.object(module.tensor_util, "make_tensor_proto", written),
    ):
        yield


def _spread(tensor: Any) -> Any:
    """One number in the shape of a variable, without the memory of it."""
    import numpy as np

    return np.broadcast_to(np.array(NUMBER, tensor.dtype.as_numpy_dtype), tensor.shape.as_list())
