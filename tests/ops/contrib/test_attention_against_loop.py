"""The attentions of onnxruntime against loops on counted scalars, and against ai.onnx."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.core.cost import Cost
from crossflops.core.ledger import Counted, Uncounted
from crossflops.count import count_node
from crossflops.testing.graphs import node
from tests.ops.scalars import (
    Tally,
    few,
    largest,
    numbers,
    reference,
    small,
    softmax,
    total,
    values,
    work,
)

MS = "com.microsoft::"


def scored_loop(tally, q, k, v, added=(), softcap=0.0, sink=None):
    """Q [B, H, S, D] meets K [B, Hkv, T, D]; the scale comes after the product."""
    batch, heads, queries, depth = q.shape
    shared, keys = heads // k.shape[1], k.shape[2]
    y = np.empty((batch, heads, queries, v.shape[3]), dtype=object)
    for b, h, i in np.ndindex(batch, heads, queries):
        row = [tally.dot(q[b, h, i], k[b, h // shared, j]) * depth**-0.5 for j in range(keys)]
        if softcap:
            row = [(score / softcap).tanh() * softcap for score in row]
        for bias in added:
            row = [score + bias[b, h, i, j] for j, score in enumerate(row)]
        weights = softmax(row) if sink is None else softmax_beside(row, sink[h])
        for d in range(v.shape[3]):
            y[b, h, i, d] = tally.dot(weights, v[b, h // shared, :, d])
    return y


def softmax_beside(row, sink):
    """Softmax with one score more, whose own weight nobody needs."""
    top = largest([*row, sink])
    powers = [(score - top).exp() for score in (*row, sink)]
    bottom = total(powers)
    return [power / bottom for power in powers[:-1]]


def heads_first(array, heads):
    """[B, S, H*D] -> [B, H, S, D]."""
    batch, length, width = array.shape
    return array.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def plus(array, bias):
    """An add for each element of a bias that lasts over all others."""
    return np.array([x + b for x, b in zip(array.reshape(-1), bias, strict=True)]).reshape(
        array.shape
    )


@few
@given(
    *(small, small, small, small, small, small, st.integers(0, 2)),
    *(st.booleans(), st.booleans(), st.booleans(), st.data()),
)
def test_multi_head_attention_is_its_loop(
    batch, heads, queries, keys, depth, wide, past, biased, masked, causal, data
):
    """Projected operands with their bias, a past, a mask and an attention bias."""
    every = past + keys
    arrays = [
        numbers(data.draw, batch, length, heads * width)
        for length, width in ((queries, depth), (keys, depth), (keys, wide))
    ]
    tally = Tally()
    q, k, v = (tally.array(array) for array in arrays)
    if biased:
        q, k, v = (plus(one, np.ones(one.size)) for one in (q, k, v))
    q, k, v = (heads_first(one, heads) for one in (q, k, v))
    if past:
        k = np.concatenate([tally.array(np.ones((batch, heads, past, depth))), k], 2)
        v = np.concatenate([tally.array(np.ones((batch, heads, past, wide))), v], 2)
    added = [np.zeros((batch, heads, queries, every))] * (masked + causal)
    scored_loop(tally, q, k, v, added)
    pasts = [(batch, heads, past, depth), (batch, heads, past, wide)] if past else [None, None]
    inputs = [
        *(array.shape for array in arrays),
        (heads * (2 * depth + wide),) if biased else None,
        None,
        (1, 1, queries, every) if masked else None,
        *pasts,
    ]
    attrs = {"num_heads": heads, "unidirectional": int(causal)}
    out = (batch, queries, heads * wide)
    assert work(node(f"{MS}MultiHeadAttention", inputs, [out], **attrs)) == tally.cost
    if not causal:
        decoder = [*inputs[:3], None, inputs[5], *pasts, None, None, None, inputs[3]]
        one = node(f"{MS}DecoderMaskedMultiHeadAttention", decoder, [out], **attrs)
        assert work(one) == tally.cost


def test_the_loop_is_attention():
    """The loop gives what ONNX's reference implementation gives."""
    rng = np.random.default_rng(3)
    q, k, v = (
        rng.normal(size=(2, 4, 3, 5)),
        rng.normal(size=(2, 2, 6, 5)),
        rng.normal(size=(2, 2, 6, 4)),
    )
    mask = rng.normal(size=(3, 6))
    tally = Tally()
    y = scored_loop(
        tally, *(tally.array(x) for x in (q, k, v)), [np.broadcast_to(mask, (2, 4, 3, 6))], 2.0
    )
    assert np.allclose(values(y), reference("Attention", [q, k, v, mask], softcap=2.0), atol=1e-4)


