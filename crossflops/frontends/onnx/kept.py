"""Put the nodes of each unrolled loop back into one Loop node, as tools see it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from crossflops.ir.graph import Graph, Node, Op, TensorSpec


class LoopOfFile(NamedTuple):
    """The names of a Loop's first inputs (trip count and condition) and of its results."""

    first: tuple[str, ...]
    results: tuple[str, ...]


def loop_nodes_by_name(graph: Any) -> dict[str, LoopOfFile]:
    """Return the Loop nodes of a GraphProto by node name, without those in subgraphs."""
    return {
        node.name: LoopOfFile(tuple(node.input[:2]), tuple(node.output))
        for node in graph.node
        if node.op_type == "Loop" and not node.domain and node.name
    }


def with_restored_loops(graph: Graph, loops: Mapping[str, LoopOfFile]) -> Graph:
    """Return the graph with one Loop node instead of the copies of each unrolled loop."""
    nodes = list(graph.nodes)
    present = {node.key for node in nodes}
    for name, loop in loops.items():
        if name in present:
            continue
        run = re.compile(re.escape(f"@{name.replace('/', '.')}[") + r"\d+\]")
        handed_out = {f"{name}/{result}" for result in loop.results}
        inside = [
            node
            for node in nodes
            if run.search(node.key) or node.key in handed_out or node.key.startswith(f"{name}[")
        ]
        if not inside:
            continue
        at = nodes.index(inside[0])
        gone = {node.key for node in inside}
        nodes = [node for node in nodes if node.key not in gone]
        nodes.insert(at, _loop_node_with_unrolled_body(name, loop, inside, graph))
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def _loop_node_with_unrolled_body(
    name: str, loop: LoopOfFile, inside: list[Node], graph: Graph
) -> Node:
    """Return a Loop node whose body is these nodes, and runs once."""
    made = {spec.name: spec for node in inside for spec in node.outputs if spec}
    taken = {
        spec.name: spec
        for node in inside
        for spec in node.inputs
        if spec and spec.name not in made and not spec.name.startswith(f"{name}[")
    }
    outside = {spec.name: spec for spec in _inputs_and_results(graph)}
    first = [
        outside.get(provided, TensorSpec(provided, kind, (), role="constant"))
        if provided
        else None
        for provided, kind in zip(loop.first, ("int64", "bool"), strict=False)
    ]
    body = Graph(
        name="body", nodes=tuple(inside), inputs=(), outputs=(), params=0, opset=graph.opset
    )
    return Node(
        key=name,
        op=Op("", "Loop", graph.opset.get("", 1)),
        inputs=(*first, *taken.values()),
        outputs=tuple(made.get(result) for result in loop.results),
        bodies=(body,),
        trips=1,
        dead=all(node.dead for node in inside),
    )


def _inputs_and_results(graph: Graph) -> Iterator[TensorSpec]:
    """Yield the inputs of a graph and the results of its nodes, without stored tensors."""
    yield from graph.inputs
    for node in graph.nodes:
        yield from (spec for spec in node.outputs if spec)
