"""Write substitute nodes for attentions, for operators with a state, and for FlexAttention."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crossflops.frontends.onnx.stand_ins.draft import BOOL, SubstituteDraft


def _write_state_output_shapes(draft: SubstituteDraft, dims: Sequence[int], *digits: int) -> None:
    """Add to the draft tensors of this shape, in the dtype of input 0, as these outputs of the
    node.
    """
    for index in digits:
        if draft.output(index):
            draft.add_filled_tensor(dims, draft.output(index), draft.dtype(0))


def attention_shape_writer(scale: int | None = None) -> Callable[[SubstituteDraft], None]:
    """Return a function that adds nodes with the output shapes of an Attention to a draft.

    `scale` is the index of the input with the output's element type, where the first input has
    another.
    """

    def write_attention_shape(draft: SubstituteDraft) -> None:
        """Add nodes to the draft from which ONNX infers the output shapes of an Attention: the
        result, and its present state.
        """
        weights = draft.shape(1)
        if weights is None or len(weights) != 2:
            return
        sizes = draft.integers("qkv_hidden_sizes") or (weights[1] // 3,) * 3
        columns = draft.add_filled_tensor((weights[0], sizes[-1]))
        product = draft.add_node(
            "MatMul", (draft.input(0), columns), "" if scale else draft.output(0)
        )
        if scale:
            draft.add_cast(product, draft.output(0), draft.dtype(scale))
        _write_present_state_shape(draft, sizes[0], 8 if scale else 4)

    return write_attention_shape


def _write_present_state_shape(draft: SubstituteDraft, hidden: int, index: int) -> None:
    """Add to the draft the present state of an Attention: (2, batch, heads, length, hidden /
    heads).
    """
    dims, past, heads = draft.shape(0), draft.shape(index), draft.integer("num_heads")
    if not draft.output(1) or dims is None or len(dims) != 3 or heads <= 0:
        return
    if draft.input(index) and past is None:
        return
    shared = draft.integer("past_present_share_buffer") and past is not None
    length = past[3] if shared and past else dims[1] + (past[3] if past else 0)
    draft.add_filled_tensor((2, dims[0], heads, length, hidden // heads), draft.output(1))


def multi_head_shape_writer(past: int, past_length: int) -> Callable[[SubstituteDraft], None]:
    """Return a function that adds nodes with a MultiHeadAttention's output shapes to a draft."""

    def write_multi_head_attention_shape(draft: SubstituteDraft) -> None:
        """Add nodes to the draft from which ONNX infers MultiHeadAttention's output shapes:
        result, present key and value.
        """
        query, key, value = (draft.shape(i) for i in (0, 1, 2))
        heads, out = draft.integer("num_heads"), draft.output(0)
        if not draft.input(1):
            if query is not None:
                width = query[-1] * heads if len(query) == 5 else query[-1] // 3
                draft.add_filled_tensor((*query[:2], width), out, draft.dtype(0))
        elif not draft.input(2):
            draft.add_node("Identity", (draft.input(0),), out)
        elif value is not None and len(value) == 4:
            if query is not None:
                draft.add_filled_tensor((*query[:2], heads * value[3]), out, draft.dtype(0))
        elif draft.opset >= 12:
            draft.add_node("Einsum", (draft.input(0), draft.input(2)), out, equation=_JOIN)
        elif query is not None and value is not None:
            draft.add_filled_tensor((*query[:2], value[2]), out, draft.dtype(0))
        _write_present_state_shapes(draft, past, past_length, (query, key, value), heads)

    return write_multi_head_attention_shape


_JOIN = "bsh,btv->bsv"


def _write_present_state_shapes(
    draft: SubstituteDraft,
    past: int,
    past_length: int,
    operands: Sequence[tuple[int, ...] | None],
    heads: int,
) -> None:
    """Add to the draft the present key and value of a MultiHeadAttention: past length plus new
    length.
    """
    query, key, value = operands
    before = draft.shape(past)
    if not draft.output(1) or query is None or heads <= 0 or (draft.input(past) and not before):
        return
    alone = not draft.input(1)
    packed = query if alone else key
    if packed is None:
        return
    if len(packed) == 4:
        _write_state_output_shapes(draft, packed, 1)
        _write_state_output_shapes(draft, value or packed, 2)
        return
    shared = draft.integer("past_present_share_buffer") or draft.input(past_length)
    length = before[2] if shared and before else packed[1] + (before[2] if before else 0)
    depth = packed[-1] if len(packed) == 5 else packed[-1] // heads
    if alone and len(packed) == 3:
        depth //= 3
    wide = value[-1] // heads if value is not None and len(value) == 3 else depth
    _write_state_output_shapes(draft, (query[0], heads, length, depth), 1)
    _write_state_output_shapes(draft, (query[0], heads, length, wide), 2)


