"""Activation functions: rows of data where the work per element is fixed, else a formula.

Where ONNX gives an operator a function body, the work is that of the body; what is computed once
from attributes alone is not counted.
"""

from math import prod

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import axis_of, folded, given, out_size, shape, source, text
from crossflops.ops.operands import axis, equal, single
from crossflops.ops.pointwise import COMPARE, MUL, Row, rows
from crossflops.ops.rule import Entry, entry

_HARD_SIGMOID = Cost(muls=1, adds=1, compares=2)

# Name, first version, work per output element, equation.
ACTIVATIONS: tuple[Row, ...] = (
    ("Relu", 1, COMPARE, "max(X, 0)"),
    ("LeakyRelu", 1, Cost(compares=1, muls=1), "X < 0 ? alpha * X : X"),
    ("PRelu", 1, Cost(compares=1, muls=1), "X < 0 ? slope * X : X"),
    ("ThresholdedRelu", 10, COMPARE, "X > alpha ? X : 0"),
    ("Elu", 1, Cost(compares=1, specials=1, adds=1, muls=1), "X < 0 ? alpha * (exp(X) - 1) : X"),
    ("Celu", 12, Cost(compares=1, divs=1, specials=1, adds=1, muls=2), "alpha * elu(X / alpha)"),
    (
        "Selu",
        1,
        Cost(compares=1, specials=1, adds=1, muls=3),
        "X < 0 ? gamma * (alpha * exp(X) - alpha) : gamma * X",
    ),
    ("HardSigmoid", 1, _HARD_SIGMOID, "max(0, min(1, alpha * X + beta))"),
    ("HardSwish", 14, _HARD_SIGMOID + MUL, "X * hardsigmoid(X)"),
    ("Softplus", 1, Cost(specials=2, adds=1), "log(exp(X) + 1)"),
    ("Softsign", 1, Cost(compares=1, adds=1, divs=1), "X / (1 + |X|)"),
    ("Mish", 18, Cost(specials=3, adds=1, muls=1), "X * tanh(softplus(X))"),
    ("Shrink", 9, Cost(compares=2, adds=2), "X < -lambd ? X + bias : X > lambd ? X - bias : 0"),
)


def clip(node: Node) -> Cost:
    """Clip: Y = min(max(X, min), max); one compare per element for each bound that is given.

    Bounds are inputs since version 11, attributes before.
    https://onnx.ai/onnx/operators/onnx__Clip.html
    """
    bounds = sum(given(node, i + 1) or name in node.attrs for i, name in enumerate(("min", "max")))
    return Cost(compares=bounds) * out_size(node)


def gelu(node: Node) -> Cost:
    """Gelu: Y = 0.5 * X * (1 + erf(X / sqrt(2))): div, erf, add, 2 muls.

    approximate = tanh: Y = 0.5 * X * (1 + tanh(c * (X + 0.044715 * X^3))): pow, tanh, 2 adds,
    4 muls.
    https://onnx.ai/onnx/operators/onnx__Gelu.html
    """
    if text(node, "approximate", "none") == "tanh":
        return Cost(specials=2, adds=2, muls=4) * out_size(node)
    return Cost(divs=1, specials=1, adds=1, muls=2) * out_size(node)


def swish(node: Node) -> Cost:
    """Swish: Y = X * sigmoid(alpha * X): sigmoid, mul, and a mul when alpha != 1.

    https://onnx.ai/onnx/operators/onnx__Swish.html
    """
    scaled = node.attrs.get("alpha", 1.0) != 1
    return Cost(specials=1, muls=2 if scaled else 1) * out_size(node)


def swiglu(node: Node) -> Cost:
    """SwiGLU: Y = swish(A) * B: as Swish, and a mul.

    https://onnx.ai/onnx/operators/onnx__SwiGLU.html
    """
    return swish(node) + MUL * out_size(node)


def softmax_cost(count: int, groups: int) -> Cost:
    """Softmax of `count` elements in `groups`: the largest, sub, exp, the sum, div.

    The largest and the sum take one operation fewer than a group has elements.
    """
    combined = folded(count, groups)
    return Cost(compares=combined, adds=count + combined, specials=count, divs=count)


def log_softmax_cost(count: int, groups: int) -> Cost:
    """LogSoftmax: the largest, sub, exp, the sum; a log per group; sub."""
    combined = folded(count, groups)
    return Cost(compares=combined, adds=2 * count + combined, specials=count + groups)


