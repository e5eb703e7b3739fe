"""Attention with fewer key heads than query heads, on a cache whose filling is data."""

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import given, integer, positive, result, shape, source, wanted
from crossflops.ops.contrib.scores import Grouped, Scores, capped, dense, grouped, prepared, scored
from crossflops.ops.operands import dims_of, label, sizes
from crossflops.ops.pointwise import MUL
from crossflops.ops.rule import MICROSOFT, Entry, bounded, entry


def _cache(node: Node) -> int:
    """T of GroupQueryAttention: of the keys that it hands on, else the past and the new ones."""
    if wanted(node, 1) and result(node, 1).shape is not None:
        return shape(result(node, 1), rank=4)[2]
    new = shape(source(node, 1), rank=3)[1] if given(node, 1) else _length(node)
    return new + (shape(source(node, 3), rank=4)[2] if given(node, 3) else 0)


def _length(node: Node) -> int:
    return shape(source(node, 0), rank=3)[1]


def _requantized(node: Node, heads: Grouped, total: int, batch: int) -> Cost:
    """A cache in small integers: new elements (div, round, 2 compares), those read a mul."""
    read = batch * heads.kv_heads * total * heads.depth
    each = Cost(divs=1, specials=1, compares=2) * heads.new_keys + MUL * read
    return each * (given(node, 12) + given(node, 13))


def group_query(node: Node) -> Cost:
    """GroupQueryAttention: MACs = B*Hq*S*T*2*D; queries that share keys all count.

    T is the length of present_key, or past + new: a bound, since seqlens_k and the filling of a
    shared buffer are data. A causal mask or a window saves nothing (dense): S adds, once;
    attention_bias S adds; softcap, smooth_softmax and head_sink as in `scored`; q_norm_weight an
    RMS normalization of Q and K; do_rotary turns cos_cache [M, R / 2] of each of their heads;
    k_scale, v_scale: the cache is quantized. query [B, S, Hq*D], or packed [B, S, (Hq + 2*Hkv)*D].
    """
    heads = grouped(node)
    batch, length, _ = shape(source(node, 0), rank=3)
    total = _cache(node)
    masked = integer(node, "causal", 1) != 0 or integer(node, "local_window_size", -1) >= 0
    scores = dense(batch * heads.heads * length, total, heads.depth, heads.depth)
    sink = given(node, 11) or integer(node, "smooth_softmax", 0) > 0
    work = scored(scores, masked + given(node, 10), capped(node), sink)
    return (
        work + prepared(node, heads, caches=7, norms=14) + _requantized(node, heads, total, batch)
    )


def sparse(node: Node) -> Cost:
    """SparseAttention: as GroupQueryAttention, on the blocks of a pattern.

    Scores of a head: S*T, T the length of the cache, or as many blocks as block_col_indices
    [layouts, blocks] holds, of sparse_block_size squared: the fewer. A bound, since T is filled
    by data.
    """
    heads = grouped(node)
    batch, length, _ = shape(source(node, 0), rank=3)
    total = shape(source(node, 3), rank=4)[2]
    block = positive(node, "sparse_block_size")
    most = shape(source(node, 6), at_least=1)[-1] * block * block
    count = min(length * total, most) * batch * heads.heads
    scores = Scores(count, batch * heads.heads * length, heads.depth, heads.depth)
    return scored(scores, added=1) + prepared(node, heads, caches=9, norms=len(node.inputs))


def paged(node: Node) -> Cost:
    """PagedAttention: tokens of all sequences, each meets its own blocks of the cache.

    MACs = tokens*Hq*T*(D + Dv), T = columns of block_table [B, blocks] * block_size of key_cache
    [n, block_size, Hkv, D]: a bound, what is filled is data. Dv is v_head_size, or D. Mask S
    adds, softcap, head_sink (11), norms (12), do_rotary (cos_cache 8), k_scale and v_scale
    (14, 15) as in GroupQueryAttention.
    """
    heads = grouped(node)
    total = shape(source(node, 7), rank=2)[1] * shape(source(node, 3), rank=4)[1]
    value_depth = positive(node, "v_head_size", heads.depth)
    scores = dense(heads.tokens * heads.heads, total, heads.depth, value_depth)
    work = scored(scores, added=1, softcap=capped(node), sink=given(node, 11))
    quantized = given(node, 14) + given(node, 15)
    stored = (Cost(divs=1, specials=1, compares=2) * heads.new_keys) * quantized
    read = MUL * (shape(source(node, 7), rank=2)[0] * total * heads.kv_heads * heads.depth)
    cached = stored + read * quantized if quantized else ZERO
    return work + prepared(node, heads, caches=8, norms=12) + cached


