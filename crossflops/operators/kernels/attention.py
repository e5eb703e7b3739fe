"""The cost of fused attention: flash_attn 2 and 3, PyTorch's own, xformers and vLLM, with packed
and paged keys.

All compute softmax(Q K^T scale + mask) V without storing the scores, and make these again in the
backward pass (Dao, FlashAttention-2, 2023, algorithms 1 and 2). They cost what `Attention` of ONNX
costs: a mask, a causal one and a window too, is dense. A kernel may skip blocks that a mask hides.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from crossflops.ir.ledger import ZERO, Cost, Exactness
from crossflops.operators.access import reduction_operation_count
from crossflops.operators.formula import OperatorCall, operator
from crossflops.operators.gradient import Gradient
from crossflops.operators.kernels.steps import call_argument
from crossflops.operators.movement import DROPPED
from crossflops.operators.normalization import softmax_cost, softmax_gradient_cost

FLASH = "https://github.com/Dao-AILab/flash-attention/blob/main/"
_FLASH_2 = f"{FLASH}flash_attn/flash_attn_interface.py"
_FLASH_3 = f"{FLASH}hopper/flash_attn_interface.py"
_VLLM = "https://github.com/vllm-project/vllm/blob/main/csrc/torch_bindings.cpp"
_XFORMERS = "https://github.com/facebookresearch/xformers/blob/main/xformers/ops/fmha/"
_TORCH = "https://github.com/pytorch/pytorch/blob/main/"
_NATIVE = f"{_TORCH}aten/src/ATen/native/native_functions.yaml"

_PAIR = Cost(muls=4, adds=2)  # of elements that a rotation turns


class Lengths(NamedTuple):
    """Numbers of queries and keys of the sequences of a batch, and of pairs of both.

    They are `known`, or the most that there can be.
    """

    pairs: int
    queries: int
    keys: int
    known: bool = True


class ScoreSizes(NamedTuple):
    """The scores of an attention: of so many heads, each from `depth` products."""

    lengths: Lengths
    heads: int
    kv_heads: int
    depth: int
    value_depth: int

    @property
    def score_count(self) -> int:
        """The number of scores, over all heads and sequences."""
        return self.heads * self.lengths.pairs

    @property
    def softmax_count(self) -> int:
        """The number of softmaxes: one for each query of each head."""
        return self.heads * self.lengths.queries


class ScoreExtras(NamedTuple):
    """Further work on each score."""

    masked: bool = False
    sloped: bool = False  # ALiBi: a slope times the distance is added
    biased: bool = False
    capped: bool = False
    dropped: bool = False

    @property
    def before_softmax(self) -> Cost:
        """The cost per score of the operations between the product Q K^T and the softmax, without
        a softcap.
        """
        added = self.masked or self.sloped or self.biased
        return Cost(muls=1 if self.sloped else 0, adds=1 if added else 0)


def attention_cost(scores: ScoreSizes, extras: ScoreExtras) -> Cost:
    """Return the cost of the forward pass of an attention with these scores and this further work.

    S*(D+Dv) MACs; Q and K by the root of the scale, n(Q) + n(K) muls; what is added to scores, S
    adds; ALiBi S muls; softcap S (div, tanh, mul); softmax; dropout S (2 muls, compare).
    """
    count, lengths = scores.score_count, scores.lengths
    scaled = scores.depth * (scores.softmax_count + scores.kv_heads * lengths.keys)
    cost = Cost(macs=count * (scores.depth + scores.value_depth), muls=scaled)
    cost += extras.before_softmax * count + softmax_cost(count, scores.softmax_count)
    if extras.capped:
        cost += Cost(divs=count, specials=count, muls=count)
    return cost + (DROPPED * count if extras.dropped else ZERO)


def attention_gradient(
    scores: ScoreSizes, extras: ScoreExtras, trainable: frozenset[Any], names: Sequence[str]
) -> Gradient:
    """Return the cost of those gradients of an attention that are trainable; `names` are those of
    q, k, v and the bias.

    dV = P^T dO, S*Dv MACs; dP = dO V^T, S*Dv; dS by the softmax; dQ = dS K and dK = dS^T Q, S*D
    each, scaled. ScoreSizes are made again from q and k: S*D MACs, S (mul, sub, exp).
    """
    query, key, value, bias = names
    count, lengths = scores.score_count, scores.lengths
    sizes = {
        query: scores.depth * scores.softmax_count,
        key: scores.depth * scores.kv_heads * lengths.keys,
    }
    work: dict[Any, Cost] = dict.fromkeys(trainable, ZERO)
    for name, size in sizes.items():
        if name in trainable:
            work[name] = Cost(macs=count * scores.depth, muls=size)
    if value in trainable:
        work[value] = Cost(macs=count * scores.value_depth)
    dropped = Cost(muls=2 * count) if extras.dropped else ZERO
    inner = ZERO
    if not trainable.isdisjoint((query, key, bias)):
        cap = count if extras.capped else 0
        inner = Cost(macs=count * scores.value_depth, muls=2 * cap, adds=cap)
        inner += softmax_gradient_cost(count, scores.softmax_count) + dropped
    again = Cost(macs=scores.depth, muls=1, adds=1, specials=1)
    again += Cost(adds=extras.before_softmax.adds)
    return Gradient(work, inner=inner, recomputed=again * count)


def attention_backward_kernel_cost(scores: ScoreSizes) -> Cost:
    """Return the cost of a kernel that computes the gradients of q, k and v of an attention.

    Five products, S*(3D + 2Dv) MACs; p = exp(c s - l) and ds = c p (dp - delta), S (exp, 3 muls,
    2 adds); delta = sum(dO O), n(O) muls and n(O) - rows adds.
    """
    count, results = scores.score_count, scores.softmax_count * scores.value_depth
    return Cost(
        macs=count * (3 * scores.depth + 2 * scores.value_depth),
        muls=3 * count + results,
        adds=2 * count + reduction_operation_count(results, scores.softmax_count),
        specials=count,
    )


# How long the sequences of a batch are.


def operand_values(call: OperatorCall, name: str) -> tuple[int, ...] | None:
    """Return the integers in an operand; None if it is not given or its values are unknown."""
    return call.values(call.names.index(name)) if call.has_input(name) else None


def lengths_from_start_positions(starts: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the lengths of packed sequences, from the positions where they start; None if those
    are unknown.
    """
    if starts is None:
        return None
    return tuple(end - start for start, end in pairwise(starts))


