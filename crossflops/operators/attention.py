"""The cost of attention, rotary embeddings and linear attention."""

from math import prod
from typing import NamedTuple

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    float_attribute,
    has_input,
    input_element_count,
    input_spec,
    integer_attribute,
    reduction_operation_count,
    spec_shape,
    string_attribute,
)
from crossflops.operators.gradient import Gradient, OperandPositions
from crossflops.operators.normalization import softmax_cost, softmax_gradient_cost
from crossflops.operators.operands import (
    can_broadcast_to,
    constraint_by_rank,
    input_label,
    input_shape,
    input_shape_or_raise,
    sizes_constraint,
)
from crossflops.operators.rule import PREVIEW, OperandProblem, Operators, input_bound_exactness

operator = Operators()


class Heads(NamedTuple):
    """The dimensions of an attention: `total` is the number of past and new keys."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    total: int
    depth: int
    value_depth: int

    @property
    def score_count(self) -> int:
        """The number of attention scores: batch * query heads * queries * keys."""
        return self.batch * self.heads * self.queries * self.total


def attention_dimensions_of_node(node: Node) -> Heads:
    """Return the dimensions of an attention, from inputs [B, H, S, D], or [B, S, H*D] and the
    attributes with head counts.

    Past keys are input 4, [B, Hkv, Sp, D].
    """
    query, key, value = (_head_dimensions_of_input(node, i) for i in (0, 1, 2))
    past = spec_shape(input_spec(node, 4), rank=4)[2] if has_input(node, 4) else 0
    return Heads(
        batch=query[0],
        heads=query[1],
        kv_heads=key[1],
        queries=query[2],
        total=key[2] + past,
        depth=query[3],
        value_depth=value[3],
    )


def _head_dimensions_of_input(node: Node, index: int) -> tuple[int, ...]:
    """Return (batch, heads, tokens, head size) of an input of attention: 0 query, 1 key,
    2 value.
    """
    dims = spec_shape(input_spec(node, index), at_least=3)
    if len(dims) == 4:
        return dims
    batch, length, hidden = spec_shape(input_spec(node, index), rank=3)
    heads = integer_attribute(node, "kv_num_heads" if index else "q_num_heads")
    if heads <= 0 or hidden % heads:
        raise ValueError(f"{hidden} does not divide into {heads} heads")
    return batch, heads, length, hidden // heads


def _key_sharing_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the heads, or "" if nothing is: the query heads must be a multiple
    of the key heads.
    """
    query, key = input_shape_or_raise(node, 0), input_shape_or_raise(node, 1)
    if len(query) == 4 == len(key):
        heads, kv_heads = query[1], key[1]
    else:
        heads, kv_heads = (
            integer_attribute(node, "q_num_heads"),
            integer_attribute(node, "kv_num_heads"),
        )
    if not kv_heads or heads % kv_heads == 0:
        return ""
    return (
        f"the {heads} heads of {input_label(node, 0, 'Q')} do not share {kv_heads} heads of keys"
    )


def _attention_mask_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with attn_mask, or "" if nothing is: it must broadcast to the scores,
    but may have fewer keys.
    """
    mask = input_shape_or_raise(node, 3)
    if any(input_shape(node, index) is None for index in (0, 1, 2)):
        return ""
    h = attention_dimensions_of_node(node)
    scores = (h.batch, h.heads, h.queries)
    if not mask:
        return f"{input_label(node, 3, 'attn_mask')} has rank 0, but needs 1, 2, 3 or 4"
    if mask[-1] > h.total or not can_broadcast_to(mask[:-1], scores):
        shown = "x".join(map(str, (*scores, h.total)))
        return f"{input_label(node, 3, 'attn_mask')} does not broadcast to the scores, {shown}"
    return ""


def _attention_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradient of each requested operand of attention, and of computing the
    scores again for them.

    dV = P^T dO; dP = dO V^T; dS by the softmax; dQ = dS K, dK = dS^T Q, each scaled.

    dV and dP are S*Dv MACs, dQ and dK S*D. A fused kernel does not store scores, so it recomputes
    them: S*D MACs, S (mul, sub, exp), and the mask (Dao et al., FlashAttention-2, algorithm 2).
    PyTorch has no such kernel where values have another depth than keys, or where the mask
    requires a gradient: then scores are stored (aten/native/transformers/sdp_utils_cpp.h).
    """
    h = attention_dimensions_of_node(node)
    scores = h.score_count
    work = {}
    if 0 in requested:
        work[0] = Cost(macs=scores * h.depth, muls=input_element_count(node, 0))
    for indices, depth, scaled in (((1, 4), h.depth, True), ((2, 5), h.value_depth, False)):
        asking = sorted(requested.intersection(indices))  # keys and their past are one operand
        for index in asking:
            products = scores * depth if index == asking[0] else 0
            work[index] = Cost(
                macs=products, muls=input_element_count(node, index) if scaled else 0
            )
    if 3 in requested:
        work[3] = Cost(adds=reduction_operation_count(scores, input_element_count(node, 3)))
    inner = ZERO
    if not requested.isdisjoint((0, 1, 3, 4)):
        cap = scores if float_attribute(node, "softcap", 0.0) != 0 else 0
        inner = Cost(macs=scores * h.value_depth, muls=2 * cap, adds=cap)
        inner += softmax_gradient_cost(scores, h.batch * h.heads * h.queries)
    if h.depth != h.value_depth or 3 in requested:
        return Gradient(work, inner=inner)
    again = Cost(macs=scores * h.depth, muls=scores, adds=scores, specials=scores)
    masked = Cost(adds=scores if _has_score_mask(node) else 0)
    return Gradient(work, inner=inner, recomputed=again + masked)