def _groups(node: Node) -> tuple[int, int]:
    dims = shape(source(node, 0))
    axis = axis_of(node, len(dims), -1)
    if axis == len(dims):
        raise ValueError(f"axis {axis} of {node.op} is out of range for rank {len(dims)}")
    return prod(dims), prod(dims[:axis]) * prod(dims[axis + 1 :])


def _flattened_groups(node: Node) -> tuple[int, int]:
    dims = shape(source(node, 0))
    return prod(dims), prod(dims[: axis_of(node, len(dims), 1)])


def softmax(node: Node) -> Cost:
    """Softmax since 13: Y = exp(X - max(X)) / sum(exp(X - max(X))) along `axis`.

    n elements in m groups: n - m compares, n subs, n exps, n - m adds, n divs.
    https://onnx.ai/onnx/operators/onnx__Softmax.html#softmax-13
    """
    return softmax_cost(*_groups(node))


def flattened_softmax(node: Node) -> Cost:
    """Softmax before 13: the input is flattened at `axis` (default 1); a row is a group.

    https://onnx.ai/onnx/operators/onnx__Softmax.html#softmax-11
    """
    return softmax_cost(*_flattened_groups(node))


def log_softmax(node: Node) -> Cost:
    """LogSoftmax since 13: Y = X - max(X) - log(sum(exp(X - max(X)))) along `axis`.

    n elements in m groups: n - m compares, n subs, n exps, n - m adds, m logs, n subs.
    https://onnx.ai/onnx/operators/onnx__LogSoftmax.html#logsoftmax-13
    """
    return log_softmax_cost(*_groups(node))


def flattened_log_softmax(node: Node) -> Cost:
    """LogSoftmax before 13: the input is flattened at `axis` (default 1); a row is a group.

    https://onnx.ai/onnx/operators/onnx__LogSoftmax.html#logsoftmax-11
    """
    return log_softmax_cost(*_flattened_groups(node))


def hardmax(node: Node) -> Cost:
    """Hardmax since 13: 1 at the first largest element along `axis`; n - m compares.

    https://onnx.ai/onnx/operators/onnx__Hardmax.html#hardmax-13
    """
    return Cost(compares=folded(*_groups(node)))


def flattened_hardmax(node: Node) -> Cost:
    """Hardmax before 13: the input is flattened at `axis` (default 1); n - m compares.

    https://onnx.ai/onnx/operators/onnx__Hardmax.html#hardmax-11
    """
    return Cost(compares=folded(*_flattened_groups(node)))


_SOFTMAX = "n-m compares, n subs, n exps, n-m adds, n divs; m groups"
_LOG_SOFTMAX = "n-m compares, n subs, n exps, n-m adds, m logs, n subs; m groups"

ENTRIES: tuple[Entry, ...] = (
    *rows(ACTIVATIONS),
    entry(
        "Clip",
        clip,
        "n(Y)*(compare per bound): Y = min(max(X, min), max)",
        requires=single(1, 2),
    ),
    entry(
        "Gelu",
        gelu,
        "n(Y)*(div, erf, add, 2 muls); tanh: n(Y)*(pow, tanh, 2 adds, 4 muls)",
        since=20,
    ),
    entry("Swish", swish, "n(Y)*(sigmoid, mul); alpha != 1: n(Y) muls", since=24),
    entry(
        "SwiGLU",
        swiglu,
        "n(Y)*(sigmoid, 2 muls); alpha != 1: n(Y) muls",
        since=28,
        requires=equal(0, 1),
    ),
    entry(
        "Softmax",
        flattened_softmax,
        _SOFTMAX + " = rows of the flattened input",
        requires=axis(default=1),
    ),
    entry(
        "Softmax",
        softmax,
        _SOFTMAX + " along axis",
        since=13,
        requires=axis(default=-1),
    ),
    entry(
        "LogSoftmax",
        flattened_log_softmax,
        _LOG_SOFTMAX + " = rows of the flattened input",
        requires=axis(default=1),
    ),
    entry(
        "LogSoftmax",
        log_softmax,
        _LOG_SOFTMAX + " along axis",
        since=13,
        requires=axis(default=-1),
    ),
    entry(
        "Hardmax",
        flattened_hardmax,
        "n-m compares; m rows of the flattened input",
        requires=axis(default=1),
    ),
    entry(
        "Hardmax",
        hardmax,
        "n-m compares; m groups along axis",
        since=13,
        requires=axis(default=-1),
    ),
)
