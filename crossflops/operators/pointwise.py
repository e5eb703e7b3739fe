"""The cost of operators that work on each element by itself: arithmetic, activations, random
numbers.

Operands broadcast, so the count is that of the output. An operator of the four basic kinds or a
comparison is one of its kind; an elementary function (exp, log, sqrt, tanh, sigmoid, erf,
rounding ...) is one special, as ONNX defines it by no simpler one. Logic is counted with the
comparisons, a negation as a subtraction from zero.
"""

from collections.abc import Mapping

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    has_input,
    input_element_count,
    input_spec,
    output_element_count,
    reduction_operation_count,
    spec_shape,
    string_attribute,
)
from crossflops.operators.gradient import (
    Gradient,
    OperandPositions,
    elementwise_backward,
    no_gradient,
)
from crossflops.operators.operands import (
    all_inputs_broadcast_constraint,
    equal_shapes_constraint,
    rank_constraint,
    single_number_constraint,
)
from crossflops.operators.rule import (
    Constraint,
    Formula,
    OperandProblem,
    Operators,
    estimate_exactness,
)

operator = Operators()

ADD, MUL, DIV = Cost(adds=1), Cost(muls=1), Cost(divs=1)
COMPARE, SPECIAL = Cost(compares=1), Cost(specials=1)
SILU, SOFTPLUS = SPECIAL + MUL, Cost(specials=2, adds=1)
# 0.5 * X * (1 + erf(X / sqrt(2))), and 0.5 * X * (1 + tanh(c * (X + 0.044715 * X^3))).
GELU, GELU_TANH = Cost(divs=1, specials=1, adds=1, muls=2), Cost(specials=2, adds=2, muls=4)

WORK: dict[str, Cost] = {}  # per element, of the operators that `declare_pointwise` declares


def formula_per_output_element(work: Cost) -> Formula:
    """Return a formula that counts `work` for each element of the first output."""

    def cost_of_output_elements(node: Node) -> Cost:
        """Return `work` times the number of elements of the first output."""
        return work * output_element_count(node)

    return cost_of_output_elements