def _lengths_with_padding(call: OperatorCall, query: str, key: str) -> Lengths:
    """Return the lengths of a padded batch, in which every query meets every key of its
    sequence.
    """
    batch, queries, keys = (
        call.input(query).shape[0],
        *(call.input(name).shape[1] for name in (query, key)),
    )
    return Lengths(batch * queries * keys, batch * queries, batch * keys)


def joint_lengths(queries: Sequence[int], keys: Sequence[int], known: bool = True) -> Lengths:
    """Return the lengths of a batch of sequences, from the numbers of queries and keys of each."""
    pairs = sum(first * second for first, second in zip(queries, keys, strict=True))
    return Lengths(pairs, sum(queries), sum(keys), known)


class Packing(NamedTuple):
    """The names of what says how long sequences are, "" where an operator has no such thing."""

    query: str = "q"
    key: str = "k"
    query_starts: str = "cu_seqlens_q"
    key_starts: str = "cu_seqlens_k"
    used: str = "seqused_k"
    most_queries: str = "max_seqlen_q"
    most_keys: str = "max_seqlen_k"
    pages: str = "block_table"


PACKED = Packing()


def _attribute_at_most(call: OperatorCall, name: str, otherwise: int) -> int:
    """Return the integer in an attribute, but at most `otherwise`; `otherwise` if there
    is none.
    """
    value = call.attributes.get(name)
    return min(value, otherwise) if isinstance(value, int) and value > 0 else otherwise


