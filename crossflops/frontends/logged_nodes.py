"""Describe nodes that a converter wrote, so that a log can compare them before a graph exists."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from crossflops.load.order import attribute_subgraphs, onnx_node_label

_LONGEST = 64  # bytes of an attribute that are compared as they are


class LoggedNode(msgspec.Struct, frozen=True):
    """A node outside a graph, as texts, so that a log can compare two versions of it."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


def ir_nodes_for_log(nodes: Iterable[Any]) -> Iterator[tuple[str, LoggedNode]]:
    """Yield (key, node) for the nodes of an onnx_ir model, each as a LoggedNode."""
    for number, node in enumerate(nodes):
        yield (
            node.name or f"{node.op_type}_{number}",
            LoggedNode(
                op=node.op_type,
                inputs=tuple("" if value is None else value.name or "" for value in node.inputs),
                outputs=tuple(value.name or "" for value in node.outputs),
                types=tuple(f"{value.dtype}{value.shape}" for value in node.outputs),
                attributes=tuple(map(str, node.attributes.values())),
            ),
        )


def proto_nodes_for_log(graph: Any, enclosing: str = "") -> Iterator[tuple[str, LoggedNode]]:
    """Yield (key, node) for the nodes of a GraphProto and its subgraphs, each as a LoggedNode."""
    types = {value.name: str(value.type) for value in (*graph.value_info, *graph.output)}
    for number, node in enumerate(graph.node):
        key = f"{enclosing}{onnx_node_label(node, number)}"
        yield (
            key,
            LoggedNode(
                op=f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
                inputs=tuple(node.input),
                outputs=tuple(node.output),
                types=tuple(types.get(name, "") for name in node.output),
                attributes=tuple(sorted(map(attribute_comparison_key, node.attribute))),
            ),
        )
        for attribute in node.attribute:
            for body in attribute_subgraphs([attribute]):
                yield from proto_nodes_for_log(body, f"{key}/{attribute.name}/")


def attribute_comparison_key(attribute: Any) -> str:
    """Return a text that is equal for equal ONNX attributes; of a subgraph only the name."""
    if attribute.HasField("g"):
        return str(attribute.name)
    return f"{attribute.name} {brief_message_text(attribute)}"


def brief_message_text(message: Any) -> str:
    """Return a short text of a protobuf message; different messages have different texts."""
    data = message.SerializeToString(deterministic=True)
    return str(data if len(data) <= _LONGEST else hash(data))
