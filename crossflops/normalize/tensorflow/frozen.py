"""A traced function -> the same with its variables as constants, and what stands in the way."""

from typing import Any

from crossflops.errors import NormalizeError
from crossflops.normalize.tensorflow.messages import shortened

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


def freeze(function: Any, lowered: bool) -> Any:
    """The concrete function with its variables as constants, its functions inlined.

    `lowered` turns loops and branches into the operations that TensorFlow runs (Enter, Merge,
    Switch ...); without it they stay whole. Raises NormalizeError.
    """
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    try:
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
