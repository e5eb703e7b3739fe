"""FlashInfer's attention in plain PyTorch, sequence by sequence, with keys in either layout.

What pages hold is given as `keys` and `values`, one sequence behind the other. They and the
positions are tensors of the call beside its own, so that their work is not that of constants.
"""

import random
from typing import Any

import torch

from tests.operators.kernels.calls import Case, Kernel

_NAME = (
    "dtype_q_f16_dtype_kv_f16_dtype_o_f16_dtype_idx_i32_head_dim_qk_{}_head_dim_vo_{}_posenc_{}"
)
_PLAIN, _ROTATED, _SLOPED = 0, 1, 2  # the modes of positions in names
_PAGE = 4


def _turn(x, angles):
    """x [T, H, D] and the angles of its tokens [T, D/2]."""
    sine, cosine = (function(angles)[:, None] for function in (torch.sin, torch.cos))
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), -1)


def _attend(q, k, v, bias, cap):
    """q [T, H, D], k [S, Hk, D], v [S, Hk, Dv], bias [heads or 1, T, S]."""
    shared = q.shape[1] // k.shape[1]
    root = float(q.shape[2]) ** -0.25
    q, k, v = (x.transpose(0, 1) for x in (q * root, k * root, v))
    scores = q.reshape(k.shape[0], -1, q.shape[2]) @ k.transpose(1, 2)
    scores = scores.view(q.shape[0], q.shape[1], k.shape[1])
    if cap:
        scores = cap * torch.tanh(scores / cap)
    if bias is not None:
        scores = scores + bias
    weights = torch.softmax(scores, -1).view(k.shape[0], shared * q.shape[1], k.shape[1])
    return weights @ v


def attend(
    q, heads_first, q_lengths, k_lengths, masks, frequencies, logits_soft_cap=0.0, k=None, v=None,
    keys=None, values=None, positions=None, slopes=None, distances=None, **_,
):  # fmt: skip
    """Each sequence by itself; slopes of ALiBi, or a mask, are added to scores."""
    if keys is None:
        keys, values = (x.transpose(0, 1) if heads_first else x for x in (k, v))
    q = q.view(-1, *q.shape[-2:])
    if positions is not None:
        angles = positions[:, None] * frequencies
        first, second = angles.split([sum(q_lengths), sum(k_lengths)])
        q, keys = _turn(q, first), _turn(keys, second)
    parts = [x.split(list(lengths)) for x, lengths in
             ((q, q_lengths), (keys, k_lengths), (values, k_lengths))]  # fmt: skip
    done = []
    for index, (query, key, value) in enumerate(zip(*parts, strict=True)):
        bias = masks[index] if masks else None
        if slopes is not None:
            bias = slopes[:, None, None] * distances[: query.shape[0], : key.shape[0]]
        done.append(_attend(query, key, value, bias, logits_soft_cap))
    return done


def _shape_of_keys(heads_first: bool, tokens: int, heads: int, depth: int) -> tuple[int, ...]:
    return (heads, tokens, depth) if heads_first else (tokens, heads, depth)


