"""The nodes of a graph as calls: the lowest level of the tree, for tools that count a file."""

from typing import Any

import msgspec

from crossflops.ir.graph import Graph, Node, Op
from crossflops.ir.ledger import Counted, Ledger, Uncounted
from crossflops.ir.trace import Call, Level, Module, Setting, Trace

WHOLE = "(graph)"  # the target of the call that stands for the graph itself


def as_calls(graph: Graph, ledger: Ledger) -> tuple[Trace, dict[str, Node]]:
    """A call for the graph and one for each node in the ledger, and these nodes by their keys.

    Rules see which results of a node are outputs of the graph, by their role.
    """
    results = frozenset(spec.name for spec in graph.outputs)
    whole = Node(key=graph.name, op=Op("", WHOLE, 0), inputs=graph.inputs, outputs=graph.outputs)
    nodes = [_with_roles(count, results) for count in ledger.counts]
    root = Module(id=0, names=("",), bases=(), params=(), children=(), training=False, settings={})
    calls = (_call(WHOLE, "graph", whole), *(_call(node.key, "node", node) for node in nodes))
    trace = Trace(calls=calls, modules=(root,), setting=Setting())
    return trace, {WHOLE: whole, **{node.key: node for node in nodes}}


def _call(key: str, level: Level, node: Node) -> Call:
    settings: dict[str, Any] = dict(node.attrs)
    return Call(
        key=key, parent=None, level=level, target=str(node.op), module=0, settings=settings
    )


def _with_roles(count: Counted | Uncounted, results: frozenset[str]) -> Node:
    node = count.node
    if not any(spec is not None and spec.name in results for spec in node.outputs):
        return node
    outputs = tuple(
        msgspec.structs.replace(spec, role="output") if spec and spec.name in results else spec
        for spec in node.outputs
    )
    return msgspec.structs.replace(node, outputs=outputs)
