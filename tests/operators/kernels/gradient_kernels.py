"""Backward passes that are operators of their own, written out in plain PyTorch.

That of a fused attention is algorithm 2 of FlashAttention-2 (Dao, 2023), without its tiles.
"""

import random

import torch
from torch.nn import functional as F  # noqa: N812

from tests.operators.kernels.calls import Case, Kernel


def _attention_gradients(q, k, v, out, dout, lse, scale):
    """One sequence: q [T, H, D], k [S, Hk, D], v [S, Hk, Dv], lse [H, T]."""
    keys, values = (x.transpose(0, 1) for x in (k, v))
    queries, results, gradients = (
        x.transpose(0, 1).reshape(keys.shape[0], -1, x.shape[-1]) for x in (q, out, dout)
    )
    delta = (gradients * results).sum(-1, keepdim=True)
    sums = lse.reshape(keys.shape[0], -1, 1)
    weights = torch.exp(scale * (queries @ keys.transpose(1, 2)) - sums)
    products = gradients @ values.transpose(1, 2)
    scores = scale * weights * (products - delta)
    return (
        scores @ keys, scores.transpose(1, 2) @ queries, weights.transpose(1, 2) @ gradients
    )  # fmt: skip


def attention_gradients(q, k, v, out, dout, softmax_lse, q_lengths, k_lengths, **_):
    """All sequences of a batch, padded or packed."""
    flat = [x.reshape(-1, *x.shape[-2:]) for x in (q, k, v, out, dout)]
    lengths = (q_lengths, k_lengths, k_lengths, q_lengths, q_lengths)
    parts = [x.split(list(each)) for x, each in zip(flat, lengths, strict=True)]
    sums = softmax_lse.split(list(q_lengths), 1)
    return [
        _attention_gradients(*operands, lse, 0.5)
        for *operands, lse in zip(*parts, sums, strict=True)
    ]


def _draw_attention(packed: bool):
    def draw_call(draw: random.Random) -> Case:
        kv_heads, depth = draw.randint(1, 2), draw.choice([2, 4, 8])
        heads, value_depth = kv_heads * draw.randint(1, 2), draw.choice([depth, 6])
        sequences, queries, keys = (draw.randint(1, 4) for _ in range(3))
        q_lengths, k_lengths = [queries] * sequences, [keys] * sequences
        if packed:
            q_lengths, k_lengths = (
                [draw.randint(1, 4) for _ in range(sequences)] for _ in range(2)
            )
        q_rows, k_rows = (
            (sum(lengths),) if packed else (sequences, lengths[0])
            for lengths in (q_lengths, k_lengths)
        )
        tensors = {
            "dout": (*q_rows, heads, value_depth),
            "q": (*q_rows, heads, depth),
            "k": (*k_rows, kv_heads, depth),
            "v": (*k_rows, kv_heads, value_depth),
            "out": (*q_rows, heads, value_depth),
            "softmax_lse": (heads, sum(q_lengths)),
        }
        values = {}
        if packed:
            for name, lengths in (("cu_seqlens_q", q_lengths), ("cu_seqlens_k", k_lengths)):
                tensors[name] = (len(lengths) + 1,)
                values[name] = (0, *(sum(lengths[: end + 1]) for end in range(len(lengths))))
        given = {"q_lengths": tuple(q_lengths), "k_lengths": tuple(k_lengths)}
        results = [tensors[name] for name in "qkv"]
        return Case(tensors, (), results, {}, values, given)

    return draw_call


def convolution_gradients(x, weight, dout, silu_activation, bias=None, **_):
    """Of x [B, D, L], weight [D, width] and bias; what comes before SiLU is computed again."""
    channels, width = weight.shape
    taps = weight[:, None]
    before = F.pad(x, (width - 1, 0))
    gradient = dout
    if silu_activation:
        y = F.conv1d(before, taps, bias, groups=channels)
        sigmoid = torch.sigmoid(y)
        gradient = dout * (sigmoid * (1 + y * (1 - sigmoid)))
    behind = F.pad(gradient, (0, width - 1))
    of_x = F.conv1d(behind, taps.flip(-1), groups=channels)
    windows = before.unfold(-1, width, 1)
    rows = gradient.transpose(0, 1).reshape(channels, 1, -1)
    of_weight = rows @ windows.transpose(0, 1).reshape(channels, -1, width)
    of_bias = None if bias is None else gradient.sum((0, 2))
    return of_x, of_weight, of_bias


def _draw_convolution(draw: random.Random) -> Case:
    batch, channels, length, width = (draw.randint(1, 4) for _ in range(4))
    shape = batch, channels, length
    tensors = {"x": shape, "weight": (channels, width)}
    if draw.random() < 0.5:
        tensors["bias"] = (channels,)
    tensors["dout"] = shape
    attributes = {"silu_activation": draw.random() < 0.5}
    return Case(tensors, (), [shape], attributes)


KERNELS = [
    Kernel(
        "flash_attn::_flash_attn_backward",
        _draw_attention(False),
        attention_gradients,
        backward=False,
        others={"flashattn::_flash_attn_backward": {}, "flash_attn_3::bwd": {}},
    ),
    Kernel(
        "flash_attn::_flash_attn_varlen_backward",
        _draw_attention(True),
        attention_gradients,
        backward=False,
        others={
            "flashattn::_flash_attn_varlen_backward": {},
            "flash_attn_3::_flash_attn_backward": {},
        },
    ),
    Kernel(
        "DaoAILab::_causal_conv1d_bwd_cpp",
        _draw_convolution,
        convolution_gradients,
        backward=False,
    ),
]