def pointwise_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands, or "" if nothing is: they broadcast as in numpy
    (since version 7; 8 if variadic).
    """
    return all_inputs_broadcast_constraint(node) if node.op.since >= 7 else ""


def describe_work(work: Cost) -> str:
    """Return the operations of a cost as text, such as "2 muls, 1 add", without MACs."""
    kinds = ("muls", "adds", "divs", "compares", "specials")
    counts = ((getattr(work, kind), kind) for kind in kinds)
    return ", ".join(f"{n} {kind if n > 1 else kind[:-1]}" for n, kind in counts if n)


def declare_pointwise(
    type: str,
    work: Cost,
    equation: str,
    since: int = 1,
    requires: Constraint = pointwise_constraint,
    back: Cost | tuple[Cost, ...] | None = None,
) -> None:
    """Declare an ONNX operator that costs `work` per element of its result Y = `equation`.

    `back` is the work for each element of a gradient, of all operands or of each; None: the result
    has no gradient.
    """
    WORK[type] = work
    equation = f"n(Y)*({describe_work(work)}): Y = {equation}"
    gradients = () if back is None else back if isinstance(back, tuple) else (back,)
    backward = elementwise_backward(*gradients) if gradients else no_gradient
    operator(type, equation, since=since, requires=requires, backward=backward)(
        formula_per_output_element(work)
    )


declare_pointwise("Add", ADD, "A + B", back=ZERO)
declare_pointwise("Sub", ADD, "A - B", back=(ZERO, ADD))
declare_pointwise("Mul", MUL, "A * B", back=MUL)
declare_pointwise("Div", DIV, "A / B", back=(DIV, Cost(divs=2, muls=1, adds=1)))
declare_pointwise(
    "Mod",
    DIV,
    "the remainder of A / B",
    since=10,
    back=(ZERO, Cost(divs=1, specials=1, muls=1, adds=1)),
)
declare_pointwise("Neg", ADD, "0 - X", back=ADD)
declare_pointwise("Abs", COMPARE, "|X|", back=Cost(compares=2, muls=1))
declare_pointwise("Sign", Cost(compares=2), "(X > 0) - (X < 0)", since=9, back=ZERO)
declare_pointwise("Reciprocal", DIV, "1 / X", back=Cost(muls=2, adds=1))
declare_pointwise("BitShift", MUL, "X * 2^Y, or the other way", since=11)
declare_pointwise("Equal", COMPARE, "A == B")
declare_pointwise("Greater", COMPARE, "A > B")
declare_pointwise("Less", COMPARE, "A < B")
declare_pointwise("GreaterOrEqual", COMPARE, "A >= B", since=12)
declare_pointwise("LessOrEqual", COMPARE, "A <= B", since=12)
declare_pointwise("And", COMPARE, "A and B")
declare_pointwise("Or", COMPARE, "A or B")
declare_pointwise("Xor", COMPARE, "A xor B")
declare_pointwise("Not", COMPARE, "not X")
declare_pointwise("BitwiseAnd", COMPARE, "A and B, bitwise", since=18)
declare_pointwise("BitwiseOr", COMPARE, "A or B, bitwise", since=18)
declare_pointwise("BitwiseXor", COMPARE, "A xor B, bitwise", since=18)
declare_pointwise("BitwiseNot", COMPARE, "not X, bitwise", since=18)
declare_pointwise("IsNaN", COMPARE, "X != X", since=9)
declare_pointwise("IsInf", COMPARE, "|X| == inf", since=10)
declare_pointwise(
    "Range",
    Cost(muls=1, adds=1),
    "start + i * delta",
    since=11,
    requires=single_number_constraint(0, 1, 2),
)


def declare_elementary_functions(since: int = 1, **back: Cost | tuple[Cost, ...]) -> None:
    """Declare elementary functions, such as sin: a special per element; `back` has the cost of
    each gradient by operator.

    `back` gives by name the work for each element of the gradient.
    """
    for type_, work in back.items():
        declare_pointwise(type_, SPECIAL, f"{type_.lower()}(X)", since, back=work)


# Derivatives from the result y where it has them: y for exp, y(1-y) for sigmoid, 1-y^2 for tanh.
declare_elementary_functions(
    Exp=MUL,
    Log=DIV,
    Sqrt=Cost(divs=1, muls=1),
    Pow=(Cost(specials=1, muls=2, adds=1), Cost(specials=1, muls=2)),
    Sigmoid=Cost(muls=2, adds=1),
    Tanh=Cost(muls=2, adds=1),
    Floor=ZERO,
    Ceil=ZERO,
)
declare_elementary_functions(
    since=7,
    Sin=SPECIAL + MUL,
    Cos=SPECIAL + MUL + ADD,
    Tan=Cost(muls=2, adds=1),
    Asin=Cost(muls=2, adds=1, specials=1),
    Acos=Cost(muls=2, adds=2, specials=1),
    Atan=Cost(muls=1, adds=1, divs=1),
)
declare_elementary_functions(
    since=9,
    Erf=Cost(muls=3, adds=1, specials=1),
    Sinh=SPECIAL + MUL,
    Cosh=SPECIAL + MUL,
    Asinh=Cost(muls=1, adds=1, divs=1, specials=1),
    Acosh=Cost(muls=1, adds=1, divs=1, specials=1),
    Atanh=Cost(muls=1, adds=1, divs=1),
)
declare_elementary_functions(since=11, Round=ZERO)


def declare_variadic(type: str, work: Cost, last: Cost = ZERO, back: Cost = ZERO) -> None:
    """Declare an operator that combines k operands: `work` for each one after the first, per
    element of the result.

    The `last` work follows once per element; `back` is that of each element of a gradient.
    """

    def cost_of_variadic_node(node: Node) -> Cost:
        """Return the cost per element of the result: `work` for each operand after the first, then
        `last`.
        """
        operands = sum(spec is not None for spec in node.inputs)
        return (work * max(operands - 1, 0) + last) * output_element_count(node)

    ending = f" + {describe_work(last)})" if last.flops else ")"
    equation = f"n(Y)*((k-1)*({describe_work(work)})" + ending
    operator(type, equation, requires=pointwise_constraint, backward=elementwise_backward(back))(
        cost_of_variadic_node
    )


declare_variadic("Sum", ADD)
declare_variadic("Mean", ADD, DIV, back=DIV)
declare_variadic("Max", COMPARE, back=COMPARE)
declare_variadic("Min", COMPARE, back=COMPARE)


# Activation functions.
#
# Where ONNX gives an operator a function body, the work is that of the body; what is computed once
# from attributes alone is not counted.

_HARD_SIGMOID = Cost(muls=1, adds=1, compares=2)

declare_pointwise("Relu", COMPARE, "max(X, 0)", back=COMPARE)
declare_pointwise(
    "LeakyRelu", Cost(compares=1, muls=1), "X < 0 ? alpha * X : X", back=Cost(compares=1, muls=1)
)
declare_pointwise(
    "PRelu", Cost(compares=1, muls=1), "X < 0 ? slope * X : X", back=Cost(compares=1, muls=1)
)
declare_pointwise("ThresholdedRelu", COMPARE, "X > alpha ? X : 0", since=10, back=COMPARE)
declare_pointwise(
    "Elu",
    Cost(compares=1, specials=1, adds=1, muls=1),
    "X < 0 ? alpha * (exp(X) - 1) : X",
    back=Cost(compares=1, specials=1, muls=2),
)
declare_pointwise(
    "Celu",
    Cost(compares=1, divs=1, specials=1, adds=1, muls=2),
    "alpha * elu(X / alpha)",
    since=12,
    back=Cost(compares=1, specials=1, divs=1, muls=1),
)
declare_pointwise(
    "Selu",
    Cost(compares=1, specials=1, adds=1, muls=3),
    "X < 0 ? gamma * (alpha * exp(X) - alpha) : gamma * X",
    back=Cost(compares=1, specials=1, muls=2),
)
declare_pointwise(
    "HardSigmoid", _HARD_SIGMOID, "max(0, min(1, alpha * X + beta))", back=Cost(compares=2, muls=1)
)
declare_pointwise(
    "HardSwish",
    _HARD_SIGMOID + MUL,
    "X * hardsigmoid(X)",
    since=14,
    back=Cost(compares=2, muls=2, adds=1),
)
declare_pointwise("Softplus", SOFTPLUS, "log(exp(X) + 1)", back=Cost(specials=1, muls=1))
declare_pointwise(
    "Softsign",
    Cost(compares=1, adds=1, divs=1),
    "X / (1 + |X|)",
    back=Cost(compares=1, adds=1, muls=1, divs=1),
)
declare_pointwise(
    "Mish",
    Cost(specials=3, adds=1, muls=1),
    "X * tanh(softplus(X))",
    since=18,
    back=Cost(specials=4, adds=3, muls=4),
)
declare_pointwise(
    "Shrink",
    Cost(compares=2, adds=2),
    "X < -lambd ? X + bias : X > lambd ? X - bias : 0",
    since=9,
    back=Cost(compares=2),
)

# Work per element of what an attribute of LSTM, GRU or RNN may name.
FUNCTIONS: Mapping[str, Cost] = {
    "affine": Cost(muls=1, adds=1),
    "scaledtanh": Cost(muls=2, specials=1),
} | {
    name.lower(): WORK[name]
    for name in (
        *("Sigmoid", "Tanh", "Relu", "LeakyRelu", "PRelu", "ThresholdedRelu", "Elu", "Celu"),
        *("Selu", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Mish", "Shrink"),
    )
}


def _clip_backward(_node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradient of Clip: the compares of the forward pass decide again which
    elements pass.
    """
    return Gradient(dict.fromkeys(requested, forward))