def write_group_query_attention_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers GroupQueryAttention's output shapes: [B, S, Hq
    * D], [B, Hkv, T, D] twice.

    T is past + S; a longer cache is known from the file alone.
    """
    query, past = draft.shape(0), draft.shape(3)
    heads, kv_heads = draft.integer("num_heads"), draft.integer("kv_num_heads")
    every = heads if draft.input(1) else heads + 2 * kv_heads
    if draft.input(1):
        draft.add_node("Identity", (draft.input(0),), draft.output(0))
    elif past is not None and len(past) == 4:
        columns = draft.add_filled_tensor((every * past[3], heads * past[3]))
        draft.add_node("MatMul", (draft.input(0), columns), draft.output(0))
    elif query is not None and every > 0:
        draft.add_filled_tensor(
            (*query[:-1], query[-1] // every * heads), draft.output(0), draft.dtype(0)
        )
    if query is None or len(query) != 3 or every <= 0 or (draft.input(3) and past is None):
        return
    length = query[1] + (past[2] if past else 0)
    if draft.node.op_type == "SparseAttention" and past:
        length = past[2]
    kind = draft.dtype(3) if draft.input(3) else draft.dtype(0)
    for index in (1, 2):
        if draft.output(index):
            dims = (query[0], kv_heads, length, past[3] if past else query[2] // every)
            draft.add_filled_tensor(dims, draft.output(index), kind)


def write_paged_attention_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers PagedAttention's output shapes: tokens of Hq *
    Dv; caches as the inputs.
    """
    query, heads = draft.shape(0), draft.integer("num_heads")
    every = heads if draft.input(1) else heads + 2 * draft.integer("kv_num_heads")
    if query is not None and every > 0:
        depth = draft.integer("v_head_size") or query[-1] // every
        draft.add_filled_tensor((*query[:-1], heads * depth), draft.output(0), draft.dtype(0))
    for index, source in ((1, 3), (2, 4)):
        if draft.output(index) and draft.input(source):
            draft.add_node("Identity", (draft.input(source),), draft.output(index))


def write_packed_multi_head_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of PackedMultiHeadAttention:
    [tokens, N * Dv].
    """
    query, value = draft.shape(0), draft.shape(2)
    if query is None:
        return
    width = value[-1] if value is not None else query[-1] * draft.integer("num_heads")
    draft.add_filled_tensor((query[0], width), draft.output(0), draft.dtype(0))


def write_linear_attention_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shapes of LinearAttention: the
    result, and its state.
    """
    heads, kv_heads = draft.integer("q_num_heads"), draft.integer("kv_num_heads")
    query, value = draft.shape(0), draft.shape(2)
    if heads <= kv_heads:
        draft.add_node("Identity", (draft.input(2),), draft.output(0))
    elif value is not None and kv_heads > 0:
        width = value[-1] // kv_heads * heads
        draft.add_filled_tensor((*value[:2], width), draft.output(0), draft.dtype(0))
    if query is None or value is None or heads <= 0 or kv_heads <= 0:
        return
    if not draft.integer("state_window"):
        state = (query[0], kv_heads, query[2] // heads, value[2] // kv_heads)
        _write_state_output_shapes(draft, state, 1)


WRITERS: Mapping[str, Callable[[SubstituteDraft], None]] = {
    **dict.fromkeys(
        ("Attention", "DecoderMaskedSelfAttention", "PackedAttention"), attention_shape_writer()
    ),
    "QAttention": attention_shape_writer(scale=3),
    "MultiHeadAttention": multi_head_shape_writer(past=6, past_length=8),
    "DecoderMaskedMultiHeadAttention": multi_head_shape_writer(past=5, past_length=7),
    **dict.fromkeys(("GroupQueryAttention", "SparseAttention"), write_group_query_attention_shape),
    "PagedAttention": write_paged_attention_shape,
    "PackedMultiHeadAttention": write_packed_multi_head_shape,
    "LinearAttention": write_linear_attention_shape,
}


# Shapes in the bodies of FlexAttention, which ONNX's own inference does not enter.
#
# A body takes all scores, [B, Hq, L, S], and gives as many back. Both branches of an If stand in
# for it, since these are inferred, and can be given names of their own.

BODIES = ("score_mod", "prob_mod")
_THEN, _ELSE = "then_branch", "else_branch"
_GRAPH = 5


def write_flex_attention_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers FlexAttention's output shape, [B, Hq, L, Dv],
    and to which its bodies belong.
    """
    query, key, value = (draft.shape(i) for i in (0, 1, 2))
    if query is None or key is None or value is None:
        return
    if not len(query) == len(key) == len(value) == 4:
        return
    draft.add_filled_tensor((*query[:3], value[3]), draft.output(0), draft.dtype(0))
    kind = draft.integer("softmax_precision") or (11 if draft.dtype(0) == 11 else 1)
    for attribute in draft.node.attribute:
        if attribute.name in BODIES and len(attribute.g.input) == 1:
            scores = draft.add_filled_tensor((*query[:3], key[2]), dtype=kind)
            _write_score_branches(draft, attribute, scores)


def _write_score_branches(draft: SubstituteDraft, attribute: Any, scores: str) -> None:
    """Add to the draft an If whose branches are the body that an attribute of FlexAttention holds,
    so that ONNX infers its shapes.
    """
    result = draft.add_node("If", (draft.add_filled_tensor((), dtype=BOOL),))
    stand_in = draft.nodes[-1]
    stand_in.name = attribute.name
    for name in (_THEN, _ELSE):
        branch = stand_in.attribute.add(name=name)
        branch.type = _GRAPH
        branch.g.name = attribute.g.name or attribute.name
        provided = attribute.g.input[0].name
        first = branch.g.node.add(op_type="Identity", input=[scores], output=[provided])
        first.name = result
        branch.g.initializer.extend(attribute.g.initializer)
        branch.g.node.extend(attribute.g.node)
        branch.g.output.extend(attribute.g.output)


def copy_branch_shapes(original: Any, stand_in: Any) -> None:
    """Copy the shapes inferred in a branch of an If to the body that it replaced, in place."""
    branch = next(attribute.g for attribute in stand_in.attribute if attribute.name == _THEN)
    body = next(attribute.g for attribute in original.attribute if attribute.name == stand_in.name)
    types = {value.name: value.type for value in (*branch.value_info, *branch.output)}
    for value in (*body.input, *body.output):
        if value.name in types:
            value.type.CopyFrom(types[value.name])
    ends = {value.name for value in (*body.input, *body.output)}
    del body.value_info[:]
    body.value_info.extend(value for value in branch.value_info if value.name not in ends)
