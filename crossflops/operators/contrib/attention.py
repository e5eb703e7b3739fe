"""The cost of onnxruntime's attentions with as many key heads as query heads, on padded and packed
sequences.
"""

from collections.abc import Callable, Iterable
from math import prod
from typing import NamedTuple

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    has_input,
    input_element_count,
    input_spec,
    integer_attribute,
    positive_integer_attribute,
    spec_shape,
)
from crossflops.operators.gradient import FUSED
from crossflops.operators.normalization import softmax_cost
from crossflops.operators.operands import (
    Shape,
    constraint_by_rank,
    first_problem_constraint,
    input_label,
    input_shape,
    input_shape_or_raise,
    integer_list_or_none,
    shape_constraint,
    sizes_constraint,
)
from crossflops.operators.pointwise import ADD
from crossflops.operators.rule import (
    MICROSOFT,
    Constraint,
    Exactness,
    OperandProblem,
    Operators,
    upper_bound_exactness,
)

operator = Operators(MICROSOFT, backward=FUSED)

# What all attentions of onnxruntime have in common: scores, what is added to them, softmax.

# Of a cosine and a sine that are looked up, one pair of elements takes 4 muls and 2 adds.
PAIR = Cost(muls=4, adds=2)


class Scores(NamedTuple):
    """The number S of scores, and the number of softmaxes (`rows`: queries of one head each).

    A score is a contraction of depth D, and multiplies Dv elements of a value.
    """

    size: int
    rows: int
    depth: int
    value_depth: int


def dense_score_sizes(rows: int, keys: int, depth: int, value_depth: int) -> Scores:
    """Return the sizes of scores in which each of `rows` queries meets each of `keys` keys."""
    return Scores(rows * keys, rows, depth, value_depth)


def attention_score_cost(
    scores: Scores, added: int = 0, softcap: bool = False, sink: bool = False
) -> Cost:
    """Return the cost of softmax(softcap(Q * K^T * scale) + added) * V: D + Dv MACs, a mul by the
    scale, and more, per score.

    `added` tensors (a mask, a bias) take S adds each; softcap S (div, tanh, mul). A sink is one
    more score in each softmax, without a value: a compare, sub, exp and add per row.
    """
    count = scores.size
    cost = Cost(macs=scores.depth + scores.value_depth, muls=1, adds=added) * count
    if softcap:
        cost += Cost(divs=1, specials=1, muls=1) * count
    if sink:
        cost += Cost(compares=1, adds=2, specials=1) * scores.rows
    return cost + softmax_cost(count, scores.rows)


