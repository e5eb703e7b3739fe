"""The cost of activations that onnxruntime fuses, and of its other operators on elements."""

from collections.abc import Iterable, Mapping

import msgspec

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    float_attribute,
    has_input,
    input_element_count,
    input_spec,
    integer_attribute,
    output_element_count,
    spec_shape,
    string_attribute,
)
from crossflops.operators.convolution_and_pooling import (
    POOL,
    conv_transpose_constraint,
    max_pool_cost,
    onnx_conv_transpose_cost,
)
from crossflops.operators.gradient import FUSED
from crossflops.operators.movement import (
    MOVED,
    gather_nd_constraint,
    movement_cost,
    onnx_dropout_cost,
    pad_constraint,
)
from crossflops.operators.normalization import flat_softmax_cost
from crossflops.operators.operands import (
    Shape,
    axis_range_problem,
    broadcast_constraint_on,
    constraint_by_rank,
    equal_shapes_constraint,
    input_label,
    input_shape,
    input_shape_or_raise,
    rank_constraint,
    shape_constraint,
    single_number_constraint,
    sizes_constraint,
)
from crossflops.operators.pointwise import (
    ADD,
    FUNCTIONS,
    GELU,
    GELU_TANH,
    MUL,
    SILU,
    formula_per_output_element,
    gelu_backward,
)
from crossflops.operators.reduction import unique_cost
from crossflops.operators.resampling import SAMPLED, grid_sample_cost
from crossflops.operators.rule import MICROSOFT, OperandProblem, Operators, estimate_exactness

operator = Operators(MICROSOFT, backward=FUSED)

operator("Pad", MOVED, requires=pad_constraint)(movement_cost)
operator(
    "Trilu", MOVED, requires=(rank_constraint(0, 2, or_higher=True), single_number_constraint(1))
)(movement_cost)
operator("ExpandDims", MOVED, traffic="view", requires=single_number_constraint(1))(movement_cost)
operator("GatherND", MOVED, traffic="gather", requires=gather_nd_constraint)(movement_cost)
operator("TorchEmbedding", MOVED, traffic="gather")(movement_cost)
operator(("SampleOp", "RemovePadding", "RestorePadding"), MOVED)(movement_cost)
operator("BitmaskDropout", "0 in inference", traffic="view")(onnx_dropout_cost)
operator(
    "Range", "n(Y)*(mul, add): Y = start + i * delta", requires=single_number_constraint(0, 1, 2)
)(formula_per_output_element(MUL + ADD))
operator(
    "Unique",
    "n(x)*ceil(log2 n(x)) compares",
    requires=rank_constraint(0, 1),
    doubt=estimate_exactness,
)(unique_cost)
operator(
    "GridSample",
    "N*prod(o)*d*(mul, add) + bilinear: n(Y)*(2^d muls, 2^d-1 adds); bicubic: 4^d; "
    "nearest: N*prod(o)*d rounds",
    doubt=estimate_exactness,
    requires=SAMPLED,
)(grid_sample_cost)


def _window_unfold_constraint(node: Node) -> OperandProblem:
    """Return why an axis is shorter than the windows that unfold it; "" if nothing is wrong."""
    dims, index, extent = (
        input_shape_or_raise(node, 0),
        integer_attribute(node, "dim", -1),
        integer_attribute(node, "size"),
    )
    if wrong := axis_range_problem(node, index):
        return wrong
    if 0 < extent <= dims[index]:
        return ""
    return (
        f"{input_label(node, 0)} has {dims[index]} at axis {index}, but attribute 'size' is "
        f"{extent}"
    )


operator("UnfoldTensor", MOVED, requires=_window_unfold_constraint)(movement_cost)


