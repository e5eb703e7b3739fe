"""The cost of onnxruntime's operators on small integers: a real operator between a dequantization
and a quantization.

A factor that scales and zero points give alone (x_scale / y_scale) is known before and not
counted. Positions: X, X_scale, X_zero_point, and then the next operand or the output's scale.
"""

from math import prod

import msgspec

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    axis_attribute_index,
    has_input,
    input_element_count,
    input_spec,
    integer_attribute,
    kernel_window_size,
    output_element_count,
    positive_integer_attribute,
    reduction_operation_count,
    spec_shape,
)
from crossflops.operators.contrib.attention import (
    attention_score_cost,
    dense_score_sizes,
    width_per_head,
)
from crossflops.operators.convolution_and_pooling import (
    QLINEAR_CONV,
    pooling_pads_constraint,
    qlinear_conv_cost,
    window_constraint,
)
from crossflops.operators.gradient import QUANTIZED
from crossflops.operators.matmul import onnx_matmul_cost
from crossflops.operators.movement import concat_inputs_problem
from crossflops.operators.normalization import layer_normalization_cost, softmax_cost
from crossflops.operators.operands import (
    axes_constraint,
    axis_constraint,
    broadcast_constraint_on,
    first_problem_constraint,
    inner_axis_constraint,
    input_label,
    input_shape,
    rank_constraint,
    shape_constraint,
    single_number_constraint,
    sizes_constraint,
)
from crossflops.operators.pointwise import ADD, COMPARE, GELU, MUL, SPECIAL
from crossflops.operators.quantization import (
    SCALES,
    STRAIGHT,
    STRAIGHT_BACK,
    dequantize_linear_cost,
    quantize_linear_cost,
    requantization_cost,
)
from crossflops.operators.rule import MICROSOFT, NHWC, Formula, OperandProblem, Operators

operator = Operators(MICROSOFT, backward=QUANTIZED)


operator(
    "QuantizeLinear",
    "n(x)*(div, round, 2 compares); zero point: n(x) adds",
    requires=SCALES,
    backward=STRAIGHT,
)(quantize_linear_cost)
operator(
    "DequantizeLinear",
    "n(x) muls; zero point: n(x) adds",
    operand=1,
    requires=SCALES,
    backward=STRAIGHT_BACK,
)(dequantize_linear_cost)
operator("QuantizeWithOrder", "n(x)*(div, round, 2 compares)")(quantize_linear_cost)
operator("DequantizeWithOrder", "n(x) muls", operand=1)(dequantize_linear_cost)


def dequantization_cost(node: Node, index: int, zero_point: int) -> Cost:
    """Return the cost of (x - zero_point) * scale for an input: a mul per element, and an add if
    the zero point is given.
    """
    return Cost(muls=1, adds=int(has_input(node, zero_point))) * input_element_count(node, index)


def quantization_cost(node: Node, zero_point: int) -> Cost:
    """Return the cost of saturate(round(y / scale) + zero_point) for one element: a div, a round,
    2 compares and an add.
    """
    return Cost(divs=1, specials=1, compares=2, adds=int(has_input(node, zero_point)))


_BINARY = (
    broadcast_constraint_on(0, 3),
    *(rank_constraint(index, 0) for index in (1, 2, 4, 5, 6, 7)),
)

_DEQUANTIZE = "n(X)*(mul; zero point: add)"
_QUANTIZE = "n(Y)*(div, round, 2 compares; zero point: add)"


@operator("QLinearAdd", f"{_DEQUANTIZE} of A and B, n(C) adds, {_QUANTIZE} of C", requires=_BINARY)
def qlinear_add_cost(node: Node) -> Cost:
    """Return the cost of QLinearAdd, (sA * (A - zA) + sB * (B - zB)) / sC + zC: A and B
    dequantized, added, quantized.

    n(A) and n(B) dequantized, n(C) adds, n(C) quantized.
    """
    operands = dequantization_cost(node, 0, 2) + dequantization_cost(node, 3, 5)
    return operands + (ADD + quantization_cost(node, 7)) * output_element_count(node)


_REQUANTIZE = "n(Y)*(mul, round, add, 2 compares)"


@operator(
    "QLinearMul", f"zero points: n(A)+n(B) adds; n(C) muls; {_REQUANTIZE} of C", requires=_BINARY
)
def qlinear_mul_cost(node: Node) -> Cost:
    """Return the cost of QLinearMul, (A - zA) * (B - zB) * (sA * sB / sC) + zC: zero points, a
    mul, requantized results.

    Zero points n(A) + n(B) adds, n(C) muls, n(C) requantized.
    """
    shifted = sum(input_element_count(node, i) for i in (0, 3) if has_input(node, i + 2))
    out = output_element_count(node)
    return Cost(adds=shifted, muls=out) + requantization_cost(out)


