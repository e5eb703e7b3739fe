"""What is left: operators on elements, and those that compute nothing at all."""

from collections.abc import Iterable

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import given, integer, out_size, shape, size, source, text
from crossflops.ops.arrangement import gathered_nd, padded
from crossflops.ops.convolution import conv_transpose
from crossflops.ops.movement import dropout, moved
from crossflops.ops.operands import (
    Shape,
    by_rank,
    dims_of,
    label,
    out_of_range,
    rank,
    shaped,
    single,
    sizes,
)
from crossflops.ops.pointwise import per_element
from crossflops.ops.pooling import POOL, max_pool
from crossflops.ops.resampling import SAMPLED, grid_sample
from crossflops.ops.rule import MICROSOFT, Constraint, Entry, Traffic, entry, estimated
from crossflops.ops.sorting import unique
from crossflops.ops.windows import transposed

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


ENTRIES: tuple[Entry, ...] = (
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
