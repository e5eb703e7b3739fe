"""Shapes in the bodies of FlexAttention, which ONNX's own inference does not enter.

A body takes all scores, [B, Hq, L, S], and gives as many back. Both branches of an If stand in
for it, since these are inferred, and can be given names of their own.
"""

from typing import Any

from crossflops.normalize.onnx_file.stand_ins.draft import BOOL, Draft

BODIES = ("score_mod", "prob_mod")
_THEN, _ELSE = "then_branch", "else_branch"
_GRAPH = 5


def flex_attention(draft: Draft) -> None:
    """FlexAttention: Y [B, Hq, L, Dv], and every body once, on values of the scores' shape."""
    query, key, value = (draft.shape(i) for i in (0, 1, 2))
    if query is None or key is None or value is None:
        return
    if not len(query) == len(key) == len(value) == 4:
        return
    draft.filled((*query[:3], value[3]), draft.output(0), draft.dtype(0))
    kind = draft.integer("softmax_precision") or (11 if draft.dtype(0) == 11 else 1)
    for attribute in draft.node.attribute:
        if attribute.name in BODIES and len(attribute.g.input) == 1:
            scores = draft.filled((*query[:3], key[2]), dtype=kind)
            _branch(draft, attribute, scores)


def _branch(draft: Draft, attribute: Any, scores: str) -> None:
    result = draft.put("If", (draft.filled((), dtype=BOOL),))
    one = draft.nodes[-1]
    one.name = attribute.name
    for name in (_THEN, _ELSE):
        branch = one.attribute.add(name=name)
        branch.type = _GRAPH
        branch.g.name = attribute.g.name or attribute.name
        given = attribute.g.input[0].name
        first = branch.g.node.add(op_type="Identity", input=[scores], output=[given])
        first.name = result
        branch.g.initializer.extend(attribute.g.initializer)
        branch.g.node.extend(attribute.g.node)
        branch.g.output.extend(attribute.g.output)


def learn(original: Any, stand_in: Any) -> None:
    """Write what was inferred in a branch into the body that it stands for, in place."""
    branch = next(one.g for one in stand_in.attribute if one.name == _THEN)
    body = next(one.g for one in original.attribute if one.name == stand_in.name)
    types = {one.name: one.type for one in (*branch.value_info, *branch.output)}
    for value in (*body.input, *body.output):
        if value.name in types:
            value.type.CopyFrom(types[value.name])
    ends = {value.name for value in (*body.input, *body.output)}
    del body.value_info[:]
    body.value_info.extend(one for one in branch.value_info if one.name not in ends)
