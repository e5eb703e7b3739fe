"""Which node pays for what a fused run moves: every source once, at the first that works on it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from crossflops.core.graph import Graph, Node
from crossflops.core.tensor import TensorSpec
from crossflops.hardware.roofline.caches import Part
from crossflops.hardware.roofline.dataflow import Flow
from crossflops.hardware.roofline.formats import Formats, elements_to_bytes, nbytes

Split: TypeAlias = tuple[int, int, int]  # bytes of weights, of caches, of activations

_WEIGHTS, _CACHE, _ACTIVATIONS = range(3)


class _Bill:
    """What each node has been charged, and what is left of each source."""

    def __init__(self, found: Flow, formats: Formats) -> None:
        self.found, self.formats = found, formats
        self.left = {
            name: spec.numel for name, spec in found.specs.items() if spec.shape is not None
        }
        self.reader: dict[str, str] = {}
        self.pieces: set[tuple[str, str]] = set()
        self.rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])

    def read(self, key: str, source: str, part: Part) -> None:
        """A part of a source, as far as nobody has read it yet."""
        self.reader.setdefault(source, key)
        if (source, part.piece) in self.pieces:
            return
        self.pieces.add((source, part.piece))
        taken = min(part.elements, self.left.get(source, 0))
        if taken:
            self.left[source] -= taken
            self.charge(key, self.found.specs[source], taken)

    def charge(self, key: str, spec: TensorSpec, elements: int) -> None:
        """So many elements of a tensor, as what it is."""
        if self.found.is_weight(spec):
            place, kept = _WEIGHTS, self.formats.of_weights()
        elif self.found.is_cache(spec):
            place, kept = _CACHE, self.formats.of_cache()
        else:
            place, kept = _ACTIVATIONS, self.formats.activations
        self.rows[key][place] += elements_to_bytes(spec, elements, kept)


def charges(graph: Graph, found: Flow, formats: Formats, *, ends: bool) -> Mapping[str, Split]:
    """Bytes by node: weights and caches once, and with `ends` the model's inputs and outputs.

    A weight, a cache or an input is charged to the first node that works on it, directly or
    through nodes that only move data, as far as that one reads of it; the rest to those after it.
    An output is charged to the node that works it out. Where no node works on what it moves, the
    first that moves it pays.
    """
    bill = _Bill(found, formats)
    pasts = {cache.past for cache in found.caches}
    inputs = {spec.name for spec in graph.inputs}
    for node in graph.nodes:
        if node.constant or node.key in found.moves:
            continue
        for source, part in _read(node, found):
            if ends or source in pasts or source not in inputs:
                bill.read(node.key, source, part)
    for cache in found.caches:
        payer = bill.reader.get(cache.past, found.maker.get(cache.present, ""))
        bill.charge(payer, found.specs[cache.past], cache.new)
    if ends:
        _outputs(graph, bill)
    return {key: (row[0], row[1], row[2]) for key, row in bill.rows.items()}


def _outputs(graph: Graph, bill: _Bill) -> None:
    presents = {cache.present for cache in bill.found.caches}
    for spec in graph.outputs:
        key = bill.found.maker.get(spec.name)
        if key is None or spec.name in presents or bill.found.is_weight(spec):
            continue
        for source, part in bill.found.parts(spec).items():
            bill.read(key, source, part)
        kept = bill.formats.activations
        bill.rows[key][_ACTIVATIONS] += nbytes(spec, kept) if spec.shape is not None else 0


def _read(node: Node, found: Flow) -> Iterator[tuple[str, Part]]:
    """The sources that a node reads, those of its bodies too, with how much of each."""
    for spec in {one.name: one for one in node.inputs if one is not None}.values():
        yield from found.parts(spec).items()
    for body in node.bodies if node.choice != "function" else ():
        for inner in body.nodes:
            yield from _read(inner, found)
