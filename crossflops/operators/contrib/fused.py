"""The cost of convolutions and products with what onnxruntime fuses into them, in its layouts."""

from math import prod

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
    output_spec,
    spec_shape,
)
from crossflops.operators.contrib.elementwise import activation_cost_by_name
from crossflops.operators.convolution_and_pooling import (
    CONV,
    POOL,
    average_pool_cost,
    global_average_pool_cost,
    global_lp_pool_cost,
    global_max_pool_cost,
    lp_pool_cost,
    max_pool_cost,
    onnx_conv_transpose_cost,
    pooling_pads_constraint,
    qlinear_conv_cost,
    window_constraint,
)
from crossflops.operators.gradient import FUSED, Gradient, OperandPositions, product_backward
from crossflops.operators.matmul import (
    GEMM,
    MATMUL,
    gemm_inner_size,
    onnx_gemm_cost,
    onnx_matmul_cost,
)
from crossflops.operators.movement import MOVED, movement_cost
from crossflops.operators.normalization import (
    STANDARD,
    batch_normalization_cost,
    log_softmax_cost,
    lrn_cost,
    softmax_cost,
    standardization_cost,
)
from crossflops.operators.operands import (
    Shape,
    first_problem_constraint,
    input_label,
    input_shape,
    rank_constraint,
    shape_constraint,
    shape_of_output,
    sizes_constraint,
)
from crossflops.operators.pointwise import GELU_TANH
from crossflops.operators.quantization import requantization_cost
from crossflops.operators.resampling import grid_sample_cost, onnx_resize_cost, resize_exactness
from crossflops.operators.rule import (
    MICROSOFT,
    NCHWC,
    NHWC,
    Constraint,
    Formula,
    OperandProblem,
    Operators,
    estimate_exactness,
    upper_bound_exactness,
)

operator = Operators(MICROSOFT, backward=FUSED)

CONV_LAST: tuple[Constraint, ...] = (
    sizes_constraint("g=@group:1 X[N,...,g*I] W[g*P,I,...] B[g*P]"),
    window_constraint(weight=1, channels="last"),
)

_CONV = "n(Y)*(C/group)*prod(k) MACs; B: n(Y) adds"

_ACTIVATION = "; activation: n(Y)"


def _conv_addend_constraint(node: Node) -> OperandProblem:
    """Return why the added input Z of a fused convolution does not have Y's shape; "" if nothing
    is wrong.
    """
    return shape_constraint(
        3, lambda _: None if (result := shape_of_output(node)) is None else [result], "Z"
    )(node)


def _nhwc_conv_constraint(node: Node) -> OperandProblem:
    """Return why the weight of NhwcConv does not fit; "" if nothing is wrong.

    It is [M, C/group, k...] in its schema, but [M, k..., C/group] in real files.

    The kernels that run it, and onnxruntime's own fusion (fusion_nhwc_conv.py), use the second.
    """
    data, weight, spec = input_shape(node, 0), input_shape(node, 1), node.inputs[1]
    if data is None or weight is None or spec is None or len(weight) < 3:
        return first_problem_constraint(*CONV_LAST)(node)
    inside, window = weight[-1], weight[1:-1]
    if inside * integer_attribute(node, "group", 1) != data[-1] or node.attrs.get(
        "kernel_shape"
    ) not in (
        None,
        window,
    ):
        return first_problem_constraint(*CONV_LAST)(node)
    turned = msgspec.structs.replace(spec, shape=(weight[0], inside, *window))
    inputs = (node.inputs[0], turned, *node.inputs[2:])
    return first_problem_constraint(*CONV_LAST)(msgspec.structs.replace(node, inputs=inputs))


_BOTH = f"{_CONV}; Z: n(Y) adds; activation: n(Y)"


@operator("FusedConv", _BOTH, requires=(*CONV, _conv_addend_constraint))
@operator("NhwcFusedConv", _BOTH, requires=(*CONV_LAST, _conv_addend_constraint))
@operator("NhwcConv", _CONV, requires=_nhwc_conv_constraint)
@operator(
    "Conv",
    f"{_CONV}; Sum: n(Y) adds{_ACTIVATION}; C and M in whole blocks",
    domain=NCHWC,
    requires=CONV,
)
@operator("Conv", _CONV + _ACTIVATION, domain=NHWC, requires=CONV_LAST)
def contrib_fused_conv_cost(node: Node) -> Cost:
    """Return the cost of FusedConv and similar, activation(Conv(X, W, B) + Z): (C / group) *
    prod(k) MACs per element of Y, and adds.

    B n(Y) adds, Z n(Y) adds, activation per element of Y. W [M, C/group, k...] also where X and
    Y have their channels last (NhwcFusedConv; NhwcConv takes [M, k..., C/group] as well) or in
    blocks (nchwc.Conv: there C and M are the channels with those that fill up the last block,
    which are computed).
    """
    out = output_element_count(node)
    window = prod(spec_shape(input_spec(node, 1), at_least=2)[1:])
    return (
        Cost(macs=window, adds=has_input(node, 2) + has_input(node, 3)) * out
        + activation_cost_by_name(node) * out
    )


