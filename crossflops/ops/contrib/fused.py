"""Convolutions and matrix products with what onnxruntime has fused into them."""

from math import prod

import msgspec

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import given, integer, number, out_size, result, shape, size, source
from crossflops.ops.activation import log_softmax_cost, softmax_cost
from crossflops.ops.contrib.activation import GELU_TANH, named
from crossflops.ops.convolution import CONV
from crossflops.ops.matmul import GEMM, MATMUL, gemm, matmul
from crossflops.ops.operands import Shape, dims_of, made, shaped, sizes
from crossflops.ops.rule import MICROSOFT, Constraint, Entry, bounded, entry
from crossflops.ops.windows import window


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

ENTRIES: tuple[Entry, ...] = (
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