def sequence_lengths(call: OperatorCall, packing: Packing) -> Lengths:
    """Return the lengths of the sequences of a call, which are padded, packed, or in pages of a
    cache.

    Where the values of starts and lengths are known, they say it. Else it is the most that there
    can be: of packed sequences every query meets as many keys as the longest has.
    """
    query, key = call.input(packing.query), call.input(packing.key)
    starts = call.has_input(packing.query_starts)
    total = query.shape[0] if starts else prod(query.shape[:2])
    queries = lengths_from_start_positions(operand_values(call, packing.query_starts))
    if not starts:
        queries = (query.shape[1],) * query.shape[0]
    batch = call.input(packing.query_starts).numel - 1 if starts else query.shape[0]
    keys = operand_values(call, packing.used) or lengths_from_start_positions(
        operand_values(call, packing.key_starts)
    )
    if packing.pages and call.has_input(packing.pages):
        capacity = call.input(packing.pages).shape[-1] * key.shape[1]
        packed = batch * capacity
    elif call.has_input(packing.key_starts) and key.rank == 3:
        packed = capacity = key.shape[0]
    else:
        capacity, packed = key.shape[1], batch * key.shape[1]
        keys = keys or (None if call.has_input(packing.used) else (capacity,) * batch)
    if queries is not None and keys is not None:
        return joint_lengths(queries, keys)
    longest = _attribute_at_most(call, packing.most_keys, capacity)
    widest = _attribute_at_most(call, packing.most_queries, total if starts else query.shape[1])
    packed = min(packed, batch * longest)
    return Lengths(min(total * longest, packed * widest), total, packed, known=False)


def _score_sizes_of_call(call: OperatorCall, lengths: Lengths, names: Sequence[str]) -> ScoreSizes:
    """Return the score sizes of a call: its heads and head sizes, with these lengths."""
    query, key, value = (call.input(name).shape for name in names[:3])
    return ScoreSizes(lengths, query[-2], key[-2], query[-1], value[-1])


def _has_true_attribute(call: OperatorCall, *names: str) -> bool:
    """Return whether one of these attributes of a call is true."""
    return any(bool(call.attributes.get(name)) for name in names)


def _score_extras(call: OperatorCall, names: Sequence[str]) -> ScoreExtras:
    """Return what a call does with its scores: masks, ALiBi slopes, a bias, a softcap, dropout."""
    windows = ("window_size_left", "window_size_right", "window_left", "window_right")
    values = [call.attributes.get(name, -1) for name in windows]
    sides = (
        [*values, *call.attributes.get("window_size", ())]
        if _is_window_size_tuple(call)
        else values
    )
    return ScoreExtras(
        masked=_has_true_attribute(
            call, "causal", "is_causal", "custom_mask_type", "attention_chunk"
        )
        or any(side is not None and side >= 0 for side in sides)
        or (
            call.attributes.get("window_size", 0) not in (0, None, ())
            and not _is_window_size_tuple(call)
        ),
        sloped=call.has_input("alibi_slopes"),
        biased=bool(names[3]) and call.has_input(names[3]),
        capped=bool(call.attributes.get("softcap")),
        dropped=any(call.attributes.get(name, 0.0) > 0 for name in ("dropout_p", "p")),
    )


def _is_window_size_tuple(call: OperatorCall) -> bool:
    """Return whether the attribute window_size of a call is a tuple."""
    return isinstance(call.attributes.get("window_size"), tuple)


