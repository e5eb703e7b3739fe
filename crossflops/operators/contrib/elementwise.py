"""Activations that onnxruntime fuses, and the other operators on elements."""

from collections.abc import Iterable, Mapping

import msgspec

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import given, integer, number, out_size, shape, size, source, text
from crossflops.operators.convolution_and_pooling import POOL, conv_transpose, max_pool, transposed
from crossflops.operators.gradient import FUSED
from crossflops.operators.movement import MOVED, dropout, gathered_nd, moved, padded
from crossflops.operators.normalization import flattened_softmax
from crossflops.operators.operands import (
    Shape,
    broadcasting,
    by_rank,
    dims_of,
    equal,
    label,
    out_of_range,
    rank,
    shape_of,
    shaped,
    single,
    sizes,
)
from crossflops.operators.pointwise import (
    ADD,
    FUNCTIONS,
    GELU,
    GELU_TANH,
    MUL,
    SILU,
    gelu_backward,
    per_element,
)
from crossflops.operators.reduction import unique
from crossflops.operators.resampling import SAMPLED, grid_sample
from crossflops.operators.rule import MICROSOFT, Operators, estimated

operator = Operators(MICROSOFT, backward=FUSED)

operator("Pad", MOVED, requires=padded)(moved)
operator("Trilu", MOVED, requires=(rank(0, 2, least=True), single(1)))(moved)
operator("ExpandDims", MOVED, traffic="view", requires=single(1))(moved)
operator("GatherND", MOVED, traffic="gather", requires=gathered_nd)(moved)
operator("TorchEmbedding", MOVED, traffic="gather")(moved)
operator(("SampleOp", "RemovePadding", "RestorePadding"), MOVED)(moved)
operator("BitmaskDropout", "0 in inference", traffic="view")(dropout)
operator("Range", "n(Y)*(mul, add): Y = start + i * delta", requires=single(0, 1, 2))(
    per_element(MUL + ADD)
)
operator("Unique", "n(x)*ceil(log2 n(x)) compares", requires=rank(0, 1), doubt=estimated)(unique)
operator(
    "GridSample",
    "N*prod(o)*d*(mul, add) + bilinear: n(Y)*(2^d muls, 2^d-1 adds); bicubic: 4^d; "
    "nearest: N*prod(o)*d rounds",
    doubt=estimated,
    requires=SAMPLED,
)(grid_sample)


def _unfolded(node: Node) -> str:
    """Windows of `size` along an axis that is at least as long."""
    dims, place, extent = shape_of(node, 0), integer(node, "dim", -1), integer(node, "size")
    if wrong := out_of_range(node, place):
        return wrong
    if 0 < extent <= dims[place]:
        return ""
    return f"{label(node, 0)} has {dims[place]} at axis {place}, and attribute 'size' is {extent}"


operator("UnfoldTensor", MOVED, requires=_unfolded)(moved)


