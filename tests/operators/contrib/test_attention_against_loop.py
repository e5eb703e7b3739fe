"""The attentions of onnxruntime against loops on counted scalars, and against ai.onnx."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.ledger import Cost
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import (
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
    wide = depth if past else wide  # a past has heads of one size
    arrays = [
        numbers(data.draw, batch, length, heads * width)
        for length, width in ((queries, depth), (keys, depth), (keys, wide))
    ]
    tally = Tally()
    q, k, v = (tally.array(array) for array in arrays)
    if biased:
        q, k, v = (plus(operand, np.ones(operand.size)) for operand in (q, k, v))
    q, k, v = (heads_first(operand, heads) for operand in (q, k, v))
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
    assert work(to_node(f"{MS}MultiHeadAttention", inputs, [out], **attrs)) == tally.cost
    if not causal and (queries, wide) == (1, depth):
        decoder = [*inputs[:3], None, inputs[5], *pasts, None, None, None, inputs[3]]
        decoding = to_node(f"{MS}DecoderMaskedMultiHeadAttention", decoder, [out], **attrs)
        assert work(decoding) == tally.cost


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
    q, k, v = (heads_first(operand, heads) for operand in (q, k, v))
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
    assert work(to_node(f"{MS}Attention", inputs, [out], **attrs)) == tally.cost
    assert work(to_node(f"{MS}DecoderMaskedSelfAttention", inputs, [out], **attrs)) == tally.cost
    quantized = [x.shape, w.shape, inputs[2], (), (), inputs[3], (), (), *inputs[4:]]
    rescaled = Cost(adds=x.size + w.size, muls=projected.size)
    attention = to_node(f"{MS}QAttention", quantized, [out], **attrs)
    assert work(attention) == tally.cost + rescaled


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
        q, k = (rotated_loop(operand) for operand in (q, k))
    if past:
        cached = np.ones((batch, kv_heads, past, depth))
        k, v = (np.concatenate([tally.array(cached), operand], 2) for operand in (k, v))
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
    attention = to_node(f"{MS}GroupQueryAttention", [*operands, *rest], outs, **attrs)
    assert work(attention) == tally.cost
    packed = [(batch, length, (heads + 2 * kv_heads) * depth), None, None]
    alone = to_node(f"{MS}GroupQueryAttention", [*packed, *rest], outs[:1], **attrs)
    assert work(alone) == tally.cost
    assert count_node(attention).exactness == "bound"


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
    places, cosines = f"{batch}x{length}:int64", (9, half)
    for name, where in (("RotaryEmbedding", places), ("MRotaryEmbedding", f"3x{places}")):
        assert work(to_node(MS + name, [shape, where, cosines, cosines], [shape])) == tally.cost
