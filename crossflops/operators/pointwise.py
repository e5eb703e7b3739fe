"""Operators that work on each element by itself: arithmetic, activations, random numbers.

Operands broadcast, so the count is that of the output. An operator of the four basic kinds or a
comparison is one of its kind; an elementary function (exp, log, sqrt, tanh, sigmoid, erf,
rounding ...) is one special, as ONNX defines it by no simpler one. Logic is counted with the
comparisons, a negation as a subtraction from zero.
"""

from math import prod
from typing import TypeAlias

from crossflops.ir.cost import ZERO, Cost
from crossflops.ir.graph import Node
from crossflops.operators.access import axis_of, folded, given, out_size, shape, size, source, text
from crossflops.operators.operands import axis, broadcast, equal, rank, single
from crossflops.operators.rule import Entry, Formula, entry, estimated

Row: TypeAlias = tuple[str, int, Cost, str]

ADD, MUL, DIV = Cost(adds=1), Cost(muls=1), Cost(divs=1)
COMPARE, SPECIAL = Cost(compares=1), Cost(specials=1)

# Name, first version, work per output element, equation.
BASIC: tuple[Row, ...] = (
    ("Add", 1, ADD, "A + B"),
    ("Sub", 1, ADD, "A - B"),
    ("Mul", 1, MUL, "A * B"),
    ("Div", 1, DIV, "A / B"),
    ("Mod", 10, DIV, "the remainder of A / B"),
    ("Neg", 1, ADD, "0 - X"),
    ("Abs", 1, COMPARE, "|X|"),
    ("Sign", 9, Cost(compares=2), "(X > 0) - (X < 0)"),
    ("Reciprocal", 1, DIV, "1 / X"),
    ("BitShift", 11, MUL, "X * 2^Y, or the other way"),
    ("Equal", 1, COMPARE, "A == B"),
    ("Greater", 1, COMPARE, "A > B"),
    ("Less", 1, COMPARE, "A < B"),
    ("GreaterOrEqual", 12, COMPARE, "A >= B"),
    ("LessOrEqual", 12, COMPARE, "A <= B"),
    ("And", 1, COMPARE, "A and B"),
    ("Or", 1, COMPARE, "A or B"),
    ("Xor", 1, COMPARE, "A xor B"),
    ("Not", 1, COMPARE, "not X"),
    ("BitwiseAnd", 18, COMPARE, "A and B, bitwise"),
    ("BitwiseOr", 18, COMPARE, "A or B, bitwise"),
    ("BitwiseXor", 18, COMPARE, "A xor B, bitwise"),
    ("BitwiseNot", 18, COMPARE, "not X, bitwise"),
    ("IsNaN", 9, COMPARE, "X != X"),
    ("IsInf", 10, COMPARE, "|X| == inf"),
    ("Range", 11, Cost(muls=1, adds=1), "start + i * delta"),
)

# Elementary functions: one special per output element.
ELEMENTARY: tuple[tuple[str, int], ...] = (
    *(("Exp", 1), ("Log", 1), ("Sqrt", 1), ("Pow", 1), ("Erf", 9), ("Sigmoid", 1), ("Tanh", 1)),
    *(("Sin", 7), ("Cos", 7), ("Tan", 7), ("Asin", 7), ("Acos", 7), ("Atan", 7)),
    *(("Sinh", 9), ("Cosh", 9), ("Asinh", 9), ("Acosh", 9), ("Atanh", 9)),
    *(("Floor", 1), ("Ceil", 1), ("Round", 11)),
)

# k operands: k - 1 times the first work per output element, and the second once.
VARIADIC: tuple[tuple[str, Cost, Cost], ...] = (
    ("Sum", ADD, ZERO),
    ("Mean", ADD, DIV),
    ("Max", COMPARE, ZERO),
    ("Min", COMPARE, ZERO),
)


def per_element(work: Cost) -> Formula:
    """The formula that does this work for each element of the first output."""

    def formula(node: Node) -> Cost:
        return work * out_size(node)

    return formula


