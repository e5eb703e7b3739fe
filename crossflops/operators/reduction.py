"""The cost of reductions, sorting, and writes that combine values at the same place."""

from math import prod

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    axis_attribute_index,
    input_element_count,
    integer_attribute,
    output_element_count,
    output_spec,
    reduction_operation_count,
    spec_shape,
    string_attribute,
)
from crossflops.operators.gradient import (
    Gradient,
    OperandPositions,
    backward_per_input_element,
    movement_backward,
    no_gradient,
)
from crossflops.operators.movement import scatter_elements_constraint, scatter_nd_constraint
from crossflops.operators.operands import (
    axes_constraint,
    axis_constraint,
    axis_range_problem,
    input_label,
    input_shape,
    input_shape_or_raise,
    integer_list_or_none,
    rank_constraint,
    single_number_constraint,
    sizes_constraint,
)
from crossflops.operators.pointwise import ADD, COMPARE, DIV, MUL, SPECIAL
from crossflops.operators.rule import (
    Constraint,
    Formula,
    OperandProblem,
    Operators,
    estimate_exactness,
)

operator = Operators()


def declare_reduction(
    type: str,
    equation: str,
    *,
    element: Cost = ZERO,
    combination: Cost = ADD,
    last: Cost = ZERO,
    back: tuple[Cost, Cost] | None = (ZERO, ZERO),
    requires: tuple[Constraint, ...] = (rank_constraint(1, 1), axes_constraint()),
) -> None:
    """Declare an operator that reduces n elements to m results, by its cost per element, per
    combination and per result.

    It works on n elements, combines them with n - m pieces, and ends m times. `back` is the work
    of the gradient for each of n elements and for each of m results; None: there is no gradient.
    """

    def cost_of_reduction(node: Node) -> Cost:
        """Return the cost of the reduction: per element of the input, per combination of two, and
        per result.
        """
        before, after = input_element_count(node), output_element_count(node)
        return (
            element * before
            + combination * reduction_operation_count(before, after)
            + last * after
        )

    def gradient_of_reduction(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
        """Return the cost of the gradient of the reduction, for each requested operand."""
        element, result = back or (ZERO, ZERO)
        return Gradient(
            {
                index: element * input_element_count(node) + result * output_element_count(node)
                for index in requested
            }
        )

    operator(
        type,
        f"{equation}; n = n(data), m = n(reduced)",
        requires=requires,
        backward=no_gradient if back is None else gradient_of_reduction,
    )(cost_of_reduction)


# dX = dY at the elements that are the largest, divided by how many of them there are
# (derivatives.yaml: amax): n compares, n adds that count them, n muls; a div for each result.
_EXTREME = Cost(compares=1, adds=1, muls=1)

declare_reduction("ReduceSum", "n-m adds")
declare_reduction("ReduceMean", "n-m adds, m divs", last=DIV, back=(ZERO, DIV))
declare_reduction("ReduceMax", "n-m compares", combination=COMPARE, back=(_EXTREME, DIV))
declare_reduction("ReduceMin", "n-m compares", combination=COMPARE, back=(_EXTREME, DIV))
declare_reduction("ReduceProd", "n-m muls", combination=MUL, back=(DIV, MUL))
declare_reduction(
    "ReduceL1", "n abs, n-m adds", element=COMPARE, back=(Cost(compares=2, muls=1), ZERO)
)
declare_reduction(
    "ReduceL2", "n muls, n-m adds, m sqrts", element=MUL, last=SPECIAL, back=(MUL, DIV)
)
declare_reduction("ReduceSumSquare", "n muls, n-m adds", element=MUL, back=(MUL, MUL))
declare_reduction("ReduceLogSum", "n-m adds, m logs", last=SPECIAL, back=(ZERO, SPECIAL + DIV))
declare_reduction(
    "ReduceLogSumExp",
    "n exps, n-m adds, m logs",
    element=SPECIAL,
    last=SPECIAL,
    back=(Cost(adds=1, specials=1, muls=1), ZERO),
)


def _non_empty_axis_constraint(node: Node) -> OperandProblem:
    """Return why the axis of a search for extremes is empty; "" if nothing is wrong."""
    dims, index = input_shape_or_raise(node, 0), integer_attribute(node, "axis", 0)
    if dims[index]:
        return ""
    return f"{input_label(node, 0)} has 0 at axis {index % len(dims)}, but at least 1 is needed"


_CHOICE = (axis_constraint(default=0), _non_empty_axis_constraint)
declare_reduction("ArgMax", "n-m compares", combination=COMPARE, requires=_CHOICE, back=None)
declare_reduction("ArgMin", "n-m compares", combination=COMPARE, requires=_CHOICE, back=None)


def cumulative_formula(work: Cost) -> Formula:
    """Return the formula of running sums or products (CumSum, CumProd): `work` for each element.

    The axis is a value, not a shape, so the number of first elements, which need none, is unknown.
    """

    def cost_of_input_elements(node: Node) -> Cost:
        """Return `work` times the number of elements of the input."""
        return work * input_element_count(node)

    return cost_of_input_elements


def _axis_input_constraint(node: Node) -> OperandProblem:
    """Return why the axis in input 1 is no axis of the data; "" if nothing is wrong or it is
    unknown.
    """
    index = node.values.get(1, ())
    known = len(index) == 1 and input_shape(node, 0) is not None
    return axis_range_problem(node, index[0]) if known else ""


operator(
    "CumSum",
    "n(x) adds",
    since=11,
    requires=(single_number_constraint(1), _axis_input_constraint),
    backward=backward_per_input_element(ADD),
)(cumulative_formula(ADD))
# dX = (the sums of dY Y from the other end) / X (FunctionsManual.cpp: cumprod_backward).
CUMULATIVE_PRODUCT_BACK = backward_per_input_element(MUL + ADD + DIV)
operator(
    "CumProd",
    "n(x) muls",
    since=26,
    requires=(single_number_constraint(1), _axis_input_constraint),
    backward=CUMULATIVE_PRODUCT_BACK,
)(cumulative_formula(MUL))


# Searching and sorting, whose algorithm the operators leave open: estimates.


def _log2_rounded_up(count: int) -> int:
    """Return the base-2 logarithm of a count, rounded up to an integer of at least 1."""
    return max((count - 1).bit_length(), 1)


def _largest_k_constraint(node: Node) -> OperandProblem:
    """Return why k is larger than the searched axis; "" if nothing is wrong or k is unknown."""
    dims, largest = input_shape_or_raise(node, 0), node.values.get(1, ())
    index = integer_attribute(node, "axis", -1)
    if len(largest) != 1 or dims[index] >= largest[0]:
        return ""
    return (
        f"{input_label(node, 0)} has {dims[index]} at axis {index % len(dims)}, but k is "
        f"{largest[0]}"
    )


@operator(
    "TopK",
    "n(X)*ceil(log2 k) compares, at least n(X)",
    doubt=estimate_exactness,
    requires=(axis_constraint(default=-1), sizes_constraint("X K[1]"), _largest_k_constraint),
    backward=movement_backward,
)
def top_k_cost(node: Node) -> Cost:
    """Return the estimated cost of TopK: log2 k compares (rounded up, at least 1) per element, as
    a heap of k elements takes.

    k is the extent of the result along `axis`.
    https://onnx.ai/onnx/operators/onnx__TopK.html
    """
    dims = spec_shape(output_spec(node), at_least=1)
    return Cost(
        compares=input_element_count(node)
        * _log2_rounded_up(dims[axis_attribute_index(node, len(dims), -1) % len(dims)])
    )


@operator(
    "Unique",
    "n(X)*ceil(log2 n(X)) compares",
    since=11,
    doubt=estimate_exactness,
    requires=axis_constraint(),
    backward="PyTorch has no gradient for it",
)
def unique_cost(node: Node) -> Cost:
    """Return the estimated cost of Unique: log2 n compares (rounded up) for each of n elements, as
    sorting takes.

    https://onnx.ai/onnx/operators/onnx__Unique.html
    """
    return Cost(compares=input_element_count(node) * _log2_rounded_up(input_element_count(node)))


@operator("NonZero", "n(X) compares", since=9, backward=no_gradient)
def non_zero_cost(node: Node) -> Cost:
    """Return the cost of NonZero: a compare per element.

    https://onnx.ai/onnx/operators/onnx__NonZero.html
    """
    return Cost(compares=input_element_count(node))


# Operators that write to places, where values that meet may be combined.


_REDUCTIONS: dict[str, Cost] = {
    "none": ZERO,
    "add": ADD,
    "mul": MUL,
    "max": COMPARE,
    "min": COMPARE,
}

_SCATTER = "n(updates)*(reduction: add, mul or compare; none: 0)"


def _scatter_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return gradients without work for a scatter that overwrites or adds. Raises ValueError for
    other reductions.
    """
    reduction = string_attribute(node, "reduction", "none")
    if reduction not in ("none", "add"):
        raise ValueError(f"the backward pass of {node.op} by {reduction} has no formula yet")
    return movement_backward(node, requested, ZERO)


@operator(
    "ScatterND", _SCATTER, since=11, requires=scatter_nd_constraint, backward=_scatter_backward
)
@operator(
    "ScatterElements",
    _SCATTER,
    since=11,
    requires=scatter_elements_constraint,
    backward=_scatter_backward,
)
def scatter_cost(node: Node) -> Cost:
    """Return the cost of ScatterND or ScatterElements: an add, a mul or a compare per update, as
    `reduction` says; 0 if it overwrites.

    The default "none" overwrites: 0. data, indices, updates.
    https://onnx.ai/onnx/operators/onnx__ScatterND.html
    """
    reduction = string_attribute(node, "reduction", "none")
    if reduction not in _REDUCTIONS:
        raise ValueError(f"the reduction {reduction!r} of {node.op} is not supported")
    return _REDUCTIONS[reduction] * input_element_count(node, 2)


def _image_blocks_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the input [N, C*prod(block), L], or "" if nothing is: L is the
    number of block positions.
    """
    dims, image, block = input_shape(node, 0), node.values.get(1), node.values.get(2)
    if dims is None or image is None or block is None:
        return ""
    if prod(block) and dims[1] % prod(block):
        return (
            f"{input_label(node, 0)} has {dims[1]} at axis 1, which is not a multiple of the "
            f"block {prod(block)}"
        )
    count, pads = len(image), integer_list_or_none(node, "pads") or (0,) * (2 * len(image))
    strides, dilations = (
        integer_list_or_none(node, name) or (1,) * count for name in ("strides", "dilations")
    )
    indices = 1
    for at, extent in enumerate(image):
        reach = dilations[at] * (block[at] - 1) + 1
        indices *= (extent + pads[at] + pads[at + count] - reach) // strides[at] + 1
    if dims[2] == indices:
        return ""
    return f"{input_label(node, 0)} has {dims[2]} at axis 2, but blocks have {indices} positions"


@operator(
    "Col2Im",
    "n(input) adds",
    since=18,
    requires=(
        sizes_constraint("input[N,C,L] image_shape[d] block_shape[d]"),
        _image_blocks_constraint,
    ),
    backward=movement_backward,
)
def col2im_cost(node: Node) -> Cost:
    """Return the cost of Col2Im, which adds overlapping blocks into an empty image: an add per
    element of the input.

    What falls into the padding counts (dense). input [N, C * prod(block), L].
    https://onnx.ai/onnx/operators/onnx__Col2Im.html
    """
    return Cost(adds=input_element_count(node))
