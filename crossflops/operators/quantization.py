"""The cost of conversions between real numbers and small integers."""

from math import prod

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import has_input, input_element_count, integer_attribute
from crossflops.operators.gradient import QUANTIZED, first_operand_backward
from crossflops.operators.operands import input_label, input_shape_or_raise
from crossflops.operators.rule import OperandProblem, Operators

operator = Operators()


def requantization_cost(count: int) -> Cost:
    """Return the cost of turning `count` sums into small integers: a mul, a round, an add and 2
    compares each.
    """
    return Cost(muls=1, specials=1, adds=1, compares=2) * count


def scale_shape_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the scales, or "" if nothing is: one for all, one per index along
    `axis`, or one per block along it.
    """
    dims, scale = input_shape_or_raise(node, 0), input_shape_or_raise(node, 1)
    if scale in ((), (1,)):
        return ""
    axis, block = integer_attribute(node, "axis", 1), integer_attribute(node, "block_size", 0)
    if not -len(dims) <= axis < len(dims):
        return (
            f"axis {axis} is out of range for {input_label(node, 0)}, which has rank {len(dims)}"
        )
    if block > 0:
        index = axis % len(dims)
        blocks = (*dims[:index], -(-dims[index] // block), *dims[index + 1 :])
        return (
            ""
            if scale == blocks
            else f"{input_label(node, 1)} does not have one scale for each block"
        )
    if scale == (dims[axis],):
        return ""
    has = f"{input_label(node, 0)} has {dims[axis]} at axis {axis % len(dims)}"
    return f"{has}, but {input_label(node, 1)} does not have one scale for each, or one for all"


def _zero_point_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the zero points, or "" if nothing is: one for each scale."""
    scale, zero = input_shape_or_raise(node, 1), input_shape_or_raise(node, 2)
    if scale == zero or prod(scale) == prod(zero) == 1:
        return ""
    return f"{input_label(node, 2)} does not have the shape of {input_label(node, 1)}"


SCALES = (scale_shape_constraint, _zero_point_constraint)
# Straight through (1308.3432): rounding has the gradient of what it rounds, and a value beyond the
# bounds none. One mask is multiplied, as in fake_quantize_per_tensor_affine_cachemask_backward of
# derivatives.yaml: the scale of one operator and the inverse scale of the other are 1.
STRAIGHT = first_operand_backward(lambda node: Cost(muls=input_element_count(node)))
STRAIGHT_BACK = first_operand_backward(lambda _node: ZERO)


@operator(
    "QuantizeLinear",
    "n(x)*(div, round, 2 compares); zero point: n(x) adds",
    since=10,
    requires=SCALES,
    backward=STRAIGHT,
)
def quantize_linear_cost(node: Node) -> Cost:
    """Return the cost of QuantizeLinear, saturate(round(x / y_scale) + y_zero_point), per element.

    n(x) * (div, round, 2 compares); a zero point n(x) adds.
    https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
    """
    shift = 1 if has_input(node, 2) else 0
    return Cost(divs=1, specials=1, compares=2, adds=shift) * input_element_count(node)


@operator(
    "DequantizeLinear",
    "n(x) muls; zero point: n(x) adds",
    operand=1,
    since=10,
    requires=SCALES,
    backward=STRAIGHT_BACK,
)
def dequantize_linear_cost(node: Node) -> Cost:
    """Return the cost of DequantizeLinear, (x - x_zero_point) * x_scale, per element.

    n(x) muls; a zero point n(x) adds.
    https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html
    """
    return Cost(muls=1, adds=1 if has_input(node, 2) else 0) * input_element_count(node)


@operator(
    "DynamicQuantizeLinear",
    "2(n-1) compares + (4 compares, 2 adds, 2 divs, 1 round) + n*(div, round, add, 2 compares)",
    since=11,
    backward=QUANTIZED,
)
def dynamic_quantize_linear_cost(node: Node) -> Cost:
    """Return the cost of DynamicQuantizeLinear: the range of x, scale and zero point from it, then
    QuantizeLinear.

    2 * (n - 1) compares; once: 4 compares, 2 adds, 2 divs, 1 round; n * (div, round, add, 2
    compares). From the function body of the operator.
    https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html
    """
    count = input_element_count(node)
    spread = Cost(compares=2 * max(count - 1, 0))
    once = Cost(compares=4, adds=2, divs=2, specials=1)
    return spread + once + Cost(divs=1, specials=1, adds=1, compares=2) * count