@few
@given(*(small, small, small, small, small, st.integers(0, 2), st.booleans(), st.data()))
def test_self_attention_is_its_projections_and_its_loop(
    batch, heads, length, depth, wide, past, masked, data
):
    """Attention projects its input by merged weights first."""
    width, inner = 3, heads * depth
    x = numbers(data.draw, batch, length, width)
    w = numbers(data.draw, width, 2 * inner + heads * wide)
    tally = Tally()
    projected = np.array(
        [
            [[tally.dot(row, column) + 1.0 for column in tally.array(w).T] for row in rows]
            for rows in tally.array(x)
        ]
    )
    q, k, v = np.split(projected, (inner, 2 * inner), axis=2)
    q, k, v = (heads_first(one, heads) for one in (q, k, v))
    if past:
        k = np.concatenate([tally.array(np.ones((batch, heads, past, depth))), k], 2)
        v = np.concatenate([tally.array(np.ones((batch, heads, past, wide))), v], 2)
    added = [np.zeros((batch, heads, length, past + length))] * masked
    scored_loop(tally, q, k, v, added)
    sizes = (inner, inner, heads * wide)
    inputs = [x.shape, w.shape, (w.shape[1],), (batch, past + length) if masked else None]
    inputs += [(2, batch, heads, past, depth)] if past else []
    out = (batch, length, heads * wide)
    attrs = {"num_heads": heads, "qkv_hidden_sizes": sizes}
    assert work(node(f"{MS}Attention", inputs, [out], **attrs)) == tally.cost
    assert work(node(f"{MS}DecoderMaskedSelfAttention", inputs, [out], **attrs)) == tally.cost
    quantized = [x.shape, w.shape, inputs[2], (), (), inputs[3], (), (), *inputs[4:]]
    rescaled = Cost(adds=x.size + w.size, muls=projected.size)
    one = node(f"{MS}QAttention", quantized, [out], **attrs)
    assert work(one) == tally.cost + rescaled


@few
@given(
    *(small, small, st.integers(1, 2), small, st.integers(1, 2), st.integers(0, 2)),
    *(st.booleans(), st.sampled_from([0.0, 3.0]), st.booleans(), st.data()),
)
def test_group_query_attention_is_its_loop(
    batch, kv_heads, shared, length, half, past, turned, softcap, sunk, data
):
    """Shared keys, a cache, a rotation, a cap, and a sink in each softmax."""
    heads, depth, every = kv_heads * shared, 2 * half, past + length
    arrays = [numbers(data.draw, batch, n, length, depth) for n in (heads, kv_heads, kv_heads)]
    tally = Tally()
    q, k, v = (tally.array(array) for array in arrays)
    if turned:
        q, k = (rotated_loop(one) for one in (q, k))
    if past:
        cached = np.ones((batch, kv_heads, past, depth))
        k, v = (np.concatenate([tally.array(cached), one], 2) for one in (k, v))
    causal = np.zeros((batch, heads, length, every))
    sink = [tally.number(0.5)] * heads if sunk else None
    scored_loop(tally, q, k, v, [causal], softcap, sink)
    cache = (batch, kv_heads, past, depth)
    operands = [(batch, length, n * depth) for n in (heads, kv_heads, kv_heads)]
    caches = [(9, half), (9, half)] if turned else [None, None]
    rest = [cache, cache, f"{batch}:int32", ":int32", *caches, None, None]
    rest += [(heads,)] if sunk else []
    attrs = {"num_heads": heads, "kv_num_heads": kv_heads, "softcap": softcap}
    attrs["do_rotary"] = int(turned)
    present = (batch, kv_heads, every, depth)
    outs = [operands[0], present, present]
    one = node(f"{MS}GroupQueryAttention", [*operands, *rest], outs, **attrs)
    assert work(one) == tally.cost
    packed = [(batch, length, (heads + 2 * kv_heads) * depth), None, None]
    alone = node(f"{MS}GroupQueryAttention", [*packed, *rest], outs[:1], **attrs)
    assert work(alone) == tally.cost
    assert count_node(one).exactness == "bound"


