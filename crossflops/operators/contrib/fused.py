"""Convolutions and products with what onnxruntime fuses into them, in its layouts."""

from math import prod

import msgspec

from crossflops.ir.cost import ZERO, Cost
from crossflops.ir.graph import Node
from crossflops.operators.access import (
    given,
    integer,
    number,
    out_size,
    result,
    shape,
    size,
    source,
    text,
)
from crossflops.operators.contrib.elementwise import GELU_TANH, named
from crossflops.operators.matmul import GEMM, MATMUL, gemm, matmul
from crossflops.operators.movement import moved
from crossflops.operators.normalization import batch_normalization, local_response, standardization
from crossflops.operators.operands import Shape, dims_of, made, rank, shaped, sizes
from crossflops.operators.pointwise import log_softmax_cost, softmax_cost
from crossflops.operators.quantization import requantize
from crossflops.operators.resampling import grid_sample, resize, scale_is_a_value
from crossflops.operators.rule import (
    MICROSOFT,
    NCHWC,
    NHWC,
    Constraint,
    Entry,
    Formula,
    bounded,
    entry,
    estimated,
)
from crossflops.operators.windows import (
    CONV,
    POOL,
    average_pool,
    conv_transpose,
    global_average_pool,
    global_lp_pool,
    global_max_pool,
    lp_pool,
    max_pool,
    pads_within,
    qlinear_conv,
    window,
)


def fused_conv(node: Node) -> Cost:
    """FusedConv: Y = activation(Conv(X, W, B) + Z); MACs = n(Y) * (C / group) * prod(k).

    B n(Y) adds, Z n(Y) adds, activation per element of Y. W [M, C/group, k...] also where X and
    Y have their channels last (NhwcFusedConv) or in blocks (nchwc.Conv: there C and M are the
    channels with those that fill up the last block, which are computed).
    """
    out = out_size(node)
    window = prod(shape(source(node, 1), at_least=2)[1:])
    return Cost(macs=window, adds=given(node, 2) + given(node, 3)) * out + named(node) * out


def inner(node: Node) -> int:
    """K of a product of A [..., M, K], which transA and transBatchA may hold otherwise.

    transA: A is [..., K, M]; transBatchA: the batch dimensions follow M, or K with transA.
    """
    dims = shape(source(node, 0), at_least=1)
    if len(dims) == 1 or not integer(node, "transA", 0):
        return dims[-1]
    return dims[0] if integer(node, "transBatchA", 0) else dims[-2]


def fused_matmul(node: Node) -> Cost:
    """FusedMatMul: Y = alpha * A' * B'; MACs = n(Y)*K; alpha != 1: n(Y) muls."""
    out = out_size(node)
    return Cost(macs=inner(node), muls=1 if number(node, "alpha", 1.0) != 1 else 0) * out


def matmul_activation(node: Node) -> Cost:
    """FusedMatMulActivation: activation(alpha * A' * B'); softmaxes run along activation_axis."""
    dims = shape(result(node), at_least=1)
    name = str(node.attrs.get("activation", "")).lower()
    if name in ("softmax", "logsoftmax"):
        axis = integer(node, "activation_axis", -1)
        if not -len(dims) <= axis < len(dims):
            raise ValueError(f"activation_axis {axis} of {node.op} is out of range")
        groups = prod(dims) // dims[axis] if dims[axis] else 0
        work = softmax_cost if name == "softmax" else log_softmax_cost
        return fused_matmul(node) + work(prod(dims), groups)
    return fused_matmul(node) + named(node) * prod(dims)


def fused_gemm(node: Node) -> Cost:
    """FusedGemm: activation(Gemm(A, B, C)); the activation per element of Y."""
    return gemm(node) + named(node) * out_size(node)


def gemm_fast_gelu(node: Node) -> Cost:
    """GemmFastGelu: FastGelu(X * W + bias); MACs = n(Y)*K; bias n(Y) adds."""
    bias = Cost(adds=1) if given(node, 2) else ZERO
    return matmul(node) + (GELU_TANH + bias) * out_size(node)


def gemm_float8(node: Node) -> Cost:
    """GemmFloat8: Y = activation(alpha * A' * B' + beta * C) * scaleY; MACs = M*N*K.

    alpha != 1 or a scale of A or B: M*N muls, one factor for all of them. beta != 0: M*N adds,
    and n(C) muls when beta != 1. scaleY: M*N muls.
    """
    rows = shape(source(node, 0), rank=2)
    out, beta = out_size(node), number(node, "beta", 0.0)
    scaled = number(node, "alpha", 1.0) != 1 or given(node, 3) or given(node, 4)
    cost = Cost(macs=rows[0] if integer(node, "transA", 0) else rows[1], muls=scaled) * out
    if given(node, 2) and beta != 0:
        cost += Cost(adds=out, muls=size(node, 2) if beta != 1 else 0)
    return cost + (named(node) + Cost(muls=1 if given(node, 5) else 0)) * out


CONV_LAST: tuple[Constraint, ...] = (
    sizes("g=@group:1 X[N,...,g*I] W[g*P,I,...] B[g*P]"),
    window(weight=1, channels="last"),
)