@operator(
    "Clip",
    "n(Y)*(compare per bound): Y = min(max(X, min), max)",
    requires=single_number_constraint(1, 2),
    backward=_clip_backward,
)
def clip_cost(node: Node) -> Cost:
    """Return the cost of Clip, min(max(X, min), max): a compare per element for each bound that is
    given.

    Bounds are inputs since version 11, attributes before.
    https://onnx.ai/onnx/operators/onnx__Clip.html
    """
    bounds = sum(
        has_input(node, i + 1) or name in node.attrs for i, name in enumerate(("min", "max"))
    )
    return Cost(compares=bounds) * output_element_count(node)


GELU_TANH_BACK = Cost(specials=1, muls=12, adds=5)


def gelu_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradient of Gelu, dX = dY (F + X f), F the normal distribution and f
    its density.

    F is div, erf, add, mul; f is exp(-X^2 / 2) / sqrt(2 pi): 3 muls and exp; then 2 muls, add. By
    t = tanh u, u = c (X + k X^3): 0.5 (1 + t) + 0.5 X (1 - t^2) c (1 + 3 k X^2), which takes tanh,
    12 muls and 5 adds.
    """
    tanh = string_attribute(node, "approximate", "none") == "tanh"
    density = Cost(divs=1, specials=2, adds=2, muls=6)
    return elementwise_backward(GELU_TANH_BACK if tanh else density)(node, requested, forward)


@operator(
    "Gelu",
    "n(Y)*(div, erf, add, 2 muls); tanh: n(Y)*(pow, tanh, 2 adds, 4 muls)",
    since=20,
    backward=gelu_backward,
)
def onnx_gelu_cost(node: Node) -> Cost:
    """Return the cost of Gelu, 0.5 * X * (1 + erf(X / sqrt(2))): a div, an erf, an add and 2 muls
    per element.

    approximate = tanh: Y = 0.5 * X * (1 + tanh(c * (X + 0.044715 * X^3))): pow, tanh, 2 adds,
    4 muls.
    https://onnx.ai/onnx/operators/onnx__Gelu.html
    """
    tanh = string_attribute(node, "approximate", "none") == "tanh"
    return (GELU_TANH if tanh else GELU) * output_element_count(node)


SWISH_BACK = Cost(specials=1, muls=3, adds=2)  # dY s (1 + X (1 - s)), s = sigmoid(X)


def _swish_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradient of Swish: `SWISH_BACK` per element, and a mul more if alpha
    is not 1.
    """
    scaled = MUL if node.attrs.get("alpha", 1.0) != 1 else ZERO
    return elementwise_backward(SWISH_BACK + scaled)(node, requested, forward)


