"""The flow of weights, inputs and caches through a graph: which values hold elements of which of
them.

A node that only moves data (no operation at all: Reshape, Transpose, Concat, Expand, Cast ...)
hands on elements of its inputs. A fused kernel reads them where they come from, so a source (a
weight, or an input of the model) is followed through such nodes to whatever works on it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.ir.ledger import CountedNode, Ledger
from crossflops.operators import find_operator_rule

# The graphs in a graph: bodies of loops and branches, and functions, with their ledger's keys.


def graphs_with_key_prefix(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """Yield (prefix of its node keys, graph) for the graph and once for each body of its nodes.

    As in `crossflops.count`: the key of the holder before the nodes of a body, the name of a
    function before its nodes.
    """
    yield from _graphs_with_bodies("", graph, set())


def body_key_prefix(prefix: str, node: Node, body: Graph) -> str:
    """Return the prefix of the keys of the nodes in a body of `node`, such as "loop_1/", or
    "NAME/" for a function. `prefix` is the one of `node` itself.
    """
    return f"{body.name}/" if node.choice == "function" else f"{prefix}{node.key}/"


def _graphs_with_bodies(prefix: str, graph: Graph, names: set[str]) -> Iterator[tuple[str, Graph]]:
    """Yield (prefix of its node keys, graph) for the graph and for each body in it, and add the
    prefixes to `names`; a graph whose prefix is in `names` is left out.
    """
    if prefix in names:
        return
    names.add(prefix)
    yield prefix, graph
    for node in graph.nodes:
        for body in node.bodies:
            yield from _graphs_with_bodies(body_key_prefix(prefix, node, body), body, names)


# Caches of a graph: inputs that an output continues, such as the keys and values of a decoder.


class Portion(msgspec.Struct, frozen=True):
    """A number of elements of a source (a weight or an input). Values with the same `piece` hold
    the same elements; "" is the whole source.
    """

    elements: int
    piece: str = ""


Portions: TypeAlias = Mapping[str, Portion]  # by source

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
    """An input that an output continues as a cache: both names, and the number of new elements."""

    past: str
    present: str
    new: int


def find_caches(graph: Graph, carried: Mapping[str, Portions]) -> tuple[Cache, ...]:
    """Return for each input that an output continues as a cache (past and present keys) both names
    and the number of new elements.

    The output is made by Concat of the input and something new, by a scatter into it, or by an
    attention operator at the places of past and present; or it is the input as it is. Both have
    the same rank, of 2 or more, and at most one dimension has grown. `carried` says what inputs
    each value holds that was only moved.
    """
    inputs = {spec.name: spec for spec in graph.inputs if spec.shape is not None}
    makers = {spec.name: node for node in graph.nodes for spec in node.outputs if spec is not None}
    continued: dict[str, Cache] = {}
    for present in graph.outputs:
        name = _value_before_renames(present.name, makers)
        for past, new in _cache_input_candidates(name, present, makers.get(name), inputs, carried):
            if past.name not in continued:
                continued[past.name] = Cache(past.name, present.name, new)
                break
    return tuple(continued.values())


def _value_before_renames(name: str, makers: Mapping[str, Node]) -> str:
    """Return the name of the value from which `name` was made by Identity and Cast nodes only;
    `makers` gives the node that makes a value.
    """
    while name in makers and makers[name].op.type in _RENAMES:
        source = makers[name].inputs[0]
        if source is None:
            break
        name = source.name
    return name


def _cache_input_candidates(
    name: str,
    present: TensorSpec,
    node: Node | None,
    inputs: Mapping[str, TensorSpec],
    carried: Mapping[str, Portions],
) -> Iterator[tuple[TensorSpec, int]]:
    """Yield (input, number of new elements) for each input that the output `present` may extend as
    a cache; `node` makes the output.
    """
    if node is None:
        if name in inputs and _is_longer_cache(inputs[name], present):
            yield inputs[name], 0
        return
    if node.op.type == "Concat":
        stored = {source for spec in node.inputs if spec for source in carried.get(spec.name, ())}
        able = [
            inputs[name]
            for name in stored
            if name in inputs and _is_longer_cache(inputs[name], present)
        ]
        for past in sorted(able, key=lambda past_spec: (-past_spec.numel, past_spec.name)):
            yield past, present.numel - past.numel
        return
    index = [spec.name if spec else "" for spec in node.outputs].index(name)
    if index not in _CONTINUES.get(node.op.type, {}):
        return
    past_at, new_at = _CONTINUES[node.op.type][index]
    spec = node.inputs[past_at] if past_at < len(node.inputs) else None
    for source in carried.get(spec.name, ()) if spec is not None else ():
        if source in inputs and _is_longer_cache(inputs[source], present):
            yield inputs[source], _new_cache_elements(node, new_at, inputs[source], present)


def _is_longer_cache(past: TensorSpec, present: TensorSpec) -> bool:
    """Return True if `present` has the shape of `past`, with at least 2 axes of which at most one
    is longer.
    """
    if past.shape is None or present.shape is None or len(past.shape) != len(present.shape):
        return False
    grown = [(a, b) for a, b in zip(past.shape, present.shape, strict=True) if a != b]
    return len(past.shape) >= 2 and len(grown) <= 1 and all(a < b for a, b in grown)


def _new_cache_elements(node: Node, index: int, past: TensorSpec, present: TensorSpec) -> int:
    """Return the number of elements that a step writes into a cache; input `index` of `node` holds
    the new ones if the cache does not grow.
    """
    if present.numel != past.numel:
        return present.numel - past.numel
    spec = node.inputs[index] if index < len(node.inputs) else None
    if spec is not None and spec.shape is not None:
        return spec.numel
    query = node.inputs[0]
    if query is None or query.shape is None or past.shape is None or not past.shape[-2]:
        return present.numel
    return past.numel // past.shape[-2] * query.shape[-2]


_STORED = frozenset(("parameter", "constant", "argument"))
_KNOWN_BY_SHAPE = frozenset(("Shape", "Size", "Constant"))  # nothing of their input is read
# Nodes whose results hold elements of all their inputs; those of others are of the first.
_MIXING = frozenset(("Concat", "Where", "Gather", "GatherElements", "GatherND", "OneHot"))
_WRITING = frozenset(("ScatterElements", "ScatterND", "Scatter", "TensorScatter"))


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """The elements of weights and inputs in each value of a graph: `carried` has for a value that
    moves them how many of each source.

    `maker`: the node that worked out what a value holds, or the first that moved it. `specs` are
    the sources themselves, `moves` the keys of nodes without an operation.
    """

    carried: dict[str, Portions]
    maker: dict[str, str]
    specs: dict[str, TensorSpec]
    constant: frozenset[str]
    moves: frozenset[str]
    caches: tuple[Cache, ...] = ()
    cached: frozenset[str] = frozenset()

    def is_weight(self, spec: TensorSpec) -> bool:
        """Return True if the tensor is a weight or is computed from weights alone."""
        return (
            spec.role in _STORED or spec.name in self.constant
        ) and not self.is_integer_constant(spec)

    def is_integer_constant(self, spec: TensorSpec) -> bool:
        """Return True if the tensor is a constant of int64 in the graph, such as axes, sizes or
        indices.

        They are of 64 bits, which no weight is; those of a buffer are the model's.
        """
        of_graph = spec.role == "constant" or (not spec.role and spec.name in self.constant)
        return spec.dtype == "int64" and of_graph

    def is_layer_result(self, spec: TensorSpec | None) -> bool:
        """Return True if the tensor has 2 elements or more and is, or is computed from, a
        parameter of the model.

        A mask that is made of constants holds none.
        """
        if spec is None or not spec.shape or spec.numel < 2 or not self.is_weight(spec):
            return False
        known = (self.specs[name] for name in self.carried.get(spec.name, ()))
        return spec.role == "parameter" or any(source.role == "parameter" for source in known)

    def is_cache(self, spec: TensorSpec) -> bool:
        """Return True if the tensor contains elements of a cache."""
        return spec.name in self.cached

    def source_portions(self, spec: TensorSpec) -> Portions:
        """Return for each source (weight or input) how many of its elements the tensor consists
        of; {} if this is unknown.
        """
        if spec.name in self.carried:
            return self.carried[spec.name]
        if spec.role in _STORED and spec.shape is not None:
            return {spec.name: Portion(spec.numel)}
        return {}


def trace_element_flow(graph: Graph, ledger: Ledger) -> Flow:
    """Return which elements of weights, inputs and caches each value of the graph consists of."""
    counts = {count.node.key: count for count in ledger.counts}
    flow = Flow(
        carried={
            spec.name: {spec.name: Portion(spec.numel)}
            for spec in graph.inputs
            if spec.shape is not None
        },
        maker={},
        specs={spec.name: spec for spec in (*graph.inputs, *weight_and_constant_specs(graph))},
        constant=frozenset(_input_independent_names(graph)),
        moves=frozenset(
            key
            for key, count in counts.items()
            if isinstance(count, CountedNode) and not count.cost.flops and not count.node.bodies
        ),
    )
    for node in graph.nodes:
        _record_node_sources(node, flow)
    known = find_caches(graph, flow.carried)
    pasts = {cache.past for cache in known}
    stored = (name for name, parts in flow.carried.items() if not pasts.isdisjoint(parts))
    return msgspec.structs.replace(
        flow, caches=known, cached=frozenset((*stored, *(cache.present for cache in known)))
    )


def weight_and_constant_specs(graph: Graph) -> Iterator[TensorSpec]:
    """Yield the weights and constants that the nodes of a graph and its bodies read.

    What a function calls them is left out: its operands are those of its call.
    """
    for node in graph.nodes:
        yield from (spec for spec in node.inputs if spec is not None and spec.role in _STORED)
        for body in _bodies_in_scope(node):
            yield from weight_and_constant_specs(body)


def _input_independent_names(graph: Graph) -> Iterator[str]:
    """Yield the names of all values that depend on no input, bodies included."""
    for node in graph.nodes:
        if node.constant:
            yield from (spec.name for spec in node.outputs if spec is not None)
        for body in _bodies_in_scope(node):
            yield from _input_independent_names(body)


def _bodies_in_scope(node: Node) -> tuple[Graph, ...]:
    """Return the bodies of a node that can read values of the enclosing graph: all except those of
    functions.
    """
    return () if node.choice == "function" else node.bodies


def _record_node_sources(node: Node, flow: Flow) -> None:
    """Record in `flow` of which elements of weights and inputs the outputs of a node consist."""
    outputs = [spec for spec in node.outputs if spec is not None]
    if node.key not in flow.moves and not node.constant:
        flow.maker.update({spec.name: node.key for spec in outputs})
        flow.carried.update({spec.name: {} for spec in outputs})
        return
    inputs = [spec for spec in _inputs_in_results(node, flow) if spec is not None]
    made = next((flow.maker[spec.name] for spec in inputs if spec.name in flow.maker), "")
    if not made and not _moves_no_tensor(node):
        made = node.key
    stored: dict[str, list[Portion]] = {}
    for spec in {spec.name: spec for spec in inputs}.values():
        for source, part in flow.source_portions(spec).items():
            stored.setdefault(source, []).append(part)
    for spec in outputs:
        cut = spec.numel if spec.shape is not None and node.key in flow.moves else None
        flow.carried[spec.name] = {
            source: _combine_portions(spec.name, parts, flow.specs[source].numel, cut)
            for source, parts in stored.items()
        }
        if made:
            flow.maker[spec.name] = made


def _combine_portions(name: str, parts: Sequence[Portion], size: int, cut: int | None) -> Portion:
    """Return the portion of a source that a tensor holds, from the portions `parts` of its inputs:
    at most `size`, the elements of the source, and `cut`, those of the tensor.
    """
    first = parts[0]
    if all(part.piece == first.piece for part in parts):
        return first if cut is None or first.elements <= cut else Portion(cut, name)
    total = min(size, sum(part.elements for part in parts))
    return Portion(total if cut is None else min(total, cut), name)


def _moves_no_tensor(node: Node) -> bool:
    """Return True if the operator of a node is a view, such as Reshape: it moves no data, and its
    output is its input with another name or shape.
    """
    known = find_operator_rule(node.op)
    return known is not None and known.traffic in ("view", "alias")


def _inputs_in_results(node: Node, flow: Flow) -> tuple[TensorSpec | None, ...]:
    """Return the inputs of a node whose elements may be in its outputs; () if it reads only the
    shape.
    """
    if node.op.type in _KNOWN_BY_SHAPE:
        return ()
    if node.key not in flow.moves or node.op.type in _MIXING | _WRITING:
        return node.inputs
    return node.inputs[:1]