def _summed(node: Node) -> str:
    """Z, which is added, has the shape of Y."""
    return shaped(3, lambda _: None if (whole := made(node)) is None else [whole], "Z")(node)


def _matrices(node: Node, index: int, name: str) -> Shape | None:
    """An operand with its batch dimensions first and its matrix last, as trans* say."""
    dims = dims_of(node, index)
    if dims is None or len(dims) < 2:
        return dims
    if integer(node, f"transBatch{name}", 0):
        dims = (*dims[1:-1], dims[0], dims[-1])
    return (*dims[:-2], dims[-1], dims[-2]) if integer(node, f"trans{name}", 0) else dims


def fused_inner(node: Node) -> str:
    """K of A' and of B' is the same and their batches broadcast, after what trans* say."""
    operands = list(node.inputs)
    for index, name in ((0, "A"), (1, "B")):
        spec, dims = source(node, index), _matrices(node, index, name)
        operands[index] = msgspec.structs.replace(spec, shape=dims)
    return MATMUL(msgspec.structs.replace(node, inputs=tuple(operands)))


_CONV = "n(Y)*(C/group)*prod(k) MACs; B: n(Y) adds"
_GELU = "n(Y)*(pow, tanh, 2 adds, 4 muls)"

_FUSED_ENTRIES: tuple[Entry, ...] = (
    *(
        entry(
            name,
            fused_conv,
            f"{_CONV}; Z: n(Y) adds; activation: n(Y)",
            domain=MICROSOFT,
            requires=constraints,
        )
        for name, constraints in (
            ("FusedConv", (*CONV, _summed)),
            ("NhwcFusedConv", (*CONV_LAST, _summed)),
        )
    ),
    entry(
        "NhwcConv",
        fused_conv,
        _CONV,
        domain=MICROSOFT,
        requires=CONV_LAST,
    ),
    *(
        entry(
            name,
            fused_matmul,
            "n(Y)*K MACs; alpha != 1: n(Y) muls",
            domain=MICROSOFT,
            requires=fused_inner,
        )
        for name in ("FusedMatMul", "TransposeMatMul")
    ),
    entry(
        "FusedMatMulActivation",
        matmul_activation,
        "n(Y)*K MACs; alpha != 1: n(Y) muls; activation: n(Y), or softmax along activation_axis",
        domain=MICROSOFT,
        requires=fused_inner,
    ),
    entry(
        "SparseToDenseMatMul",
        fused_matmul,
        "n(Y)*K MACs, as if A were dense; alpha != 1: n(Y) muls",
        domain=MICROSOFT,
        doubt=bounded,
        requires=fused_inner,
    ),
    entry(
        "FusedGemm",
        fused_gemm,
        "M*N*K MACs; alpha != 1: M*N muls; C: M*N adds; beta != 1: n(C) muls; activation: M*N",
        domain=MICROSOFT,
        requires=GEMM,
    ),
    entry(
        "GemmFastGelu",
        gemm_fast_gelu,
        f"n(Y)*K MACs; bias: n(Y) adds; {_GELU}",
        domain=MICROSOFT,
        requires=(MATMUL, sizes("X[...,K] W[K,N] bias[N]")),
    ),
    entry(
        "GemmFloat8",
        gemm_float8,
        "M*N*K MACs; alpha != 1 or scales: M*N muls; beta != 0: M*N adds, beta != 1: n(C) muls; "
        "activation: M*N; scaleY: M*N muls",
        domain=MICROSOFT,
        requires=GEMM,
    ),
)


# The layouts that onnxruntime brings a graph into: channels in blocks, channels last.
#
# com.microsoft.nchwc holds the channels in blocks of as many as the processor has lanes, [N, C, H,
# W] by its shapes; com.ms.internal.nhwc has them last. Filters keep their ONNX shape in both.


def activated(formula: Formula) -> Formula:
    """The formula, and the activation of the attribute `activation` per element of Y."""

    def both(node: Node) -> Cost:
        return formula(node) + named(node) * out_size(node)

    return both


def upsample(node: Node) -> Cost:
    """Upsample in blocks: nearest 0; linear 2^d muls and 2^d - 1 adds per output."""
    if text(node, "mode", "nearest") == "nearest":
        return ZERO
    return resize(node)


def instance_normalization(node: Node) -> Cost:
    """InstanceNormalization, input [N, d..., C]: N * C groups; n muls, n adds."""
    dims = shape(source(node, 0), at_least=2)
    return standardization(prod(dims), dims[0] * dims[-1]) + Cost(muls=1, adds=1) * prod(dims)


def qlinear_conv_transpose(node: Node) -> Cost:
    """QLinearConvTranspose: MACs = n(x) * (M / group) * prod(k), w input 3, B input 8.

    Zero points n(x) + n(w) adds, B n(y) adds; then each output is requantized.
    """
    data, weight = source(node, 0).numel, source(node, 3)
    out = out_size(node)
    bias = len(node.inputs) > 8 and node.inputs[8] is not None
    macs = data * prod(shape(weight, at_least=2)[1:])
    return Cost(macs=macs, adds=data + weight.numel + (out if bias else 0)) + requantize(out)


