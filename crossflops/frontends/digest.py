"""What identifies the structure of a graph."""

import hashlib
from typing import Any

import msgspec

from crossflops.ir.graph import Graph, Node


def digest(graph: Graph) -> str:
    """A hash of the structure: operators, attributes and shapes in order. No names, no weights."""
    return _digest(graph, {})


def _digest(graph: Graph, functions: dict[int, str]) -> str:
    rows = [_row(node, functions) for node in graph.nodes]
    return hashlib.sha256(msgspec.json.encode(rows)).hexdigest()[:16]


def _row(node: Node, functions: dict[int, str]) -> tuple[Any, ...]:
    row = (
        str(node.op),
        sorted((key, repr(value)) for key, value in node.attrs.items()) if node.attrs else [],
        [(s.dtype, s.shape) if s else None for s in node.inputs],
        [(s.dtype, s.shape) if s else None for s in node.outputs],
    )
    if not node.bodies:
        return row
    if node.choice == "function":
        (body,) = node.bodies
        if id(body) not in functions:
            functions[id(body)] = _digest(body, functions)
        return (*row, functions[id(body)])
    inner = [[_row(one, functions) for one in body.nodes] for body in node.bodies]
    return (*row, str(node.trips), inner)
