"""Answer searches of jax2onnx through all nodes by what a value itself knows.

jax2onnx goes through all nodes behind each equation and for each node that it may move, so that
its time grows with the square of a model. A value knows the node that makes it.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patch_owner, patching_attribute


@contextmanager
def finding_producers_without_search() -> Iterator[None]:
    """Return a context in which jax2onnx finds the node of a value without a search.

    Where the value does not know it, or jax2onnx has no such function, jax2onnx searches itself.
    """
    import onnx_ir as ir

    with ExitStack() as undo:
        checks, searches = (
            patch_owner(inventory.BOUND_VALUES),
            patch_owner(inventory.NODE_SEARCHES),
        )
        (check,), (search,) = inventory.BOUND_VALUES.names, inventory.NODE_SEARCHES.names
        if hasattr(checks, check):
            search_graph = original_attribute(checks, check, inventory.BOUND_VALUES)

            def is_value_in_written_graph(ctx: Any, value: Any) -> bool:
                """Return whether an ONNX value belongs to the graph that is being written."""
                return _is_in_graph(ctx.builder.nodes, value) or search_graph(ctx, value)

            undo.enter_context(
                patching_attribute(
                    checks, check, is_value_in_written_graph, inventory.BOUND_VALUES
                )
            )
        if hasattr(searches, search):
            search_nodes = original_attribute(searches, search, inventory.NODE_SEARCHES)

            def find_producer(nodes: Sequence[Any], value: Any) -> Any:
                """Return the node that makes an ONNX value, or None."""
                if not isinstance(value, ir.Value):
                    return search_nodes(nodes, value)
                return _producer_node(nodes, value)

            undo.enter_context(
                patching_attribute(searches, search, find_producer, inventory.NODE_SEARCHES)
            )
        yield


def _is_in_graph(graph: Any, value: Any) -> bool:
    """Return whether a node of the graph makes the value, or the graph stores its name."""
    producer = value.producer()
    if producer is not None and producer.graph is graph:
        return True
    stored = graph.initializers.get(value.name) if value.name else None
    return stored is not None and stored.name == value.name


def _producer_node(nodes: Sequence[Any], value: Any) -> Any:
    """Return the node that makes the value, or has an output of its name, or None.

    Source: jax2onnx/converter/optimizer_graph_utils.py (_producer_node).
    """
    producer = value.producer()
    if producer is not None and producer in nodes:
        return producer
    name = value.name
    for node in nodes:
        for output in node.outputs:
            if output is value or (name and output.name == name):
                return node
    return None