def _grouped_heads(node: Node) -> str:
    """Query heads divide into groups, one for each key head; all heads have one depth."""
    heads, kv_heads = positive(node, "num_heads"), positive(node, "kv_num_heads")
    if heads % kv_heads:
        return f"num_heads = {heads} is no multiple of kv_num_heads = {kv_heads}"
    query, key = dims_of(node, 0), dims_of(node, 1)
    if query is None or len(query) < 2:
        return ""
    parts = heads if given(node, 1) else heads + 2 * kv_heads
    if query[-1] % parts:
        return (
            f"{label(node, 0, 'query')} has {query[-1]}, which does not divide into {parts} heads"
        )
    depth = query[-1] // parts
    for index, dims in ((1, key), (2, dims_of(node, 2))):
        if dims is not None and dims[-1] != kv_heads * depth:
            has = f"{label(node, index)} has {dims[-1]} at its last axis"
            return f"{has}, and {kv_heads} heads of {depth} need {kv_heads * depth}"
    return ""


def _remembered(node: Node) -> str:
    """The heads of the past are as deep as those of the query; all keys are past or new ones."""
    query, past = dims_of(node, 0), dims_of(node, 3)
    if query is None or past is None or len(query) < 3:
        return ""
    heads, kv_heads = positive(node, "num_heads"), positive(node, "kv_num_heads")
    depth = query[-1] // (heads if given(node, 1) else heads + 2 * kv_heads)
    if source(node, 3).dtype.startswith(("float", "bfloat")) and past[3] != depth:
        return f"{label(node, 3, 'past_key')} has {past[3]} at axis 3, and {depth} is needed"
    (total,) = node.values.get(6, (past[2] + query[1],))
    if query[1] <= total and (total == past[2] + query[1] or total <= past[2]):
        return ""
    return f"{label(node, 3, 'past_key')} has {past[2]} keys, {query[1]} are new, and {total} all"


_GQA = (
    sizes(
        "k=@kv_num_heads query[B,S,_] key[B,S,_] value[B,S,_] past_key[B,k,P,D] "
        "past_value[B,k,P,D] seqlens_k total_sequence_length cos_cache[M,R] sin_cache[M,R]"
    ),
    _grouped_heads,
    _remembered,
)

_GROUPED = (
    "S*2*D MACs, S = B*Hq*S*T; scale: S muls; mask, attention_bias: S adds each; softcap: S*(div, "
    "tanh, mul); sink: B*Hq*S*(compare, sub, exp, add); softmax over T; norms of Q and K; "
    "do_rotary: B*S*(Hq+Hkv)*R/2*(4 muls, 2 adds); quantized cache: (div, round, 2 compares) per "
    "new, mul per read element"
)

ENTRIES: tuple[Entry, ...] = (
    entry(
        "GroupQueryAttention",
        group_query,
        _GROUPED,
        domain=MICROSOFT,
        doubt=bounded,
        requires=_GQA,
    ),
    entry(
        "SparseAttention",
        sparse,
        "S*2*D MACs, S = B*Hq*min(S*T, blocks*sparse_block_size^2); scale: S muls; mask: S adds; "
        "softmax; do_rotary: B*S*(Hq+Hkv)*R/2*(4 muls, 2 adds)",
        domain=MICROSOFT,
        doubt=bounded,
        requires=_grouped_heads,
    ),
    entry(
        "PagedAttention",
        paged,
        "S*(D+Dv) MACs, S = tokens*Hq*T, T = blocks*block_size; as GroupQueryAttention",
        domain=MICROSOFT,
        doubt=bounded,
        requires=_grouped_heads,
    ),
)
