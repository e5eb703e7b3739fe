"""Activations that onnxruntime fuses, and the other operators on elements."""

from collections.abc import Iterable, Mapping
from math import prod
from types import MappingProxyType

from crossflops.ir.cost import ZERO, Cost
from crossflops.ir.graph import Node
from crossflops.operators.access import (
    axis_of,
    given,
    integer,
    number,
    out_size,
    shape,
    size,
    source,
    text,
)
from crossflops.operators.arrangement import gathered_nd, padded
from crossflops.operators.movement import dropout, moved
from crossflops.operators.operands import (
    Shape,
    broadcasting,
    by_rank,
    dims_of,
    equal,
    label,
    out_of_range,
    rank,
    shaped,
    single,
    sizes,
)
from crossflops.operators.pointwise import (
    ACTIVATIONS,
    ADD,
    MUL,
    SPECIAL,
    per_element,
    softmax_cost,
)
from crossflops.operators.reduction import unique
from crossflops.operators.resampling import SAMPLED, grid_sample
from crossflops.operators.rule import MICROSOFT, Constraint, Entry, Traffic, entry, estimated
from crossflops.operators.windows import POOL, conv_transpose, max_pool, transposed

_MOVES: tuple[tuple[str, Traffic], ...] = (
    *(("Pad", "touch"), ("Trilu", "touch"), ("UnfoldTensor", "touch"), ("SampleOp", "touch")),
    *(("RemovePadding", "touch"), ("RestorePadding", "touch")),
    *(("ExpandDims", "view"), ("GatherND", "gather"), ("TorchEmbedding", "gather")),
)


def _unfolded(node: Node) -> str:
    """Windows of `size` along an axis that is at least as long."""
    dims, place, extent = dims_of(node, 0), integer(node, "dim", -1), integer(node, "size")
    if dims is None:
        return ""
    if wrong := out_of_range(node, place):
        return wrong
    if 0 < extent <= dims[place]:
        return ""
    return f"{label(node, 0)} has {dims[place]} at axis {place}, and attribute 'size' is {extent}"


def _two_for_each(node: Node) -> Iterable[Shape] | None:
    """Two pads for each axis behind N and C."""
    dims = dims_of(node, 0)
    return None if dims is None else [(2 * (len(dims) - 2),)]


def _masked(node: Node) -> str:
    """The mask of MaxpoolWithMask has the extents of the data."""
    dims, mask = dims_of(node, 0), dims_of(node, 1)
    if dims is None or mask is None or (len(mask) == len(dims) and mask[2:] == dims[2:]):
        return ""
    return f"{label(node, 1, 'M')} has not the extents of {label(node, 0, 'X')}"


_REQUIRES: dict[str, tuple[Constraint, ...]] = {
    "Pad": (padded,),
    "Trilu": (rank(0, 2, least=True), single(1)),
    "ExpandDims": (single(1),),
    "GatherND": (gathered_nd,),
    "UnfoldTensor": (_unfolded,),
}