def matmul_inner_size(node: Node) -> int:
    """Return the inner size K of a fused matrix product: the size of A that the product sums over.

    transA: A is [..., K, M]; transBatchA: the batch dimensions follow M, or K with transA.
    """
    dims = spec_shape(input_spec(node, 0), at_least=1)
    if len(dims) == 1 or not integer_attribute(node, "transA", 0):
        return dims[-1]
    return dims[0] if integer_attribute(node, "transBatchA", 0) else dims[-2]


def matmul_operands_constraint(node: Node) -> OperandProblem:
    """Return why the factors of a fused product have different K or batches; "" if nothing is
    wrong.
    """
    if wrong := _matmul_batch_constraint(node):
        return wrong
    operands = list(node.inputs)
    for index, name in ((0, "A"), (1, "B")):
        spec, dims = input_spec(node, index), _factor_shape_batch_first(node, index, name)
        operands[index] = msgspec.structs.replace(spec, shape=dims)
    return MATMUL(msgspec.structs.replace(node, inputs=tuple(operands)))


def _matmul_batch_constraint(node: Node) -> OperandProblem:
    """Return why the factors with transposed batches differ in rank or are not 3-D; "" if nothing
    is wrong.
    """
    if not (
        integer_attribute(node, "transBatchA", 0) or integer_attribute(node, "transBatchB", 0)
    ):
        return ""
    ranks = [
        None if dims is None else len(dims)
        for dims in (input_shape(node, 0), input_shape(node, 1))
    ]
    if None in ranks or (ranks[0] == ranks[1] and ranks[0] not in (0, 1, 2)):
        return ""
    has = (
        f"{input_label(node, 0)} has rank {ranks[0]}, and {input_label(node, 1)} has rank "
        f"{ranks[1]}"
    )
    return f"{has}: with transBatchA or transBatchB both need the same rank, at least 3"


def _factor_shape_batch_first(node: Node, index: int, name: str) -> Shape | None:
    """Return the shape of a factor with its batch axes first and its matrix last, as the product
    uses it; None if unknown.

    The attributes trans* say how the input has them.
    """
    dims = input_shape(node, index)
    if dims is None or len(dims) < 2:
        return dims
    if integer_attribute(node, f"transBatch{name}", 0):
        dims = (*dims[1:-1], dims[0], dims[-1])
    return (*dims[:-2], dims[-1], dims[-2]) if integer_attribute(node, f"trans{name}", 0) else dims