def declare_attention(
    name: str,
    source: str,
    names: Sequence[str] = ("q", "k", "v", ""),
    packing: Packing = PACKED,
    more: Callable[[OperatorCall, ScoreSizes], Cost] | None = None,
) -> None:
    """Register the formula of an operator that computes attention.

    Args:
        name: of the operator.
        source: where it is defined.
        names: of its queries, keys, values and what is added to scores.
        packing: names of what says how long the sequences are.
        more: work beside the attention.
    """

    def attention_kernel(call: OperatorCall) -> Cost:
        """Count S scores: S*(D+Dv) MACs, softmax, 1 mul per Q, K element; mask, bias: S adds.

        With ALiBi S muls and adds; a causal mask or a window saves nothing (dense).
        """
        scores = _score_sizes_of_call(call, sequence_lengths(call, packing), names)
        cost = attention_cost(scores, _score_extras(call, names))
        return cost + more(call, scores) if more is not None else cost

    def attention_gradient_of_call(call: OperatorCall, trainable: frozenset[Any]) -> Gradient:
        """Return the cost of the gradients of an attention. Raises UncountedCallError if it writes
        a cache.
        """
        if (
            more is not None
            and more(call, _score_sizes_of_call(call, Lengths(0, 0, 0), names)) != ZERO
        ):
            raise call.uncounted("attention that writes a cache has no backward pass")
        scores = _score_sizes_of_call(call, sequence_lengths(call, packing), names)
        return attention_gradient(scores, _score_extras(call, names), trainable, names)

    operator(
        name,
        backward=attention_gradient_of_call,
        doubt=_sequence_length_exactness(packing),
        source=source,
    )(attention_kernel)


def declare_attention_backward(name: str, source: str, packing: Packing = PACKED) -> None:
    """Register the formula of an operator that computes the gradients of an attention."""

    def attention_backward_kernel(call: OperatorCall) -> Cost:
        """Count S scores: S*(3D+2Dv MACs, exp, 3 muls, 2 adds), and sums of dO O per query."""
        lengths = sequence_lengths(call, packing)
        return attention_backward_kernel_cost(_score_sizes_of_call(call, lengths, ("q", "k", "v")))

    operator(name, backward="none", doubt=_sequence_length_exactness(packing), source=source)(
        attention_backward_kernel
    )


def _sequence_length_exactness(packing: Packing) -> Callable[[OperatorCall], Exactness]:
    """Return a function that says how exact the cost of an attention is: by whether its sequence
    lengths are known.
    """

    def exact_if_sequence_lengths_known(call: OperatorCall) -> Exactness:
        """Return "exact" if the lengths of the sequences are known, else "bound"."""
        return "exact" if sequence_lengths(call, packing).known else "bound"

    return exact_if_sequence_lengths_known


def _cache_append_cost(call: OperatorCall, scores: ScoreSizes) -> Cost:
    """Return the cost of the additional work of an attention: new keys in its cache, rotations, a
    product of queries and values.

    New keys meet all queries of their sequence, which are not among those in the cache.
    """
    cost, tokens = ZERO, prod(call.input("q").shape[:-2])
    name = "k_new" if call.has_input("k_new") else "k"
    new = prod(call.input(name).shape[:-2]) if name == "k_new" or call.has_input("knew") else 0
    if call.has_input("k_new"):
        lengths = call.input("k_new").shape
        added = tokens * lengths[1] if len(lengths) == 4 else tokens * lengths[0]
        more = scores._replace(lengths=Lengths(added, 0, new))
        cost += Cost(macs=more.score_count * (more.depth + more.value_depth))
        cost += Cost(muls=more.depth * more.kv_heads * new)
        cost += Cost(compares=1, adds=2, specials=1, divs=1) * more.score_count
        cost += _score_extras(call, ("q", "k", "v", "")).before_softmax * more.score_count
    if call.has_input("rotary_cos"):
        pairs = call.input("rotary_cos").shape[-1]
        cost += _PAIR * (pairs * (tokens * scores.heads + new * scores.kv_heads))
    if call.has_input("qv"):
        cost += Cost(macs=scores.score_count * scores.value_depth)
    return cost


