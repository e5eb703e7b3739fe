"""Packed, quantized and expert products against loops on counted scalars."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.ledger import Cost
from crossflops.ledger.count import count_node
from crossflops.operators.contrib.products import expert_parameters
from crossflops.testing.graphs import to_node
from tests.operators.scalars import Tally, few, largest, numbers, small, softmax, total, work

MS = "com.microsoft::"


def unpacked(tally, packed, scales, zero, bits, block):
    """Weights [N, K] of a blob [N, blocks, bytes], (q - zero) * scale of the block, each once."""
    count = 8 // bits
    rows, blocks, size = packed.shape
    weights = np.empty((rows, blocks * size * count), dtype=object)
    for n, k in np.ndindex(weights.shape):
        byte, place = divmod(k % block, count)
        q = int(packed[n, k // block, byte]) >> (bits * place) & ((1 << bits) - 1)
        weights[n, k] = (tally.number(q) - zero) * float(scales[n, k // block])
    return weights


@few
@given(small, small, st.integers(1, 2), st.sampled_from([4, 8]), st.booleans(), st.data())
def test_a_product_with_packed_weights_is_its_loop(rows, width, blocks, bits, biased, data):
    """MatMulNBits unpacks each weight once, and multiplies."""
    block, depth = 16, 16 * blocks
    packed = np.random.default_rng(1).integers(0, 256, (width, blocks, block * bits // 8))
    scales, x = numbers(data.draw, width, blocks), numbers(data.draw, rows, depth)
    tally = Tally()
    weights = unpacked(tally, packed, scales, 2 ** (bits - 1), bits, block)
    for row in tally.array(x):
        for column in weights:
            y = tally.dot(row, column)
            if biased:
                y + 1.0
    inputs = [(rows, depth), "x".join(map(str, packed.shape)) + ":uint8", (width, blocks)]
    inputs += [None, None, (width,)] if biased else []
    attrs = {"K": depth, "N": width, "bits": bits, "block_size": block}
    counted = count_node(to_node(f"{MS}MatMulNBits", inputs, [(rows, width)], **attrs))
    assert work(counted.node) == tally.cost
    assert counted.precision == f"float32xint{bits}"
    stored = 4 * rows * depth + depth * width * bits // 8 + 4 * width * blocks
    assert counted.cost.bytes_read == stored + (4 * width if biased else 0)


@few
@given(small, small, st.integers(1, 3), small, small, st.booleans(), st.booleans(), st.data())
def test_a_mixture_of_experts_is_its_loop(
    tokens, count, chosen, width, inner, third, biased, data
):
    """The router's softmax, the k largest, each through two or three layers, and their sum."""
    chosen = min(chosen, count)
    tally = Tally()
    x, logits = (tally.array(numbers(data.draw, tokens, n)) for n in (width, count))
    first, last = (tally.array(numbers(data.draw, *s)) for s in ((inner, width), (width, inner)))
    for row, scores in zip(x, logits, strict=True):
        weights = list(softmax(list(scores)))
        picked = []
        for _ in range(chosen):
            largest(weights)
            picked.append(weights.pop())
        bottom = total(picked)
        shares = [picked[0] / bottom for _ in picked]
        outs = [
            [output * share for output in expert_loop(tally, row, first, last, third, biased)]
            for share in shares
        ]
        for column in zip(*outs, strict=True):
            total(column)
    layers = [(count, inner, width), (count, width, inner), (count, inner, width)]
    biases = [(count, inner), (count, width), (count, inner)]
    inputs = [(tokens, width), (tokens, count)]
    for number, (layer, bias) in enumerate(zip(layers, biases, strict=True)):
        there = number < 2 or third
        inputs += [layer if there else None, bias if biased and there else None]
    attrs = {"k": chosen, "activation_type": "silu", "normalize_routing_weights": 1}
    moe = to_node(f"{MS}MoE", inputs, [(tokens, width)], **attrs)
    assert work(moe) == tally.cost
    assert work(moe).macs == tokens * chosen * width * inner * (3 if third else 2)
    per_expert = width * inner * (3 if third else 2)
    per_expert += (inner + width + (inner if third else 0)) if biased else 0
    assert expert_parameters(moe) == (
        count * per_expert,
        chosen * per_expert,
    )  # of all, of a token