@operator(
    "Attention",
    "S*(D+Dv) MACs, S = B*Hq*Sq*St, St = Skv+past; scale: n(Q)+B*Hkv*St*D muls; "
    "mask: S adds; softcap: S*(div, tanh, mul); softmax: S-S/St compares, S subs, S exps, "
    "S-S/St adds, S divs",
    since=23,
    doubt=input_bound_exactness(6),
    requires=(
        constraint_by_rank(
            0,
            {
                3: sizes_constraint(
                    "q=@q_num_heads k=@kv_num_heads Q[B,S,q*D] K[B,L,k*D] V[B,L,k*E] attn_mask "
                    "past_key[B,k,P,D] past_value[B,k,P,E] nonpad_kv_seqlen[B]"
                ),
                4: sizes_constraint(
                    "Q[B,q,S,D] K[B,k,L,D] V[B,k,L,E] attn_mask past_key[B,k,P,D] "
                    "past_value[B,k,P,E] nonpad_kv_seqlen[B]"
                ),
            },
        ),
        _key_sharing_constraint,
        _attention_mask_constraint,
    ),
    contracts=(0, 1, 2),
    backward=_attention_backward,
)
def onnx_attention_cost(node: Node) -> Cost:
    """Return the cost of Attention, softmax(softcap(Q * K^T * scale) + bias) * V: B*Hq*Sq*St*(D +
    Dv) MACs, and work per score.

    Q [B, Hq, Sq, D], K [B, Hkv, Skv, D], V [B, Hkv, Skv, Dv]; St = Skv + past. Queries that
    share keys all count: Hq, not Hkv. A causal mask saves nothing (dense). S = B*Hq*Sq*St.
    scale: Q and all keys by its root, n(Q) + B*Hkv*St*D muls. attn_mask, is_causal, a window or
    nonpad_kv_seqlen: S adds, once. softcap: S (div, tanh, mul). softmax over St.
    https://onnx.ai/onnx/operators/onnx__Attention.html
    """
    h = attention_dimensions_of_node(node)
    scores = h.score_count
    scale = input_element_count(node, 0) + h.batch * h.kv_heads * h.total * h.depth
    cap = scores if float_attribute(node, "softcap", 0.0) != 0 else 0
    return (
        Cost(macs=scores * (h.depth + h.value_depth), muls=scale)
        + Cost(divs=cap, specials=cap, muls=cap)
        + Cost(adds=scores if _has_score_mask(node) else 0)
        + softmax_cost(scores, h.batch * h.heads * h.queries)
    )


def _has_score_mask(node: Node) -> bool:
    """Return whether an attention masks its scores: by an input, a causal flag or a window."""
    windows = (integer_attribute(node, f"{side}_window_size", -1) for side in ("left", "right"))
    return (
        has_input(node, 3)
        or has_input(node, 6)
        or integer_attribute(node, "is_causal", 0) != 0
        or any(window >= 0 for window in windows)
    )


@operator(
    "FlexAttention",
    "S*(D+Dv) MACs, S = B*Hq*Sq*Sk; scale: S muls; softmax: S-S/Sk compares, S subs, S exps, "
    "S-S/Sk adds, S divs",
    domain=PREVIEW,
    requires=(sizes_constraint("Q[B,q,S,D] K[B,k,L,D] V[B,k,L,E]"), _key_sharing_constraint),
    backward="the functions that change its scores have no backward formula yet",
)
def flex_attention_cost(node: Node) -> Cost:
    """Return the cost of FlexAttention, prob_mod(softmax(score_mod(Q * K^T * scale))) * V: D + Dv
    MACs, and more, per score.

    S*(D + Dv) MACs, scale S muls, softmax. Q [B, Hq, Sq, D], K [B, Hkv, Sk, D],
    V [B, Hkv, Sk, Dv]; S = B*Hq*Sq*Sk. What is in the
    bodies is counted there, once.
    https://onnx.ai/onnx/operators/onnx_aionnxpreview_FlexAttention.html
    """
    h = attention_dimensions_of_node(node)
    work = Cost(macs=h.score_count * (h.depth + h.value_depth), muls=h.score_count)
    return work + softmax_cost(h.score_count, h.batch * h.heads * h.queries)


