"""Which values of a graph hold weights, which hold caches, and what elements each one carries.

A node that only moves data (no operation at all: Reshape, Transpose, Concat, Expand, Cast ...)
hands on elements of its inputs. A fused kernel reads them where they come from, so a source (a
weight, or an input of the model) is followed through such nodes to whatever works on it.
"""

from collections.abc import Iterator, Sequence

import msgspec

from crossflops.core.graph import Graph, Node
from crossflops.core.ledger import Counted, Ledger
from crossflops.core.tensor import TensorSpec
from crossflops.hardware.roofline.caches import Cache, Part, Parts, caches
from crossflops.ops import rule

_STORED = frozenset(("parameter", "constant", "argument"))
_KNOWN_BY_SHAPE = frozenset(("Shape", "Size", "Constant"))  # nothing of their input is read
# Nodes whose results hold elements of all their inputs; those of others are of the first.
_MIXING = frozenset(("Concat", "Where", "Gather", "GatherElements", "GatherND", "OneHot"))
_WRITING = frozenset(("ScatterElements", "ScatterND", "Scatter", "TensorScatter"))


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """`carried`: of every value that moves elements of sources, how many of each.

    `maker`: the node that worked out what a value holds, or the first that moved it. `specs` are
    the sources themselves, `moves` the keys of nodes without an operation.
    """

    carried: dict[str, Parts]
    maker: dict[str, str]
    specs: dict[str, TensorSpec]
    constant: frozenset[str]
    moves: frozenset[str]
    caches: tuple[Cache, ...] = ()
    cached: frozenset[str] = frozenset()

    def is_weight(self, spec: TensorSpec) -> bool:
        """Whether the tensor holds a weight, or what was made of weights alone."""
        return spec.role in _STORED or spec.name in self.constant

    def is_layer(self, spec: TensorSpec | None) -> bool:
        """Whether the tensor holds parameters of more than a number, as a layer's weights do.

        A mask that is made of constants holds none.
        """
        if spec is None or not spec.shape or spec.numel < 2 or not self.is_weight(spec):
            return False
        known = (self.specs[name] for name in self.carried.get(spec.name, ()))
        return spec.role == "parameter" or any(one.role == "parameter" for one in known)

    def is_cache(self, spec: TensorSpec) -> bool:
        """Whether the tensor holds elements of a cache, perhaps with what is new behind them."""
        return spec.name in self.cached

    def parts(self, spec: TensorSpec) -> Parts:
        """The elements of sources that a value holds."""
        if spec.name in self.carried:
            return self.carried[spec.name]
        if spec.role in _STORED and spec.shape is not None:
            return {spec.name: Part(spec.numel)}
        return {}


def flow(graph: Graph, ledger: Ledger) -> Flow:
    """Follows weights and inputs through the nodes of a graph, in their order."""
    counts = {one.node.key: one for one in ledger.counts}
    found = Flow(
        carried={
            one.name: {one.name: Part(one.numel)} for one in graph.inputs if one.shape is not None
        },
        maker={},
        specs={one.name: one for one in (*graph.inputs, *stored(graph))},
        constant=frozenset(_constants(graph)),
        moves=frozenset(
            key
            for key, one in counts.items()
            if isinstance(one, Counted) and not one.cost.flops and not one.node.bodies
        ),
    )
    for node in graph.nodes:
        _follow(node, found)
    known = caches(graph, found.carried)
    pasts = {one.past for one in known}
    held = (name for name, parts in found.carried.items() if not pasts.isdisjoint(parts))
    return msgspec.structs.replace(
        found, caches=known, cached=frozenset((*held, *(one.present for one in known)))
    )


def stored(graph: Graph) -> Iterator[TensorSpec]:
    """The weights and constants that nodes read, those of bodies too.

    What a function calls them is left out: its operands are those of its call.
    """
    for node in graph.nodes:
        yield from (one for one in node.inputs if one is not None and one.role in _STORED)
        for body in _bodies(node):
            yield from stored(body)


def _constants(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        if node.constant:
            yield from (spec.name for spec in node.outputs if spec is not None)
        for body in _bodies(node):
            yield from _constants(body)


def _bodies(node: Node) -> tuple[Graph, ...]:
    """The bodies that share the names of the graph around them."""
    return () if node.choice == "function" else node.bodies


def _follow(node: Node, found: Flow) -> None:
    """Notes what the results of a node hold. A node that works makes something new."""
    outputs = [spec for spec in node.outputs if spec is not None]
    if node.key not in found.moves and not node.constant:
        found.maker.update({spec.name: node.key for spec in outputs})
        found.carried.update({spec.name: {} for spec in outputs})
        return
    inputs = [spec for spec in _handed_on(node, found) if spec is not None]
    made = next((found.maker[spec.name] for spec in inputs if spec.name in found.maker), "")
    if not made and not _is_view(node):
        made = node.key
    held: dict[str, list[Part]] = {}
    for spec in {one.name: one for one in inputs}.values():
        for source, part in found.parts(spec).items():
            held.setdefault(source, []).append(part)
    for spec in outputs:
        cut = spec.numel if spec.shape is not None and node.key in found.moves else None
        found.carried[spec.name] = {
            source: _together(spec.name, parts, found.specs[source].numel, cut)
            for source, parts in held.items()
        }
        if made:
            found.maker[spec.name] = made


def _together(name: str, parts: Sequence[Part], whole: int, cut: int | None) -> Part:
    """What a value holds of a source: these parts, and not more than it has elements."""
    first = parts[0]
    if all(one.piece == first.piece for one in parts):
        return first if cut is None or first.elements <= cut else Part(cut, name)
    total = min(whole, sum(one.elements for one in parts))
    return Part(total if cut is None else min(total, cut), name)


def _is_view(node: Node) -> bool:
    """Whether the result is the input under another name or shape: nobody moves anything."""
    known = rule(node.op)
    return known is not None and known.traffic == "view"


def _handed_on(node: Node, found: Flow) -> tuple[TensorSpec | None, ...]:
    """The inputs of which elements are in the results."""
    if node.op.type in _KNOWN_BY_SHAPE:
        return ()
    if node.key not in found.moves or node.op.type in _MIXING | _WRITING:
        return node.inputs
    return node.inputs[:1]