for _name in ("flash_attn", "flashattn"):  # the second before 2.7
    declare_attention(f"{_name}::_flash_attn_forward", _FLASH_2)
    declare_attention(f"{_name}::_flash_attn_varlen_forward", _FLASH_2)
    declare_attention_backward(f"{_name}::_flash_attn_backward", _FLASH_2)
    declare_attention_backward(f"{_name}::_flash_attn_varlen_backward", _FLASH_2)

_PAGED = Packing(pages="page_table")
for _name in ("flash_attn_3::_flash_attn_forward", "flash_attn_3::fwd", "_vllm_fa3_C::fwd"):
    declare_attention(_name, _FLASH_3, packing=_PAGED, more=_cache_append_cost)
for _name in ("flash_attn_3::_flash_attn_backward", "flash_attn_3::bwd"):
    declare_attention_backward(_name, _FLASH_3, _PAGED)

declare_attention("_vllm_fa2_C::varlen_fwd", _VLLM)

declare_attention(
    "xformers_flash::flash_fwd",
    f"{_XFORMERS}flash.py",
    ("query", "key", "value", ""),
    Packing("query", "key", pages="block_tables"),
)
declare_attention(
    "xformers_flash3::flash_fwd",
    f"{_XFORMERS}flash3.py",
    ("query", "key", "value", ""),
    Packing("query", "key", used="seqused_k", pages="block_table"),
)
declare_attention(
    "xformers::efficient_attention_forward_cutlass",
    f"{_XFORMERS}cutlass.py",
    ("query", "key", "value", "attn_bias"),
    Packing("query", "key", "seqstart_q", "seqstart_k", used="seqlen_k", pages=""),
)
declare_attention(
    "aten::_efficient_attention_forward",
    _NATIVE,
    ("query", "key", "value", "bias"),
    Packing("query", "key", used="seqlen_k", pages=""),
)
declare_attention(
    "aten::_flash_attention_forward",
    _NATIVE,
    ("query", "key", "value", ""),
    Packing("query", "key", "cum_seq_q", "cum_seq_k", "seqused_k", "max_q", "max_k"),
)
declare_attention(
    "torch_attn::_varlen_attn",
    f"{_TORCH}torch/nn/attention/varlen.py",
    ("query", "key", "value", ""),
    Packing("query", "key", "cu_seq_q", "cu_seq_k", "seqused_k", "max_q", "max_k"),
)


# One query for each sequence, and keys in pages of a cache.


def _cache_page_lengths(call: OperatorCall) -> Lengths:
    """Return the lengths of a paged attention: the recorded ones, or else the largest that are
    possible.
    """
    sequences = call.input("query").shape[0]
    recorded = operand_values(call, "seq_lens")
    if recorded is not None:
        return joint_lengths((1,) * sequences, recorded)
    capacity = call.input("block_tables").shape[1] * int(call_argument(call, "block_size"))
    keys = sequences * _attribute_at_most(call, "max_seq_len", capacity)
    return Lengths(keys, sequences, keys, known=False)


def _cache_page_exactness(call: OperatorCall) -> Exactness:
    """Return "exact" if the lengths of a paged attention are recorded, else "bound"."""
    return "exact" if _cache_page_lengths(call).known else "bound"


@operator("_C::paged_attention_v1", backward="none", doubt=_cache_page_exactness, source=_VLLM)
@operator("_C::paged_attention_v2", backward="none", doubt=_cache_page_exactness, source=_VLLM)
def attention_kernel_with_pages(call: OperatorCall) -> Cost:
    """Count S scores: S*2D MACs, softmax, 1 mul per element of Q, K; ALiBi: S (mul, add).

    query [sequences, heads, D], key_cache [blocks, kv_heads, D/x, block_size, x].
    """
    _, heads, depth = call.input("query").shape
    scores = ScoreSizes(
        _cache_page_lengths(call), heads, call.input("key_cache").shape[1], depth, depth
    )
    return attention_cost(scores, ScoreExtras(sloped=call.has_input("alibi_slopes")))