def _rotary_cache_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the caches of cosines and sines, or "" if they fit the positions.

    Checks cos_cache and sin_cache: [M, R / 2] with position_ids [B, S], otherwise [B, S, R / 2].
    """
    dims, cosines, sines = (input_shape(node, index) for index in (0, 1, 2))
    if dims is None or cosines is None:
        return ""
    if len(dims) not in (3, 4):
        return f"{input_label(node, 0)} has rank {len(dims)}, but needs 3 or 4"
    if sines is not None and sines != cosines:
        return f"{input_label(node, 2)} does not have the shape of {input_label(node, 1)}"
    heads = integer_attribute(node, "num_heads", 0) if len(dims) == 3 else 1
    if heads <= 0 or dims[-1] % heads:
        return f"{input_label(node, 0)} has {dims[-1]} at axis 2, but num_heads is {heads}"
    tokens, depth = (dims[0], dims[-2]), dims[-1] // heads
    rotated = integer_attribute(node, "rotary_embedding_dim", 0) or depth
    if rotated > depth or cosines[-1] not in (rotated // 2, depth // 2):
        has = f"{input_label(node, 1)} has {cosines[-1]} at its last axis"
        return f"{has}, but {rotated // 2} is needed for heads of {depth}"
    indices, form = input_shape(node, 3), (3, tokens) if not has_input(node, 3) else (2, None)
    if len(cosines) != form[0] or (form[1] and cosines[:2] != tokens):
        return f"{input_label(node, 1)} does not fit the {tokens[0]}x{tokens[1]} tokens"
    if indices is None or indices == tokens:
        return ""
    return f"{input_label(node, 3)} needs to be {tokens[0]}x{tokens[1]}, one for each token"


def _rotary_backward(_node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradient of a rotary embedding: the rotation back costs as much as
    the rotation.

    dX is rotated back, as much work as forward. Raise ValueError for trained rotations.
    """
    if requested - {0}:
        raise ValueError("the gradient of a rotary table has no formula yet")
    return Gradient({0: forward})


