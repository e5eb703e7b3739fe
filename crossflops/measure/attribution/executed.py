"""The graph that a runtime made of a model, as far as it says what was executed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from crossflops.core.graph import Node
from crossflops.load.protobuf import parse


class Executed(NamedTuple):
    """A node that runs. `bodies` are its subgraphs, by attribute."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bodies: Mapping[str, "Level"] = {}


class Level(NamedTuple):
    """Nodes in an order in which they can run, and the values that are there from the start."""

    nodes: tuple[Executed, ...]
    stored: frozenset[str]

    def everywhere(self) -> Iterator[Executed]:
        """The nodes, and those in their subgraphs."""
        for node in self.nodes:
            yield node
            for body in node.bodies.values():
                yield from body.everywhere()


def read(path: str | Path) -> Level:
    """The graph that onnxruntime saved. Raises TargetError."""
    return level(parse(Path(path).read_bytes()).graph)


def level(graph: Any) -> Level:
    """A GraphProto. A node without a name has none here: see `named`."""
    stored = {one.name for one in graph.initializer}
    stored |= {one.values.name for one in graph.sparse_initializer}
    return Level(tuple(map(_node, graph.node)), frozenset(stored))


def _node(node: Any) -> Executed:
    return Executed(
        name=node.name,
        op=node.op_type,
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        bodies={one.name: level(one.g) for one in node.attribute if one.HasField("g")},
    )


def named(whole: Level, kernels: Iterable[tuple[str, str]]) -> Level:
    """The graph with names for the nodes without one, from the kernels (name, operator) that ran.

    The profiler calls those by operator and a number that no file has. Those of one operator ran
    in the order in which they stand, if they are as many.
    """
    known = {node.name for node in whole.everywhere() if node.name}
    strays: dict[str, list[str]] = {}
    for name, op in kernels:
        if name not in known:
            strays.setdefault(op, []).append(name)
    tally = Counter(node.op for node in whole.everywhere() if not node.name)
    return _filled(
        whole, {op: iter(names) for op, names in strays.items() if len(names) == tally[op]}
    )


def guessed(nodes: Iterable[Node], kernels: Iterable[tuple[str, str]]) -> Level:
    """What can be told of a graph that nobody has, from the names of the kernels alone."""
    by_key = {node.key: node for node in nodes}
    made = {spec.name for node in by_key.values() for spec in node.outputs if spec}

    def outputs(name: str) -> tuple[str, ...]:
        value = name.removesuffix("_nchwc")
        if value != name and value in made:
            return (value,)
        like = by_key.get(value) or by_key.get(value.removeprefix("fused ").partition("/")[0])
        return tuple(spec.name for spec in like.outputs if spec) if like is not None else ()

    found = tuple(Executed(name, op, (), outputs(name)) for name, op in kernels)
    return Level(found, frozenset())


def _filled(one: Level, names: Mapping[str, Iterator[str]]) -> Level:
    def fill(node: Executed) -> Executed:
        name = node.name or next(names[node.op], "") if node.op in names else node.name
        bodies = {key: _filled(body, names) for key, body in node.bodies.items()}
        return node._replace(name=name or node.outputs[0], bodies=bodies)

    return one._replace(nodes=tuple(fill(node) for node in one.nodes))
