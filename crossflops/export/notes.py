"""What is noted at each node of a model: its counts, or why it has none."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.core.ledger import Counted, Uncounted
from crossflops.export.nodes import FileNode
from crossflops.load.order import label

# A node of a graph with the counts of itself and all in it.
NodeCounts: TypeAlias = tuple[Node, Sequence[Counted | Uncounted]]

PREFIX = "crossflops."
_KINDS = ("macs", "flops", "bytes_read", "bytes_written")


class NodeNote(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one node of the model as it stands in its file.

    A node that calls a function or holds bodies bears what all runs of these cost. `id` is the
    node's name, "<node_N>" for the N-th one (from 0) if it has none. `uncounted` is the reason of
    the first node in it that has no count.
    """

    id: str
    cost: Cost
    exactness: str
    uncounted: str = ""

    @property
    def metadata(self) -> dict[str, str]:
        """The note as metadata of the node. What is unknown has no number."""
        if self.uncounted:
            return {f"{PREFIX}uncounted": self.uncounted}
        counts = {f"{PREFIX}{kind}": str(getattr(self.cost, kind)) for kind in _KINDS}
        return counts | {f"{PREFIX}exactness": self.exactness}


def notes_of_graph(counted: Iterable[NodeCounts]) -> dict[str, NodeNote]:
    """The notes of a graph, by the key of the node."""
    return {node.key: _note(node.key, counts) for node, counts in counted}


def notes_of_file(
    counted: Iterable[NodeCounts], nodes: Iterable[FileNode], model: Any
) -> dict[str, NodeNote]:
    """The notes of the nodes in a file, by the name of their first result, which is unique.

    What a function was inlined to has the key of the calling node before its own; the keys are
    those of `model`, the same nodes in topological order.
    """
    firsts = {node.result: node for node in nodes}
    labels = {
        label(node, number): next(filter(None, node.output), "")
        for number, node in enumerate(model.graph.node)
    }
    inside: dict[str, list[Counted | Uncounted]] = {name: [] for name in firsts}
    for node, counts in counted:
        made = next((spec.name for spec in node.outputs if spec is not None), "")
        if node.key not in labels or made not in firsts:
            made = next((labels[name] for name in _around(node.key) if name in labels), "")
        if made in inside:
            inside[made] += counts
    return {
        result: _note(firsts[result].id, counts) for result, counts in inside.items() if counts
    }


def _around(key: str) -> Iterator[str]:
    """The key, and what stands before each of its slashes, the longest first."""
    while key:
        yield key
        key = key.rpartition("/")[0]


def _note(name: str, counts: Sequence[Counted | Uncounted]) -> NodeNote:
    counted = [one for one in counts if isinstance(one, Counted)]
    found = {one.exactness for one in counted}
    return NodeNote(
        id=name,
        cost=sum((one.cost for one in counted), ZERO),
        exactness=next((word for word in ("estimate", "bound") if word in found), "exact"),
        uncounted=next((one.reason for one in counts if isinstance(one, Uncounted)), ""),
    )
