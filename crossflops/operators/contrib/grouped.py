"""The cost of onnxruntime's attentions with fewer key heads than query heads, of rotations and of
position biases.
"""

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    float_attribute,
    has_input,
    has_output,
    input_element_count,
    input_spec,
    integer_attribute,
    output_element_count,
    output_spec,
    positive_integer_attribute,
    spec_shape,
)
from crossflops.operators.contrib.attention import (
    PAIR,
    Scores,
    attention_score_cost,
    dense_score_sizes,
    width_per_head,
)
from crossflops.operators.gradient import FUSED
from crossflops.operators.normalization import rms_norm_cost
from crossflops.operators.operands import (
    Shape,
    input_label,
    input_shape,
    input_shape_or_raise,
    integer_list_or_none,
    rank_constraint,
    shape_constraint,
    sizes_constraint,
)
from crossflops.operators.pointwise import MUL
from crossflops.operators.rule import (
    MICROSOFT,
    OperandProblem,
    Operators,
    estimate_exactness,
    upper_bound_exactness,
)

operator = Operators(MICROSOFT, backward=FUSED)


class GroupedTokens(NamedTuple):
    """Tokens of `heads` query heads and `kv_heads` key heads, all of one depth."""

    tokens: int
    heads: int
    kv_heads: int
    depth: int

    @property
    def query_elements(self) -> int:
        """The number of elements of Q."""
        return self.tokens * self.heads * self.depth

    @property
    def new_key_elements(self) -> int:
        """The number of elements of the new keys; the new values have as many."""
        return self.tokens * self.kv_heads * self.depth


def group_query_token_sizes(node: Node) -> GroupedTokens:
    """Return the number of tokens, query heads and key heads, and the head size, of a query that
    may contain K and V.
    """
    dims = spec_shape(input_spec(node, 0), at_least=2)
    heads, kv_heads = (
        positive_integer_attribute(node, "num_heads"),
        positive_integer_attribute(node, "kv_num_heads"),
    )
    packed = heads if has_input(node, 1) else heads + 2 * kv_heads
    depth = width_per_head(dims[-1], packed, node)
    return GroupedTokens(prod(dims[:-1]), heads, kv_heads, depth)