def rotary_embedding_cost(node: Node, elements: int) -> Cost:
    """Return the cost of a rotary embedding of `elements` elements of queries and keys: half as
    many pairs.
    """
    return PAIR * (elements // 2) if integer_attribute(node, "do_rotary", 0) else ZERO


def width_per_head(width: int, heads: int, node: Node) -> int:
    """Return the width of one head, `width` / `heads`. Raises ValueError if it is not whole."""
    if heads <= 0 or width < 0 or width % heads:
        raise ValueError(f"{width} of {node.op} does not divide into {heads} heads")
    return width // heads


class ProjectedScores(NamedTuple):
    """The sizes of the scores, and the number of elements of Q, K and V that are projected."""

    scores: Scores
    projected_elements: int


class AttentionInputIndices(NamedTuple):
    """The indices of the inputs that the formulas need; -1 where an operator has no such input."""

    mask: int
    bias: int
    past: int
    past_length: int
    attention_bias: int


_SELF = AttentionInputIndices(mask=3, bias=2, past=4, past_length=6, attention_bias=5)
_QUANTIZED = AttentionInputIndices(mask=5, bias=2, past=8, past_length=-1, attention_bias=-1)
_MULTI_HEAD = AttentionInputIndices(mask=4, bias=3, past=6, past_length=8, attention_bias=5)
_DECODER = AttentionInputIndices(mask=3, bias=10, past=5, past_length=7, attention_bias=4)


def _has_input_at_index(node: Node, index: int) -> bool:
    """Return whether the node is given the input at this index; False for -1."""
    return index >= 0 and has_input(node, index)


def _score_addend_count(node: Node, locations: AttentionInputIndices) -> int:
    """Return how many numbers are added to each attention score: one for a mask, one for
    a bias.
    """
    masked = (
        _has_input_at_index(node, locations.mask)
        or integer_attribute(node, "unidirectional", 0) != 0
    )
    return masked + _has_input_at_index(node, locations.attention_bias)


def _is_cache_buffer_shared(node: Node, locations: AttentionInputIndices) -> bool:
    """Return whether past and present keys are in one buffer of the maximum length."""
    return integer_attribute(node, "past_present_share_buffer", 0) != 0 or _has_input_at_index(
        node, locations.past_length
    )


def _total_key_count(node: Node, locations: AttentionInputIndices, new: int) -> int:
    """Return the number of keys: `new` ones plus past ones, or the length of a shared buffer."""
    if not _has_input_at_index(node, locations.past):
        return new
    past = spec_shape(input_spec(node, locations.past), at_least=4)[-2]
    return past if _is_cache_buffer_shared(node, locations) else past + new


def qkv_projection_widths(node: Node) -> tuple[int, int, int]:
    """Return the widths of Q, K and V in their merged weights [in, Hq + Hk + Hv]."""
    sizes = node.attrs.get("qkv_hidden_sizes", ())
    if isinstance(sizes, tuple) and sizes:
        widths = [width for width in sizes if isinstance(width, int) and width >= 0]
        if not len(widths) == len(sizes) == 3:
            raise ValueError(f"qkv_hidden_sizes of {node.op} are {sizes}")
        return widths[0], widths[1], widths[2]
    width = spec_shape(input_spec(node, 1), rank=2)[1]
    if width % 3:
        raise ValueError(f"the weights of {node.op} do not divide into Q, K and V")
    return width // 3, width // 3, width // 3


def _self_attention_sizes(node: Node, locations: AttentionInputIndices) -> ProjectedScores:
    """Return the score sizes of a self-attention on an input [B, S, in], and the number of
    elements of Q, K and V together.
    """
    batch, length, _ = spec_shape(input_spec(node, 0), rank=3)
    widths, heads = qkv_projection_widths(node), positive_integer_attribute(node, "num_heads")
    depths = [width_per_head(width, heads, node) for width in widths]
    total = _total_key_count(node, locations, length)
    scores = dense_score_sizes(batch * heads * length, total, depths[0], depths[2])
    return ProjectedScores(scores, batch * length * sum(widths))


def _total_key_count_or_none(node: Node, locations: AttentionInputIndices) -> int | None:
    """Return the number of keys, new and past ones; None if it is unknown."""
    key = node.inputs[1] if len(node.inputs) > 1 else None
    dims = input_shape(node, 0) if key is None or locations is _SELF else key.shape
    past = input_shape(node, locations.past)
    if dims is None or (
        _has_input_at_index(node, locations.past)
        and (past is None or _is_cache_buffer_shared(node, locations))
    ):
        return None
    return (dims[2] if len(dims) == 4 else dims[1]) + (past[-2] if past else 0)


def _mask_shape_constraint(locations: AttentionInputIndices) -> Constraint:
    """Return a constraint on the shape of the mask, which gives lengths of sequences, or masks
    keys or scores.

    Lengths are [B] or [3B+2]; masks of keys [B, L], [B, T], [B, S, T]; of scores, a square.

    Only Attention also takes [2B], the ends and the beginnings, and [B, 1], which masks nothing.
    """

    def mask_shape_choices(node: Node) -> Iterable[Shape] | None:
        """Return the shapes that the mask may have; None if queries or keys have unknown sizes."""
        query, total = input_shape(node, 0), _total_key_count_or_none(node, locations)
        if query is None or total is None:
            return None
        batch, past = query[0], input_shape(node, locations.past)
        new = total - (past[-2] if past else 0)
        masks = [(batch,), (3 * batch + 2,), (batch, total), (batch, query[1], total)]
        return [*masks, (2 * batch,), (batch, 1)] if locations is _SELF else [*masks, (batch, new)]

    checked = shape_constraint(locations.mask, mask_shape_choices, "the mask")

    def mask_shape_problem(node: Node) -> OperandProblem:
        """Return why the shape of the mask is wrong; "" if nothing is wrong."""
        mask = input_shape(node, locations.mask)
        square = mask is not None and len(mask) == 4 and locations is _SELF
        return "" if square else checked(node)

    return mask_shape_problem


def _score_bias_constraint(locations: AttentionInputIndices) -> Constraint:
    """Return a constraint on attention_bias: its shape is [1 or B, 1 or N, S, T]."""

    def bias_shape_choices(node: Node) -> Iterable[Shape] | None:
        """Return the shapes that attention_bias may have; None if the sizes are unknown."""
        query, total, heads = (
            input_shape(node, 0),
            _total_key_count_or_none(node, locations),
            positive_integer_attribute(node, "num_heads"),
        )
        if query is None or total is None:
            return None
        leading = ((query[0], heads), (query[0], 1), (1, heads), (1, 1))
        return [(*first, query[1], total) for first in leading]

    return shape_constraint(locations.attention_bias, bias_shape_choices, "attention_bias")


def _head_division_constraint(node: Node) -> OperandProblem:
    """Return why the widths of Q, K and V do not divide into the heads; "" if nothing is wrong."""
    heads, weights = positive_integer_attribute(node, "num_heads"), input_shape_or_raise(node, 1)
    if len(weights) != 2:
        return ""
    hidden_sizes = integer_list_or_none(node, "qkv_hidden_sizes")
    if _has_hidden_sizes(node) and len(hidden_sizes or ()) != 3:
        return f"attribute 'qkv_hidden_sizes' is {hidden_sizes}: 3 are needed"
    widths = (
        qkv_projection_widths(node)
        if weights[1] % 3 == 0 or _has_hidden_sizes(node)
        else (weights[1],)
    )
    if len(widths) == 1:
        return (
            f"{input_label(node, 1, 'weights')} has {weights[1]} at axis 1, which is not a "
            "multiple of 3"
        )
    if sum(widths) != weights[1]:
        has = f"{input_label(node, 1, 'weights')} has {weights[1]} at axis 1"
        return f"{has}, but qkv_hidden_sizes add up to {sum(widths)}"
    if widths[0] != widths[1]:
        return f"attribute 'qkv_hidden_sizes' has {widths[0]} for Q, but {widths[1]} for K"
    for width in widths:
        if width % heads:
            return f"{input_label(node, 1, 'weights')}: {width} does not divide into {heads} heads"
    return ""


def _has_hidden_sizes(node: Node) -> bool:
    """Return whether the node states the widths of query, key and value separately."""
    return bool(node.attrs.get("qkv_hidden_sizes"))


def _attention_past_constraint(node: Node) -> OperandProblem:
    """Return why the past keys [2, B, N, P, D] do not have the number and width of the key heads;
    "" if nothing is wrong.
    """
    past, heads = input_shape(node, _SELF.past), positive_integer_attribute(node, "num_heads")
    if past is None or input_shape(node, 1) is None or len(past) != 5:
        return ""
    depth = qkv_projection_widths(node)[1] // heads
    if (past[2], past[4]) == (heads, depth):
        return ""
    return f"{input_label(node, _SELF.past, 'past')} does not hold {heads} heads of {depth}"


_SELF_OPERANDS = (
    sizes_constraint(
        "input[B,S,I] weights[I,H] bias[H] mask past[2,B,_,_,_] attention_bias[1|B,_,S,_]"
    ),
    _head_division_constraint,
    _mask_shape_constraint(_SELF),
    _score_bias_constraint(_SELF),
    _attention_past_constraint,
)


_CORE = (
    "scale: S muls; mask: S adds; attention_bias: S adds; softmax: S-S/T compares, S subs, "
    "S exps, S-S/T adds, S divs; T = past+new"
)
_PROJECTED = f"B*S*in*(Hq+Hk+Hv) + S*(D+Dv) MACs, S = B*N*S*T; bias: n(QKV) adds; {_CORE}"


def past_buffer_exactness(locations: AttentionInputIndices) -> Callable[[Node], Exactness]:
    """Return a function that gives "bound" for a node whose past and present keys share a buffer,
    since values decide how full it is; else "exact".
    """

    def exactness_by_shared_cache_buffer(node: Node) -> Exactness:
        """Return "bound" if past and present keys of the node share a buffer, else "exact"."""
        return (
            "bound"
            if _has_input_at_index(node, locations.past)
            and _is_cache_buffer_shared(node, locations)
            else "exact"
        )

    return exactness_by_shared_cache_buffer


@operator(
    "Attention",
    f"{_PROJECTED}; do_rotary: (n(Q)+n(K))/2*(4 muls, 2 adds)",
    doubt=past_buffer_exactness(_SELF),
    requires=_SELF_OPERANDS,
    contracts=(0, 1, 2),
)
@operator(
    "DecoderMaskedSelfAttention",
    f"{_PROJECTED}; do_rotary: (n(Q)+n(K))/2*(4 muls, 2 adds)",
    doubt=past_buffer_exactness(_SELF),
    requires=_SELF_OPERANDS,
)
def contrib_attention_cost(node: Node, locations: AttentionInputIndices = _SELF) -> Cost:
    """Return the cost of onnxruntime's Attention: the projection of the input to Q, K and V, then
    softmax(Q * K^T * scale + mask) * V.

    MACs = B*S*in*(Hq + Hk + Hv) + B*N*S*T*(D + Dv), T = past + S, N heads. bias n(QKV) adds; scale
    S muls; a mask (or unidirectional) S adds, attention_bias S adds; do_rotary n(Q)/2 + n(K)/2
    pairs. A causal mask saves nothing (dense). input [B, S, in], weights [in, Hq + Hk + Hv].
    """
    scores, projected = _self_attention_sizes(node, locations)
    macs = projected * spec_shape(input_spec(node, 0), rank=3)[2]
    biased = projected if _has_input_at_index(node, locations.bias) else 0
    first, second, _ = qkv_projection_widths(node)
    tokens = projected // (sum(qkv_projection_widths(node)) or 1)
    turned = rotary_embedding_cost(node, tokens * (first + second))
    return (
        Cost(macs=macs, adds=biased)
        + turned
        + attention_score_cost(scores, _score_addend_count(node, locations))
    )


@operator(
    "QAttention",
    f"{_PROJECTED}; zero points: n(input)+n(weight) adds; n(QKV) muls",
    doubt=past_buffer_exactness(_QUANTIZED),
    requires=(
        sizes_constraint(
            "input[B,S,I] weight[I,H] bias[H] input_scale?[1] weight_scale?[H] mask "
            "input_zero_point?[1] weight_zero_point?[H]"
        ),
        _head_division_constraint,
    ),
)
def contrib_qattention_cost(node: Node) -> Cost:
    """Return the cost of QAttention: as Attention, with the projection in eight bits.

    Zero points n(input) + n(weight) adds, n(QKV) muls by the scales. The scores are real.
    """
    shifted = sum(input_element_count(node, i) for i in (0, 1) if has_input(node, i + 6))
    projected = _self_attention_sizes(node, _QUANTIZED)[1]
    return contrib_attention_cost(node, _QUANTIZED) + Cost(adds=shifted, muls=projected)


def multi_head_attention_sizes(
    node: Node, locations: AttentionInputIndices = _MULTI_HEAD
) -> ProjectedScores:
    """Return the score sizes of an attention on projected operands, and the number of elements of
    these operands together.

    query [B, S, Hq], packed QKV [B, S, N, 3, D]; key [B, L, Hk], packed KV [B, L, N, 2, D], or a
    cached one [B, N, L, D]; value [B, L, Hv] or [B, N, L, Dv].
    """
    query, heads = (
        spec_shape(input_spec(node, 0), at_least=3),
        positive_integer_attribute(node, "num_heads"),
    )
    if len(query) == 5:
        total = _total_key_count(node, locations, query[1])
        scores = dense_score_sizes(query[0] * heads * query[1], total, query[4], query[4])
        return ProjectedScores(scores, prod(query))
    batch, length, width = spec_shape(input_spec(node, 0), rank=3)
    if not has_input(node, 1):
        return _joint_qkv_attention_sizes(node, locations, heads)
    depth = width_per_head(width, heads, node)
    key = spec_shape(input_spec(node, 1), at_least=3)
    if len(key) == 5:
        total, value_depth, more = _total_key_count(node, locations, key[1]), key[4], prod(key)
    elif len(key) == 4:
        total, value_depth, more = key[2], spec_shape(input_spec(node, 2), rank=4)[3], 0
    else:
        value = spec_shape(input_spec(node, 2), rank=3)
        value_depth = width_per_head(value[2], heads, node)
        total, more = _total_key_count(node, locations, key[1]), prod(key) + prod(value)
    scores = dense_score_sizes(batch * heads * length, total, depth, value_depth)
    return ProjectedScores(scores, prod(query) + more)


def _joint_qkv_attention_sizes(
    node: Node, locations: AttentionInputIndices, heads: int
) -> ProjectedScores:
    """Return the score sizes of an attention with Q, K and V in one input [B, S, 3*H], and the
    number of its elements.

    The query is [B, S, 3 * H].
    """
    batch, length, width = spec_shape(input_spec(node, 0), rank=3)
    depth = width_per_head(width, 3 * heads, node)
    total = _total_key_count(node, locations, length)
    scores = dense_score_sizes(batch * heads * length, total, depth, depth)
    return ProjectedScores(scores, batch * length * width)


_KEYS = {
    3: sizes_constraint("query[B,S,H] key[B,L,H] value[B,L,_]"),
    4: sizes_constraint("n=@num_heads query[B,S,n*D] key[B,n,L,D] value[B,n,L,D]"),
    5: sizes_constraint("n=@num_heads query[B,S,n*D] key[B,L,n,2,D]"),
}


def _key_value_sizes_constraint(node: Node) -> OperandProblem:
    """Return why keys and values do not fit the queries of a multi-head attention; "" if nothing
    is wrong.
    """
    if not has_input(node, 1):
        return ""
    key = input_shape(node, 1)
    return "" if key is None else _KEYS.get(len(key), _key_rank_problem)(node)


def _key_rank_problem(node: Node) -> OperandProblem:
    """Return the message that the key must have rank 3, 4 or 5."""
    return (
        f"{input_label(node, 1, 'key')} has rank "
        f"{len(input_shape(node, 1) or ())}, but needs 3, 4 or 5"
    )


def _whole_head_widths_constraint(node: Node) -> OperandProblem:
    """Return why the widths of query, key and value do not divide into the heads; "" if nothing is
    wrong.
    """
    heads = positive_integer_attribute(node, "num_heads")
    if input_shape(node, 0) is None:
        return ""
    packed = 3 if not has_input(node, 1) else 1
    for index, parts in ((0, packed), (1, 1), (2, 1)):
        dims = input_shape(node, index)
        if dims is not None and len(dims) == 3 and dims[2] % (parts * heads):
            has = f"{input_label(node, index)} has {dims[2]} at axis 2"
            return f"{has}, which does not divide into {parts * heads} heads"
    return ""


def _qkv_bias_constraint(node: Node) -> OperandProblem:
    """Return why the bias is not one vector for query, key and value together; "" if nothing is
    wrong.
    """
    query, value, bias = input_shape(node, 0), input_shape(node, 2), input_shape(node, 3)
    if bias is None or query is None or value is None or len(query) != 3:
        return ""
    width = value[2] if len(value) == 3 else query[2]
    if bias == (2 * query[2] + width,):
        return ""
    return (
        f"{input_label(node, 3, 'bias')} needs "
        f"{2 * query[2] + width} numbers for {input_label(node, 0)}"
    )


def _cache_heads_constraint(locations: AttentionInputIndices) -> Constraint:
    """Return a constraint on past_key and past_value: their shape is [B, N, P, D] with the heads
    of the query.
    """

    def cache_shape_choices(node: Node) -> Iterable[Shape] | None:
        """Return the shape that past_key and past_value may have; None if it is unknown."""
        query, past = input_shape(node, 0), input_shape(node, locations.past)
        if query is None or past is None or len(query) != 3:
            return None
        heads = positive_integer_attribute(node, "num_heads")
        # packed, the query holds the keys and the values, too
        width = query[2] // (1 if has_input(node, 1) else 3)
        return [(query[0], heads, past[2] if len(past) == 4 else 0, width // heads)]

    return first_problem_constraint(
        shape_constraint(locations.past, cache_shape_choices, "past_key"),
        shape_constraint(locations.past + 1, cache_shape_choices, "past_value"),
    )


_OPERANDS = f"S*(D+Dv) MACs, S = B*N*S*T; bias: n(Q)+n(K)+n(V) adds; {_CORE}"


@operator(
    "MultiHeadAttention",
    _OPERANDS,
    doubt=past_buffer_exactness(_MULTI_HEAD),
    requires=(
        constraint_by_rank(
            0,
            {
                3: sizes_constraint(
                    "query[B,S,_] key[B,...] value[B,...] bias mask bias past[B,_,_,_]"
                ),
                5: sizes_constraint(
                    "n=@num_heads query[B,S,n,3,D] key value bias mask bias past[B,_,_,_]"
                ),
            },
        ),
        _key_value_sizes_constraint,
        _whole_head_widths_constraint,
        _qkv_bias_constraint,
        _mask_shape_constraint(_MULTI_HEAD),
        _score_bias_constraint(_MULTI_HEAD),
        _cache_heads_constraint(_MULTI_HEAD),
    ),
)
def multi_head_attention_cost(node: Node, locations: AttentionInputIndices = _MULTI_HEAD) -> Cost:
    """Return the cost of MultiHeadAttention, softmax((Q + bQ) * (K + bK)^T * scale + mask) * (V +
    bV), without projections.

    MACs = B*N*S*T*(D + Dv), T = past + L: the projections are other nodes, their bias is here,
    n(Q) + n(K) + n(V) adds. scale S muls; a mask (or unidirectional) S adds, attention_bias S
    adds; softmax. See `multi_head_attention_sizes` for the operands.
    """
    scores, elements = multi_head_attention_sizes(node, locations)
    biased = ADD * elements if _has_input_at_index(node, locations.bias) else ZERO
    return biased + attention_score_cost(scores, _score_addend_count(node, locations))


def _equal_value_width_constraint(node: Node) -> OperandProblem:
    """Return why the values of a decoder are not as wide as its queries; "" if nothing
    is wrong.
    """
    query, value = input_shape(node, 0), input_shape(node, 2)
    if not query or not value or len(value) != 3 or value[-1] == query[-1]:
        return ""
    return f"{input_label(node, 2, 'value')} has {value[-1]} at axis 2, but {query[-1]} is needed"


@operator(
    "DecoderMaskedMultiHeadAttention",
    _OPERANDS,
    doubt=past_buffer_exactness(_DECODER),
    requires=(
        sizes_constraint("query[B,1,H] key[B,...] value[B,...]"),
        _equal_value_width_constraint,
        _key_value_sizes_constraint,
        _whole_head_widths_constraint,
        _mask_shape_constraint(_DECODER),
        _score_bias_constraint(_DECODER),
        _cache_heads_constraint(_DECODER),
    ),
)
def decoder_multi_head_attention_cost(node: Node) -> Cost:
    """Return the cost of DecoderMaskedMultiHeadAttention: MultiHeadAttention of one query, with
    its inputs at other positions.
    """
    return multi_head_attention_cost(node, _DECODER)


_PACKED_CORE = "S = N*T*longest; scale: S muls; attention_bias: S adds; softmax"


# Attention on sequences without their padding: what is left of each is data.
#
# T tokens of sequences of at most S each have at most T * S scores in a head: a bound, reached
# when every sequence is as long as the longest.


@operator(
    "PackedAttention",
    f"T*in*(Hq+Hk+Hv) + S*(D+Dv) MACs, {_PACKED_CORE}; bias: n(QKV) adds",
    doubt=upper_bound_exactness,
    requires=sizes_constraint("input[T,I] weights[I,H] bias[H] token_offset[B,S]"),
)
def contrib_packed_attention_cost(node: Node) -> Cost:
    """Return the cost of PackedAttention, Attention without padding tokens: T*in*(Hq + Hk + Hv) +
    N*T*S*(D + Dv) MACs at most.

    input [T, in], weights [in, Hq + Hk + Hv], token_offset [B, S]; bias n(QKV) adds, scale N*T*S
    muls, attention_bias N*T*S adds.
    """
    tokens, width = spec_shape(input_spec(node, 0), rank=2)
    sizes, heads = qkv_projection_widths(node), positive_integer_attribute(node, "num_heads")
    longest = spec_shape(input_spec(node, 3), rank=2)[1]
    depths = [width_per_head(size, heads, node) for size in sizes]
    projected = tokens * sum(sizes)
    macs = Cost(macs=projected * width, adds=projected if has_input(node, 2) else 0)
    return macs + attention_score_cost(
        dense_score_sizes(heads * tokens, longest, depths[0], depths[2]), has_input(node, 5)
    )


@operator(
    "PackedMultiHeadAttention",
    f"S*(D+Dv) MACs, {_PACKED_CORE}; bias: n(Q)+n(K)+n(V) adds",
    doubt=upper_bound_exactness,
    requires=constraint_by_rank(
        0,
        {
            2: sizes_constraint("query[T,H] key[T,H] value[T,_]"),
            4: sizes_constraint("n=@num_heads query[T,n,3,D]"),
        },
    ),
)
def contrib_packed_heads_cost(node: Node) -> Cost:
    """Return the cost of PackedMultiHeadAttention, MultiHeadAttention without padding tokens:
    N*T*S*(D + Dv) MACs at most.

    query [T, N*D] (key, value alike), or packed [T, N, 3, D]; token_offset [B, S] is input 4.
    """
    query, heads = (
        spec_shape(input_spec(node, 0), at_least=2),
        positive_integer_attribute(node, "num_heads"),
    )
    longest = spec_shape(input_spec(node, 4), rank=2)[1]
    if len(query) == 4:
        depth, value_depth, elements = query[3], query[3], prod(query)
    else:
        key, value = (spec_shape(input_spec(node, i), rank=2) for i in (1, 2))
        depth, value_depth = (width_per_head(dims[1], heads, node) for dims in (query, value))
        elements = prod(query) + prod(key) + prod(value)
    biased = ADD * elements if has_input(node, 3) else ZERO
    return biased + attention_score_cost(
        dense_score_sizes(heads * query[0], longest, depth, value_depth), has_input(node, 6)
    )
