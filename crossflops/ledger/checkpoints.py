"""The parts of a graph that checkpoints run again, and how far each of them runs.

Source: torch/utils/checkpoint.py. A reentrant checkpoint is a function of its own: all of it runs
again once one of its results has a gradient. The other kind hooks what operators keep: it runs
again when the first of that is asked for, and stops when the last of it is there.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from crossflops.ir.graph import Graph, Node


class Part(NamedTuple):
    """The nodes of a checkpoint in their order, the values it is given and those it hands out."""

    nodes: tuple[Node, ...]
    given: frozenset[str]
    results: frozenset[str]

    @property
    def kind(self) -> str:
        """How it runs again; "unknown" where one of its nodes is in another one within it."""
        kinds = {node.checkpoint.kind for node in self.nodes if node.checkpoint}
        return kinds.pop() if len(kinds) == 1 else "unknown"


def parts(graph: Graph) -> dict[int, Part]:
    """The checkpoints of one level, by number."""
    inside: dict[int, list[Node]] = {}
    users: dict[str, set[int]] = {spec.name: {0} for spec in graph.outputs}
    for node in graph.nodes:
        number = node.checkpoint.number if node.checkpoint else 0
        if number:
            inside.setdefault(number, []).append(node)
        for name in _names(node.inputs):
            users.setdefault(name, set()).add(number)
    found = {}
    for number, nodes in inside.items():
        made = {name for node in nodes for name in _names(node.outputs)}
        given = {name for node in nodes for name in _names(node.inputs)} - made
        results = {name for name in made if users.get(name, set()) - {number}}
        found[number] = Part(tuple(nodes), frozenset(given), frozenset(results))
    return found


def _names(specs: Iterable[object]) -> set[str]:
    return {name for spec in specs if (name := getattr(spec, "name", ""))}


def run_again(part: Part, keeps: Callable[[tuple[Node, ...]], bool]) -> tuple[Node, ...]:
    """The nodes that run until all is there that is kept; `keeps` says of a call whether it does.

    A call that keeps operands need not run, one that keeps results must.
    """
    calls: dict[str, tuple[Node, ...]] = {}
    for node in part.nodes:
        calls[node.call] = (*calls.get(node.call, ()), node)
    for nodes in reversed(calls.values()):
        how = nodes[0].checkpoint.keeps if nodes[0].checkpoint else "nothing"
        if how != "nothing" and keeps(nodes):
            end = nodes[0] if how == "operands" else nodes[-1]
            count = part.nodes.index(end) + (end is nodes[-1] and how != "operands")
            return part.nodes[:count]
    return ()