@operator(
    "MulInteger", "zero points: n(A)+n(B) adds; n(C) muls", requires=broadcast_constraint_on(0, 2)
)
def mul_integer_cost(node: Node) -> Cost:
    """Return the cost of MulInteger, (A - zA) * (B - zB): an add per element for each zero point,
    a mul per result.
    """
    shifted = input_element_count(node, 0) * has_input(node, 1) + input_element_count(
        node, 2
    ) * has_input(node, 3)
    return Cost(adds=shifted, muls=output_element_count(node))


def qlinear_formula(work: Cost, zero_point: int = 4) -> Formula:
    """Return the formula of an operator that dequantizes X, does `work` per result element, and
    quantizes the result.
    """

    def cost_with_quantization(node: Node) -> Cost:
        """Return the cost of a node: dequantizing its input, then `work` and a quantization for
        each result element.
        """
        return dequantization_cost(node, 0, 2) + (
            work + quantization_cost(node, zero_point)
        ) * output_element_count(node)

    return cost_with_quantization


_SCALES = single_number_constraint(1, 2, 3, 4)
operator("QLinearLeakyRelu", f"{_DEQUANTIZE}, n*(compare, mul), {_QUANTIZE}", requires=_SCALES)(
    qlinear_formula(COMPARE + MUL)
)
operator("QLinearSigmoid", f"{_DEQUANTIZE}, n sigmoids, {_QUANTIZE}", requires=_SCALES)(
    qlinear_formula(SPECIAL)
)


@operator(
    "QLinearSoftmax",
    f"{_DEQUANTIZE}, n-m compares, n subs, n exps, n-m adds, n divs, {_QUANTIZE}",
    requires=(axis_constraint(default=-1), single_number_constraint(1, 2, 3, 4)),
)
def qlinear_softmax_cost(node: Node) -> Cost:
    """Return the cost of QLinearSoftmax: a Softmax between a dequantization and a quantization."""
    dims = spec_shape(input_spec(node, 0), at_least=1)
    axis = axis_attribute_index(node, len(dims), -1)
    groups = prod(dims[:axis])
    if integer_attribute(node, "opset", 13) >= 13:
        if axis == len(dims):
            raise ValueError(f"axis {axis} of {node.op} is out of range")
        groups *= prod(dims[axis + 1 :])
    return qlinear_formula(ZERO)(node) + softmax_cost(prod(dims), groups)


@operator(
    "QLinearWhere",
    f"n(Z)*(mul, add), {_QUANTIZE} of Z",
    operand=1,
    requires=(broadcast_constraint_on(0, 1, 4), single_number_constraint(2, 3, 5, 6, 7, 8)),
)
def qlinear_where_cost(node: Node) -> Cost:
    """Return the cost of QLinearWhere: each chosen element of X or Y is dequantized and
    quantized.
    """
    return (Cost(muls=1, adds=1) + quantization_cost(node, 8)) * output_element_count(node)


def _qlinear_concat_constraint(node: Node) -> OperandProblem:
    """Return why the operands of a quantized Concat do not fit; "" if nothing is wrong.

    Checks the concatenated operands, inputs 2, 5, 8 ..., each followed by its scale and zero
    point.
    """
    scales = (index for index in range(len(node.inputs)) if index < 2 or index % 3 != 2)
    return concat_inputs_problem(node, range(2, len(node.inputs), 3)) or single_number_constraint(
        *scales
    )(node)


@operator(
    "QLinearConcat",
    f"n(Y)*(mul, add), {_QUANTIZE}",
    operand=2,
    requires=_qlinear_concat_constraint,
)
def qlinear_concat_cost(node: Node) -> Cost:
    """Return the cost of QLinearConcat: each element is dequantized by the scale of its input, and
    quantized.
    """
    return (Cost(muls=1, adds=1) + quantization_cost(node, 1)) * output_element_count(node)


_SCALARS = first_problem_constraint(*(rank_constraint(index, 0) for index in (1, 2, 3, 4)))
_POOL = first_problem_constraint(
    _SCALARS, window_constraint(min_windows=0), pooling_pads_constraint
)
_POOL_LAST = first_problem_constraint(
    _SCALARS, window_constraint(min_windows=0, channels="last"), pooling_pads_constraint
)


def _qlinear_pool_constraint(node: Node) -> OperandProblem:
    """Return why QLinearAveragePool does not fit, also with channels last; "" if nothing
    is wrong.
    """
    return (_POOL_LAST if integer_attribute(node, "channels_last", 0) else _POOL)(node)


