"""The graph that was counted, as a question: what does a value depend on, and who makes it?"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from crossflops.core.graph import Node

# What these give depends on the shape of their input: they run before it is there, or never.
_OF_SHAPES = ("Shape", "Size")
_DEEP = 16  # nodes between the first and the last of what one kernel does


class Origin:
    """The nodes of one level of a graph, by what they make."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.by_key = {node.key: node for node in nodes}
        self.maker = {spec.name: node for node in nodes for spec in node.outputs if spec}

    def needs(self, node: Node) -> tuple[str, ...]:
        """The values that a node needs, those that its bodies take from around them included."""
        if node.op.type in _OF_SHAPES and not node.op.domain:
            return ()
        return tuple(dict.fromkeys(_read(node)))

    def behind(self, name: str) -> Iterator[Node]:
        """The nodes on which a value depends, the nearest first, not deeper than a kernel is."""
        ring, seen = deque([(name, 0)]), {name}
        while ring:
            at, deep = ring.popleft()
            node = self.maker.get(at)
            if node is None:
                continue
            yield node
            for one in self.needs(node) if deep < _DEEP else ():
                if one not in seen:
                    seen.add(one)
                    ring.append((one, deep + 1))

    def depends(self, name: str, on: str) -> bool:
        """Whether a value is another, or is made of it within one kernel."""
        made_by = self.maker.get(on)
        return name == on or any(node is made_by for node in self.behind(name))

    @property
    def twins(self) -> list[Node]:
        """The nodes that do what an earlier one does, on the same values."""
        same: dict[str, str] = {}
        first: dict[object, Node] = {}
        found = []
        for node in self.nodes:
            given = tuple(same.get(one.name, one.name) if one else "" for one in node.inputs)
            what = (node.op, given, repr(sorted(node.attrs.items())), len(node.outputs))
            earlier = first.setdefault(what, node)
            if earlier is node or node.bodies or not given or node.op.type.startswith("Random"):
                continue
            found.append(node)
            for mine, theirs in zip(node.outputs, earlier.outputs, strict=True):
                if mine and theirs:
                    same[mine.name] = same.get(theirs.name, theirs.name)
        return found


def _read(node: Node) -> Iterator[str]:
    yield from (spec.name for spec in node.inputs if spec)
    for body in node.bodies:
        made = {spec.name for spec in body.inputs}
        made |= {spec.name for one in body.nodes for spec in one.outputs if spec}
        inner: Iterable[str] = (spec.name for spec in body.outputs)
        yield from (name for name in inner if name not in made)
        for one in body.nodes:
            yield from (name for name in _read(one) if name not in made)