def rotated_loop(x):
    """Halves of each head turn against each other."""
    y = x.copy()
    for b, h, s in np.ndindex(x.shape[:3]):
        half = x.shape[3] // 2
        for i in range(half):
            a, c = x[b, h, s, i], x[b, h, s, i + half]
            y[b, h, s, i], y[b, h, s, i + half] = a * 0.6 - c * 0.8, a * 0.8 + c * 0.6
    return y


@few
@given(small, small, small, st.integers(1, 2), st.booleans(), st.data())
def test_rotary_embedding_is_its_loop(batch, heads, length, half, flat, data):
    """RotaryEmbedding of com.microsoft takes its cosines after the positions."""
    x = numbers(data.draw, batch, heads, length, 2 * half)
    tally = Tally()
    rotated_loop(tally.array(x))
    shape = (batch, length, heads * 2 * half) if flat else x.shape
    rest = [f"{batch}x{length}:int64", (9, half), (9, half)]
    for name in ("RotaryEmbedding", "MRotaryEmbedding"):
        assert work(node(MS + name, [shape, *rest], [shape])) == tally.cost


@pytest.mark.parametrize("masked", [False, True])
def test_the_operands_of_multi_head_attention_may_be_packed(masked):
    """QKV in five dimensions, KV in five, or keys that another node has finished."""
    attrs, out = {"num_heads": 2}, (1, 3, 8)
    more = [None, None, (1, 1, 3, 3)] if masked else []
    plain = work(node(f"{MS}MultiHeadAttention", [(1, 3, 8)] * 3 + more, [out], **attrs))
    # scores 2*3*3 = 18: 18*(4+4) MACs, 18 muls; softmax 12 compares, 18+12 adds, 18 exps, 18 divs.
    expected = Cost(macs=144, muls=18, compares=12, adds=30, specials=18, divs=18)
    assert plain == expected + Cost(adds=18 if masked else 0)
    for operands in (
        [(1, 3, 2, 3, 4), None, None],
        [(1, 3, 8), (1, 3, 2, 2, 4), None],
        [(1, 3, 8), (1, 2, 3, 4), (1, 2, 3, 4)],
        [(1, 3, 24), None, None],
    ):
        one = node(f"{MS}MultiHeadAttention", operands + more, [out], **attrs)
        assert work(one) == plain


@pytest.mark.parametrize("past", [0, 2])
def test_the_contraction_is_that_of_onnx_attention(past):
    """MACs of MultiHeadAttention and GroupQueryAttention are those of ai.onnx Attention."""
    pasts = [(2, 4, past, 8)] * 2 if past else [None, None]
    out = (2, 3, 32)
    onnx_ = node(
        "Attention", [(2, 4, 3, 8)] * 3 + [None, *pasts], [(2, 4, 3, 8)] * (3 if past else 1)
    )
    ours = node(f"{MS}MultiHeadAttention", [out] * 3 + [None] * 3 + pasts, [out], num_heads=4)
    assert work(ours).macs == work(onnx_).macs == 2 * 4 * 3 * (3 + past) * 16
    flat = [out, (2, 3, 16), (2, 3, 16)]
    pasts = [(2, 2, past, 8)] * 2
    grouped = node(
        f"{MS}GroupQueryAttention",
        [*flat, *pasts, "2:int32", ":int32"],
        [out],
        num_heads=4,
        kv_num_heads=2,
    )
    assert work(grouped).macs == work(onnx_).macs