_POOLS = (
    ("MaxPool", max_pool, "n(Y)*(prod(k)-1) compares"),
    ("AveragePool", average_pool, "n(Y)*(prod(k)-1) adds, n(Y) divs"),
    ("GlobalMaxPool", global_max_pool, "n(X)-n(Y) compares"),
    ("GlobalAveragePool", global_average_pool, "n(X)-n(Y) adds, n(Y) divs"),
)
# A pooling over everything has no window: only its rank matters.
_SLIDES = {name: (rank(0, 3, least=True),) for name, _, _ in _POOLS if name.startswith("Global")}
_POOL_LAST: tuple[Constraint, ...] = (window(least=0, channels="last"), pads_within)
_ACTIVATION = "; activation: n(Y)"

_LAYOUT_ENTRIES: tuple[Entry, ...] = (
    entry(
        "Conv",
        fused_conv,
        f"{_CONV}; Sum: n(Y) adds{_ACTIVATION}; C and M in whole blocks",
        domain=NCHWC,
        requires=CONV,
    ),
    *(
        entry(name, formula, equation, domain=NCHWC, requires=_SLIDES.get(name, POOL))
        for name, formula, equation in _POOLS
    ),
    *(
        entry(name, moved, "0: data movement", domain=NCHWC)
        for name in ("ReorderInput", "ReorderOutput")
    ),
    entry("Upsample", upsample, "nearest: 0; linear: n(Y)*(2^d muls, 2^d-1 adds)", domain=NCHWC),
    entry("Conv", fused_conv, _CONV + _ACTIVATION, domain=NHWC, requires=CONV_LAST),
    entry(
        "ConvTranspose",
        activated(conv_transpose),
        f"n(X)*(M/group)*prod(k) MACs; B: n(Y) adds{_ACTIVATION}",
        domain=NHWC,
        requires=sizes("g=@group:1 X[N,...,g*C] W[g*C,P,...] B[g*P]"),
    ),
    *(
        entry(
            name,
            activated(formula),
            equation + _ACTIVATION,
            domain=NHWC,
            requires=_SLIDES.get(name, _POOL_LAST),
        )
        for name, formula, equation in _POOLS
    ),
    entry("LpPool", lp_pool, "as LpPool of ai.onnx", domain=NHWC, requires=_POOL_LAST),
    entry("GlobalLpPool", global_lp_pool, "as GlobalLpPool of ai.onnx", domain=NHWC),
    entry(
        "BatchNormalization",
        activated(batch_normalization),
        f"n(X)*(sub, 2 muls, add) + C*(add, sqrt, div){_ACTIVATION}",
        domain=NHWC,
        requires=sizes("X[N,...,C] scale[C] B[C] mean[C] var[C]"),
    ),
    entry(
        "InstanceNormalization",
        activated(instance_normalization),
        "n-m adds, m divs, n subs, n muls, n-m adds, m divs, m*(add, sqrt, div), n muls; "
        f"scale: n muls; B: n adds; m = N*C{_ACTIVATION}",
        domain=NHWC,
        requires=sizes("input[N,...,C] scale[C] B[C]"),
    ),
    entry("LRN", local_response, "n*(2 muls, size adds, pow, div)", domain=NHWC),
    entry(
        "QLinearConv",
        qlinear_conv,
        "n(y)*(C/group)*prod(k) MACs; B: n(y) adds; zero points: n(x)+n(w) adds; "
        "requantize: n(y)*(mul, round, add, 2 compares)",
        domain=NHWC,
        requires=sizes("g=@group:1 x[N,...,g*I] s z w[g*P,I,...] s z s z B[g*P]"),
    ),
    entry(
        "QLinearConvTranspose",
        qlinear_conv_transpose,
        "n(x)*(M/group)*prod(k) MACs; B: n(y) adds; zero points: n(x)+n(w) adds; "
        "requantize: n(y)*(mul, round, add, 2 compares)",
        domain=NHWC,
        requires=sizes("g=@group:1 x[N,...,g*C] s z w[g*C,P,...] s z s z B[g*P]"),
    ),
    entry(
        "Resize",
        resize,
        "nearest: 0; linear: n(Y)*(2^d muls, 2^d-1 adds); cubic: 4^d; d dimensions that change",
        domain=NHWC,
        doubt=scale_is_a_value,
    ),
    entry(
        "GridSample",
        grid_sample,
        "as GridSample of ai.onnx",
        domain=NHWC,
        doubt=estimated,
    ),
    entry(
        "NhwcMaxPool",
        max_pool,
        "n(y)*(prod(k)-1) compares",
        domain=MICROSOFT,
        requires=_POOL_LAST,
    ),
    *(
        entry(name, moved, "0: data movement", domain=NHWC)
        for name in ("DepthToSpace", "SpaceToDepth", "MaxUnpool")
    ),
)


ENTRIES: tuple[Entry, ...] = (*_FUSED_ENTRIES, *_LAYOUT_ENTRIES)