def complex_mul(node: Node) -> Cost:
    """ComplexMul, ComplexMulConj: (a + ib) * (c + id): 4 muls and 2 adds; C [..., 2]."""
    return Cost(muls=4, adds=2) * (out_size(node) // 2)


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


def all_finite(node: Node) -> Cost:
    """IsAllFinite: a compare per element of every input."""
    return Cost(compares=sum(size(node, i) for i in range(len(node.inputs))))


def masked_max_pool(node: Node) -> Cost:
    """MaxpoolWithMask: n(Y) * (prod(k) - 1) compares, and one per element for the mask M."""
    return max_pool(node) + Cost(compares=size(node, 0))


def time_warping(node: Node) -> Cost:
    """DynamicTimeWarping: every cell the smallest of three ways and a sum: 2 compares, an add."""
    return Cost(compares=2, adds=1) * size(node, 0)


def dynamic_pads(node: Node) -> Cost:
    """ConvTransposeWithDynamicPads: as ConvTranspose; the bias is input 3."""
    bias = out_size(node) if given(node, 3) else 0
    unbiased = [spec for i, spec in enumerate(node.inputs) if i < 2]
    plain = type(node)(
        key=node.key, op=node.op, inputs=tuple(unbiased), outputs=node.outputs, attrs=node.attrs
    )
    return conv_transpose(plain) + Cost(adds=bias)


_ELEMENTWISE_ENTRIES: tuple[Entry, ...] = (
    *(
        entry(
            name,
            moved,
            "0: data movement",
            domain=MICROSOFT,
            traffic=traffic,
            requires=_REQUIRES.get(name, ()),
        )
        for name, traffic in _MOVES
    ),
    entry("BitmaskDropout", dropout, "0 in inference", domain=MICROSOFT, traffic="view"),
    entry(
        "Range",
        per_element(Cost(muls=1, adds=1)),
        "n(Y)*(mul, add): Y = start + i * delta",
        domain=MICROSOFT,
        requires=single(0, 1, 2),
    ),
    *(
        entry(
            name,
            complex_mul,
            "n(C)/2*(4 muls, 2 adds)",
            domain=MICROSOFT,
            requires=sizes("A[...,2] B[...,2]"),
        )
        for name in ("ComplexMul", "ComplexMulConj")
    ),
    entry(
        "CDist",
        distances,
        "M*N*(K subs, K muls, K-1 adds); euclidean: M*N sqrts",
        domain=MICROSOFT,
        requires=sizes("A[M,K] B[N,K]"),
    ),
    entry("IsAllFinite", all_finite, "n compares", domain=MICROSOFT),
    entry(
        "MaxpoolWithMask",
        masked_max_pool,
        "n(Y)*(prod(k)-1) + n(X) compares",
        domain=MICROSOFT,
        requires=(*POOL, _masked),
    ),
    entry(
        "DynamicTimeWarping",
        time_warping,
        "M*N*(2 compares, add), the way back not counted",
        domain=MICROSOFT,
        requires=by_rank(0, {2: sizes("input[M,N]"), 3: sizes("input[1,M,N]")}),
    ),
    entry(
        "Unique",
        unique,
        "n(x)*ceil(log2 n(x)) compares",
        domain=MICROSOFT,
        requires=rank(0, 1),
        doubt=estimated,
    ),
    entry(
        "GridSample",
        grid_sample,
        "N*prod(o)*d*(mul, add) + bilinear: n(Y)*(2^d muls, 2^d-1 adds); bicubic: 4^d; "
        "nearest: N*prod(o)*d rounds",
        domain=MICROSOFT,
        doubt=estimated,
        requires=SAMPLED,
    ),
    entry(
        "ConvTransposeWithDynamicPads",
        dynamic_pads,
        "n(X)*(M/group)*prod(k) MACs; B: n(Y) adds",
        domain=MICROSOFT,
        requires=(
            sizes("g=@group:1 X[N,g*C,...] W[g*C,P,...] Pads[_] B[g*P]"),
            transposed(padded=False),
            shaped(2, _two_for_each, "Pads"),
        ),
    ),
)


# Activations that onnxruntime fuses: alone, behind a bias, or at the end of another operator.

# 0.5 * X * (1 + erf(X / sqrt(2))), and 0.5 * X * (1 + tanh(c * (X + 0.044715 * X^3))).
GELU = Cost(divs=1, specials=1, adds=1, muls=2)
GELU_TANH = Cost(specials=2, adds=2, muls=4)
SILU = SPECIAL + MUL
SOFTPLUS = Cost(specials=2, adds=1)

# Work per element of the functions that an attribute `activation` may name.
NAMED: Mapping[str, Cost] = MappingProxyType(
    {
        **{name.lower(): work for name, _, work, _ in ACTIVATIONS},
        **dict.fromkeys(("sigmoid", "tanh"), SPECIAL),
        **dict.fromkeys(("silu", "swish"), SILU),
        **dict.fromkeys(("", "none", "identity", "linear"), ZERO),
        "affine": Cost(muls=1, adds=1),
        "scaledtanh": Cost(muls=2, specials=1),
        "clip": Cost(compares=2),
        "gelu": GELU,
    }
)


def named(node: Node, attribute: str = "activation", default: str = "") -> Cost:
    """Work per element of the activation that the attribute names. ValueError if unknown."""
    value = node.attrs.get(attribute, default)
    name = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if name.lower() not in NAMED:
        raise ValueError(f"the activation {name!r} of {node.op} is not known")
    return NAMED[name.lower()]


def gelu(node: Node) -> Cost:
    """Gelu: Y = 0.5 * X * (1 + erf(X / sqrt(2))): div, erf, add, 2 muls."""
    return GELU * out_size(node)


def bias_gelu(node: Node) -> Cost:
    """BiasGelu: Gelu of A + B; n adds."""
    return (GELU + ADD) * out_size(node)


def fast_gelu(node: Node) -> Cost:
    """FastGelu: Gelu by tanh: pow, tanh, 2 adds, 4 muls; bias n adds."""
    return (GELU_TANH + (ADD if given(node, 1) else ZERO)) * out_size(node)


def quick_gelu(node: Node) -> Cost:
    """QuickGelu: Y = X * sigmoid(alpha * X): sigmoid, 2 muls; 1 mul when alpha = 1."""
    scaled = MUL if number(node, "alpha", 1.702) != 1 else ZERO
    return (SILU + scaled) * out_size(node)


def scaled_silu(node: Node) -> Cost:
    """ScaledSiLU: Z = scale * X, Y = Z * sigmoid(Z): sigmoid, mul; a mul when scale != 1."""
    scaled = given(node, 1) or number(node, "alpha", 1.0) != 1
    return (SILU + (MUL if scaled else ZERO)) * out_size(node)


def bias_split_gelu(node: Node) -> Cost:
    """BiasSplitGelu: X + bias is halved, Y = left * Gelu(right); n(X) adds, n(Y)*(Gelu, mul).

    X [N, S, D], bias [D], Y [N, S, D / 2].
    """
    return ADD * size(node) + (GELU + MUL) * out_size(node)


def bias_softmax(node: Node) -> Cost:
    """BiasSoftmax: softmax of data + bias over the dimensions from `axis` on; n adds."""
    dims = shape(source(node, 0))
    count, groups = prod(dims), prod(dims[: axis_of(node, len(dims), 1)])
    return Cost(adds=count) + softmax_cost(count, groups)


def bias_dropout(node: Node) -> Cost:
    """BiasDropout in inference: data + bias + residual; n adds for each of the two.

    Raises ValueError when training_mode is an input, since its value is not known.
    """
    if given(node, 4):
        raise ValueError(f"whether {node.op} drops depends on the value of training_mode")
    return ADD * (out_size(node) * (2 if given(node, 2) else 1))


def bias_add(node: Node) -> Cost:
    """BiasAdd: Y = X + bias + skip; 2 n adds."""
    return Cost(adds=2) * out_size(node)


_DROPPED = "n adds; residual: n adds; inference"

_ACTIVATION_ENTRIES: tuple[Entry, ...] = (
    entry("Gelu", gelu, "n(Y)*(div, erf, add, 2 muls)", domain=MICROSOFT),
    entry(
        "BiasGelu",
        bias_gelu,
        "n(C)*(div, erf, 2 adds, 2 muls)",
        domain=MICROSOFT,
        requires=sizes("A[...,H] B[H]"),
    ),
    entry(
        "FastGelu",
        fast_gelu,
        "n(Y)*(pow, tanh, 2 adds, 4 muls); bias: n(Y) adds",
        domain=MICROSOFT,
        requires=sizes("X[...,H] bias[H]"),
    ),
    entry(
        "QuickGelu",
        quick_gelu,
        "n(Y)*(sigmoid, mul); alpha != 1: n(Y) muls",
        domain=MICROSOFT,
    ),
    entry(
        "ScaledSiLU",
        scaled_silu,
        "n(Y)*(sigmoid, mul); scale: n(Y) muls",
        domain=MICROSOFT,
        requires=rank(1, 0),
    ),
    entry(
        "BiasSplitGelu",
        bias_split_gelu,
        "n(X) adds, n(Y)*(div, erf, add, 3 muls)",
        domain=MICROSOFT,
        requires=sizes("X[N,S,D] bias[D]"),
    ),
    entry(
        "BiasSoftmax",
        bias_softmax,
        "n adds, n-m compares, n subs, n exps, n-m adds, n divs; m = dims before axis",
        domain=MICROSOFT,
        requires=broadcasting(0, 1),
    ),
    entry(
        "BiasAdd",
        bias_add,
        "2n(Y) adds",
        domain=MICROSOFT,
        requires=sizes("X[N,S,C] bias[C] skip[N,S,C]"),
    ),
    entry(
        "BiasDropout",
        bias_dropout,
        _DROPPED,
        domain=MICROSOFT,
        requires=(broadcasting(0, 1), equal(0, 2)),
    ),
    entry(
        "BitmaskBiasDropout",
        bias_dropout,
        _DROPPED,
        domain=MICROSOFT,
        requires=(broadcasting(0, 1), equal(0, 2)),
    ),
)


ENTRIES: tuple[Entry, ...] = (*_ELEMENTWISE_ENTRIES, *_ACTIVATION_ENTRIES)
