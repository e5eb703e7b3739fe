"""What a run showed, put into the terms of a file: names of loops, and types of values."""

from collections.abc import Mapping
from typing import Any

import msgspec

from crossflops.core.graph import Graph, Node
from crossflops.core.observation import Observation
from crossflops.load.payload import ELEMENT_TYPES
from crossflops.normalize.onnx_file.control import RAN
from crossflops.normalize.onnx_file.loops import levels
from crossflops.normalize.onnx_file.settling import Asked
from crossflops.normalize.onnx_file.types import Type

_NUMBERS = {name: number for number, name in ELEMENT_TYPES.items()}


def asked_or_seen(graph: Any, asked: Asked, seen: Observation) -> Asked:
    """What the caller says about loops and branches, and what the run showed of the others."""
    trips, branches = {}, {}
    for around in levels(graph):
        for node in around.graph.node:
            first = node.output[0] if node.output else ""
            if first in seen.trips:
                trips[node.name] = seen.trips[first]
            if first in seen.branches:
                branches[node.name] = f"{RAN}{seen.branches[first]}"
    return asked._replace(trips=trips | asked.trips, branches=branches | asked.branches)


def types(seen: Observation | None) -> Mapping[str, Type]:
    """The types of the values that the run made."""
    values = seen.values if seen else {}
    return {name: Type(_NUMBERS.get(one.dtype, 0), one.shape) for name, one in values.items()}


def marked(graph: Graph, alone: Graph) -> Graph:
    """The graph with the nodes marked that are others in the one that was read without a run."""
    before = {node.key: node for node in alone.nodes}
    nodes = tuple(_marked(node, before.get(node.key)) for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=nodes)


def _marked(node: Node, before: Node | None) -> Node:
    """A node, and those in its bodies: all of these where a run decided which body runs, or how
    often.
    """
    same = before is not None and _control(node) == _control(before)
    others = before.bodies if same and before is not None else ()
    bodies = (
        tuple(map(marked, node.bodies, others))
        if same
        else tuple(marked(body, msgspec.structs.replace(body, nodes=())) for body in node.bodies)
    )
    depends = before is None or not same or _sizes(node) != _sizes(before)
    return msgspec.structs.replace(node, bodies=bodies, depends_on_inputs=depends)


def _control(node: Node) -> tuple[object, ...]:
    return node.trips, node.choice, len(node.bodies)


def _sizes(node: Node) -> tuple[object, ...]:
    return tuple(one and one.shape for one in (*node.inputs, *node.outputs)), node.values