def test_a_shared_buffer_is_a_bound():
    """How much of the buffer of past and present is filled is data: all of it, at most."""
    operands = [(1, 1, 8)] * 3 + [None] * 3 + [(1, 2, 16, 4)] * 2
    grown = count_node(node(f"{MS}MultiHeadAttention", operands, [(1, 1, 8)], num_heads=2))
    shared = count_node(
        node(f"{MS}MultiHeadAttention", [*operands, ":int32"], [(1, 1, 8)], num_heads=2)
    )
    assert isinstance(grown, Counted)
    assert isinstance(shared, Counted)
    assert (grown.cost.macs, grown.exactness) == (2 * 17 * 8, "exact")
    assert (shared.cost.macs, shared.exactness) == (2 * 16 * 8, "bound")


def test_sparse_attention_counts_the_blocks_of_its_pattern():
    """Of 64 x 64 scores per head 5 blocks of 16 x 16 are there; a longer pattern is cut."""
    operands = [(1, 64, 32), (1, 64, 16), (1, 64, 16), (1, 2, 64, 8), (1, 2, 64, 8)]
    rest = [":int32", "1:int32"]
    attrs = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16}
    for blocks, scores in ((5, 5 * 256), (40, 64 * 64)):
        pattern = ["1x5:int32", f"1x{blocks}:int32"]
        found = count_node(
            node(f"{MS}SparseAttention", operands + pattern + rest, [(1, 64, 32)], **attrs)
        )
        assert isinstance(found, Counted)
        assert found.cost.macs == 4 * scores * 2 * 8
        assert found.exactness == "bound"


def test_paged_attention_is_bounded_by_its_blocks():
    """7 tokens of 4 heads meet at most 3 blocks of 16 keys."""
    operands = [(7, 32), (7, 16), (7, 16), (9, 16, 2, 8), (9, 16, 2, 8)]
    operands += ["3:int32", "2:int32", "2x3:int32"]
    one = node(f"{MS}PagedAttention", operands, [(7, 32)], num_heads=4, kv_num_heads=2)
    assert work(one).macs == 7 * 4 * 48 * (8 + 8)
    assert count_node(one).exactness == "bound"


def test_packed_sequences_are_bounded_by_the_longest():
    """9 tokens of sequences of at most 5: 9 * 5 scores in each of 2 heads."""
    attrs = {"num_heads": 2}
    flat = [(9, 8), (8, 24), (24,), "3x5:int32", "4:int32"]
    one = node(f"{MS}PackedAttention", flat, [(9, 8)], **attrs)
    assert work(one).macs == 9 * 8 * 24 + 2 * 9 * 5 * (4 + 4)
    assert count_node(one).exactness == "bound"
    several = [*[(9, 8)] * 3, (24,), "3x5:int32", "4:int32"]
    many = work(node(f"{MS}PackedMultiHeadAttention", several, [(9, 8)], **attrs))
    assert many.macs == 2 * 9 * 5 * (4 + 4)
    together = [(9, 2, 3, 4), None, None, *several[3:]]
    assert work(node(f"{MS}PackedMultiHeadAttention", together, [(9, 8)], **attrs)) == many


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (node(f"{MS}MultiHeadAttention", [(1, 2, 9)] * 3, [(1, 2, 9)], num_heads=2), "2 heads"),
        (node(f"{MS}Attention", [(1, 2, 9), (9, 28)], [(1, 2, 9)], num_heads=3), "Q, K and V"),
        (node(f"{MS}LongformerAttention", [(1, 2, 9)], [(1, 2, 9)]), "globally"),
    ],
)
def test_what_cannot_be_known_has_a_reason(one, words):
    """No silent zero."""
    found = count_node(one)
    assert isinstance(found, Uncounted)
    assert words in found.reason
