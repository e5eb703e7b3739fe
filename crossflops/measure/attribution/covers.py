"""Which nodes of the counted graph each executed kernel stands for.

Every node belongs to the first kernel whose result depends on it. A kernel of which nobody knows
what it makes is taken together with the one that reads its result.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from crossflops.core.graph import Node
from crossflops.measure.attribution.aliases import aliases
from crossflops.measure.attribution.executed import Executed, Level
from crossflops.measure.attribution.origin import Origin


class Cover(NamedTuple):
    """Kernels that are taken together, and the keys of the nodes that they stand for.

    Nodes in bodies have the key of the holder before theirs, as in a ledger; those of `whole`
    stand for all that is in them, too.
    """

    kernels: tuple[str, ...]
    keys: tuple[str, ...]
    whole: tuple[str, ...] = ()


class Covers(NamedTuple):
    """All kernels, and the nodes that no kernel stands for.

    `folded` were computed when the model was loaded, `merged` do what another node does, `left`
    are the others: nothing that was executed depends on them.
    """

    kernels: tuple[Cover, ...]
    folded: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def covers(nodes: tuple[Node, ...], level: Level, prefix: str = "") -> Covers:
    """Join one level of the counted graph, and what is in its bodies, to what was executed."""
    work = _Work(nodes, level)
    groups = work.groups()
    found: list[Cover] = []
    inner: list[Covers] = []
    for kernels, claimed in groups:
        whole = []
        for node in claimed:
            holder = next((k for k in kernels if k.bodies and k.op == node.op.type), None)
            if node.bodies and holder is not None:
                inner += _bodies(node, holder, f"{prefix}{node.key}/")
            elif node.bodies:
                whole.append(f"{prefix}{node.key}")
        names, keys = tuple(k.name for k in kernels), (f"{prefix}{n.key}" for n in claimed)
        found.append(Cover(names, tuple(keys), tuple(whole)))
    own = Covers(tuple(found), *(_keys(prefix, part) for part in work.rest()))
    every = (own, *inner)
    return Covers(
        tuple(one for part in every for one in part.kernels),
        tuple(one for part in every for one in part.folded),
        tuple(one for part in every for one in part.merged),
        tuple(one for part in every for one in part.left),
    )


def _keys(prefix: str, nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(f"{prefix}{node.key}" for node in nodes)


def _bodies(node: Node, holder: Executed, prefix: str) -> Iterator[Covers]:
    for body in node.bodies:
        if body.name in holder.bodies:
            yield covers(body.nodes, holder.bodies[body.name], prefix)


class _Work:
    """One level: who has been claimed by whom."""

    def __init__(self, nodes: tuple[Node, ...], level: Level) -> None:
        self._origin = Origin(nodes)
        self._level = level
        self._names: Mapping[str, str] = aliases(self._origin, level)
        self._open = {id(node): node for node in nodes}  # two nodes may bear one name
        self._folded: list[Node] = []
        made = set(self._names.values())
        self._merged = [
            self._open.pop(id(node))
            for node in self._origin.twins
            if not any(spec and spec.name in made for spec in node.outputs)
        ]
        for name in sorted(level.stored):
            self._folded += self._claim(name, None)

    def groups(self) -> Iterator[tuple[list[Executed], list[Node]]]:
        """Kernels with the nodes that they claim, in the order in which they run."""
        waiting: dict[str, list[Executed]] = {}  # by the value of which nobody knows what it is
        for kernel in self._level.nodes:
            together = [kernel]
            for name in kernel.inputs:
                together = waiting.pop(name, []) + together
            known = [self._names[name] for name in kernel.outputs if name in self._names]
            if known or not kernel.outputs:
                claimed = [node for name in known for node in self._claim(name, kernel)]
                yield together, claimed
            else:
                waiting[kernel.outputs[0]] = together
        for left in waiting.values():
            yield left, []

    def rest(self) -> tuple[list[Node], list[Node], list[Node]]:
        """What no kernel claimed: folded, merged, left."""
        left = list(self._open.values())
        folded = [node for node in left if node.constant]
        return self._folded + folded, self._merged, [node for node in left if not node.constant]

    def _claim(self, name: str, kernel: Executed | None) -> list[Node]:
        """The open nodes on which a value depends.

        What depends on no input is not the work of a kernel that only reads it: it was computed
        when the model was loaded.
        """
        found: list[Node] = []
        maker = self._origin.maker.get(name)
        constant = maker is not None and maker.constant
        todo = [name]
        while todo:
            node = self._origin.maker.get(todo.pop())
            if node is None or self._open.pop(id(node), None) is None:
                continue
            if node.constant and not constant and kernel is not None:
                self._folded.append(node)
            else:
                found.append(node)
            todo += self._origin.needs(node)
        return found
