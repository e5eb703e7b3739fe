"""Function bodies that collect values in groups: rows of a table in bags, numbers in bins."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from crossflops.frontends.pytorch.convert.function_bodies.writer import (
    Body,
    OnnxBodyWriter,
    OpaqueNode,
)

_MEAN, _MAX = 1, 2  # modes of an EmbeddingBag; 0 is the sum
_LOWEST = -3.4e38


def _write_embedding_bag(
    write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]
) -> list[Any] | None:
    """Write ONNX nodes for `embedding_bag`, the sum, mean or maximum of table rows in each bag;
    return its results, None if more than the first is used.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.EmbeddingBag.html
    """
    if len(x) < 3 or any(result.used for result in node.results[1:]):
        return None
    table, indices, offsets, *weights = x
    bags = node.results[0].shape[0]
    starts = write("Slice", offsets, write.constant_integers(0), write.constant_integers(bags))
    rows = write.append_float32_cast(write("Gather", table, indices), node.operands[0])
    if weights:
        rows = write(
            "Mul",
            rows,
            write.append_column_reshape(write.append_float32_cast(weights[0], node.operands[3])),
        )
    member = _write_bag_of_each_index(write, starts, node.operands[1].shape[0])
    padding = node.settings.get("padding_idx")
    if padding is not None:
        padded = write("Equal", write.append_int64_cast(indices), write.constant_integer(padding))
        rows, member = (
            write("Compress", value, write("Not", padded), axis=0) for value in (rows, member)
        )
    combined = _write_bag_reduction(write, node, rows, write.append_column_reshape(member))
    result = write("CastLike", combined, table)
    return [result, *(write.append_zeros_like(unread) for unread in node.results[1:])]


def _write_bag_of_each_index(write: OnnxBodyWriter, starts: Any, index_count: int) -> Any:
    """Write ONNX nodes that give each of `index_count` indices the last bag that starts at or
    before it; return the bags.
    """
    begun = write(
        "GreaterOrEqual",
        write.append_column_reshape(write.append_range(index_count)),
        write.append_int64_cast(starts),
    )
    bags = write(
        "ReduceSum", write.append_int64_cast(begun), write.constant_integers(1), keepdims=0
    )
    return write("Sub", bags, write.constant_integer(1))


def _write_bag_reduction(write: OnnxBodyWriter, node: OpaqueNode, rows: Any, indices: Any) -> Any:
    """Write ONNX nodes for the sum, mean or maximum (by the node's mode) of the rows in each bag;
    return the result.
    """
    bags, width = node.results[0].shape
    mode = int(node.settings.get("mode", 0))
    shape = write.constant_integers(bags, width)

    def write_scatter_reduction(start: float, added: Any, reduction: str) -> Any:
        """Write ONNX nodes that fill the bags with `start` and reduce the rows `added` into them;
        return the result.
        """
        empty = write("Expand", write.constant_float_like(start, rows), shape)
        return write("ScatterND", empty, indices, added, reduction=reduction)

    if mode not in (_MEAN, _MAX):
        return write_scatter_reduction(0.0, rows, "add")
    unit = write.constant_float_like(1.0, rows)
    number = write_scatter_reduction(0.0, write("Expand", unit, write("Shape", rows)), "add")
    if mode == _MEAN:
        return write("Div", write_scatter_reduction(0.0, rows, "add"), write("Max", number, unit))
    filled = write("GreaterOrEqual", number, unit)
    return write(
        "Where",
        filled,
        write_scatter_reduction(_LOWEST, rows, "max"),
        write.constant_float_like(0.0, rows),
    )


def _write_histogram(write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]) -> list[Any]:
    """Write ONNX nodes for a histogram, the count of numbers in each of several equal bins; return
    [result].

    The upper end belongs to the last bin.

    https://docs.pytorch.org/docs/stable/generated/torch.histc.html
    """
    bins = int(node.settings.get("bins", 100))
    low, high = (float(node.settings.get(name, 0)) for name in ("min", "max"))
    numbers = write("Reshape", x[0], write.constant_integers(-1))
    if low == high or not math.isfinite(high - low):
        ends = [write(name, numbers, keepdims=0) for name in ("ReduceMin", "ReduceMax")]
    else:
        ends = [write.constant_float_like(end, numbers) for end in (low, high)]
    share = write("Div", write("Sub", numbers, ends[0]), write("Sub", ends[1], ends[0]))
    index = write("Floor", write("Mul", share, write.constant_float_like(bins, numbers)))
    last = write("Min", write.append_int64_cast(index), write.constant_integer(bins - 1))
    inside = write(
        "And",
        write("GreaterOrEqual", numbers, ends[0]),
        write("LessOrEqual", numbers, ends[1]),
    )
    return [_write_scatter_sum(write, last, write("CastLike", inside, x[0]), bins)]


def _write_weighted_bincount(
    write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]
) -> list[Any] | None:
    """Write ONNX nodes for `bincount` with weights, the sum of weights by number; return [result],
    None without weights.
    """
    if len(x) != 2 or node.results[0].dtype != node.operands[1].dtype:
        return None
    return [
        _write_scatter_sum(write, write.append_int64_cast(x[0]), x[1], node.results[0].shape[0])
    ]


def _write_scatter_sum(write: OnnxBodyWriter, indices: Any, amounts: Any, sum_count: int) -> Any:
    """Write ONNX nodes that add each amount at its index; return the `sum_count` sums."""
    empty = write(
        "Expand", write.constant_float_like(0.0, amounts), write.constant_integers(sum_count)
    )
    return write(
        "ScatterND", empty, write.append_column_reshape(indices), amounts, reduction="add"
    )


BODIES: Mapping[str, Body] = {
    "aten.embedding_bag.padding_idx": _write_embedding_bag,
    "aten.embedding_bag.default": _write_embedding_bag,
    "aten._embedding_bag.default": _write_embedding_bag,
    "aten.histc.default": _write_histogram,
    "aten.bincount.default": _write_weighted_bincount,
}
