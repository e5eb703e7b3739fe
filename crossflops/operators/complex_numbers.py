"""The cost of PyTorch operators on complex numbers, which the exporter converts only for real ones
and keeps as one node.

The last axis of a complex tensor holds its two parts, as everywhere in such an export.
"""

from crossflops.ir.graph import Node
from crossflops.ir.ledger import Cost
from crossflops.operators.access import (
    float_attribute,
    input_element_count,
    input_spec,
    integer_attribute,
    output_element_count,
    spec_shape,
)
from crossflops.operators.aten import addmm_backward
from crossflops.operators.gradient import (
    Backward,
    Gradient,
    OperandPositions,
    backward_per_input_element,
    broadcast_sum_cost,
    first_operand_backward,
    linear_map_backward,
    movement_backward,
    no_gradient,
    product_backward,
)
from crossflops.operators.movement import MOVED, movement_cost
from crossflops.operators.operands import input_label, input_shape_or_raise
from crossflops.operators.rule import (
    TORCH,
    TORCH_PAGES,
    Formula,
    OperandProblem,
    Operators,
    estimate_exactness,
)

operator = Operators(TORCH)


def _inner_size_problem(node: Node, first: int) -> OperandProblem:
    """Return why the inner sizes of two complex matrices differ (inputs `first` and the next one);
    "" if they are equal.

    They are read before the axis of the two parts.
    """
    left, right = input_shape_or_raise(node, first), input_shape_or_raise(node, first + 1)
    across = right[-2] if len(right) == 2 else right[-3]
    if left[-2] == across:
        return ""
    return (
        f"{input_label(node, first)} has rows of "
        f"{left[-2]}, {input_label(node, first + 1)} {across}"
    )


def _complex_inner_constraint(node: Node) -> OperandProblem:
    """Return why the inner sizes of the two factors of a complex product differ; "" if they are
    equal.
    """
    return _inner_size_problem(node, 0)


def _addmm_inner_size_constraint(node: Node) -> OperandProblem:
    """Return why the inner sizes of the factors of beta * C + alpha * A B differ, inputs C, A, B;
    "" if they are equal.
    """
    return _inner_size_problem(node, 1)


# What moves numbers, by the function's page: the overloads of its operators.
_MOVES = {
    "Tensor.expand": ("aten.expand.default",),
    "Tensor.copy_": (
        "aten._to_copy.default",
        "aten.lift_fresh_copy.default",
        "aten.detach.default",
    ),
    "Tensor.to": ("prims.convert_element_type.default",),
    "Tensor.repeat": ("aten.repeat.default",),
    "Tensor.unfold": ("aten.unfold.default",),
    "Tensor.masked_fill": ("aten.masked_fill.Scalar", "aten.masked_fill.Tensor"),
    "as_strided": ("aten.as_strided.default",),
    "diag_embed": ("aten.diag_embed.default",),
    "diagonal": ("aten.diagonal.default", "aten.diagonal_copy.default"),
    "gather": ("aten.gather.default",),
    "index_select": ("aten.index_select.default",),
    "masked_select": ("aten.masked_select.default",),
    "nn.functional.pad": ("aten.pad.default", "aten.constant_pad_nd.default"),
    "ones_like": ("aten.ones_like.default",),
    "Tensor.new_full": (
        *("aten.new_full.default", "aten.new_zeros.default", "aten.new_ones.default"),
        *("aten.new_empty.default", "aten.full_like.default", "aten.empty_like.default"),
    ),
    "repeat_interleave": (
        "aten.repeat_interleave.self_int",
        "aten.repeat_interleave.self_Tensor",
        "aten.repeat_interleave.Tensor",
    ),
    "scatter": ("aten.scatter.src", "aten.scatter.value"),
    "select": ("aten.select.int",),
    "squeeze": ("aten.squeeze.default", "aten.squeeze.dims"),
    "Tensor.view": ("aten.reshape.default", "aten.alias.default", "aten.view.dtype"),
    "Tensor.index_put": ("aten.index.Tensor",),
    "tile": ("aten.tile.default",),
    "tril": ("aten.tril.default",),
    "triu": ("aten.triu.default",),
    "unsqueeze": ("aten.unsqueeze.default",),
    "where": ("aten.where.self",),
    "zeros_like": ("aten.zeros_like.default",),
}
for page, names in _MOVES.items():
    operator(names, MOVED, page=f"{TORCH_PAGES}{page}.html", backward=movement_backward)(
        movement_cost
    )

