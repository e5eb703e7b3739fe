"""The cost of FlashInfer's attention of keys in pages of a cache, packed keys, and one sequence.

The names of its operators hold the settings of their build, such as element types, head sizes and
posenc_1 (rotations of queries and keys by their positions) or posenc_2 (ALiBi slopes). The
slopes are an operand of builds without ALiBi, too, so only the name tells. Releases whose
register_custom_op registers nothing call their kernels without an operator, which no graph has.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from crossflops.ir.ledger import ZERO, Cost, Exactness
from crossflops.operators.formula import OperatorCall, operator
from crossflops.operators.kernels.attention import (
    Lengths,
    ScoreExtras,
    ScoreSizes,
    attention_cost,
    joint_lengths,
    lengths_from_start_positions,
    operand_values,
)
from crossflops.operators.kernels.steps import call_argument

_FOLDER = "https://github.com/flashinfer-ai/flashinfer/blob/main/flashinfer/"
_PREFILL, _DECODE = f"{_FOLDER}prefill.py", f"{_FOLDER}decode.py"

_POSITIONS = re.compile(r"_posenc_(?P<mode>\d)")
_ROTATED, _SLOPED = "1", "2"  # PosEncodingMode of flashinfer/utils.py
_HEADS_FIRST = 1  # TensorLayout.HND of flashinfer/utils.py; 0 is NHD
_ROTATION = Cost(muls=4, adds=2)  # of two elements
_ANGLE = Cost(muls=1, specials=2)  # position times frequency, its sine and cosine


class CachedKeys(NamedTuple):
    """The sizes of keys of a call: heads, and tokens in a page (1 where they have no pages)."""

    heads: int
    page: int


class AttentionCall(NamedTuple):
    """A call of an attention operator: its lengths, its keys, and where its keys stand."""

    lengths: Lengths
    keys: CachedKeys
    key: str
    value: str


def _key_layout_number(call: OperatorCall, name: str) -> int:
    """Return the number of the layout of keys in an argument of a call."""
    return int(call_argument(call, name))


def _require_operands(call: OperatorCall, *names: str) -> None:
    """Raise UncountedCallError if the call has no operand with one of these names."""
    missing = [name for name in names if not call.has_input(name)]
    if missing:
        raise call.uncounted(f"it has no operand {missing[0]!r}, unlike FlashInfer's operator")


def _keys_in_pages(call: OperatorCall, key: str, layout: int) -> CachedKeys:
    """Return the heads of keys and the tokens of a page, by the layout of the keys."""
    shape = call.input(key).shape
    page, heads = (shape[-2], shape[-3]) if layout == _HEADS_FIRST else (shape[-3], shape[-2])
    return CachedKeys(heads, page)


def _key_lengths_in_pages(call: OperatorCall, page: int) -> tuple[int, ...] | None:
    """Return the number of keys of each sequence in pages of this size; None if it is unknown."""
    pages = lengths_from_start_positions(operand_values(call, "paged_kv_indptr"))
    last = operand_values(call, "paged_kv_last_page_len")
    if pages is None or last is None:
        return None
    return tuple(
        (count - 1) * page + tokens if count else 0
        for count, tokens in zip(pages, last, strict=True)
    )


def _lengths_of_call(
    call: OperatorCall,
    queries: tuple[int, ...] | None,
    keys: tuple[int, ...] | None,
    key_count: int,
) -> Lengths:
    """Return the lengths of a call with these numbers of queries and keys; None is unknown.

    Where one is unknown, it is the most that there can be: every query meets as many keys as the
    longest sequence has, or every key as many queries as the widest has.

    Args:
        call: the call; its `max_q_len` and `max_kv_len` bound one sequence.
        queries: of each sequence.
        keys: of each sequence.
        key_count: the most that all sequences together can have.
    """
    if queries is not None and keys is not None:
        return joint_lengths(queries, keys)
    query_total = call.input("q").shape[0] if queries is None else sum(queries)
    key_total = key_count if keys is None else sum(keys)
    widest = _argument_at_most(call, "max_q_len", query_total) if queries is None else max(queries)
    longest = _argument_at_most(call, "max_kv_len", key_total) if keys is None else max(keys)
    pairs = min(query_total * longest, key_total * widest)
    return Lengths(pairs, query_total, key_total, known=False)


def _argument_at_most(call: OperatorCall, name: str, limit: int) -> int:
    """Return the number in an argument of a call, but at most the limit; the limit without one."""
    return min(limit, int(call.attributes.get(name) or limit))


def _prefill_with_pages(call: OperatorCall) -> AttentionCall:
    """Return the lengths and keys of a call of paged_run."""
    _require_operands(call, "q", "paged_k_cache", "paged_v_cache", "paged_kv_indices", "o")
    keys = _keys_in_pages(call, "paged_k_cache", _key_layout_number(call, "layout"))
    lengths = _lengths_of_call(
        call,
        lengths_from_start_positions(operand_values(call, "qo_indptr")),
        _key_lengths_in_pages(call, keys.page),
        call.input("paged_kv_indices").numel * keys.page,
    )
    return AttentionCall(lengths, keys, "paged_k_cache", "paged_v_cache")


def _prefill_with_packed_keys(call: OperatorCall) -> AttentionCall:
    """Return the lengths and keys of a call of ragged_run."""
    _require_operands(call, "q", "k", "v", "o")
    layout = _key_layout_number(call, "layout")
    tokens, heads = _tokens_and_heads(call, layout)
    lengths = _lengths_of_call(
        call,
        lengths_from_start_positions(operand_values(call, "qo_indptr")),
        lengths_from_start_positions(operand_values(call, "kv_indptr")),
        tokens,
    )
    return AttentionCall(lengths, CachedKeys(heads, 1), "k", "v")


def _tokens_and_heads(call: OperatorCall, layout: int) -> tuple[int, int]:
    """Return the number of tokens and of heads of the operand k, by its layout."""
    first, second, _ = call.input("k").shape
    return (second, first) if layout == _HEADS_FIRST else (first, second)


def _prefill_of_one_sequence(call: OperatorCall) -> AttentionCall:
    """Return the lengths and keys of a call for one sequence with several queries."""
    _require_operands(call, "q", "k", "v", "o")
    tokens, heads = _tokens_and_heads(call, _key_layout_number(call, "layout"))
    lengths = joint_lengths(call.input("q").shape[:1], (tokens,))
    return AttentionCall(lengths, CachedKeys(heads, 1), "k", "v")


def _decode_of_one_sequence(call: OperatorCall) -> AttentionCall:
    """Return the lengths and keys of a call for one query, q [heads, D]."""
    _require_operands(call, "q", "k", "v", "o")
    tokens, heads = _tokens_and_heads(call, _key_layout_number(call, "kv_layout_code"))
    return AttentionCall(joint_lengths((1,), (tokens,)), CachedKeys(heads, 1), "k", "v")


def _decode_with_pages(call: OperatorCall) -> AttentionCall:
    """Return the lengths and keys of a call with one query for each sequence."""
    _require_operands(call, "q", "paged_k_cache", "paged_v_cache", "paged_kv_indices", "o")
    keys = _keys_in_pages(call, "paged_k_cache", _key_layout_number(call, "kv_layout_code"))
    lengths = _lengths_of_call(
        call,
        (1,) * call.input("q").shape[0],
        _key_lengths_in_pages(call, keys.page),
        call.input("paged_kv_indices").numel * keys.page,
    )
    return AttentionCall(lengths, keys, "paged_k_cache", "paged_v_cache")


def _position_encoding_number(call: OperatorCall) -> str:
    """Return the number of the position encoding in the name of an operator, "" without one."""
    match = _POSITIONS.search(call.operator)
    return match["mode"] if match else ""


def _call_cost(call: OperatorCall, attention: AttentionCall) -> Cost:
    """Return the cost of a call with these lengths and keys."""
    heads, depth = call.input("q").shape[-2:]
    lengths, mode = attention.lengths, _position_encoding_number(call)
    scores = ScoreSizes(lengths, heads, attention.keys.heads, depth, call.input("o").shape[-1])
    extras = ScoreExtras(
        masked=bool(call.attributes.get("mask_mode"))
        or int(call.attributes.get("window_left", -1)) >= 0,
        sloped=mode == _SLOPED,
        capped=float(call.attributes.get("logits_soft_cap", 0.0)) > 0,
    )
    return attention_cost(scores, extras) + (_rotation_cost(scores) if mode == _ROTATED else ZERO)


def _rotation_cost(scores: ScoreSizes) -> Cost:
    """Return the cost of turning queries and keys by angles of their positions, in pairs of
    elements; all heads of a token have the same angles.
    """
    pairs = scores.depth // 2
    turned = scores.softmax_count + scores.kv_heads * scores.lengths.keys
    tokens = scores.lengths.queries + scores.lengths.keys
    return _ROTATION * (pairs * turned) + _ANGLE * (pairs * tokens)


def _bytes_read_and_written_by_call(
    call: OperatorCall, attention: AttentionCall
) -> tuple[int, int]:
    """Return (bytes read, bytes written) of a call: queries, the keys and values of its tokens,
    and the result; its workspaces are not among them.
    """
    read = call.input("q").nbytes
    tokens = attention.lengths.keys * attention.keys.heads
    for name in (attention.key, attention.value):
        operand = call.input(name)
        row = operand.shape[-1]
        read += operand.nbytes * tokens * row // operand.numel if operand.numel else 0
    return read, call.input("o").nbytes


def _declare_flashinfer(
    name: str, source: str, describe: Callable[[OperatorCall], AttentionCall]
) -> None:
    """Register the formula of FlashInfer's operators of this name.

    Args:
        name: of the operators, with "*" for the settings of their build.
        source: where they are defined.
        describe: gives the lengths and keys of a call.
    """

    def flashinfer_attention(call: OperatorCall) -> Cost:
        """Count S scores: S*(D+Dv) MACs, softmax, 1 mul per Q, K element; masked: S adds.

        A softcap, slopes or rotations by position cost more; a mask saves nothing (dense).
        """
        if call.has_input("sinks"):
            raise call.uncounted("attention sinks have no formula")
        return _call_cost(call, describe(call))

    def exact_if_sequence_lengths_known(call: OperatorCall) -> Exactness:
        """Return "exact" if the lengths of the sequences are known, else "bound"."""
        return "exact" if describe(call).lengths.known else "bound"

    def bytes_read_and_written(call: OperatorCall) -> tuple[int, int]:
        """Return (bytes read, bytes written) of a call."""
        return _bytes_read_and_written_by_call(call, describe(call))

    operator(
        name,
        backward="none",
        bytes=bytes_read_and_written,
        doubt=exact_if_sequence_lengths_known,
        source=source,
    )(flashinfer_attention)


for _name, _source, _describe in (
    ("batch_prefill_with_kv_cache_*_paged_run", _PREFILL, _prefill_with_pages),
    ("batch_prefill_with_kv_cache_*_ragged_run", _PREFILL, _prefill_with_packed_keys),
    ("trtllm_gen_context_paged_run", _PREFILL, _prefill_with_pages),
    ("single_prefill_with_kv_cache_*_run", _PREFILL, _prefill_of_one_sequence),
    ("batch_decode_with_kv_cache_*_run", _DECODE, _decode_with_pages),
    ("single_decode_with_kv_cache_*_run", _DECODE, _decode_of_one_sequence),
):
    _declare_flashinfer(f"flashinfer::{_name}", _source, _describe)
