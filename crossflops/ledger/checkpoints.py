"""The parts of a graph that checkpoints run again, and how far each of them runs.

Source: torch/utils/checkpoint.py. A reentrant checkpoint is a function of its own: all of it runs
again once one of its results has a gradient. The other kind hooks what operators keep: it runs
again when the first of that is asked for, and stops when the last of it is there.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from crossflops.ir.graph import Graph, Kept, Node


class CheckpointPart(NamedTuple):
    """The nodes of a checkpoint in their order, the values it is given and those it hands out."""

    nodes: tuple[Node, ...]
    given: frozenset[str]
    results: frozenset[str]

    @property
    def kind(self) -> str:
        """How it runs again; "unknown" where one of its nodes is in another one within it."""
        kinds = {node.checkpoint.kind for node in self.nodes if node.checkpoint}
        return kinds.pop() if len(kinds) == 1 else "unknown"


def parts(graph: Graph) -> dict[int, CheckpointPart]:
    """The checkpoints of one level, by number."""
    inside: dict[int, list[Node]] = {}
    users: dict[str, set[int]] = {spec.name: {0} for spec in graph.outputs}
    for node in graph.nodes:
        number = node.checkpoint.number if node.checkpoint else 0
        if number:
            inside.setdefault(number, []).append(node)
        for name in _names(node.inputs):
            users.setdefault(name, set()).add(number)
    by_number = {}
    for number, nodes in inside.items():
        made = {name for node in nodes for name in _names(node.outputs)}
        given = {name for node in nodes for name in _names(node.inputs)} - made
        results = {name for name in made if users.get(name, set()) - {number}}
        by_number[number] = CheckpointPart(tuple(nodes), frozenset(given), frozenset(results))
    return by_number


def _names(specs: Iterable[object]) -> set[str]:
    return {name for spec in specs if (name := getattr(spec, "name", ""))}


class RunAgain(NamedTuple):
    """The nodes of a checkpoint that run again, and those of which it is not known."""

    nodes: tuple[Node, ...] = ()
    unsure: tuple[Node, ...] = ()


def run_again(part: CheckpointPart, keeps: Callable[[tuple[Node, ...]], bool]) -> RunAgain:
    """What runs once more where something of it is asked for; `keeps` says of a call whether
    PyTorch keeps anything for it.

    The kind that stops need not run a call that keeps operands, and must one that keeps results.
    """
    if part.kind == "unknown":
        return RunAgain(unsure=part.nodes)
    if part.kind in ("reentrant", "whole"):
        return RunAgain(part.nodes)
    calls: dict[str, tuple[Node, ...]] = {}
    for node in part.nodes:
        calls[node.call] = (*calls.get(node.call, ()), node)
    for nodes in reversed(calls.values()):
        if kept(nodes[0]) == "nothing" or not keeps(nodes):
            continue
        before = part.nodes[: part.nodes.index(nodes[0])]
        if kept(nodes[0]) == "results":
            return RunAgain(part.nodes[: part.nodes.index(nodes[-1]) + 1])
        return RunAgain(before, nodes if kept(nodes[0]) == "parts" else ())
    return RunAgain()


def kept(node: Node) -> Kept:
    """What a node in a checkpoint keeps for its backward pass."""
    return node.checkpoint.keeps if node.checkpoint else "nothing"