# Those that give a list of views: each part is read where it is taken from the list.
for page, names in {
    "split": ("split.Tensor", "split_with_sizes.default"),
    "unbind": ("unbind.int",),
}.items():
    operator(
        (f"aten.{name}" for name in names),
        MOVED,
        page=f"{TORCH_PAGES}{page}.html",
        traffic="view",
        backward=movement_backward,
    )(movement_cost)


@operator(
    "aten.index_put.default",
    "0: data movement; accumulate: n(values) adds",
    page=f"{TORCH_PAGES}Tensor.index_put.html",
    backward=movement_backward,
)
def complex_index_put_cost(node: Node) -> Cost:
    """Return the cost of aten.index_put on complex numbers: 0; if it accumulates, an add for each
    part of each value.

    Then the values are the last input.
    https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_put.html
    """
    added = (
        input_element_count(node, len(node.inputs) - 1)
        if integer_attribute(node, "accumulate", 0)
        else 0
    )
    return Cost(adds=added)


# Functions of a complex number z = a + ib, by the functions of real numbers that they are made of.
# A function of two arguments stands for the exporter's own: w / z with 6 muls, 3 adds, 2 divs.
_PRODUCT = Cost(muls=4, adds=2)
_QUOTIENT = Cost(muls=6, adds=3, divs=2)
_SUM = Cost(adds=2)
_SCALED = Cost(muls=2)
_EXP = Cost(specials=3, muls=2)
_LOG = Cost(specials=3, muls=2, adds=1)
_RECIPROCAL = Cost(muls=2, adds=2, divs=2)
_SQRT = Cost(specials=3, muls=4, adds=3, compares=1)
_SIN = Cost(specials=4, muls=2)
_TAN = Cost(specials=4, muls=2, adds=1, divs=2)

# By the function: what it costs for each number, how that is said, and its derivative times the
# gradient of the result, as derivatives.yaml has it (a conjugate is a sign, and no work).
_ONE = Cost(adds=1)
_FUNCTIONS: dict[str, tuple[Cost, str, Cost | str]] = {
    "exp": (_EXP, "3 specials, 2 muls: e^a (cos b + i sin b)", _PRODUCT),
    "expm1": (_EXP + _ONE, "as exp, add", _ONE + _PRODUCT),
    "exp2": (_SCALED + _EXP, "2 muls, exp", _PRODUCT + _SCALED),
    "log": (_LOG, "3 specials, 2 muls, add: log |z| + i atan2(b, a)", _QUOTIENT),
    "log1p": (_LOG + _ONE, "add, log", _ONE + _QUOTIENT),
    "log2": (_LOG + Cost(divs=2), "log, 2 divs", _SCALED + _QUOTIENT),
    "log10": (_LOG + Cost(divs=2), "log, 2 divs", _SCALED + _QUOTIENT),
    "sqrt": (
        _SQRT,
        "3 sqrts, 4 muls, 3 adds, compare: sqrt((|z| + a)/2) +- i sqrt((|z| - a)/2)",
        _SCALED + _QUOTIENT,
    ),
    "rsqrt": (
        _SQRT + _RECIPROCAL,
        "sqrt, and its reciprocal: 2 muls, 2 adds, 2 divs",
        _PRODUCT * 3 + _SCALED,
    ),
    "sin": (_SIN, "4 specials, 2 muls: sin a cosh b + i cos a sinh b", _SIN + _ONE + _PRODUCT),
    "cos": (
        _SIN + _ONE,
        "4 specials, 2 muls, add: cos a cosh b - i sin a sinh b",
        _SIN + _SUM + _PRODUCT,
    ),
    "sinh": (_SIN, "4 specials, 2 muls: sinh a cos b + i cosh a sin b", _SIN + _PRODUCT),
    "cosh": (_SIN, "4 specials, 2 muls: cosh a cos b + i sinh a sin b", _SIN + _PRODUCT),
    "tan": (
        _TAN,
        "4 specials, 2 muls, add, 2 divs: (sin 2a + i sinh 2b)/(cos 2a + cosh 2b)",
        _PRODUCT * 2 + _ONE,
    ),
    "tanh": (
        _TAN,
        "4 specials, 2 muls, add, 2 divs: (sinh 2a + i sin 2b)/(cosh 2a + cos 2b)",
        _PRODUCT * 2 + _ONE,
    ),
    "sigmoid": (
        Cost(adds=3) + _EXP + _RECIPROCAL,
        "3 adds, exp, reciprocal: 1/(1 + e^-z)",
        _PRODUCT * 2 + _ONE,
    ),
    "silu": (
        Cost(adds=3) + _EXP + _RECIPROCAL + _PRODUCT,
        "sigmoid, product: z/(1 + e^-z)",
        "PyTorch has no gradient for it",
    ),
}