@operator(
    ("ComplexMul", "ComplexMulConj"),
    "n(C)/2*(4 muls, 2 adds)",
    requires=sizes_constraint("A[...,2] B[...,2]"),
)
def complex_mul_cost(node: Node) -> Cost:
    """Return the cost of ComplexMul or ComplexMulConj: 4 muls and 2 adds for each complex number
    of the result.
    """
    return Cost(muls=4, adds=2) * (output_element_count(node) // 2)


@operator(
    "CDist",
    "M*N*(K subs, K muls, K-1 adds); euclidean: M*N sqrts",
    requires=sizes_constraint("A[M,K] B[N,K]"),
)
def row_distances_cost(node: Node) -> Cost:
    """Return the cost of CDist: the distance of each row of A [M, K] to each row of B [N, K], K
    subs, K muls and K - 1 adds each.

    M*N*(K subs, K muls, K - 1 adds), euclidean a sqrt more.
    """
    rows, depth = spec_shape(input_spec(node, 0), rank=2)
    pairs = rows * spec_shape(input_spec(node, 1), rank=2)[0]
    metric = string_attribute(node, "metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise ValueError(f"the metric {metric!r} of CDist is not supported")
    root = 1 if metric == "euclidean" else 0
    return Cost(adds=depth + max(depth - 1, 0), muls=depth, specials=root) * pairs


@operator("IsAllFinite", "n compares")
def all_finite_cost(node: Node) -> Cost:
    """Return the cost of IsAllFinite: a compare for each element of every input."""
    return Cost(compares=sum(input_element_count(node, i) for i in range(len(node.inputs))))


def _pool_mask_constraint(node: Node) -> OperandProblem:
    """Return why the mask of MaxpoolWithMask does not have the sizes of the data; "" if nothing is
    wrong.
    """
    dims, mask = input_shape_or_raise(node, 0), input_shape_or_raise(node, 1)
    if len(mask) == len(dims) and mask[2:] == dims[2:]:
        return ""
    return f"{input_label(node, 1, 'M')} does not have the extents of {input_label(node, 0, 'X')}"


@operator(
    "MaxpoolWithMask", "n(Y)*(prod(k)-1) + n(X) compares", requires=(*POOL, _pool_mask_constraint)
)
def max_pool_mask_cost(node: Node) -> Cost:
    """Return the cost of MaxpoolWithMask: as MaxPool, and a compare for each element of
    the input.
    """
    return max_pool_cost(node) + Cost(compares=input_element_count(node, 0))


@operator(
    "DynamicTimeWarping",
    "M*N*(2 compares, add), the way back not counted",
    requires=constraint_by_rank(
        0, {2: sizes_constraint("input[M,N]"), 3: sizes_constraint("input[1,M,N]")}
    ),
)
def dynamic_time_warping_cost(node: Node) -> Cost:
    """Return the cost of DynamicTimeWarping: 2 compares and an add for each cell of the table; the
    way back is not counted.
    """
    return Cost(compares=2, adds=1) * input_element_count(node, 0)


def _pads_shapes(node: Node) -> Iterable[Shape] | None:
    """Return the shapes that the pads may have: two numbers for each spatial axis; None if the
    axes are unknown.
    """
    dims = input_shape(node, 0)
    return None if dims is None else [(2 * (len(dims) - 2),)]


@operator(
    "ConvTransposeWithDynamicPads",
    "n(X)*(M/group)*prod(k) MACs; B: n(Y) adds",
    requires=(
        sizes_constraint("g=@group:1 X[N,g*C,...] W[g*C,P,...] Pads[_] B[g*P]"),
        conv_transpose_constraint(padded=False),
        shape_constraint(2, _pads_shapes, "Pads"),
    ),
)
def conv_transpose_with_dynamic_pads_cost(node: Node) -> Cost:
    """Return the cost of ConvTransposeWithDynamicPads: as ConvTranspose, with the bias
    as input 3.
    """
    bias = output_element_count(node) if has_input(node, 3) else 0
    unbiased = msgspec.structs.replace(node, inputs=node.inputs[:2])
    return onnx_conv_transpose_cost(unbiased) + Cost(adds=bias)


# Activations that onnxruntime fuses: alone, behind a bias, or at the end of another operator.

# Work per element of the functions that an attribute `activation` may name.
NAMED: Mapping[str, Cost] = {
    **FUNCTIONS,
    **dict.fromkeys(("silu", "swish"), SILU),
    **dict.fromkeys(("", "none", "identity", "linear"), ZERO),
    "clip": Cost(compares=2),
    "gelu": GELU,
}


def activation_cost_by_name(node: Node, attribute: str = "activation", default: str = "") -> Cost:
    """Return the cost per element of the activation that an attribute names. Raises ValueError if
    it is unknown.
    """
    value = node.attrs.get(attribute, default)
    name = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if name.lower() not in NAMED:
        raise ValueError(f"the activation {name!r} of {node.op} is not supported")
    return NAMED[name.lower()]


@operator("Gelu", "n(Y)*(div, erf, add, 2 muls)", backward=gelu_backward)
def contrib_gelu_cost(node: Node) -> Cost:
    """Return the cost of Gelu, 0.5 * X * (1 + erf(X / sqrt(2))): a div, an erf, an add and 2 muls
    per element.
    """
    return GELU * output_element_count(node)


@operator(
    "BiasGelu", "n(C)*(div, erf, 2 adds, 2 muls)", requires=sizes_constraint("A[...,H] B[H]")
)
def bias_gelu_cost(node: Node) -> Cost:
    """Return the cost of BiasGelu, Gelu(A + B): a div, an erf, 2 adds and 2 muls per element."""
    return (GELU + ADD) * output_element_count(node)


@operator(
    "FastGelu",
    "n(Y)*(pow, tanh, 2 adds, 4 muls); bias: n(Y) adds",
    requires=sizes_constraint("X[...,H] bias[H]"),
)
def fast_gelu_cost(node: Node) -> Cost:
    """Return the cost of FastGelu, Gelu by tanh: a pow, a tanh, 2 adds and 4 muls per element;
    with a bias an add more.
    """
    return (GELU_TANH + (ADD if has_input(node, 1) else ZERO)) * output_element_count(node)


@operator("QuickGelu", "n(Y)*(sigmoid, mul); alpha != 1: n(Y) muls")
def quick_gelu_cost(node: Node) -> Cost:
    """Return the cost of QuickGelu, X * sigmoid(alpha * X): a sigmoid and 2 muls per element (1
    mul if alpha is 1).
    """
    scaled = MUL if float_attribute(node, "alpha", 1.702) != 1 else ZERO
    return (SILU + scaled) * output_element_count(node)


@operator("ScaledSiLU", "n(Y)*(sigmoid, mul); scale: n(Y) muls", requires=rank_constraint(1, 0))
def contrib_scaled_silu_cost(node: Node) -> Cost:
    """Return the cost of ScaledSiLU, Z * sigmoid(Z) with Z = scale * X: a sigmoid and 2 muls per
    element (1 mul if scale is 1).
    """
    scaled = has_input(node, 1) or float_attribute(node, "alpha", 1.0) != 1
    return (SILU + (MUL if scaled else ZERO)) * output_element_count(node)


@operator(
    "BiasSplitGelu",
    "n(X) adds, n(Y)*(div, erf, add, 3 muls)",
    requires=sizes_constraint("X[N,S,D] bias[D]"),
)
def bias_split_gelu_cost(node: Node) -> Cost:
    """Return the cost of BiasSplitGelu, left * Gelu(right) with (left, right) the halves of X +
    bias.

    X [N, S, D], bias [D], Y [N, S, D / 2].
    """
    return ADD * input_element_count(node) + (GELU + MUL) * output_element_count(node)


@operator(
    "BiasSoftmax",
    "n adds, n-m compares, n subs, n exps, n-m adds, n divs; m = dims before axis",
    requires=broadcast_constraint_on(0, 1),
)
def bias_softmax_cost(node: Node) -> Cost:
    """Return the cost of BiasSoftmax: softmax(data + bias) over the axes from `axis` on."""
    return flat_softmax_cost(node) + Cost(adds=input_element_count(node))


@operator(
    ("BiasDropout", "BitmaskBiasDropout"),
    "n adds; residual: n adds; inference",
    requires=(broadcast_constraint_on(0, 1), equal_shapes_constraint(0, 2)),
)
def bias_dropout_cost(node: Node) -> Cost:
    """Return the cost of BiasDropout in inference, data + bias + residual: an add per element for
    each of the two.

    Raises ValueError when training_mode is an input, since its value is not known.
    """
    if has_input(node, 4):
        raise ValueError(
            f"it is unknown whether {node.op} drops, because the value of training_mode is unknown"
        )
    return ADD * (output_element_count(node) * (2 if has_input(node, 2) else 1))


@operator("BiasAdd", "2n(Y) adds", requires=sizes_constraint("X[N,S,C] bias[C] skip[N,S,C]"))
def bias_add_cost(node: Node) -> Cost:
    """Return the cost of BiasAdd, X + bias + skip: 2 adds per element."""
    return Cost(adds=2) * output_element_count(node)
