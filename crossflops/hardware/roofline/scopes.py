"""The graphs in a graph: bodies of loops and branches, and functions, with their ledger's keys."""

from collections.abc import Iterator

from crossflops.core.graph import Graph, Node


def scopes(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """The graph and every body in it, once, each with what a ledger writes before its keys.

    As in `crossflops.count`: the key of the holder before the nodes of a body, the name of a
    function before its nodes.
    """
    yield from _within("", graph, set())


def key_before(prefix: str, node: Node, body: Graph) -> str:
    """What stands before the keys of a node's body."""
    return f"{body.name}/" if node.choice == "function" else f"{prefix}{node.key}/"


def _within(prefix: str, graph: Graph, seen: set[str]) -> Iterator[tuple[str, Graph]]:
    if prefix in seen:
        return
    seen.add(prefix)
    yield prefix, graph
    for node in graph.nodes:
        for body in node.bodies:
            yield from _within(key_before(prefix, node, body), body, seen)