def _backward_per_complex_number(*work: Cost) -> Backward:
    """Return a backward function with this cost per complex number of the result: one cost for
    each operand, the last for all further ones.
    """

    def gradient_per_complex_number(
        node: Node, requested: OperandPositions, _forward: Cost
    ) -> Gradient:
        """Return the cost of the gradients: `work` per complex number of the result, plus sums
        over broadcast axes.
        """
        count = output_element_count(node) // 2
        return Gradient(
            {
                index: work[min(index, len(work) - 1)] * count + broadcast_sum_cost(node, index)
                for index in requested
            }
        )

    return gradient_per_complex_number


def _formula_per_complex_number(cost: Cost) -> Formula:
    """Return a formula that counts `cost` for each complex number of the result."""

    def cost_per_complex_number(node: Node) -> Cost:
        """Return `cost` times the number of complex numbers in the result, whose two parts are the
        last axis.

        It is from textbook formulas: an estimate.
        """
        return cost * (output_element_count(node) // 2)

    return cost_per_complex_number


def _complex_compare_cost(node: Node) -> Cost:
    """Return the cost of comparing complex numbers: 2 compares for each element of the result."""
    return Cost(compares=2 * output_element_count(node))


for name, (cost, words, back) in _FUNCTIONS.items():
    operator(
        f"aten.{name}.default",
        f"per z: {words}",
        page=f"{TORCH_PAGES}{name}.html",
        doubt=estimate_exactness,
        backward=back if isinstance(back, str) else _backward_per_complex_number(back),
    )(_formula_per_complex_number(cost))

operator(
    (
        *("prims.conj_physical.default", "aten.conj_physical.default"),
        "aten._conj_physical.default",
    ),
    "per z: a negation, which is an add",
    page=f"{TORCH_PAGES}conj_physical.html",
    backward=linear_map_backward,
)(_formula_per_complex_number(Cost(adds=1)))
operator(
    (f"aten.{name}" for name in ("eq.Tensor", "eq.Scalar", "ne.Tensor", "ne.Scalar")),
    "per z: 2 compares",
    page=f"{TORCH_PAGES}eq.html",
    backward=no_gradient,
)(_complex_compare_cost)
operator(
    "aten.isnan.default",
    "per z: 2 compares",
    page=f"{TORCH_PAGES}isnan.html",
    backward=no_gradient,
)(_complex_compare_cost)


@operator(
    "aten.linalg_vector_norm.default.complex",
    "n(x) muls, n(x)-m adds, m sqrts",
    page=f"{TORCH_PAGES}linalg.vector_norm.html",
    backward=first_operand_backward(
        lambda node: Cost(muls=input_element_count(node), divs=output_element_count(node))
    ),
)
def complex_norm_cost(node: Node) -> Cost:
    """Return the cost of the 2-norm of complex numbers: the square root of the sum of the squares
    of all parts.

    https://docs.pytorch.org/docs/stable/generated/torch.linalg.vector_norm.html
    """
    if float_attribute(node, "ord", 2.0) != 2:
        raise ValueError("norms of another order than 2 are not counted")
    parts, results = input_element_count(node), output_element_count(node)
    return Cost(muls=parts, adds=parts - results, specials=results)


def _complex_pow_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradients of a complex power, for each requested operand.

    z^2: dY 2 z; z^p: dY p z^(p-1); c^z: dY Y log c; w^z: dY z w^(z-1), and dY Y log w.

    Source: pow_backward, pow_backward_self and pow_backward_exponent of FunctionsManual.cpp.
    """
    if "exponent" in node.attrs:
        squared = float_attribute(node, "exponent", 0.0) == 2
        below = Cost() if squared else _LOG + _SCALED + _EXP
        return _backward_per_complex_number(below + _SCALED + _PRODUCT)(node, requested, forward)
    if float_attribute(node, "self_", 0.0) > 0:
        return _backward_per_complex_number(_PRODUCT + _SCALED)(node, requested, forward)
    base = _ONE + _LOG + _PRODUCT + _EXP + _PRODUCT * 2
    return _backward_per_complex_number(base, _LOG + _PRODUCT * 2)(node, requested, forward)


@operator(
    ("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar"),
    "per z: z^2: 4 muls, 2 adds; z^p: log, exp, 2 muls; c^z: exp, 2 muls; w^z: log, product, exp",
    page=f"{TORCH_PAGES}pow.html",
    doubt=estimate_exactness,
    backward=_complex_pow_backward,
)
def complex_power_cost(node: Node) -> Cost:
    """Return the estimated cost of aten.pow on complex numbers: z^2 as a product, z^p as exp(p log
    z), c^z as exp(z log c).

    p is a real number and c a positive one, whose log is taken once and not counted.
    https://docs.pytorch.org/docs/stable/generated/torch.pow.html
    """
    if "exponent" in node.attrs:
        element = (
            _PRODUCT if float_attribute(node, "exponent", 0.0) == 2 else _LOG + _SCALED + _EXP
        )
    elif float_attribute(node, "self_", 0.0) > 0:
        element = _SCALED + _EXP
    else:
        element = _LOG + _PRODUCT + _EXP
    return element * (output_element_count(node) // 2)


@operator(
    "aten.cumprod.default.complex",
    "per z: 4 muls, 2 adds",
    page=f"{TORCH_PAGES}cumprod.html",
    backward=_backward_per_complex_number(_PRODUCT + _SUM + _QUOTIENT),
)
def complex_cumprod_cost(node: Node) -> Cost:
    """Return the cost of aten.cumprod on complex numbers: a product, 4 muls and 2 adds, for each
    number.

    https://docs.pytorch.org/docs/stable/generated/torch.cumprod.html
    """
    return _PRODUCT * (output_element_count(node) // 2)


@operator(
    "aten.cumsum.default",
    "n(Y) adds",
    page=f"{TORCH_PAGES}cumsum.html",
    backward=backward_per_input_element(Cost(adds=1)),
)
def complex_cumsum_cost(node: Node) -> Cost:
    """Return the cost of aten.cumsum on complex numbers: an add for each part of each number.

    https://docs.pytorch.org/docs/stable/generated/torch.cumsum.html
    """
    return Cost(adds=output_element_count(node))


def _complex_prod_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of a product of all complex numbers: dY Y for each result,
    divided by z for each number.
    """
    return _PRODUCT * (output_element_count(node) // 2) + _QUOTIENT * (
        input_element_count(node) // 2
    )


@operator(
    ("aten.prod.default", "aten.prod.dim_int"),
    "n-m products: 4 muls, 2 adds each",
    page=f"{TORCH_PAGES}prod.html",
    backward=first_operand_backward(_complex_prod_gradient_cost),
)
def complex_prod_cost(node: Node) -> Cost:
    """Return the cost of aten.prod of n complex numbers to m results: n - m products of 4 muls and
    2 adds.

    https://docs.pytorch.org/docs/stable/generated/torch.prod.html
    """
    return _PRODUCT * ((input_element_count(node) - output_element_count(node)) // 2)


def _complex_addcmul_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradients of complex addcmul or addcdiv, for each requested operand.

    self: dY. a * b: dY b, dY a. a / b: dY / b, -dY a / b^2. By a value other than 1: 2 muls.
    """
    scaled = _SCALED if float_attribute(node, "value", 1.0) != 1 else Cost()
    above, below = _PRODUCT, _PRODUCT
    if node.op.type.startswith("aten.addcdiv"):
        above, below = _QUOTIENT, _PRODUCT * 2 + _QUOTIENT + _SUM
    return _backward_per_complex_number(Cost(), above + scaled, below + scaled)(
        node, requested, forward
    )


@operator(
    ("aten.addcmul.default", "aten.addcdiv.default"),
    "per z: product (4 muls, 2 adds) or quotient (6 muls, 3 adds, 2 divs), and a sum: 2 adds; "
    "a value other than 1: 2 muls",
    page=f"{TORCH_PAGES}addcmul.html",
    backward=_complex_addcmul_backward,
)
def complex_addcmul_cost(node: Node) -> Cost:
    """Return the cost of self + value * a * b (aten.addcmul) or self + value * a / b (addcdiv) on
    complex numbers.

    https://docs.pytorch.org/docs/stable/generated/torch.addcmul.html
    """
    element = _SUM + (_PRODUCT if node.op.type.startswith("aten.addcmul") else _QUOTIENT)
    if float_attribute(node, "value", 1.0) != 1:
        element += _SCALED
    return element * (output_element_count(node) // 2)


def _complex_index_add_backward(
    node: Node, requested: OperandPositions, forward: Cost
) -> Gradient:
    """Return the cost of the gradients of adding complex rows at indices, for each requested
    operand.

    self: dY. The source: dY at its indices, times alpha other than 1.
    """
    return Gradient(
        {index: Cost(muls=forward.muls) if index == 2 else Cost() for index in requested}
    )


@operator(
    ("aten.index_add.default", "aten.scatter_add.default"),
    "n(source) adds; alpha other than 1: n(source) muls",
    page=f"{TORCH_PAGES}Tensor.index_add.html",
    backward=_complex_index_add_backward,
)
def complex_index_add_cost(node: Node) -> Cost:
    """Return the cost of aten.index_add or scatter_add on complex numbers: an add for each part of
    each added number.

    https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_add.html
    """
    source_size = input_element_count(node, 2)
    return Cost(adds=source_size, muls=source_size * (float_attribute(node, "alpha", 1.0) != 1))


@operator(
    ("aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default"),
    "complex: 2*n(Y)*K MACs, n(Y) = 2 parts of each result",
    page=f"{TORCH_PAGES}mm.html",
    requires=_complex_inner_constraint,
    backward=product_backward(0, 1),
)
def complex_product_cost(node: Node) -> Cost:
    """Return the cost of aten.mm, bmm, mv or dot on complex numbers: 4 MACs for each product of
    two numbers.

    mm: [M, K, 2] and [K, N, 2]; bmm: [B, M, K, 2] and [B, K, N, 2]; mv: [M, K, 2] and [K, 2];
    dot: [K, 2] twice. The result has 2 parts for each number.
    https://docs.pytorch.org/docs/stable/generated/torch.mm.html
    """
    inner = spec_shape(input_spec(node, 0), at_least=2)[-2]
    return Cost(macs=2 * output_element_count(node) * inner)


@operator(
    ("aten.addmm.default", "aten.baddbmm.default"),
    "complex: 2*n(Y)*K MACs; beta: n(Y) adds; beta or alpha other than 0 and 1: n(Y) muls each",
    page=f"{TORCH_PAGES}addmm.html",
    requires=_addmm_inner_size_constraint,
    backward=addmm_backward,
)
def complex_addmm_cost(node: Node) -> Cost:
    """Return the cost of beta * C + alpha * A B on complex numbers with real factors (aten.addmm,
    baddbmm).

    As the product alone, and an add for each part of the result. C, A, B in this order.
    https://docs.pytorch.org/docs/stable/generated/torch.addmm.html
    """
    inner = spec_shape(input_spec(node, 1), at_least=3)[-2]
    beta, alpha = float_attribute(node, "beta", 1.0), float_attribute(node, "alpha", 1.0)
    scaled = (beta not in (0, 1)) + (alpha not in (0, 1))
    element = Cost(macs=2 * inner, adds=int(beta != 0), muls=scaled)
    return element * output_element_count(node)
