"""Searching and sorting, whose algorithm the operators leave open: estimates."""

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import axis_of, integer, result, shape, size
from crossflops.ops.operands import axis, dims_of, label, sizes
from crossflops.ops.rule import Entry, entry, estimated


def _log2(count: int) -> int:
    """The smallest whole number of halvings that leads from `count` to 1, but at least one."""
    return max((count - 1).bit_length(), 1)


def top_k(node: Node) -> Cost:
    """TopK: n(X) * ceil(log2 k) compares, at least n(X), as a heap of k elements takes.

    k is the extent of the result along `axis`.
    https://onnx.ai/onnx/operators/onnx__TopK.html
    """
    dims = shape(result(node), at_least=1)
    return Cost(compares=size(node) * _log2(dims[axis_of(node, len(dims), -1) % len(dims)]))


def unique(node: Node) -> Cost:
    """Unique: n(X) * ceil(log2 n(X)) compares, as sorting takes.

    https://onnx.ai/onnx/operators/onnx__Unique.html
    """
    return Cost(compares=size(node) * _log2(size(node)))


def non_zero(node: Node) -> Cost:
    """NonZero: n(X) compares.

    https://onnx.ai/onnx/operators/onnx__NonZero.html
    """
    return Cost(compares=size(node))


def _enough(node: Node) -> str:
    """k is at most the size of the axis along which the largest are looked for."""
    dims, largest = dims_of(node, 0), node.values.get(1, ())
    place = integer(node, "axis", -1)
    if dims is None or len(largest) != 1 or dims[place] >= largest[0]:
        return ""
    return f"{label(node, 0)} has {dims[place]} at axis {place % len(dims)}, and k is {largest[0]}"


ENTRIES: tuple[Entry, ...] = (
    entry(
        "TopK",
        top_k,
        "n(X)*ceil(log2 k) compares, at least n(X)",
        doubt=estimated,
        requires=(axis(default=-1), sizes("X K[1]"), _enough),
    ),
    entry(
        "Unique",
        unique,
        "n(X)*ceil(log2 n(X)) compares",
        since=11,
        doubt=estimated,
        requires=axis(),
    ),
    entry("NonZero", non_zero, "n(X) compares", since=9),
)