def expert_loop(tally, row, first, last, third, biased):
    """fc2(silu(fc1(x)) * fc3(x))."""
    inside = [tally.dot(row, weights) for weights in first]
    inside = [unit + 1.0 for unit in inside] if biased else inside
    inside = [unit * unit.sigmoid() for unit in inside]
    if third:
        gates = [tally.dot(row, weights) for weights in first]
        gates = [gate + 1.0 for gate in gates] if biased else gates
        inside = [a * b for a, b in zip(inside, gates, strict=True)]
    y = [tally.dot(inside, weights) for weights in last]
    return [output + 1.0 for output in y] if biased else y


def test_a_fused_gate_halves_the_first_layer():
    """fc1 has the gate's rows too: 2 tokens, 1 of 4 experts, 8 -> 2*6 -> 8."""
    inputs = [(2, 8), (2, 4), (4, 12, 8), None, (4, 8, 6)]
    attrs = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702}
    plain = to_node(f"{MS}MoE", inputs, [(2, 8)], **attrs)
    assert work(plain).macs == 2 * (8 * 12 + 6 * 8)
    assert expert_parameters(plain) == (4 * 144, 144)
    packed = [(2, 8), (2, 4), "4x12x4:uint8", (4, 12), None, "4x8x3:uint8", (4, 8)]
    quantized = work(to_node(f"{MS}QMoE", packed, [(2, 8)], expert_weight_bits=4, **attrs))
    assert quantized == work(plain) + Cost(muls=2 * 144, adds=2 * 144)
    for tokens, exactness in ((1, "exact"), (2, "bound")):
        rows = [(tokens, 8), (tokens, 4), *packed[2:]]
        counted = count_node(
            to_node(f"{MS}QMoE", rows, [(tokens, 8)], expert_weight_bits=4, **attrs)
        )
        assert counted.exactness == exactness


@few
@given(*[small] * 6, st.booleans(), st.data())
def test_a_quantized_convolution_is_its_loop(n, c, m, size, k, group, biased, data):
    """QLinearConv of com.microsoft, channels first or last, has the MACs of Conv."""
    size += k
    out = size - k + 1
    x, w = (n, group * c, size, size), (group * m, c, k, k)
    y = (n, group * m, out, out)
    tally = Tally()
    shifted = [number - 1.0 for number in tally.array(np.ones(x)).reshape(-1)]
    weights = [number - 1.0 for number in tally.array(np.ones(w)).reshape(-1)]
    for _ in range(int(np.prod(y))):
        total_ = tally.dot(shifted[: c * k * k], weights[: c * k * k])
        scaled = (total_ + 1.0 if biased else total_) * 0.5
        tally.kinds["specials"] += 1  # rounding
        (scaled + 3.0).max(0).max(255)
    names = ["{}x{}x{}x{}:uint8"] * 2
    xs, ws = (name.format(*dims) for name, dims in zip(names, (x, w), strict=True))
    inputs = [xs, (), ":uint8", ws, (), ":uint8", (), ":uint8"]
    inputs += [f"{group * m}:int32"] if biased else []
    ys = "x".join(map(str, y)) + ":uint8"
    convolution = to_node(f"{MS}QLinearConv", inputs, [ys], group=group)
    assert work(convolution) == tally.cost
    plain = to_node("Conv", [x, w], [y], group=group)
    assert work(convolution).macs == work(plain).macs
    last = [f"{n}x{size}x{size}x{group * c}:uint8", *inputs[1:]]
    yl = f"{n}x{out}x{out}x{group * m}:uint8"
    other = to_node(f"{MS}QLinearConv", last, [yl], group=group, channels_last=1)
    assert work(other) == tally.cost
    assert count_node(other).precision == "int8"