def variadic(work: Cost, last: Cost) -> Formula:
    """The formula that combines k operands with k - 1 pieces of work per output element."""

    def formula(node: Node) -> Cost:
        operands = sum(spec is not None for spec in node.inputs)
        return (work * max(operands - 1, 0) + last) * out_size(node)

    return formula


def joined(node: Node) -> str:
    """Operands broadcast as in numpy, which they do since version 7 (8 where they are many)."""
    return broadcast(node) if node.op.since >= 7 else ""


def describe(work: Cost) -> str:
    """Work in words: "2 muls, 1 add"."""
    kinds = ("muls", "adds", "divs", "compares", "specials")
    found = ((getattr(work, kind), kind) for kind in kinds)
    return ", ".join(f"{n} {kind if n > 1 else kind[:-1]}" for n, kind in found if n)


def rows(table: tuple[Row, ...]) -> tuple[Entry, ...]:
    """The rules of a table of pointwise operators."""
    return tuple(
        entry(
            name,
            per_element(work),
            f"n(Y)*({describe(work)}): Y = {equation}",
            since=since,
            requires=single(0, 1, 2) if name == "Range" else joined,
        )
        for name, since, work, equation in table
    )


_POINTWISE_ENTRIES: tuple[Entry, ...] = (
    *rows(BASIC),
    *rows(tuple((name, since, SPECIAL, f"{name.lower()}(X)") for name, since in ELEMENTARY)),
    *(
        entry(
            name,
            variadic(work, last),
            f"n(Y)*((k-1)*({describe(work)})" + (f" + {describe(last)})" if last.flops else ")"),
            requires=joined,
        )
        for name, work, last in VARIADIC
    ),
)


# Activation functions: rows of data where the work per element is fixed, else a formula.
#
# Where ONNX gives an operator a function body, the work is that of the body; what is computed once
# from attributes alone is not counted.

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

_ACTIVATION_ENTRIES: tuple[Entry, ...] = (
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


# Random numbers: no operator fixes a generator, so what follows one is counted: estimates.
#
# A generator gives a number in [0, 1) for free. A normal number is made of two by Box and Muller:
# sqrt(-2 * log(u)) * cos(2 * pi * v).

UNIFORM = Cost(muls=1, adds=1)
NORMAL = Cost(muls=4, specials=3, adds=1)


def multinomial(node: Node) -> Cost:
    """Multinomial: B rows of C log-probabilities become running sums, which are searched.

    n(input) exps, B*(C-1) adds; per sample a mul and ceil(log2 C) compares. input [B, C].
    https://onnx.ai/onnx/operators/onnx__Multinomial.html
    """
    rows, classes = shape(source(node, 0), rank=2)
    search = Cost(muls=1, compares=max(classes - 1, 0).bit_length())
    return Cost(specials=size(node), adds=folded(size(node), rows)) + search * out_size(node)


_UNIFORM = "n(output)*(mul, add) after a generator that is not counted"
_NORMAL = "n(output)*(log, sqrt, cos, 4 muls, add) after a generator that is not counted"

_SAMPLING_ENTRIES: tuple[Entry, ...] = (
    *(
        entry(name, per_element(UNIFORM), _UNIFORM, doubt=estimated)
        for name in ("RandomUniform", "RandomUniformLike")
    ),
    *(
        entry(name, per_element(NORMAL), _NORMAL, doubt=estimated)
        for name in ("RandomNormal", "RandomNormalLike")
    ),
    entry(
        "Bernoulli",
        per_element(UNIFORM + COMPARE),
        f"{_UNIFORM}; n(output) compares",
        since=15,
        doubt=estimated,
    ),
    entry(
        "Multinomial",
        multinomial,
        "n(input) exps, B*(C-1) adds, n(output)*(mul, ceil(log2 C) compares)",
        since=7,
        doubt=estimated,
        requires=rank(0, 2),
    ),
)


ENTRIES: tuple[Entry, ...] = (*_POINTWISE_ENTRIES, *_ACTIVATION_ENTRIES, *_SAMPLING_ENTRIES)
