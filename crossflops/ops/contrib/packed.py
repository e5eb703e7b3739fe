"""Attention on sequences without their padding: what is left of each is data.

T tokens of sequences of at most S each have at most T * S scores in a head: a bound, reached when
every sequence is as long as the longest.
"""

from math import prod

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import given, positive, shape, source
from crossflops.ops.contrib.attention import projected_sizes
from crossflops.ops.contrib.scores import dense, head_size, scored
from crossflops.ops.operands import by_rank, sizes
from crossflops.ops.pointwise import ADD
from crossflops.ops.rule import MICROSOFT, Entry, bounded, entry


def packed_attention(node: Node) -> Cost:
    """PackedAttention: as Attention; MACs = T*in*(Hq + Hk + Hv) + N*T*S*(D + Dv).

    input [T, in], weights [in, Hq + Hk + Hv], token_offset [B, S]; bias n(QKV) adds, scale N*T*S
    muls, attention_bias N*T*S adds.
    """
    tokens, width = shape(source(node, 0), rank=2)
    sizes, heads = projected_sizes(node), positive(node, "num_heads")
    longest = shape(source(node, 3), rank=2)[1]
    depths = [head_size(size, heads, node) for size in sizes]
    projected = tokens * sum(sizes)
    macs = Cost(macs=projected * width, adds=projected if given(node, 2) else 0)
    return macs + scored(dense(heads * tokens, longest, depths[0], depths[2]), given(node, 5))


def packed_multi_head(node: Node) -> Cost:
    """PackedMultiHeadAttention: as MultiHeadAttention; MACs = N*T*S*(D + Dv).

    query [T, N*D] (key, value alike), or packed [T, N, 3, D]; token_offset [B, S] is input 4.
    """
    query, heads = shape(source(node, 0), at_least=2), positive(node, "num_heads")
    longest = shape(source(node, 4), rank=2)[1]
    if len(query) == 4:
        depth, value_depth, elements = query[3], query[3], prod(query)
    else:
        key, value = (shape(source(node, i), rank=2) for i in (1, 2))
        depth, value_depth = (head_size(one[1], heads, node) for one in (query, value))
        elements = prod(query) + prod(key) + prod(value)
    biased = ADD * elements if given(node, 3) else ZERO
    return biased + scored(dense(heads * query[0], longest, depth, value_depth), given(node, 6))


_CORE = "S = N*T*longest; scale: S muls; attention_bias: S adds; softmax"

ENTRIES: tuple[Entry, ...] = (
    entry(
        "PackedAttention",
        packed_attention,
        f"T*in*(Hq+Hk+Hv) + S*(D+Dv) MACs, {_CORE}; bias: n(QKV) adds",
        domain=MICROSOFT,
        doubt=bounded,
        requires=sizes("input[T,I] weights[I,H] bias[H] token_offset[B,S]"),
    ),
    entry(
        "PackedMultiHeadAttention",
        packed_multi_head,
        f"S*(D+Dv) MACs, {_CORE}; bias: n(Q)+n(K)+n(V) adds",
        domain=MICROSOFT,
        doubt=bounded,
        requires=by_rank(
            0,
            {2: sizes("query[T,H] key[T,H] value[T,_]"), 4: sizes("n=@num_heads query[T,n,3,D]")},
        ),
    ),
)
