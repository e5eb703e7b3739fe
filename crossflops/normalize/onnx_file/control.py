"""What a caller says about control flow: how often a body runs, and which branch counts."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from crossflops.errors import InputError
from crossflops.load.order import bodies, label
from crossflops.normalize.onnx_file.loops import LOOPS, is_control

CHOICES = ("then", "else", "sum")
RAN = "ran "  # before the side that a run took, where nobody asks for one
_Said = TypeVar("_Said", int, str)
Names = dict[str, str]


def named(
    graphs: Iterable[tuple[str, Any]], trips: Mapping[str, int], branches: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, str]]:
    """Give every node that holds a body a name, and return both mappings by these names.

    `graphs` are that of the model and those of functions, each with what stands before the keys
    of its nodes. A node is called by its own name, or by its key in a report, where the names of
    the nodes around it stand before its own. Raises InputError for a name that no such node has.
    """
    loops: Names = {}
    choices: Names = {}
    for key, node in (found for prefix, one in graphs for found in _holders(one, prefix)):
        if is_control(node, *LOOPS):
            loops |= {node.name: node.name, key: node.name}
        elif is_control(node, "If"):
            choices |= {node.name: node.name, key: node.name}
    for name, count in trips.items():
        if count < 0:
            raise InputError(f"{name!r} cannot run {count} times", "give --trips NODE=N")
    for name, choice in branches.items():
        if choice not in CHOICES:
            what = f"{choice!r} is no branch of {name!r}"
            raise InputError(what, "give --branch NODE=then, NODE=else or NODE=sum")
    return (
        _known(trips, loops, "Loop, Scan or SequenceMap", "loops"),
        _known(branches, choices, "If", "branches"),
    )


def _known(said: Mapping[str, _Said], names: Names, what: str, many: str) -> dict[str, _Said]:
    for name in said:
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise InputError(f"there is no {what} {name!r}", f"{many}: {known}")
    return {names[name]: value for name, value in said.items()}


def _holders(graph: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Every node with a subgraph, with its key in a report."""
    for number, node in enumerate(graph.node):
        inner = list(bodies(node))
        if inner:
            node.name = label(node, number)
            yield f"{prefix}{node.name}", node
        for body in inner:
            yield from _holders(body, f"{prefix}{node.name}/")
