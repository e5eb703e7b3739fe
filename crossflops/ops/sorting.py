"""Searching and sorting, whose algorithm the operators leave open: estimates."""

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import axis_of, result, shape, size
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


ENTRIES: tuple[Entry, ...] = (
    entry("TopK", top_k, "n(X)*ceil(log2 k) compares, at least n(X)", doubt=estimated),
    entry("Unique", unique, "n(X)*ceil(log2 n(X)) compares", since=11, doubt=estimated),
    entry("NonZero", non_zero, "n(X) compares", since=9),
)