def _alpha_matmul_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradients of alpha * A * B, for each requested operand.

    dA = alpha dY B'^T and dB = alpha A'^T dY: n(Y)*K MACs each; alpha != 1: n(Y) muls, once.
    """
    work = product_backward(0, 1)(node, requested, forward).operands
    return Gradient(work, inner=Cost(muls=forward.muls))


@operator(
    ("FusedMatMul", "TransposeMatMul"),
    "n(Y)*K MACs; alpha != 1: n(Y) muls",
    requires=matmul_operands_constraint,
    backward=_alpha_matmul_backward,
)
@operator(
    "SparseToDenseMatMul",
    "n(Y)*K MACs, as if A were dense; alpha != 1: n(Y) muls",
    doubt=upper_bound_exactness,
    requires=matmul_operands_constraint,
)
def contrib_fused_matmul_cost(node: Node) -> Cost:
    """Return the cost of FusedMatMul, alpha * A' * B': K MACs per element of the result, and a mul
    if alpha is not 1.
    """
    out = output_element_count(node)
    return (
        Cost(
            macs=matmul_inner_size(node), muls=1 if float_attribute(node, "alpha", 1.0) != 1 else 0
        )
        * out
    )


@operator(
    "FusedMatMulActivation",
    "n(Y)*K MACs; alpha != 1: n(Y) muls; activation: n(Y), or softmax along activation_axis",
    requires=matmul_operands_constraint,
)
def matmul_activation_cost(node: Node) -> Cost:
    """Return the cost of FusedMatMulActivation, activation(alpha * A' * B'), where a softmax runs
    along activation_axis.
    """
    dims = spec_shape(output_spec(node), at_least=1)
    name = str(node.attrs.get("activation", "")).lower()
    if name in ("softmax", "logsoftmax"):
        axis = integer_attribute(node, "activation_axis", -1)
        if not -len(dims) <= axis < len(dims):
            raise ValueError(f"activation_axis {axis} of {node.op} is out of range")
        groups = prod(dims) // dims[axis] if dims[axis] else 0
        work = softmax_cost if name == "softmax" else log_softmax_cost
        return contrib_fused_matmul_cost(node) + work(prod(dims), groups)
    return contrib_fused_matmul_cost(node) + activation_cost_by_name(node) * prod(dims)


@operator(
    "FusedGemm",
    "M*N*K MACs; alpha != 1: M*N muls; C: M*N adds; beta != 1: n(C) muls; activation: M*N",
    requires=GEMM,
)
def contrib_fused_gemm_cost(node: Node) -> Cost:
    """Return the cost of FusedGemm, activation(Gemm(A, B, C)): Gemm, and the activation per
    element of the result.
    """
    return onnx_gemm_cost(node) + activation_cost_by_name(node) * output_element_count(node)


@operator(
    "GemmFastGelu",
    "n(Y)*K MACs; bias: n(Y) adds; n(Y)*(pow, tanh, 2 adds, 4 muls)",
    requires=(MATMUL, sizes_constraint("X[...,K] W[K,N] bias[N]")),
)
def gemm_fast_gelu_cost(node: Node) -> Cost:
    """Return the cost of GemmFastGelu, FastGelu(X * W + bias): K MACs, an add and FastGelu per
    element of the result.
    """
    bias = Cost(adds=1) if has_input(node, 2) else ZERO
    return onnx_matmul_cost(node) + (GELU_TANH + bias) * output_element_count(node)


@operator(
    "GemmFloat8",
    "M*N*K MACs; alpha != 1 or scales: M*N muls; beta != 0: M*N adds, beta != 1: n(C) muls; "
    "activation: M*N; scaleY: M*N muls",
    requires=GEMM,
)
def gemm_float8_cost(node: Node) -> Cost:
    """Return the cost of GemmFloat8, activation(alpha * A' * B' + beta * C) * scaleY: M*N*K MACs,
    and work per element.

    alpha != 1 or a scale of A or B: M*N muls, one factor for all of them. beta != 0: M*N adds,
    and n(C) muls when beta != 1. scaleY: M*N muls.
    """
    inner, out, beta = (
        gemm_inner_size(node),
        output_element_count(node),
        float_attribute(node, "beta", 0.0),
    )
    scaled = float_attribute(node, "alpha", 1.0) != 1 or has_input(node, 3) or has_input(node, 4)
    cost = Cost(macs=inner, muls=scaled) * out
    if has_input(node, 2) and beta != 0:
        cost += Cost(adds=out, muls=input_element_count(node, 2) if beta != 1 else 0)
    return cost + (activation_cost_by_name(node) + Cost(muls=1 if has_input(node, 5) else 0)) * out


# The layouts that onnxruntime brings a graph into: channels in blocks, channels last.
#
# com.microsoft.nchwc holds the channels in blocks of as many as the processor has lanes, [N, C, H,
# W] by its shapes; com.ms.internal.nhwc has them last. Filters keep their ONNX shape in both.


def with_fused_activation(formula: Formula) -> Formula:
    """Return the formula extended by the activation that the attribute `activation` names, per
    element of the result.
    """

    def cost_with_activation(node: Node) -> Cost:
        """Return the cost of the operator and of the activation that is fused to it."""
        return formula(node) + activation_cost_by_name(node) * output_element_count(node)

    return cost_with_activation


@operator(
    "QLinearConvTranspose",
    "n(x)*(M/group)*prod(k) MACs; B: n(y) adds; zero points: n(x)+n(w) adds; "
    "requantize: n(y)*(mul, round, add, 2 compares)",
    domain=NHWC,
    requires=sizes_constraint("g=@group:1 x[N,...,g*C] s z w[g*C,P,...] s z s z B[g*P]"),
    contracts=(0, 3),
)
def qlinear_conv_transpose_cost(node: Node) -> Cost:
    """Return the cost of QLinearConvTranspose: (M / group) * prod(k) MACs per input element, and
    requantized results.

    Zero points n(x) + n(w) adds, B n(y) adds; then each output is requantized.
    """
    shifted, out = (
        input_element_count(node, 0) + input_element_count(node, 3),
        output_element_count(node),
    )
    macs = input_element_count(node, 0) * prod(spec_shape(input_spec(node, 3), at_least=2)[1:])
    return Cost(
        macs=macs, adds=shifted + (out if has_input(node, 8) else 0)
    ) + requantization_cost(out)


operator(
    "ConvTranspose",
    f"n(X)*(M/group)*prod(k) MACs; B: n(Y) adds{_ACTIVATION}",
    domain=NHWC,
    requires=sizes_constraint("g=@group:1 X[N,...,g*C] W[g*C,P,...] B[g*P]"),
)(with_fused_activation(onnx_conv_transpose_cost))
operator(
    "QLinearConv",
    "n(y)*(C/group)*prod(k) MACs; B: n(y) adds; zero points: n(x)+n(w) adds; "
    "requantize: n(y)*(mul, round, add, 2 compares)",
    domain=NHWC,
    requires=sizes_constraint("g=@group:1 x[N,...,g*I] s z w[g*P,I,...] s z s z B[g*P]"),
    contracts=(0, 3),
)(qlinear_conv_cost)

# A pooling over everything has no window: only its rank matters.
_WHOLE = rank_constraint(0, 3, or_higher=True)
_POOL_LAST: tuple[Constraint, ...] = (
    window_constraint(min_windows=0, channels="last"),
    pooling_pads_constraint,
)

for name, formula, equation in (
    ("MaxPool", max_pool_cost, "n(Y)*(prod(k)-1) compares"),
    ("AveragePool", average_pool_cost, "n(Y)*(prod(k)-1) adds, n(Y) divs"),
    ("GlobalMaxPool", global_max_pool_cost, "n(X)-n(Y) compares"),
    ("GlobalAveragePool", global_average_pool_cost, "n(X)-n(Y) adds, n(Y) divs"),
):
    is_global, keeps = name.startswith("Global"), name == "MaxPool"
    operator(name, equation, domain=NCHWC, requires=_WHOLE if is_global else POOL, keeps=keeps)(
        formula
    )
    operator(
        name,
        equation + _ACTIVATION,
        domain=NHWC,
        requires=_WHOLE if is_global else _POOL_LAST,
        keeps=keeps,
    )(with_fused_activation(formula))
operator("NhwcMaxPool", "n(y)*(prod(k)-1) compares", requires=_POOL_LAST)(max_pool_cost)
operator("LpPool", "as LpPool of ai.onnx", domain=NHWC, requires=_POOL_LAST)(lp_pool_cost)
operator("GlobalLpPool", "as GlobalLpPool of ai.onnx", domain=NHWC)(global_lp_pool_cost)

operator(("ReorderInput", "ReorderOutput"), MOVED, domain=NCHWC)(movement_cost)
operator(("DepthToSpace", "SpaceToDepth"), MOVED, domain=NHWC, keeps=True)(movement_cost)
operator("MaxUnpool", MOVED, domain=NHWC)(movement_cost)

operator("Upsample", "nearest: 0; linear: n(Y)*(2^d muls, 2^d-1 adds)", domain=NCHWC)(
    onnx_resize_cost
)
operator(
    "Resize",
    "nearest: 0; linear: n(Y)*(2^d muls, 2^d-1 adds); cubic: 4^d; d dimensions that change",
    domain=NHWC,
    doubt=resize_exactness,
)(onnx_resize_cost)
operator("GridSample", "as GridSample of ai.onnx", domain=NHWC, doubt=estimate_exactness)(
    grid_sample_cost
)
operator("LRN", "n*(2 muls, size adds, pow, div)", domain=NHWC)(lrn_cost)
operator(
    "BatchNormalization",
    f"n(X)*(sub, 2 muls, add) + C*(add, sqrt, div){_ACTIVATION}",
    domain=NHWC,
    requires=sizes_constraint("X[N,...,C] scale[C] B[C] mean[C] var[C]"),
)(with_fused_activation(batch_normalization_cost))


@operator(
    "InstanceNormalization",
    f"{STANDARD}; scale: n muls; B: n adds; m = N*C{_ACTIVATION}",
    domain=NHWC,
    requires=sizes_constraint("input[N,...,C] scale[C] B[C]"),
)
def nhwc_instance_normalization_cost(node: Node) -> Cost:
    """Return the cost of InstanceNormalization with channels last, input [N, d..., C]: N * C
    groups, with scale, bias and activation.
    """
    dims = spec_shape(input_spec(node, 0), at_least=2)
    affine = Cost(muls=1, adds=1) * prod(dims) + activation_cost_by_name(
        node
    ) * output_element_count(node)
    return standardization_cost(prod(dims), dims[0] * dims[-1]) + affine
