"""The operators that an export makes of the model's own ones and drops, since no output depends on
them.

A composite operator becomes several: one under `torch.func.jvp` has a product of its values and
products of their tangents, one under `vmap` has the axis that is mapped over. Of these some may be
dead where others are not, and only here do they have their shapes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute


class DroppedOperator(NamedTuple):
    """An operator with copies of the arguments that its node loses when it is erased."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    meta: Mapping[str, Any]


class DroppedOperators:
    """The operators that were dropped, by the names of their nodes in the decomposed program."""

    def __init__(self) -> None:
        """Start with no dropped operators."""
        self._operators: dict[str, DroppedOperator] = {}
        self._paused = False

    def add_operators(self, operators: Mapping[str, DroppedOperator]) -> None:
        """Add dropped operators, by node name, unless notes are paused."""
        if not self._paused:
            self._operators.update(operators)

    @contextmanager
    def pausing_notes(self) -> Iterator[None]:
        """Ignore dropped operators inside the block."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def remove_all(self) -> None:
        """Remove all dropped operators, before the program is decomposed in another way."""
        self._operators.clear()

    def operators_with_origin(self) -> Iterator[tuple[str, DroppedOperator]]:
        """Yield (name of the original node in the model's program, dropped operator)."""
        for operator in self._operators.values():
            yield original_node_name(operator.meta["from_node"]), operator


def original_node_name(sources: Any) -> str:
    """Return the name of the original node from which a decomposed node was made; `sources` is its
    "from_node".
    """
    source = sources[-1]
    while source.from_node:
        source = source.from_node[-1]
    return str(source.name)


def origin_operator_names(exported: Any) -> dict[str, str]:
    """Return for each operator of a decomposed program, by node name, the name of the original
    node.
    """
    return {
        node.name: original_node_name(node.meta["from_node"])
        for node in exported.graph.nodes
        if node.op == "call_function" and node.meta.get("from_node")
    }


@contextmanager
def observing_graphs_before_dead_nodes_go(note: Callable[[Any], None]) -> Iterator[None]:
    """Call `note` with each FX graph before its dead nodes are removed, inside the block."""
    import torch

    graph: Any = torch.fx.Graph
    eliminate_dead_code = original_attribute(
        graph, "eliminate_dead_code", inventory.DEAD_OPERATORS
    )

    def note_graph_and_eliminate_dead_code(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Call `note` with the graph, then let PyTorch remove its dead nodes; return what
        that returns.
        """
        note(self)
        return eliminate_dead_code(self, *args, **kwargs)

    with patching_attribute(
        graph, "eliminate_dead_code", note_graph_and_eliminate_dead_code, inventory.DEAD_OPERATORS
    ):
        yield


@contextmanager
def recording_dropped_operators(dropped: DroppedOperators) -> Iterator[None]:
    """Add to `dropped` the operators that PyTorch removes as dead inside the block."""
    import torch

    graph: Any = torch.fx.Graph
    eliminate_dead_code = original_attribute(
        graph, "eliminate_dead_code", inventory.DEAD_OPERATORS
    )

    def eliminate_and_record_dead_operators(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Let PyTorch remove the dead nodes of a graph, and add them to `dropped`; return what
        that returns.
        """
        there = {
            node.name: DroppedOperator(node.target, node.args, node.kwargs, node.meta)
            for node in self.nodes
            if node.op == "call_function" and node.meta.get("from_node")
        }
        result = eliminate_dead_code(self, *args, **kwargs)
        for node in self.nodes:
            there.pop(node.name, None)
        dropped.add_operators(there)
        return result

    with patching_attribute(
        graph, "eliminate_dead_code", eliminate_and_record_dead_operators, inventory.DEAD_OPERATORS
    ):
        yield
