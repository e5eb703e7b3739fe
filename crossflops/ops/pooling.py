"""Pooling: a window, or everything, becomes one element."""

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import folded, kernel, number, out_size, size
from crossflops.ops.operands import rank
from crossflops.ops.rule import Constraint, Entry, entry
from crossflops.ops.windows import empty_members, pads_within, window


def max_pool(node: Node) -> Cost:
    """MaxPool: n(Y) * (prod(kernel_shape) - 1) compares. Padding counts (dense).

    https://onnx.ai/onnx/operators/onnx__MaxPool.html
    """
    return Cost(compares=kernel(node) - 1) * out_size(node)


def average_pool(node: Node) -> Cost:
    """AveragePool: n(Y) * (prod(kernel_shape) - 1) adds, n(Y) divs. Padding counts (dense).

    https://onnx.ai/onnx/operators/onnx__AveragePool.html
    """
    return Cost(adds=kernel(node) - 1, divs=1) * out_size(node)


def lp_pool(node: Node) -> Cost:
    """LpPool: Y = (sum |x|^p)^(1/p) over the window of prod(k) elements.

    n(Y) * (prod(k) powers, prod(k) - 1 adds, one root); see `_norm`.
    https://onnx.ai/onnx/operators/onnx__LpPool.html
    """
    out = out_size(node)
    return _norm(node, out * kernel(node), out)


def global_max_pool(node: Node) -> Cost:
    """GlobalMaxPool: n(X) - n(Y) compares.

    https://onnx.ai/onnx/operators/onnx__GlobalMaxPool.html
    """
    return Cost(compares=folded(size(node), out_size(node)))


def global_average_pool(node: Node) -> Cost:
    """GlobalAveragePool: n(X) - n(Y) adds, n(Y) divs.

    https://onnx.ai/onnx/operators/onnx__GlobalAveragePool.html
    """
    return Cost(adds=folded(size(node), out_size(node)), divs=out_size(node))


def global_lp_pool(node: Node) -> Cost:
    """GlobalLpPool: Y = (sum |x|^p)^(1/p) over all positions; as LpPool.

    https://onnx.ai/onnx/operators/onnx__GlobalLpPool.html
    """
    return _norm(node, size(node), out_size(node))


def _norm(node: Node, before: int, after: int) -> Cost:
    """|x| is a compare for p = 1, x * x a mul for p = 2, |x|^p a compare and a special else.

    The p-th root is a special, and nothing for p = 1.
    """
    adds = Cost(adds=folded(before, after))
    power = number(node, "p", 2)
    if power == 1:
        return adds + Cost(compares=before)
    if power == 2:
        return adds + Cost(muls=before, specials=after)
    return adds + Cost(compares=before, specials=before + after)


POOL: tuple[Constraint, ...] = (window(least=0), pads_within)

_WHOLE: tuple[Constraint, ...] = (rank(0, 3, least=True), empty_members)

_NORM = "p=1: compares, p=2: muls and a sqrt, else compares, pows and a root"

ENTRIES: tuple[Entry, ...] = (
    entry(
        "MaxPool",
        max_pool,
        "n(Y)*(prod(k)-1) compares",
        requires=POOL,
    ),
    entry(
        "AveragePool",
        average_pool,
        "n(Y)*(prod(k)-1) adds, n(Y) divs",
        requires=POOL,
    ),
    entry(
        "LpPool",
        lp_pool,
        f"n(Y)*(prod(k)-1) adds; powers of n(Y)*prod(k): {_NORM}",
        requires=POOL,
    ),
    entry(
        "GlobalMaxPool",
        global_max_pool,
        "n(X)-n(Y) compares",
        requires=_WHOLE,
    ),
    entry(
        "GlobalAveragePool",
        global_average_pool,
        "n(X)-n(Y) adds, n(Y) divs",
        requires=_WHOLE,
    ),
    entry(
        "GlobalLpPool",
        global_lp_pool,
        f"n(X)-n(Y) adds; powers of n(X): {_NORM}",
        requires=_WHOLE,
    ),
)
