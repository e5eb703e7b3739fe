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


def paged(query, keys, values, lengths, alibi_slopes=None, distances=None, **_):
    """One query for each sequence, and as many keys of its pages as it has tokens."""
    done = []
    for sequence, length in enumerate(lengths):
        bias = None
        if alibi_slopes is not None:
            bias = alibi_slopes[:, None, None] * distances[:length]
        k, v = (x[sequence : sequence + 1, :length] for x in (keys, values))
        done.append(_attend(query[sequence : sequence + 1, None], k, v, bias))
    return done


def draw_pages(draw: random.Random) -> Case:
    """Lengths that are recorded, of pages of 4 tokens."""
    _, heads, kv_heads, depth = _sizes(draw)
    lengths = tuple(draw.randint(1, 8) for _ in range(draw.randint(1, 3)))
    query, cache = (len(lengths), heads, depth), (6, kv_heads, depth // 2, 4, 2)
    tensors = {
        "query": query,
        "key_cache": cache,
        "block_tables": (len(lengths), 2),
        "seq_lens": (len(lengths),),
    }
    if draw.random() < 0.5:
        tensors["alibi_slopes"] = (heads,)
    stored = len(lengths), 8, kv_heads, depth
    given = {
        "keys": torch.rand(stored),
        "values": torch.rand(stored),
        "lengths": lengths,
        "distances": torch.rand(8),
    }
    attributes = {"block_size": 4, "max_seq_len": 8}
    return Case(tensors, (), [query], attributes, {"seq_lens": lengths}, given)


def engine(query_layer, key_layer, value_layer, qkv_format, attn_mask_type, mask=None, **_):
    """With tokens before the batch, or behind it."""
    parts = (query_layer, key_layer, value_layer)
    if qkv_format == "sbhd":
        parts = tuple(x.transpose(0, 1) for x in parts)
    return _attend(*parts, mask)


def draw_engine(draw: random.Random) -> Case:
    """Both forms, causal or not."""
    batch, heads, kv_heads, depth = _sizes(draw)
    length, form = draw.randint(2, 5), draw.choice(["sbhd", "bshd"])
    flat = (length, batch) if form == "sbhd" else (batch, length)
    tensors = {
        "query_layer": (*flat, heads, depth),
        "key_layer": (*flat, kv_heads, depth),
        "value_layer": (*flat, kv_heads, depth),
    }
    causal = draw.random() < 0.5
    attributes = {"qkv_format": form, "attn_mask_type": "causal" if causal else "no_mask"}
    given = {}
    if causal:
        hidden = _distances(length, length, True, (-1, -1))[1]
        given["mask"] = torch.zeros(length, length).masked_fill(hidden, float("-inf"))
    results = [(*flat, heads * depth)]
    return Case(tensors, tuple(tensors), results, attributes, {}, given)


def draw_padded(draw: random.Random) -> Case:
    """As flash_attn, without slopes and windows, in the names of PyTorch and xformers."""
    while "alibi_slopes" in (case := draw_flash(draw)).tensors:
        pass
    plain = {"dropout_p": 0.0, "causal": "mask" in case.given, "softmax_scale": 0.5}
    return case._replace(attributes=plain)


_LONG = {"q": "query", "k": "key", "v": "value"}
_EFFICIENT = _LONG | {"causal": "custom_mask_type"}

KERNELS = [
    Kernel(
        "flash_attn::_flash_attn_forward",
        draw_flash,
        flash,
        others={
            "flashattn::_flash_attn_forward": {},
            "flash_attn_3::fwd": {},
            "_vllm_fa3_C::fwd": {},
        },
    ),
    Kernel(
        "flash_attn::_flash_attn_varlen_forward",
        draw_packed,
        packed,
        others={
            "flashattn::_flash_attn_varlen_forward": {},
            "_vllm_fa2_C::varlen_fwd": {},
            "xformers_flash::flash_fwd": _LONG,
            "xformers_flash3::flash_fwd": _LONG,
            "aten::_flash_attention_forward": _LONG
            | {"cu_seqlens_q": "cum_seq_q", "cu_seqlens_k": "cum_seq_k", "causal": "is_causal"},
            "torch_attn::_varlen_attn": _LONG
            | {"cu_seqlens_q": "cu_seq_q", "cu_seqlens_k": "cu_seq_k", "causal": "is_causal"},
        },
    ),
    Kernel(
        "flash_attn_3::_flash_attn_forward",
        draw_padded,
        flash,
        others={
            "aten::_efficient_attention_forward": _EFFICIENT,
            "xformers::efficient_attention_forward_cutlass": _EFFICIENT,
        },
    ),
    Kernel("transformer_engine::DotProductAttention", draw_engine, engine),
    Kernel(
        "_C::paged_attention_v1",
        draw_pages,
        paged,
        backward=False,
        others={"_C::paged_attention_v2": {}},
    ),
]
