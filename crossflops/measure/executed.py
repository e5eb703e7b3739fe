"""The graph that a runtime made of a model, as far as it says what was executed."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

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
    """A GraphProto. A node without a name has that of its operator and place."""
    stored = {one.name for one in graph.initializer}
    stored |= {one.values.name for one in graph.sparse_initializer}
    nodes = tuple(_node(one, number) for number, one in enumerate(graph.node))
    return Level(nodes, frozenset(stored))


def _node(node: Any, number: int) -> Executed:
    return Executed(
        name=node.name or f"{node.op_type}_{number}",
        op=node.op_type,
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        bodies={one.name: level(one.g) for one in node.attribute if one.HasField("g")},
    )


def named(names: Iterable[tuple[str, str]]) -> Level:
    """A graph of which only name and operator of its nodes are known, in their order."""
    return Level(tuple(Executed(name, op, (), ()) for name, op in names), frozenset())
