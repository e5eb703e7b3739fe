"""Attributes that tf2onnx's forms of operations lose, and their remedies: a reviewed list.

The attributes of the operations that cost work were varied, and the outputs of the files compared
with those of TensorFlow. What else differs does the same work on the same sizes, and only other
numbers come out: whole numbers are divided towards zero, numbers are quantized to 8 bits whatever
`num_bits` is, the weights of legacy bicubic resizing are those of the newer one, and a segment
without rows has the infinity or NaN of ONNX's reduction. `export --verify` says so of a model.
"""

from collections.abc import Callable
from typing import Any

_BATCH_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")


def _as_of_batch(graph: Any, node: Any) -> bool:
    """Let a norm that trains read the statistics of its batch, whatever its moving average is.

    tf2onnx takes the moving ones where the factor of their average is not 1. These are results of
    the operation, which no form of tf2onnx has: such a norm stays as it is.
    """
    if not node.get_attr_value("is_training", True):
        return True
    if any(name in graph.outputs or graph.find_output_consumers(name) for name in node.output[1:]):
        return False
    node.set_attr("exponential_avg_factor", 1.0)
    return True


def _as_sums(_graph: Any, node: Any) -> bool:
    """Let rows that are scattered to one place add up, as TensorFlow's do."""
    node.set_attr("reduction", "add")
    return True


def _as_it_is(_graph: Any, _node: Any) -> bool:
    """An average of areas, of which tf2onnx makes one of their elements: it stays as it is."""
    return False


# By the kind of operation: what mends its node, and says whether tf2onnx may translate it.
_REVIEWED: dict[str, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(_BATCH_NORMS, _as_of_batch),
    "ScatterNd": _as_sums,
    "ResizeArea": _as_it_is,
}


def mend_handlers(handlers: dict[str, Any]) -> dict[str, Any]:
    """Return tf2onnx's handlers, in which what would be lost is mended, or stays unconverted."""

    def mend(kind: str, handler: Any) -> Any:
        def handle(graph: Any, node: Any, **named: Any) -> Any:
            return handler(graph, node, **named) if _REVIEWED[kind](graph, node) else None

        return handle

    return {
        kind: (mend(kind, handler), *rest) if kind in _REVIEWED else (handler, *rest)
        for kind, (handler, *rest) in handlers.items()
    }
