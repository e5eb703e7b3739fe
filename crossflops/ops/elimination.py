"""Determinant and inverse by Gaussian elimination, one algorithm of several: estimates."""

from math import prod

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops import linear_algebra as algebra
from crossflops.ops.access import shape, source
from crossflops.ops.operands import sizes
from crossflops.ops.rule import MICROSOFT, Entry, entry, estimated


def _matrices(node: Node) -> tuple[int, int]:
    dims = shape(source(node, 0), at_least=2)
    if dims[-1] != dims[-2]:
        raise ValueError(f"{node.op} needs square matrices, not {dims[-2]}x{dims[-1]}")
    return prod(dims[:-2]), dims[-1]


def determinant(node: Node) -> Cost:
    """Det: n(n-1)/2 divs, (n-1)n(2n-1)/6 muls and subs, then the diagonal, n - 1 muls.

    X [..., n, n].
    https://onnx.ai/onnx/operators/onnx__Det.html
    """
    count, n = _matrices(node)
    return algebra.determinant(n) * count


def inverse(node: Node) -> Cost:
    """Inverse, by Gauss and Jordan in place: n^2 divs, n * (n-1)^2 muls and subs.

    Each of n steps divides a row of n elements and takes it from n - 1 rows in the n - 1 columns
    beside the pivot. X [..., n, n].
    https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    count, n = _matrices(node)
    return algebra.inverse(n) * count


ENTRIES: tuple[Entry, ...] = (
    entry(
        "Det",
        determinant,
        "elimination: n(n-1)/2 divs, (n-1)n(2n-1)/6*(mul, sub), n-1 muls per matrix",
        since=11,
        doubt=estimated,
        requires=sizes("X[...,M,M]"),
    ),
    entry(
        "Inverse",
        inverse,
        "elimination: n^2 divs, n(n-1)^2*(mul, sub) per matrix",
        domain=MICROSOFT,
        doubt=estimated,
        requires=sizes("X[...,M,M]"),
    ),
)
