"""Caches of a graph: inputs that an output continues, such as the keys and values of a decoder."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from crossflops.core.graph import Graph, Node
from crossflops.core.tensor import TensorSpec


class Part(msgspec.Struct, frozen=True):
    """So many elements of a source. Values with one `piece` hold the same ones; "" is all."""

    elements: int
    piece: str = ""


Parts: TypeAlias = Mapping[str, Part]  # by source

_RENAMES = frozenset(("Identity", "Cast"))
# Operator -> place of an output -> the inputs with the past, and with what is new.
# Of an attention operator that gets keys and values packed with its queries, nothing is new alone.
_SCATTER = {0: (0, 2)}
_CONTINUES: Mapping[str, Mapping[int, tuple[int, int]]] = {
    **dict.fromkeys(("ScatterElements", "ScatterND", "Scatter"), _SCATTER),
    "TensorScatter": {0: (0, 1)},
    "Attention": {1: (4, 1), 2: (5, 2)},  # of ai.onnx; com.microsoft has one past, at 4, too
    "MultiHeadAttention": {1: (6, 1), 2: (7, 2)},
    "GroupQueryAttention": {1: (3, 1), 2: (4, 2)},
    "DecoderMaskedMultiHeadAttention": {1: (5, 1), 2: (6, 2)},
}


class Cache(msgspec.Struct, frozen=True):
    """An input that is continued by an output, with so many new elements."""

    past: str
    present: str
    new: int


def caches(graph: Graph, carried: Mapping[str, Parts]) -> tuple[Cache, ...]:
    """The inputs that an output continues, by structure and not by name.

    The output is made by Concat of the input and something new, by a scatter into it, or by an
    attention operator at the places of past and present; or it is the input as it is. Both have
    the same rank, of 2 or more, and at most one dimension has grown. `carried` says what inputs
    each value holds that was only moved.
    """
    inputs = {one.name: one for one in graph.inputs if one.shape is not None}
    makers = {spec.name: node for node in graph.nodes for spec in node.outputs if spec is not None}
    found: dict[str, Cache] = {}
    for present in graph.outputs:
        name = _renamed(present.name, makers)
        for past, new in _pasts(name, present, makers.get(name), inputs, carried):
            if past.name not in found:
                found[past.name] = Cache(past.name, present.name, new)
                break
    return tuple(found.values())


def _renamed(name: str, makers: Mapping[str, Node]) -> str:
    """The value behind what only renames or casts it."""
    while name in makers and makers[name].op.type in _RENAMES:
        source = makers[name].inputs[0]
        if source is None:
            break
        name = source.name
    return name


def _pasts(
    name: str,
    present: TensorSpec,
    node: Node | None,
    inputs: Mapping[str, TensorSpec],
    carried: Mapping[str, Parts],
) -> Iterator[tuple[TensorSpec, int]]:
    """Inputs that this value may continue, the largest first, and how much is new."""
    if node is None:
        if name in inputs and _continues(inputs[name], present):
            yield inputs[name], 0
        return
    if node.op.type == "Concat":
        held = {source for spec in node.inputs if spec for source in carried.get(spec.name, ())}
        able = [inputs[one] for one in held if one in inputs and _continues(inputs[one], present)]
        for past in sorted(able, key=lambda one: (-one.numel, one.name)):
            yield past, present.numel - past.numel
        return
    place = [spec.name if spec else "" for spec in node.outputs].index(name)
    if place not in _CONTINUES.get(node.op.type, {}):
        return
    past_at, new_at = _CONTINUES[node.op.type][place]
    spec = node.inputs[past_at] if past_at < len(node.inputs) else None
    for source in carried.get(spec.name, ()) if spec is not None else ():
        if source in inputs and _continues(inputs[source], present):
            yield inputs[source], _new(node, new_at, inputs[source], present)


def _continues(past: TensorSpec, present: TensorSpec) -> bool:
    if past.shape is None or present.shape is None or len(past.shape) != len(present.shape):
        return False
    grown = [(a, b) for a, b in zip(past.shape, present.shape, strict=True) if a != b]
    return len(past.shape) >= 2 and len(grown) <= 1 and all(a < b for a, b in grown)


def _new(node: Node, place: int, past: TensorSpec, present: TensorSpec) -> int:
    """Elements that are written: what has grown, or what goes into a buffer of fixed size."""
    if present.numel != past.numel:
        return present.numel - past.numel
    spec = node.inputs[place] if place < len(node.inputs) else None
    if spec is not None and spec.shape is not None:
        return spec.numel
    query = node.inputs[0]
    if query is None or query.shape is None or past.shape is None or not past.shape[-2]:
        return present.numel
    return past.numel // past.shape[-2] * query.shape[-2]