def _swiglu_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradients of SwiGLU: dA as that of Swish from dY B, and dB = dY
    swish(A).
    """
    scaled = MUL if node.attrs.get("alpha", 1.0) != 1 else ZERO
    gated, gate = SWISH_BACK + MUL + scaled, Cost(specials=1, muls=2) + scaled
    return elementwise_backward(gated, gate)(node, requested, forward)


@operator(
    "Swish", "n(Y)*(sigmoid, mul); alpha != 1: n(Y) muls", since=24, backward=_swish_backward
)
def swish_cost(node: Node) -> Cost:
    """Return the cost of Swish, X * sigmoid(alpha * X): a sigmoid and a mul per element, and a mul
    more if alpha is not 1.

    https://onnx.ai/onnx/operators/onnx__Swish.html
    """
    scaled = node.attrs.get("alpha", 1.0) != 1
    return Cost(specials=1, muls=2 if scaled else 1) * output_element_count(node)


@operator(
    "SwiGLU",
    "n(Y)*(sigmoid, 2 muls); alpha != 1: n(Y) muls",
    since=28,
    requires=equal_shapes_constraint(0, 1),
    backward=_swiglu_backward,
)
def swiglu_cost(node: Node) -> Cost:
    """Return the cost of SwiGLU, swish(A) * B: as Swish, and a mul per element.

    https://onnx.ai/onnx/operators/onnx__SwiGLU.html
    """
    return swish_cost(node) + MUL * output_element_count(node)


# Random numbers: no operator fixes a generator, so what follows one is counted: estimates.
#
# A generator gives a number in [0, 1) for free. A normal number is made of two by Box and Muller:
# sqrt(-2 * log(u)) * cos(2 * pi * v).

UNIFORM = Cost(muls=1, adds=1)
NORMAL = Cost(muls=4, specials=3, adds=1)

_UNIFORM = "n(output)*(mul, add) after a generator that is not counted"
_NORMAL = "n(output)*(log, sqrt, cos, 4 muls, add) after a generator that is not counted"
operator(
    ("RandomUniform", "RandomUniformLike"),
    _UNIFORM,
    doubt=estimate_exactness,
    backward=no_gradient,
)(formula_per_output_element(UNIFORM))
operator(
    ("RandomNormal", "RandomNormalLike"), _NORMAL, doubt=estimate_exactness, backward=no_gradient
)(formula_per_output_element(NORMAL))
operator(
    "Bernoulli",
    f"{_UNIFORM}; n(output) compares",
    since=15,
    doubt=estimate_exactness,
    backward=no_gradient,
)(formula_per_output_element(UNIFORM + COMPARE))


@operator(
    "Multinomial",
    "n(input) exps, B*(C-1) adds, n(output)*(mul, ceil(log2 C) compares)",
    since=7,
    doubt=estimate_exactness,
    requires=rank_constraint(0, 2),
    backward=no_gradient,
)
def multinomial_cost(node: Node) -> Cost:
    """Return the estimated cost of Multinomial: running sums of B rows of C probabilities, and a
    binary search for each sample.

    n(input) exps, B*(C-1) adds; per sample a mul and ceil(log2 C) compares. input [B, C].
    https://onnx.ai/onnx/operators/onnx__Multinomial.html
    """
    rows, classes = spec_shape(input_spec(node, 0), rank=2)
    search = Cost(muls=1, compares=max(classes - 1, 0).bit_length())
    return Cost(
        specials=input_element_count(node),
        adds=reduction_operation_count(input_element_count(node), rows),
    ) + search * output_element_count(node)
