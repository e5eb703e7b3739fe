"""Attention by PyTorch's own function, sequence by sequence, for the fused attentions."""

import random

import torch
from torch.nn import functional as F  # noqa: N812

from tests.operators.kernels.calls import Case, Kernel


def _attend(q, k, v, mask=None):
    """q [B, T, H, D], k, v [B, S, Hk, D]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    same = q.shape[1] == k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=not same).transpose(1, 2)


def flash(q, k, v, alibi_slopes=None, mask=None, **_):
    """Padded sequences, a mask or slopes times distances, which are -inf where they are hidden."""
    if alibi_slopes is not None:
        shape = q.shape[0], q.shape[2]
        mask = alibi_slopes.expand(shape)[..., None, None] * mask
    return _attend(q, k, v, mask)


def _distances(queries, keys, causal, window):
    """Return the bias of scores for slopes of 1, and whether a mask hides keys."""
    distance = torch.arange(keys)[None] - torch.arange(queries)[:, None] - (keys - queries)
    hidden = torch.zeros(queries, keys, dtype=torch.bool)
    if causal:
        hidden |= distance > 0
    for side, sign in zip(window, (-1, 1), strict=True):
        if side >= 0:
            hidden |= distance * sign > side
    return -distance.abs().float(), hidden


def _sizes(draw):
    kv_heads = draw.randint(1, 2)
    heads = kv_heads * draw.randint(1, 2)
    return draw.randint(1, 3), heads, kv_heads, draw.choice([2, 4, 8])


def draw_flash(draw: random.Random) -> Case:
    """GQA, causal or not, windows, slopes of ALiBi."""
    batch, heads, kv_heads, depth = _sizes(draw)
    queries, keys = draw.randint(1, 5), draw.randint(5, 7)
    tensors = {
        "q": (batch, queries, heads, depth),
        "k": (batch, keys, kv_heads, depth),
        "v": (batch, keys, kv_heads, depth),
    }
    if draw.random() < 0.3:
        tensors["alibi_slopes"] = draw.choice([(heads,), (batch, heads)])
    windowed = draw.random() < 0.3
    attributes = {
        "dropout_p": 0.0,
        "softmax_scale": 0.5,
        "causal": draw.random() < 0.5,
        "window_size_left": draw.randint(0, 3) if windowed else -1,
        "window_size_right": 1 if windowed and draw.random() < 0.5 else -1,
        "softcap": 0.0,
    }
    window = attributes["window_size_left"], attributes["window_size_right"]
    distances, hidden = _distances(queries, keys, attributes["causal"], window)
    far = float("-inf")
    given = {}
    if "alibi_slopes" in tensors:
        given["mask"] = distances.masked_fill(hidden, far)
    elif attributes["causal"] or window != (-1, -1):
        given["mask"] = torch.zeros_like(distances).masked_fill(hidden, far)
    results = [tensors["q"], (batch, heads, queries)]
    return Case(tensors, ("q", "k", "v"), results, attributes, {}, given)


def packed(q, k, v, q_lengths, k_lengths, masks=(), **_):
    """Sequences one behind the other."""
    parts = [x.split(list(lengths)) for x, lengths in
             ((q, q_lengths), (k, k_lengths), (v, k_lengths))]  # fmt: skip
    masks = masks or (None,) * len(q_lengths)
    return [
        _attend(*(x[None] for x in operands), mask)
        for *operands, mask in zip(*parts, masks, strict=True)
    ]


def _starts(lengths):
    return (0, *(sum(lengths[: at + 1]) for at in range(len(lengths))))


def draw_packed(draw: random.Random) -> Case:
    """Lengths that are recorded."""
    _, heads, kv_heads, depth = _sizes(draw)
    q_lengths = [draw.randint(1, 4) for _ in range(draw.randint(1, 3))]
    k_lengths = [length + draw.randint(0, 2) for length in q_lengths]
    tensors = {
        "q": (sum(q_lengths), heads, depth),
        "k": (sum(k_lengths), kv_heads, depth),
        "v": (sum(k_lengths), kv_heads, depth),
        "cu_seqlens_q": (len(q_lengths) + 1,),
        "cu_seqlens_k": (len(k_lengths) + 1,),
    }
    attributes = {
        "max_seqlen_q": max(q_lengths),
        "max_seqlen_k": max(k_lengths),
        "dropout_p": 0.0,
        "softmax_scale": 0.5,
        "causal": draw.random() < 0.5,
        "softcap": 0.0,
    }
    values = {"cu_seqlens_q": _starts(q_lengths), "cu_seqlens_k": _starts(k_lengths)}
    given = {"q_lengths": tuple(q_lengths), "k_lengths": tuple(k_lengths)}
    if attributes["causal"]:
        given["masks"] = tuple(
            torch.zeros(pair).masked_fill(_distances(*pair, True, (-1, -1))[1], float("-inf"))
            for pair in zip(q_lengths, k_lengths, strict=True)
        )
    return Case(tensors, ("q", "k", "v"), [tensors["q"]], attributes, values, given)


def _renamed(case: Case, names: dict[str, str]) -> Case:
    """The same call of an operator with other names of its operands."""

    def change(held):
        return {names.get(name, name): value for name, value in held.items()}

    return case._replace(
        tensors=change(case.tensors),
        wanted=tuple(names.get(name, name) for name in case.wanted),
        attributes=change(case.attributes),
        values=change(case.values),
    )


KERNELS = [
    Kernel("flash_attn::_flash_attn_forward", draw_flash, flash),
    Kernel("flashattn::_flash_attn_forward", draw_flash, flash),
    Kernel("flash_attn_3::_flash_attn_forward", draw_flash, flash),
    Kernel("flash_attn_3::fwd", draw_flash, flash),
    Kernel("flash_attn::_flash_attn_varlen_forward", draw_packed, packed),
]