@operator(
    ("ComplexMul", "ComplexMulConj"),
    "n(C)/2*(4 muls, 2 adds)",
    requires=sizes("A[...,2] B[...,2]"),
)
def complex_mul(node: Node) -> Cost:
    """ComplexMul, ComplexMulConj: (a + ib) * (c + id): 4 muls and 2 adds; C [..., 2]."""
    return Cost(muls=4, adds=2) * (out_size(node) // 2)


@operator(
    "CDist",
    "M*N*(K subs, K muls, K-1 adds); euclidean: M*N sqrts",
    requires=sizes("A[M,K] B[N,K]"),
)
def distances(node: Node) -> Cost:
    """CDist: the distance of every row of A [M, K] to every row of B [N, K].

    M*N*(K subs, K muls, K - 1 adds), euclidean a sqrt more.
    """
    rows, depth = shape(source(node, 0), rank=2)
    pairs = rows * shape(source(node, 1), rank=2)[0]
    metric = text(node, "metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise ValueError(f"the metric {metric!r} of CDist is not known")
    root = 1 if metric == "euclidean" else 0
    return Cost(adds=depth + max(depth - 1, 0), muls=depth, specials=root) * pairs


@operator("IsAllFinite", "n compares")
def all_finite(node: Node) -> Cost:
    """IsAllFinite: a compare per element of every input."""
    return Cost(compares=sum(size(node, i) for i in range(len(node.inputs))))


def _masked(node: Node) -> str:
    """The mask of MaxpoolWithMask has the extents of the data."""
    dims, mask = shape_of(node, 0), shape_of(node, 1)
    if len(mask) == len(dims) and mask[2:] == dims[2:]:
        return ""
    return f"{label(node, 1, 'M')} has not the extents of {label(node, 0, 'X')}"


@operator("MaxpoolWithMask", "n(Y)*(prod(k)-1) + n(X) compares", requires=(*POOL, _masked))
def masked_max_pool(node: Node) -> Cost:
    """MaxpoolWithMask: n(Y) * (prod(k) - 1) compares, and one per element for the mask M."""
    return max_pool(node) + Cost(compares=size(node, 0))


@operator(
    "DynamicTimeWarping",
    "M*N*(2 compares, add), the way back not counted",
    requires=by_rank(0, {2: sizes("input[M,N]"), 3: sizes("input[1,M,N]")}),
)
def time_warping(node: Node) -> Cost:
    """DynamicTimeWarping: every cell the smallest of three ways and a sum: 2 compares, an add."""
    return Cost(compares=2, adds=1) * size(node, 0)


def _two_for_each(node: Node) -> Iterable[Shape] | None:
    """Two pads for each axis behind N and C."""
    dims = dims_of(node, 0)
    return None if dims is None else [(2 * (len(dims) - 2),)]


@operator(
    "ConvTransposeWithDynamicPads",
    "n(X)*(M/group)*prod(k) MACs; B: n(Y) adds",
    requires=(
        sizes("g=@group:1 X[N,g*C,...] W[g*C,P,...] Pads[_] B[g*P]"),
        transposed(padded=False),
        shaped(2, _two_for_each, "Pads"),
    ),
)
def dynamic_pads(node: Node) -> Cost:
    """ConvTransposeWithDynamicPads: as ConvTranspose; the bias is input 3."""
    bias = out_size(node) if given(node, 3) else 0
    unbiased = msgspec.structs.replace(node, inputs=node.inputs[:2])
    return conv_transpose(unbiased) + Cost(adds=bias)


# Activations that onnxruntime fuses: alone, behind a bias, or at the end of another operator.

# Work per element of the functions that an attribute `activation` may name.
NAMED: Mapping[str, Cost] = {
    **FUNCTIONS,
    **dict.fromkeys(("silu", "swish"), SILU),
    **dict.fromkeys(("", "none", "identity", "linear"), ZERO),
    "clip": Cost(compares=2),
    "gelu": GELU,
}


def named(node: Node, attribute: str = "activation", default: str = "") -> Cost:
    """Work per element of the activation that the attribute names. ValueError if unknown."""
    value = node.attrs.get(attribute, default)
    name = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if name.lower() not in NAMED:
        raise ValueError(f"the activation {name!r} of {node.op} is not known")
    return NAMED[name.lower()]


@operator("Gelu", "n(Y)*(div, erf, add, 2 muls)", backward=gelu_backward)
def gelu(node: Node) -> Cost:
    """Gelu: Y = 0.5 * X * (1 + erf(X / sqrt(2))): div, erf, add, 2 muls."""
    return GELU * out_size(node)


@operator("BiasGelu", "n(C)*(div, erf, 2 adds, 2 muls)", requires=sizes("A[...,H] B[H]"))
def bias_gelu(node: Node) -> Cost:
    """BiasGelu: Gelu of A + B; n adds."""
    return (GELU + ADD) * out_size(node)


@operator(
    "FastGelu",
    "n(Y)*(pow, tanh, 2 adds, 4 muls); bias: n(Y) adds",
    requires=sizes("X[...,H] bias[H]"),
)
def fast_gelu(node: Node) -> Cost:
    """FastGelu: Gelu by tanh: pow, tanh, 2 adds, 4 muls; bias n adds."""
    return (GELU_TANH + (ADD if given(node, 1) else ZERO)) * out_size(node)


@operator("QuickGelu", "n(Y)*(sigmoid, mul); alpha != 1: n(Y) muls")
def quick_gelu(node: Node) -> Cost:
    """QuickGelu: Y = X * sigmoid(alpha * X): sigmoid, 2 muls; 1 mul when alpha = 1."""
    scaled = MUL if number(node, "alpha", 1.702) != 1 else ZERO
    return (SILU + scaled) * out_size(node)


@operator("ScaledSiLU", "n(Y)*(sigmoid, mul); scale: n(Y) muls", requires=rank(1, 0))
def scaled_silu(node: Node) -> Cost:
    """ScaledSiLU: Z = scale * X, Y = Z * sigmoid(Z): sigmoid, mul; a mul when scale != 1."""
    scaled = given(node, 1) or number(node, "alpha", 1.0) != 1
    return (SILU + (MUL if scaled else ZERO)) * out_size(node)


@operator(
    "BiasSplitGelu", "n(X) adds, n(Y)*(div, erf, add, 3 muls)", requires=sizes("X[N,S,D] bias[D]")
)
def bias_split_gelu(node: Node) -> Cost:
    """BiasSplitGelu: X + bias is halved, Y = left * Gelu(right); n(X) adds, n(Y)*(Gelu, mul).

    X [N, S, D], bias [D], Y [N, S, D / 2].
    """
    return ADD * size(node) + (GELU + MUL) * out_size(node)


@operator(
    "BiasSoftmax",
    "n adds, n-m compares, n subs, n exps, n-m adds, n divs; m = dims before axis",
    requires=broadcasting(0, 1),
)
def bias_softmax(node: Node) -> Cost:
    """BiasSoftmax: softmax of data + bias over the dimensions from `axis` on; n adds."""
    return flattened_softmax(node) + Cost(adds=size(node))


@operator(
    ("BiasDropout", "BitmaskBiasDropout"),
    "n adds; residual: n adds; inference",
    requires=(broadcasting(0, 1), equal(0, 2)),
)
def bias_dropout(node: Node) -> Cost:
    """BiasDropout in inference: data + bias + residual; n adds for each of the two.

    Raises ValueError when training_mode is an input, since its value is not known.
    """
    if given(node, 4):
        raise ValueError(f"whether {node.op} drops depends on the value of training_mode")
    return ADD * (out_size(node) * (2 if given(node, 2) else 1))


@operator("BiasAdd", "2n(Y) adds", requires=sizes("X[N,S,C] bias[C] skip[N,S,C]"))
def bias_add(node: Node) -> Cost:
    """BiasAdd: Y = X + bias + skip; 2 n adds."""
    return Cost(adds=2) * out_size(node)