_AVERAGE = f"n(Y)*(prod(k)-1) adds; zero point: n(X) adds; {_REQUANTIZE}"


@operator("QLinearAveragePool", _AVERAGE, requires=_qlinear_pool_constraint)
@operator("QLinearAveragePool", _AVERAGE, domain=NHWC)
def qlinear_average_pool_cost(node: Node) -> Cost:
    """Return the cost of QLinearAveragePool: adds in each window, an add for the zero point,
    requantized results.

    The division by prod(k) is part of the factor.
    """
    summed = output_element_count(node) * (kernel_window_size(node) - 1)
    return Cost(
        adds=summed + input_element_count(node) * has_input(node, 2)
    ) + requantization_cost(output_element_count(node))


@operator(
    "QLinearGlobalAveragePool",
    f"n(X)-n(Y) adds; zero point: n(X) adds; {_REQUANTIZE}",
    requires=(rank_constraint(0, 3, or_higher=True), single_number_constraint(1, 2, 3, 4)),
)
def qlinear_global_average_pool_cost(node: Node) -> Cost:
    """Return the cost of QLinearGlobalAveragePool: the sum of each channel, an add for the zero
    point, requantized results.
    """
    summed = reduction_operation_count(input_element_count(node), output_element_count(node))
    return Cost(
        adds=summed + input_element_count(node) * has_input(node, 2)
    ) + requantization_cost(output_element_count(node))


@operator(
    "QLinearReduceMean",
    f"{_DEQUANTIZE}, n-m adds, m divs, {_QUANTIZE}",
    requires=axes_constraint(input_index=-1),
)
def qlinear_reduce_mean_cost(node: Node) -> Cost:
    """Return the cost of QLinearReduceMean: n elements dequantized, n - m adds, m divs, m results
    quantized.
    """
    summed = Cost(
        adds=reduction_operation_count(input_element_count(node), output_element_count(node)),
        divs=output_element_count(node),
    )
    return (
        dequantization_cost(node, 0, 2)
        + summed
        + quantization_cost(node, 4) * output_element_count(node)
    )


@operator("ReduceSumInteger", "n-m adds", requires=axes_constraint(input_index=-1))
def reduce_sum_integer_cost(node: Node) -> Cost:
    """Return the cost of ReduceSumInteger of n elements to m results: n - m adds."""
    return Cost(
        adds=reduction_operation_count(input_element_count(node), output_element_count(node))
    )


