"""Positions: rotations of queries and keys, and biases of scores."""

from collections.abc import Iterable
from math import prod

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import integer, number, out_size, positive, result, shape, size, source
from crossflops.ops.contrib.scores import PAIR
from crossflops.ops.operands import Shape, dims_of, ints, label, rank, shaped, sizes
from crossflops.ops.rule import MICROSOFT, Entry, entry, estimated


def rotary(node: Node) -> Cost:
    """RotaryEmbedding: (cos*x1 - sin*x2, sin*x1 + cos*x2) of each pair: 4 muls, 2 adds.

    input [B, S, N*D] or [B, N, S, D]; cos_cache [M, R / 2] says how many elements R of a head
    rotate. The heads of a 3-D input are num_heads, or as many as have R elements each. A scale
    other than 1 a mul per rotated element. MRotaryEmbedding only chooses other cosines.
    """
    dims, half = shape(source(node, 0), at_least=3), shape(source(node, 2), rank=2)[1]
    if len(dims) == 4:
        heads, tokens = dims[1], dims[0] * dims[2]
    else:
        given_heads = integer(node, "num_heads", 0) != 0
        fitting = dims[2] // (2 * half) if half else 0
        heads = positive(node, "num_heads") if given_heads else fitting
        tokens = prod(dims[:2])
    scaled = 2 if number(node, "scale", 1.0) != 1 else 0
    return (PAIR + Cost(muls=scaled)) * (tokens * heads * half)


def gemma_rotary(node: Node) -> Cost:
    """GemmaRotaryEmbedding: q*cos(emb) + q_rot*sin(emb), and so for k.

    n(emb) sines and cosines, n(q) + n(k) (2 muls, add). emb [B, S, D], q, k [B, N, S, D].
    """
    return Cost(specials=2) * size(node, 0) + Cost(muls=2, adds=1) * (
        size(node, 1) + size(node, 3)
    )


def relative_position_bias(node: Node) -> Cost:
    """RelativePositionBias: the bucket of each of Sq*Sk distances, looked up for every head.

    Sq*Sk (sub, compare, div, log, mul, add, 2 compares), bidirectional (2 compares, mul, add)
    more; as in T5. output [1, N, Sq, Sk]. How a bucket is found is not fixed: an estimate.
    """
    _, _, queries, keys = shape(result(node), rank=4)
    bucket = Cost(adds=2, compares=3, divs=1, specials=1, muls=1)
    if integer(node, "is_bidirectional", 0):
        bucket += Cost(compares=2, muls=1, adds=1)
    return bucket * (queries * keys)


def gated_relative_position_bias(node: Node) -> Cost:
    """GatedRelativePositionBias: (u * (r * eco_a - 1) + 2) * rel_pos, u and r gates of a query.

    q = query_layer + query_bias; B*S*N*D*G MACs for q * weight [D, G] + bias, whose halves sum
    to a gate each: N*B*S (G adds, G - 2 adds, 2 sigmoids, 2 muls, 2 adds); n(output) muls.
    query_layer [B, S, N*D], output [B, N, S, S].
    """
    batch, heads, length, _ = shape(result(node), rank=4)
    depth, gates = shape(source(node, 3), rank=2)
    rows = batch * heads * length
    gate = Cost(macs=depth * gates, adds=gates + max(gates - 2, 0) + 2, specials=2, muls=2)
    return gate * rows + Cost(adds=rows * depth, muls=out_size(node))


def _tokens(node: Node) -> Shape | None:
    """B and S of x [B, S, N*D] or [B, N, S, D]."""
    dims = dims_of(node, 0)
    return None if dims is None else (dims[0], dims[1] if len(dims) == 3 else dims[2])


def _placed(node: Node) -> Iterable[Shape] | None:
    """A position of each token, or of the first."""
    tokens = _tokens(node)
    return None if tokens is None else [tokens, (1,), ()]


def _placed_thrice(node: Node) -> Iterable[Shape] | None:
    """Three positions of each token: in time, and in both directions of a picture."""
    tokens = _tokens(node)
    packed = integer(node, "is_packed_batching", 0) != 0
    return None if tokens is None or packed else [(3, *tokens)]


def _sections(node: Node) -> str:
    """mrope_section shares the cosines of a token among its three positions."""
    sections, cosines = ints(node, "mrope_section"), dims_of(node, 2)
    if sections is None or cosines is None or (len(sections), sum(sections)) == (3, cosines[1]):
        return ""
    return f"attribute 'mrope_section' is {sections}, and {label(node, 2)} has {cosines[1]}"


def _turned(node: Node) -> str:
    """Half of what rotates has a cosine."""
    dims, cosines = dims_of(node, 0), dims_of(node, 2)
    heads, rotated = integer(node, "num_heads", 0), integer(node, "rotary_embedding_dim", 0)
    if dims is None or cosines is None:
        return ""
    if len(dims) == 3 and not heads:
        if rotated or not dims[2] % (2 * cosines[1] or 1):
            return ""
        return f"{label(node, 2)} has {cosines[1]} at axis 1, and {label(node, 0)} {dims[2]}"
    if len(dims) == 3 and dims[2] % heads:
        return f"{label(node, 0)} has {dims[2]} at axis 2, which is no multiple of {heads} heads"
    depth = dims[3] if len(dims) == 4 else dims[2] // heads
    asked = (rotated or depth) // 2
    if cosines[1] in (asked, depth // 2):
        return ""
    return f"{label(node, 2)} has {cosines[1]} at axis 1, and {asked} are needed for {depth}"


_ROTATED = (rank(0, (3, 4)), sizes("x position_ids cos_cache[M,R] sin_cache[M,R]"), _turned)
_ROTARY = "pairs*(4 muls, 2 adds), pairs = B*S*N*R/2; scale: 2 muls per pair"

ENTRIES: tuple[Entry, ...] = (
    entry(
        "RotaryEmbedding",
        rotary,
        _ROTARY,
        domain=MICROSOFT,
        tables=(2, 3),
        requires=(*_ROTATED, shaped(1, _placed, "position_ids")),
    ),
    entry(
        "MRotaryEmbedding",
        rotary,
        _ROTARY,
        domain=MICROSOFT,
        tables=(2, 3),
        requires=(*_ROTATED, shaped(1, _placed_thrice, "position_ids"), _sections),
    ),
    entry(
        "GemmaRotaryEmbedding",
        gemma_rotary,
        "n(emb)*(sin, cos), (n(q)+n(k))*(2 muls, add)",
        domain=MICROSOFT,
        operand=1,
    ),
    entry(
        "RelativePositionBias",
        relative_position_bias,
        "Sq*Sk*(2 adds, 3 compares, div, log, mul); bidirectional: 2 compares, mul, add more",
        domain=MICROSOFT,
        doubt=estimated,
    ),
    entry(
        "GatedRelativePositionBias",
        gated_relative_position_bias,
        "B*S*N*D*G MACs, n(query) adds, B*S*N*(2G adds, 2 sigmoids, 2 muls), n(output) muls",
        domain=MICROSOFT,
        requires=sizes("query_layer[B,S,H] query_bias[H] rel_pos[1,N,S,S] weight[D,G] bias[G]"),
    ),
)