def query_key_preparation_cost(node: Node, heads: GroupedTokens, caches: int, norms: int) -> Cost:
    """Return the cost of what is done to Q and K before their product: RMS norms and the rotation.

    `caches` is the index of the input with the cosines, [M, R / 2] for R rotated elements of each
    head; `norms` that of the input with the weights of the query norm.
    """
    cost = ZERO
    if has_input(node, norms):
        count = heads.query_elements + heads.new_key_elements
        cost += rms_norm_cost(count, count // heads.depth if heads.depth else 0, scaled=True)
    if integer_attribute(node, "do_rotary", 0):
        half = heads.depth // 2
        if has_input(node, caches):
            half = spec_shape(input_spec(node, caches), rank=2)[1]
        cost += PAIR * (heads.tokens * (heads.heads + heads.kv_heads) * half)
    return cost


def has_softcap(node: Node) -> bool:
    """Return whether the node caps its scores: whether its attribute softcap is not 0."""
    return float_attribute(node, "softcap", 0.0) != 0


def _key_count_in_cache(node: Node) -> int:
    """Return the number of keys in the cache of a grouped attention: of the present output, else
    past plus new keys.

    Those of its present output, otherwise the past and the new ones.
    """
    if has_output(node, 1) and output_spec(node, 1).shape is not None:
        return spec_shape(output_spec(node, 1), rank=4)[2]
    new = (
        spec_shape(input_spec(node, 1), rank=3)[1]
        if has_input(node, 1)
        else _query_length_of_sequence(node)
    )
    return new + (spec_shape(input_spec(node, 3), rank=4)[2] if has_input(node, 3) else 0)


def _query_length_of_sequence(node: Node) -> int:
    """Return the number of query tokens of one sequence."""
    return spec_shape(input_spec(node, 0), rank=3)[1]


def _cache_quantization_cost(node: Node, heads: GroupedTokens, total: int, batch: int) -> Cost:
    """Return the cost of a cache in small integers: a div, a round and 2 compares per new element,
    a mul per element read.
    """
    read = batch * heads.kv_heads * total * heads.depth
    cache = Cost(divs=1, specials=1, compares=2) * heads.new_key_elements + MUL * read
    return cache * (has_input(node, 12) + has_input(node, 13))


def _head_groups_constraint(node: Node) -> OperandProblem:
    """Return why the query heads do not divide into one group per key head; "" if nothing is
    wrong.

    All heads have one depth.
    """
    heads, kv_heads = (
        positive_integer_attribute(node, "num_heads"),
        positive_integer_attribute(node, "kv_num_heads"),
    )
    if heads % kv_heads:
        return f"num_heads = {heads} is not a multiple of kv_num_heads = {kv_heads}"
    query, key = input_shape(node, 0), input_shape(node, 1)
    if query is None or len(query) < 2:
        return ""
    parts = heads if has_input(node, 1) else heads + 2 * kv_heads
    if query[-1] % parts:
        return (
            f"{input_label(node, 0, 'query')} has {query[-1]}, "
            f"which does not divide into {parts} heads"
        )
    depth = query[-1] // parts
    for index, dims in ((1, key), (2, input_shape(node, 2))):
        if dims is not None and dims[-1] != kv_heads * depth:
            has = f"{input_label(node, index)} has {dims[-1]} at its last axis"
            return f"{has}, but {kv_heads} heads of {depth} need {kv_heads * depth}"
    return ""


def _past_heads_constraint(node: Node) -> OperandProblem:
    """Return why past keys do not fit the query heads or the present keys; "" if nothing is wrong.

    Past heads are as deep as those of the query, and past and new keys add up to all keys.
    """
    query, past = input_shape_or_raise(node, 0), input_shape_or_raise(node, 3)
    if len(query) < 3:
        return ""
    heads, kv_heads = (
        positive_integer_attribute(node, "num_heads"),
        positive_integer_attribute(node, "kv_num_heads"),
    )
    depth = query[-1] // (heads if has_input(node, 1) else heads + 2 * kv_heads)
    if input_spec(node, 3).dtype.startswith(("float", "bfloat")) and past[3] != depth:
        return f"{input_label(node, 3, 'past_key')} has {past[3]} at axis 3, but {depth} is needed"
    (total,) = node.values.get(6, (past[2] + query[1],))
    if query[1] <= total and (total == past[2] + query[1] or total <= past[2]):
        return ""
    return (
        f"{input_label(node, 3, 'past_key')} has "
        f"{past[2]} keys, {query[1]} are new, and {total} all"
    )


@operator(
    "GroupQueryAttention",
    "S*2*D MACs, S = B*Hq*S*T; scale: S muls; mask, attention_bias: S adds each; softcap: S*(div, "
    "tanh, mul); sink: B*Hq*S*(compare, sub, exp, add); softmax over T; norms of Q and K; "
    "do_rotary: B*S*(Hq+Hkv)*R/2*(4 muls, 2 adds); quantized cache: (div, round, 2 compares) per "
    "new, mul per read element",
    doubt=upper_bound_exactness,
    requires=(
        sizes_constraint(
            "k=@kv_num_heads query[B,S,_] key[B,S,_] value[B,S,_] past_key[B,k,P,D] "
            "past_value[B,k,P,D] seqlens_k total_sequence_length cos_cache[M,R] sin_cache[M,R]"
        ),
        _head_groups_constraint,
        _past_heads_constraint,
    ),
)
def group_query_attention_cost(node: Node) -> Cost:
    """Return the cost of GroupQueryAttention: B*Hq*S*T*2*D MACs, since queries that share keys all
    count, and work per score.

    T is the length of present_key, or past + new: a bound, since seqlens_k and the filling of a
    shared buffer are data. A causal mask or a window saves nothing (dense): S adds, once;
    attention_bias S adds; softcap, smooth_softmax and head_sink as in `attention_score_cost`;
    q_norm_weight an RMS normalization of Q and K; do_rotary turns cos_cache [M, R / 2] of each of
    their heads; k_scale, v_scale: the cache is quantized. query [B, S, Hq*D], or packed [B, S, (Hq
    + 2*Hkv)*D].
    """
    heads = group_query_token_sizes(node)
    batch, length, _ = spec_shape(input_spec(node, 0), rank=3)
    total = _key_count_in_cache(node)
    masked = (
        integer_attribute(node, "causal", 1) != 0
        or integer_attribute(node, "local_window_size", -1) >= 0
    )
    scores = dense_score_sizes(batch * heads.heads * length, total, heads.depth, heads.depth)
    sink = has_input(node, 11) or integer_attribute(node, "smooth_softmax", 0) > 0
    work = attention_score_cost(scores, masked + has_input(node, 10), has_softcap(node), sink)
    return (
        work
        + query_key_preparation_cost(node, heads, caches=7, norms=14)
        + _cache_quantization_cost(node, heads, total, batch)
    )


@operator(
    "SparseAttention",
    "S*2*D MACs, S = B*Hq*min(S*T, blocks*sparse_block_size^2); scale: S muls; mask: S adds; "
    "softmax; do_rotary: B*S*(Hq+Hkv)*R/2*(4 muls, 2 adds)",
    doubt=upper_bound_exactness,
    requires=_head_groups_constraint,
)
def sparse_attention_cost(node: Node) -> Cost:
    """Return the cost of SparseAttention: as GroupQueryAttention, with scores only in the blocks
    of a pattern.

    Scores of a head: S*T, T the length of the cache, or as many blocks as block_col_indices
    [layouts, blocks] holds, of sparse_block_size squared: the fewer. A bound, since T is filled
    by data.
    """
    heads = group_query_token_sizes(node)
    batch, length, _ = spec_shape(input_spec(node, 0), rank=3)
    total = spec_shape(input_spec(node, 3), rank=4)[2]
    block = positive_integer_attribute(node, "sparse_block_size")
    most = spec_shape(input_spec(node, 6), at_least=1)[-1] * block * block
    count = min(length * total, most) * batch * heads.heads
    scores = Scores(count, batch * heads.heads * length, heads.depth, heads.depth)
    return attention_score_cost(scores, added=1) + query_key_preparation_cost(
        node, heads, caches=9, norms=len(node.inputs)
    )


@operator(
    "PagedAttention",
    "S*(D+Dv) MACs, S = tokens*Hq*T, T = blocks*block_size; as GroupQueryAttention",
    doubt=upper_bound_exactness,
    requires=_head_groups_constraint,
)
def contrib_paged_attention_cost(node: Node) -> Cost:
    """Return the largest cost of PagedAttention, in which each token meets the keys in the cache
    blocks of its own sequence.

    MACs = tokens*Hq*T*(D + Dv), T = columns of block_table [B, blocks] * block_size of key_cache
    [n, block_size, Hkv, D]: a bound, what is filled is data. Dv is v_head_size, or D. Mask S
    adds, softcap, head_sink (11), norms (12), do_rotary (cos_cache 8), k_scale and v_scale
    (14, 15) as in GroupQueryAttention.
    """
    heads = group_query_token_sizes(node)
    total = spec_shape(input_spec(node, 7), rank=2)[1] * spec_shape(input_spec(node, 3), rank=4)[1]
    value_depth = positive_integer_attribute(node, "v_head_size", heads.depth)
    scores = dense_score_sizes(heads.tokens * heads.heads, total, heads.depth, value_depth)
    work = attention_score_cost(
        scores, added=1, softcap=has_softcap(node), sink=has_input(node, 11)
    )
    quantized = has_input(node, 14) + has_input(node, 15)
    stored = (Cost(divs=1, specials=1, compares=2) * heads.new_key_elements) * quantized
    read = MUL * (
        spec_shape(input_spec(node, 7), rank=2)[0] * total * heads.kv_heads * heads.depth
    )
    cached = stored + read * quantized if quantized else ZERO
    return work + query_key_preparation_cost(node, heads, caches=8, norms=12) + cached


def _position_ids_shapes(node: Node) -> Iterable[Shape] | None:
    """Return the shapes that position_ids may have: a position for each token, or for the first
    one; None if unknown.
    """
    tokens = _rotary_batch_and_tokens(node)
    return None if tokens is None else [tokens, (1,), ()]


def _rotary_cosine_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the cosines, or "" if nothing is: half as many columns as elements
    of a head are rotated.
    """
    dims, cosines = input_shape_or_raise(node, 0), input_shape_or_raise(node, 2)
    heads, rotated = (
        integer_attribute(node, "num_heads", 0),
        integer_attribute(node, "rotary_embedding_dim", 0),
    )
    if len(dims) == 3 and not heads:
        if rotated or not dims[2] % (2 * cosines[1] or 1):
            return ""
        return (
            f"{input_label(node, 2)} has {cosines[1]} at "
            f"axis 1, and {input_label(node, 0)} {dims[2]}"
        )
    if len(dims) == 3 and dims[2] % heads:
        return (
            f"{input_label(node, 0)} has {dims[2]} at axis 2, which is not a multiple of "
            f"{heads} heads"
        )
    depth = dims[3] if len(dims) == 4 else dims[2] // heads
    needed = (rotated or depth) // 2
    if cosines[1] in (needed, depth // 2):
        return ""
    return (
        f"{input_label(node, 2)} has {cosines[1]} at axis 1, but {needed} are needed for {depth}"
    )


_ROTATED = (
    rank_constraint(0, (3, 4)),
    sizes_constraint("x position_ids cos_cache[M,R] sin_cache[M,R]"),
    _rotary_cosine_constraint,
)
_ROTARY = "pairs*(4 muls, 2 adds), pairs = B*S*N*R/2; scale: 2 muls per pair"


def _triple_position_ids_shapes(node: Node) -> Iterable[Shape] | None:
    """Return the shape of position_ids with three positions per token, in time and in both
    directions of an image.
    """
    tokens = _rotary_batch_and_tokens(node)
    packed = integer_attribute(node, "is_packed_batching", 0) != 0
    return None if tokens is None or packed else [(3, *tokens)]


def _rotary_sections_constraint(node: Node) -> OperandProblem:
    """Return why mrope_section does not divide the cosines among the three positions; "" if
    nothing is wrong.
    """
    sections, cosines = integer_list_or_none(node, "mrope_section"), input_shape(node, 2)
    if sections is None or cosines is None or (len(sections), sum(sections)) == (3, cosines[1]):
        return ""
    return f"attribute 'mrope_section' is {sections}, but {input_label(node, 2)} has {cosines[1]}"


# Positions: rotations of queries and keys, and biases of scores.


@operator(
    "RotaryEmbedding",
    _ROTARY,
    tables=(2, 3),
    requires=(*_ROTATED, shape_constraint(1, _position_ids_shapes, "position_ids")),
)
@operator(
    "MRotaryEmbedding",
    _ROTARY,
    tables=(2, 3),
    requires=(
        *_ROTATED,
        shape_constraint(1, _triple_position_ids_shapes, "position_ids"),
        _rotary_sections_constraint,
    ),
)
def contrib_rotary_embedding_cost(node: Node) -> Cost:
    """Return the cost of onnxruntime's RotaryEmbedding or MRotaryEmbedding: 4 muls and 2 adds for
    each rotated pair of elements.

    input [B, S, N*D] or [B, N, S, D]; cos_cache [M, R / 2] says how many elements R of a head
    rotate. The heads of a 3-D input are num_heads, or as many as have R elements each. A scale
    other than 1 a mul per rotated element. MRotaryEmbedding only chooses other cosines.
    """
    dims, half = (
        spec_shape(input_spec(node, 0), at_least=3),
        spec_shape(input_spec(node, 2), rank=2)[1],
    )
    if len(dims) == 4:
        heads, tokens = dims[1], dims[0] * dims[2]
    else:
        given_heads = integer_attribute(node, "num_heads", 0) != 0
        fitting = dims[2] // (2 * half) if half else 0
        heads = positive_integer_attribute(node, "num_heads") if given_heads else fitting
        tokens = prod(dims[:2])
    scaled = 2 if float_attribute(node, "scale", 1.0) != 1 else 0
    return (PAIR + Cost(muls=scaled)) * (tokens * heads * half)


@operator("GemmaRotaryEmbedding", "n(emb)*(sin, cos), (n(q)+n(k))*(2 muls, add)", operand=1)
def gemma_rotary_embedding_cost(node: Node) -> Cost:
    """Return the cost of GemmaRotaryEmbedding, q*cos(emb) + q_rot*sin(emb) and the same for k.

    n(emb) sines and cosines, n(q) + n(k) (2 muls, add). emb [B, S, D], q, k [B, N, S, D].
    """
    return Cost(specials=2) * input_element_count(node, 0) + Cost(muls=2, adds=1) * (
        input_element_count(node, 1) + input_element_count(node, 3)
    )


@operator(
    "RelativePositionBias",
    "Sq*Sk*(2 adds, 3 compares, div, log, mul); bidirectional: 2 compares, mul, add more",
    doubt=estimate_exactness,
)
def relative_position_bucket_cost(node: Node) -> Cost:
    """Return the estimated cost of RelativePositionBias: the bucket of each of Sq*Sk distances,
    which is looked up for every head.

    Sq*Sk (sub, compare, div, log, mul, add, 2 compares), bidirectional (2 compares, mul, add)
    more; as in T5. output [1, N, Sq, Sk]. How a bucket is found is not fixed: an estimate.
    """
    _, _, queries, keys = spec_shape(output_spec(node), rank=4)
    bucket = Cost(adds=2, compares=3, divs=1, specials=1, muls=1)
    if integer_attribute(node, "is_bidirectional", 0):
        bucket += Cost(compares=2, muls=1, adds=1)
    return bucket * (queries * keys)


@operator(
    "GatedRelativePositionBias",
    "B*S*N*D*G MACs, n(query) adds, B*S*N*(2G adds, 2 sigmoids, 2 muls), n(output) muls",
    requires=sizes_constraint(
        "query_layer[B,S,H] query_bias[H] rel_pos[1,N,S,S] weight[D,G] bias[G]"
    ),
    contracts=(0, 3),
)
def contrib_gated_position_bias_cost(node: Node) -> Cost:
    """Return the cost of GatedRelativePositionBias, (u * (r * eco_a - 1) + 2) * rel_pos, with
    gates u and r of each query.

    q = query_layer + query_bias; B*S*N*D*G MACs for q * weight [D, G] + bias, whose halves sum
    to a gate each: N*B*S (G adds, G - 2 adds, 2 sigmoids, 2 muls, 2 adds); n(output) muls.
    query_layer [B, S, N*D], output [B, N, S, S].
    """
    batch, heads, length, _ = spec_shape(output_spec(node), rank=4)
    depth, gates = spec_shape(input_spec(node, 3), rank=2)
    rows = batch * heads * length
    gate = Cost(macs=depth * gates, adds=gates + max(gates - 2, 0) + 2, specials=2, muls=2)
    return gate * rows + Cost(adds=rows * depth, muls=output_element_count(node))


def _rotary_batch_and_tokens(node: Node) -> Shape | None:
    """Return (batch, tokens) of the input of a rotary embedding, 3-D or 4-D; None if unknown."""
    dims = input_shape(node, 0)
    return None if dims is None else (dims[0], dims[1] if len(dims) == 3 else dims[2])
