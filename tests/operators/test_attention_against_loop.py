"""Attention against a loop that performs it on counted scalars."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.ledger import Cost, CountedNode, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import Tally, few, numbers, reference, small, softmax, values, work


def attention_loop(tally, q, k, v, mask, past_k, past_v, softcap, causal):
    """Attention on 4-D operands, as the page says: Q and the keys take the root of the scale."""
    if past_k is not None:
        offset = past_k.shape[2]
        k, v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    else:
        offset = 0
    batch, heads, queries, depth = q.shape
    shared, total = heads // k.shape[1], k.shape[2]
    root = depth**-0.25
    q, k = q * root, k * root
    bias = np.zeros((batch, heads, queries, total))
    bias = bias + mask if mask is not None else bias
    if causal:
        bias = bias + np.where(np.tri(queries, total, offset) > 0, 0, -np.inf)
    y = np.empty((batch, heads, queries, v.shape[3]), dtype=object)
    for b, h, i in np.ndindex(batch, heads, queries):
        row = [tally.dot(q[b, h, i], k[b, h // shared, j]) for j in range(total)]
        if softcap:
            row = [(score / softcap).tanh() * softcap for score in row]
        if mask is not None or causal:
            row = [score + bias[b, h, i, j] for j, score in enumerate(row)]
        weights = softmax(row)
        for d in range(v.shape[3]):
            y[b, h, i, d] = tally.dot(weights, v[b, h // shared, :, d])
    return y


@few
@given(
    *(small, small, st.integers(1, 2), small, small, small, small, st.integers(0, 2)),
    *(st.booleans(), st.booleans(), st.sampled_from([0.0, 2.0]), st.data()),
)
def test_attention_is_its_loop(
    batch, kv_heads, shared, queries, keys, depth, wide, past, masked, causal, softcap, data
):
    """Attention counts what the loop does, with shared heads, a past, a mask and a cap."""
    heads, total = kv_heads * shared, keys + past
    q = numbers(data.draw, batch, heads, queries, depth)
    k = numbers(data.draw, batch, kv_heads, keys, depth)
    v = numbers(data.draw, batch, kv_heads, keys, wide)
    mask = numbers(data.draw, queries, total) if masked else None
    pk = numbers(data.draw, batch, kv_heads, past, depth) if past else None
    pv = numbers(data.draw, batch, kv_heads, past, wide) if past else None
    arrays = [q, k, v, mask, pk, pv]
    tally = Tally()
    scalars = [None if a is None else tally.array(a) for a in arrays]
    y = attention_loop(tally, *scalars[:3], mask, *scalars[4:], softcap, causal)
    attrs = {"softcap": softcap, "is_causal": int(causal)}
    outs = 3 if past else 1
    assert np.allclose(values(y), reference("Attention", arrays, outs, **attrs), atol=1e-4)
    shapes = [None if a is None else a.shape for a in arrays]
    assert work(to_node("Attention-23", shapes, [y.shape], **attrs)) == tally.cost
    flat = [(s[0], s[2], s[1] * s[3]) if i < 3 else s for i, s in enumerate(shapes)]
    heads_ = {"q_num_heads": heads, "kv_num_heads": kv_heads}
    packed = to_node("Attention-25", flat, [(batch, queries, heads * wide)], **attrs, **heads_)
    assert work(packed) == tally.cost


def test_lengths_that_are_data_give_a_bound():
    """nonpad_kv_seqlen shortens the keys by values that nobody knows: an upper bound."""
    qkv = [(1, 2, 3, 4)] * 3
    full = count_node(to_node("Attention-24", qkv, [(1, 2, 3, 4)]))
    padded = count_node(
        to_node("Attention-24", [*qkv, None, None, None, "1:int64"], [(1, 2, 3, 4)])
    )
    assert isinstance(full, CountedNode)
    assert isinstance(padded, CountedNode)
    assert (full.exactness, padded.exactness) == ("exact", "bound")
    assert padded.cost.macs == full.cost.macs == 1 * 2 * 3 * 3 * (4 + 4)


def test_packed_heads_without_their_number_are_uncounted():
    """A 3-D operand cannot be split into heads without q_num_heads."""
    assert isinstance(
        count_node(to_node("Attention", [(1, 2, 8)] * 3, [(1, 2, 8)])), UncountedNode
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # B=1, T=2, Hq=4, Hkv=2, dk=3, dv=5: T*(Hq+Hkv)*15 = 180 MACs; T*Hq*5 = 40 muls.
        ("linear", Cost(macs=180, muls=40)),
        # the decay: T*Hkv = 4 exps, T*Hkv*15 = 60 muls.
        ("gated", Cost(macs=180, muls=100, specials=4)),
        # retrieving: T*Hkv*15 = 60 MACs; T*Hkv*5 = 20 subs, 20 muls by beta.
        ("delta", Cost(macs=240, muls=60, adds=20)),
        ("gated_delta", Cost(macs=240, muls=120, adds=20, specials=4)),
    ],
)
def test_linear_attention_by_hand(rule, expected):
    """Each update rule adds its own terms."""
    inputs = [(1, 2, 12), (1, 2, 6), (1, 2, 10), None, (1, 2, 2), (1, 2, 2)]
    attrs = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule}
    assert work(to_node("LinearAttention", inputs, [(1, 2, 20)], **attrs)) == expected


@pytest.mark.parametrize(
    ("shape", "attrs", "pairs"),
    [
        ((2, 3, 5, 8), {}, 2 * 3 * 5 * 4),
        ((2, 5, 24), {"num_heads": 3}, 2 * 3 * 5 * 4),
        ((2, 5, 24), {"num_heads": 3, "rotary_embedding_dim": 4}, 2 * 3 * 5 * 2),
    ],
)
def test_rotary_embedding_by_hand(shape, attrs, pairs):
    """A pair costs 4 muls and 2 adds; what is not rotated costs nothing."""
    rotary = to_node("RotaryEmbedding", [shape, (9, 4), (9, 4), "2x5:int64"], [shape], **attrs)
    assert work(rotary) == Cost(muls=4 * pairs, adds=2 * pairs)