@operator(
    "RotaryEmbedding",
    "pairs*(4 muls, 2 adds), pairs = B*H*S*rotary_embedding_dim/2",
    since=23,
    requires=_rotary_cache_constraint,
    backward=_rotary_backward,
)
def onnx_rotary_embedding_cost(node: Node) -> Cost:
    """Return the cost of RotaryEmbedding: 4 muls and 2 adds for each pair of elements that it
    rotates.

    X [B, H, S, D] or [B, S, H*D]: per pair 4 muls and 2 adds; rotary_embedding_dim of each
    head's D rotate, all of them when it is 0.
    https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
    """
    dims = spec_shape(input_spec(node, 0), at_least=3)
    rotated = integer_attribute(node, "rotary_embedding_dim", 0)
    pairs = prod(dims) // 2
    if rotated:
        heads = dims[1] if len(dims) == 4 else integer_attribute(node, "num_heads")
        pairs = dims[0] * heads * dims[-2] * (rotated // 2)
    return Cost(muls=4, adds=2) * pairs


def _decay_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the decay, or "" if nothing is: per token one number for each key
    head, or for each key element.
    """
    key, decay, heads = (
        input_shape_or_raise(node, 1),
        input_shape_or_raise(node, 4),
        integer_attribute(node, "kv_num_heads"),
    )
    if decay in ((*key[:2], heads), key):
        return ""
    return f"{input_label(node, 4, 'decay')} needs {heads} or {key[-1]} numbers for each token"


def _beta_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with beta, or "" if nothing is: per token one number for each key head,
    or one for all heads.
    """
    beta, heads = input_shape_or_raise(node, 5), integer_attribute(node, "kv_num_heads")
    if beta[-1] in (1, heads):
        return ""
    return f"{input_label(node, 5, 'beta')} needs 1 or {heads} numbers for each token"


def _linear_attention_backward(
    node: Node, requested: OperandPositions, _forward: Cost
) -> Gradient:
    """Return the cost of the gradients of linear attention: for each requested operand, the
    products in which it takes part, once more for all tokens.

    dq, and dS of the read product; dk, and d(new), of the written product; for delta rules dk, and
    dS, of the retrieved product. The first state has a gradient where a past or a decay requires
    one. Elementwise: the state by its decay, and the decay by the state.
    """
    batch, length, hidden = spec_shape(input_spec(node, 0), rank=3)
    heads, kv_heads = (
        integer_attribute(node, "q_num_heads"),
        integer_attribute(node, "kv_num_heads"),
    )
    rule, tokens = string_attribute(node, "update_rule", "gated_delta"), batch * length
    wide = spec_shape(input_spec(node, 2), rank=3)[2]
    written = tokens * (hidden // heads) * wide
    read = written // kv_heads * heads
    work = dict.fromkeys(requested, ZERO)
    for index, macs in ((0, read), (1, written), (2, written)):
        if index in requested:
            work[index] = Cost(macs=macs)
    if not (stated := requested - {0}):
        return Gradient(work)
    inner = Cost(macs=read)
    if "delta" in rule:
        steps = length if stated & {3, 4} else length - 1
        retrieved = written // length * steps if length else 0
        inner += Cost(macs=retrieved + written, muls=tokens * wide, adds=tokens * wide)
        if 1 in requested:
            work[1] = Cost(macs=2 * written)
        if 2 in requested:
            work[2] = ZERO  # d(new), which is there
        if 5 in requested:
            work[5] = Cost(muls=tokens * wide)
    if "gated" in rule:
        inner += Cost(muls=written)
        if 4 in requested:
            work[4] = Cost(
                muls=written + input_element_count(node, 4),
                adds=reduction_operation_count(written, input_element_count(node, 4)),
            )
    return Gradient(work, inner=inner)


@operator(
    "LinearAttention",
    "B*T*dk*dv*(Hkv+Hq) MACs; delta: + B*T*Hkv*dk*dv MACs, B*T*Hkv*dv*(add, mul); "
    "gated: n(decay) exps, B*T*Hkv*dk*dv muls; scale: B*T*Hq*dv muls",
    since=27,
    requires=(
        sizes_constraint(
            "q=@q_num_heads k=@kv_num_heads query[B,T,q*D] key[B,T,k*D] value[B,T,k*E] "
            "past_state[B,k,D,E] decay beta[B,T,_]"
        ),
        _decay_constraint,
        _beta_constraint,
    ),
    backward=_linear_attention_backward,
)
def onnx_linear_attention_cost(node: Node, shared_queries: bool = False) -> Cost:
    """Return the cost of LinearAttention, per token S += k v^T and o = scale * q^T S:
    B*T*dk*dv*(Hkv + Hq) MACs, and more by its rule.

    query [B, T, Hq*dk], key [B, T, Hkv*dk], value [B, T, Hkv*dv]; the state S [Hkv, dk, dv].
    delta rules retrieve S^T k first: B*T*Hkv*dk*dv MACs, and dv (add, mul by beta) per head.
    gated rules decay the state: n(decay) exps and B*T*Hkv*dk*dv muls. scale: n(o) muls.
    With `shared_queries` there may be more key heads than query heads, and each has a reader.
    https://onnx.ai/onnx/operators/onnx__LinearAttention.html
    """
    batch, length, hidden = spec_shape(input_spec(node, 0), rank=3)
    heads, kv_heads = (
        integer_attribute(node, "q_num_heads"),
        integer_attribute(node, "kv_num_heads"),
    )
    if heads <= 0 or kv_heads <= 0:
        raise ValueError("LinearAttention needs positive head counts")
    return linear_attention_recurrence_cost(
        tokens=batch * length,
        readers=max(heads, kv_heads) if shared_queries else heads,
        kv_heads=kv_heads,
        depth=hidden // heads,
        value_depth=spec_shape(input_spec(node, 2), rank=3)[2] // kv_heads,
        rule=string_attribute(node, "update_rule", "gated_delta"),
        decay=input_element_count(node, 4),
    )


def linear_attention_recurrence_cost(
    *,
    tokens: int,
    readers: int,
    kv_heads: int,
    depth: int,
    value_depth: int,
    rule: str,
    decay: int,
) -> Cost:
    """Return the cost of linear attention over `tokens` tokens, with `kv_heads` states of depth x
    value_depth and `readers` heads that read them.

    `decay` is the number of gates of a gated rule. See `onnx_linear_attention_cost`.
    """
    state = depth * value_depth
    cost = Cost(macs=state * (readers + kv_heads), muls=readers * value_depth) * tokens
    if rule in ("delta", "gated_delta"):
        retrieved = kv_heads * value_depth
        cost += Cost(macs=state * kv_heads, adds=retrieved, muls=retrieved) * tokens
    if rule in ("gated", "gated_delta"):
        cost += Cost(muls=state * kv_heads) * tokens + Cost(specials=decay)
    return cost