def _block_gather_constraint(node: Node) -> OperandProblem:
    """Return why the packed data and scales of a gather do not fit; "" if nothing is wrong.

    Checks that data holds 8 / bits elements in a byte along its last axis, with a scale for each
    block.

    scales have the sizes of the data, except for the number of blocks along quantize_axis;
    zero_points have those of the scales, packed as the data are.
    """
    spec, scales = node.inputs[0], input_shape(node, 2)
    if spec is None or spec.shape is None or scales is None:
        return ""
    if len(spec.shape) < 2:
        return f"{input_label(node, 0, 'data')} has rank {len(spec.shape)}, but needs at least 2"
    packed = 8 // positive_integer_attribute(node, "bits", 4) if spec.dtype == "uint8" else 1
    unpacked = [*spec.shape[:-1], spec.shape[-1] * packed]
    index = integer_attribute(node, "quantize_axis", 1)
    unpacked[index] = -(-unpacked[index] // positive_integer_attribute(node, "block_size", 128))
    zeros = (*unpacked[:-1], -(-unpacked[-1] // packed))
    return first_problem_constraint(
        shape_constraint(2, lambda _: [tuple(unpacked)], "scales"),
        shape_constraint(3, lambda _: [zeros], "zero_points"),
    )(node)


@operator(
    "GatherBlockQuantized",
    "n(output)*(mul, sub)",
    requires=(
        axis_constraint(0, 0, name="gather_axis"),
        axis_constraint(0, 1, name="quantize_axis"),
        _block_gather_constraint,
    ),
    traffic="gather",
)
def gather_block_quantized_cost(node: Node) -> Cost:
    """Return the cost of GatherBlockQuantized: a sub and a mul to dequantize each gathered
    element.

    Without zero_points the middle of the range is taken off, unless data is signed.
    """
    signed = input_spec(node, 0).dtype.startswith("int")
    shift = ADD if has_input(node, 3) or not signed else ZERO
    return (MUL + shift) * output_element_count(node)


_LAST = first_problem_constraint(
    sizes_constraint(
        "g=@group:1 x[N,...,g*I] x_scale?[1] x_zero_point?[1] w[g*P,I,...] w_scale?[g*P] "
        "w_zero_point?[g*P] y_scale?[1] y_zero_point?[1] B[g*P]"
    ),
    window_constraint(weight=3, channels="last"),
)


def _channels_last_conv_constraint(node: Node) -> OperandProblem:
    """Return why a QLinearConv with channels last (com.microsoft) does not fit its operands; "" if
    nothing is wrong.
    """
    if integer_attribute(node, "channels_last", 0):
        return _LAST(node)
    return first_problem_constraint(*QLINEAR_CONV)(node)


operator(
    "QLinearConv",
    "n(y)*(C/group)*prod(k) MACs; B: n(y) adds; zero points: n(x)+n(w) adds; "
    f"requantize: {_REQUANTIZE}",
    requires=_channels_last_conv_constraint,
    contracts=(0, 3),
)(qlinear_conv_cost)

# The operators in the tile orders of one device's eight-bit products: QOrdered*.
#
# They quantize without zero points: a factor, a rounding and two compares.


_ROUND = Cost(muls=1, specials=1, compares=2)


@operator(
    "QOrderedMatMul",
    "n(Y)*K MACs; bias: n(Y) adds; C: n(Y)*(mul, add); n(Y)*(mul, round, 2 compares)",
    requires=(
        inner_axis_constraint(0, 2),
        sizes_constraint("A[...,K] scale_A B[...,K,N] scale_B scale_Y bias[N]"),
    ),
    contracts=(0, 2),
)
def contrib_qordered_matmul_cost(node: Node) -> Cost:
    """Return the cost of QOrderedMatMul: K MACs per element of the result, with bias, C and
    quantization.

    bias n(Y) adds, C n(Y) (mul, add), then n(Y) (mul, round, 2 compares).
    """
    residual = (MUL + ADD) if has_input(node, 6) else ZERO
    bias = ADD if has_input(node, 5) else ZERO
    return onnx_matmul_cost(node) + (residual + bias + _ROUND) * output_element_count(node)


@operator("QOrderedGelu", "n*(mul + div, erf, add, 2 muls + mul, round, 2 compares)")
def contrib_qordered_gelu_cost(node: Node) -> Cost:
    """Return the cost of QOrderedGelu: a Gelu between a scaling and a quantization without zero
    points.
    """
    return (MUL + GELU + _ROUND) * output_element_count(node)


@operator(
    "QOrderedLayerNormalization",
    "n muls, LayerNormalization, n*(mul, round, 2 compares)",
    requires=sizes_constraint("X[...,H] scale_X scale[H] B[H]"),
)
def contrib_qordered_norm_cost(node: Node) -> Cost:
    """Return the cost of QOrderedLayerNormalization: a LayerNormalization between a scaling and a
    quantization.
    """
    bias = Cost(adds=input_element_count(node, 0) if has_input(node, 3) else 0)
    plain = msgspec.structs.replace(node, inputs=node.inputs[:1])
    return layer_normalization_cost(plain) + bias + (MUL + _ROUND) * output_element_count(node)


@operator(
    "QOrderedAttention",
    "B*S*in*(Hq+Hk+Hv) + S*(D+Dv) MACs, S = B*N*S*T; biases: n(QKV) adds; as Attention; "
    "(n(QKV) + n(output) + 2S)*(mul, round, 2 compares)",
    requires=sizes_constraint(
        "input[B,S,I] s s s s q[I,Q] k[I,K] v[I,V] s s s q_bias[Q] k_bias[K] v_bias[V]"
    ),
    contracts=(0, 5),
)
def contrib_qordered_attention_cost(node: Node) -> Cost:
    """Return the cost of QOrderedAttention: as Attention, with projections, scores and results
    quantized.

    n(QKV), n(output) and twice S, before and after the softmax, (mul, round, 2 compares).
    """
    batch, length, width = spec_shape(input_spec(node, 0), rank=3)
    widths = [spec_shape(input_spec(node, i), rank=2)[1] for i in (5, 6, 7)]
    heads, tokens = positive_integer_attribute(node, "num_heads"), batch * length
    past = spec_shape(input_spec(node, 18), at_least=4)[-2] if has_input(node, 18) else 0
    depths = [width_per_head(size, heads, node) for size in widths]
    scores = dense_score_sizes(heads * tokens, past + length, depths[0], depths[2])
    masked = has_input(node, 17) or integer_attribute(node, "unidirectional", 0) != 0
    projected = Cost(macs=width, adds=1) * (tokens * sum(widths))
    rounded = _ROUND * (tokens * (sum(widths) + widths[2]) + 2 * scores.size)
    return projected + rounded + attention_score_cost(scores, masked + has_input(node, 19))
