"""Operators that carry a state from token to token, against loops on counted scalars."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.ledger import Cost
from crossflops.testing.graphs import to_node
from tests.operators.scalars import Tally, few, numbers, reference, small, values, work


def linear_attention_loop(tally, q, k, v, decay, beta, rule, scale):
    """Token after token, as the page says: decay, retrieve, correct, write, read.

    q [B, T, Hq, dk], k [B, T, Hkv, dk], v [B, T, Hkv, dv]; decay as k, beta [B, T, Hkv].
    """
    batch, length, heads, depth = q.shape
    kv_heads, wide = v.shape[2:]
    state = tally.array(np.zeros((batch, kv_heads, depth, wide)))
    y = np.empty((batch, length, heads, wide), dtype=object)
    for b, t, h in np.ndindex(batch, length, kv_heads):
        now = state[b, h]
        if "gated" in rule:
            for i in range(depth):
                power = decay[b, t, h, i].exp()
                for j in range(wide):
                    now[i, j] = now[i, j] * power
        new = list(v[b, t, h])
        if "delta" in rule:
            recalled = [tally.dot(now[:, j], k[b, t, h]) for j in range(wide)]
            new = [(new[j] - recalled[j]) * beta[b, t, h] for j in range(wide)]
        for i, j in np.ndindex(depth, wide):
            now[i, j] = tally.mac(now[i, j], k[b, t, h, i], new[j])
        share = heads // kv_heads
        for head in range(h * share, (h + 1) * share):
            for j in range(wide):
                y[b, t, head, j] = tally.dot(q[b, t, head], now[:, j]) * scale
    return y


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@few
@given(small, small, st.integers(1, 2), st.integers(1, 2), small, small, st.data())
def test_linear_attention_is_its_loop(rule, batch, length, kv_heads, share, depth, wide, data):
    """Each update rule counts what its loop does, and the loop does what ONNX says."""
    heads = kv_heads * share
    q = numbers(data.draw, batch, length, heads, depth)
    k = numbers(data.draw, batch, length, kv_heads, depth)
    v = numbers(data.draw, batch, length, kv_heads, wide)
    decay = -abs(numbers(data.draw, batch, length, kv_heads, depth)) if "gated" in rule else None
    beta = numbers(data.draw, batch, length, kv_heads) if "delta" in rule else None
    tally = Tally()
    scalars = [None if a is None else tally.array(a) for a in (q, k, v, decay, beta)]
    y = linear_attention_loop(tally, *scalars, rule, scale=depth**-0.5)
    flat = [None if a is None else a.reshape(batch, length, -1) for a in (q, k, v, decay, beta)]
    arrays = [*flat[:3], None, *flat[3:]]
    attrs = {"q_num_heads": heads, "kv_num_heads": kv_heads, "update_rule": rule}
    result = values(y).reshape(batch, length, -1)
    assert np.allclose(result, reference("LinearAttention-27", arrays, 2, **attrs), atol=1e-3)
    shapes = [None if a is None else a.shape for a in arrays]
    assert work(to_node("LinearAttention", shapes, [result.shape], **attrs)) == tally.cost


@few
@given(*(small, small, st.integers(1, 4), small, st.booleans(), st.booleans(), st.data()))
def test_causal_conv_is_its_loop(batch, channels, length, k, biased, gated, data):
    """CausalConvWithState: every channel by itself, the state before the first token."""
    x, w = numbers(data.draw, batch, channels, length), numbers(data.draw, channels, 1, k)
    bias = numbers(data.draw, channels) if biased else None
    past = numbers(data.draw, batch, channels, k - 1) if k > 1 else None
    tally = Tally()
    wide = x if past is None else np.concatenate([past, x], 2)
    xs, ws = tally.array(wide), tally.array(w)
    y = np.empty(x.shape, dtype=object)
    for b, c, t in np.ndindex(*x.shape):
        y[b, c, t] = tally.dot(xs[b, c, t : t + k], ws[c, 0])
        if biased:
            y[b, c, t] = y[b, c, t] + bias[c]
        if gated:
            y[b, c, t] = y[b, c, t] * y[b, c, t].sigmoid()
    attrs = {"activation": "silu" if gated else "none"}
    arrays = [x, w, bias, past]
    result = reference("CausalConvWithState-27", arrays, 2, **attrs)
    assert np.allclose(values(y), result, atol=1e-3)
    shapes = [None if a is None else a.shape for a in arrays]
    assert work(to_node("CausalConvWithState", shapes, [y.shape], **attrs)) == tally.cost


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_the_direction_costs_nothing(op, gates):
    """Backwards is as much work as forwards, and both directions are twice as much."""
    for layout, x in ((0, (5, 2, 3)), (1, (2, 5, 3))):
        for directions, way in ((1, "forward"), (1, "reverse"), (2, "bidirectional")):
            shapes = [x, (directions, gates * 4, 3), (directions, gates * 4, 4)]
            cost = work(to_node(op, shapes, [None, None], direction=way, layout=layout))
            assert cost.macs == directions * 5 * 2 * gates * 4 * (3 + 4)


SCORES = 2 * 3 * 5 * 7  # batch, heads, queries, keys


@pytest.mark.parametrize(
    ("attrs", "extra"),
    [
        ({"scale": 0.5}, Cost()),
        ({"qk_matmul_output_mode": 3}, Cost()),
        ({"softmax_precision": 1}, Cost()),
        ({"is_causal": 1}, Cost(adds=SCORES)),
        ({"left_window_size": 2}, Cost(adds=SCORES)),
        ({"left_window_size": 2, "right_window_size": 0, "is_causal": 1}, Cost(adds=SCORES)),
        ({"softcap": 3.0}, Cost(divs=SCORES, specials=SCORES, muls=SCORES)),
    ],
)
def test_attention_options_by_hand(attrs, extra):
    """A mask is added once, a cap is a quotient, a tanh and a product; the rest is free."""
    shapes, out = [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)], [(2, 3, 5, 6)]
    plain = work(to_node("Attention", shapes, out))
    assert plain.macs == SCORES * (4 + 6)
    assert work(to_node("Attention", shapes, out, **attrs)) == plain + extra