def _page_operands(
    lengths: tuple[int, ...], heads_first: bool, heads: int, depths: tuple[int, int]
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Return the operands and the recorded numbers of keys in pages of a cache."""
    counts = [-(-length // _PAGE) for length in lengths]
    shapes = [
        (sum(counts) + 1, *_shape_of_keys(heads_first, _PAGE, heads, depth)) for depth in depths
    ]
    tensors = {
        "paged_k_cache": shapes[0],
        "paged_v_cache": shapes[1],
        "paged_kv_indptr": (len(lengths) + 1,),
        "paged_kv_indices": (sum(counts),),
        "paged_kv_last_page_len": (len(lengths),),
        "keys": (sum(lengths), heads, depths[0]),
        "values": (sum(lengths), heads, depths[1]),
    }
    values = {
        "paged_kv_indptr": _starts(counts),
        "paged_kv_last_page_len": tuple((length - 1) % _PAGE + 1 for length in lengths),
    }
    return tensors, values


def _starts(lengths) -> tuple[int, ...]:
    return (0, *(sum(lengths[: index + 1]) for index in range(len(lengths))))


def _draw(kind: str):
    """Return a function that draws a call: of "paged" or "ragged" keys, of "single" sequences, or
    with one query for each sequence ("decode").
    """
    paged, single, decodes = "paged" in kind, "single" in kind, "decode" in kind

    def draw_call(draw: random.Random) -> Case:
        heads_first, kv_heads = draw.random() < 0.5, draw.randint(1, 2)
        heads, depth = kv_heads * draw.randint(1, 2), draw.choice([2, 4, 8])
        value_depth = depth if decodes else draw.choice([depth, 6])
        sequences = 1 if single else draw.randint(1, 3)
        q_lengths = [1 if decodes else draw.randint(1, 4) for _ in range(sequences)]
        k_lengths = [length + draw.randint(0, 6) for length in q_lengths]
        mode = draw.choice([_PLAIN, _ROTATED, _SLOPED]) if "context" not in kind else _PLAIN
        causal = not decodes and mode != _SLOPED and draw.random() < 0.5
        queries, tokens = sum(q_lengths), sum(k_lengths)
        q = (heads, depth) if single and decodes else (queries, heads, depth)
        tensors: dict[str, tuple[int, ...]] = {"q": q}
        values: dict[str, tuple[int, ...]] = {}
        if not decodes and not single:
            tensors["qo_indptr"] = (sequences + 1,)
            values["qo_indptr"] = _starts(q_lengths)
        if paged:
            more = _page_operands(tuple(k_lengths), heads_first, kv_heads, (depth, value_depth))
            tensors |= more[0]
            values |= more[1]
        else:
            tensors["k"] = _shape_of_keys(heads_first, tokens, kv_heads, depth)
            tensors["v"] = _shape_of_keys(heads_first, tokens, kv_heads, value_depth)
        if not single and not paged:
            tensors["kv_indptr"] = (sequences + 1,)
            values["kv_indptr"] = _starts(k_lengths)
        tensors["o"] = (*q[:-1], value_depth)
        if mode == _ROTATED:
            tensors["positions"] = (queries + tokens,)
        if mode == _SLOPED:
            tensors["slopes"] = (heads,)
        attributes: dict[str, Any] = {
            "window_left": -1,
            "logits_soft_cap": 30.0 if draw.random() < 0.3 else 0.0,
            "kv_layout_code" if decodes else "layout": int(heads_first),
        }
        if not decodes:
            attributes["mask_mode"] = int(causal)
        given: dict[str, Any] = {
            "heads_first": heads_first,
            "q_lengths": tuple(q_lengths),
            "k_lengths": tuple(k_lengths),
            "frequencies": torch.rand(depth // 2),
            "distances": torch.rand(4, 10),
            "masks": tuple(
                torch.zeros(own, its).masked_fill(
                    torch.ones(own, its).triu(its - own + 1).bool(), float("-inf")
                )
                for own, its in zip(q_lengths, k_lengths, strict=True)
            )
            if causal
            else (),
        }
        settings = _NAME.format(depth, value_depth, mode)
        return Case(tensors, (), [tensors["o"]], attributes, values, given, settings)

    return draw_call


KERNELS = [
    Kernel(f"flashinfer::{name}", _draw(kind), attend, backward=False)
    for name, kind in (
        ("batch_prefill_with_kv_cache_*_paged_run", "paged"),
        ("batch_prefill_with_kv_cache_*_ragged_run", "ragged"),
        ("trtllm_gen_context_paged_run", "paged context"),
        ("single_prefill_with_kv_cache_*_run", "single"),
        ("batch_decode_with_kv_cache_*_run", "paged decode"),
        ("single_decode_with_kv_cache_*_run", "single decode"),
    )
]
