"""Sort nodes into an order in which every value is computed before it is used."""

from collections.abc import Iterable, Sequence
from typing import Any

from crossflops.errors import TargetError

_GRAPHS = 10  # AttributeProto.AttributeType


def onnx_node_label(node: Any, index: int) -> str:
    """Return the name of a node, or its operator and position if it has no name."""
    return node.name or f"{node.op_type}_{index}"


def value_names_read_by_node(node: Any) -> set[str]:
    """Return the names of values that a node reads, also outer values read by its subgraphs."""
    names = {name for name in node.input if name}
    for body in node_subgraphs(node):
        made = {value.name for value in body.input} | {part.name for part in body.initializer}
        made.update(part.values.name for part in body.sparse_initializer)
        inner: set[str] = {value.name for value in body.output if value.name}
        for part in body.node:
            inner |= value_names_read_by_node(part)
            made.update(part.output)
        names |= inner - made
    return names


def node_subgraphs(node: Any) -> Sequence[Any]:
    """Return the subgraphs in a node's attributes, such as branches of an If, in their order."""
    return attribute_subgraphs(node.attribute[:])


def attribute_subgraphs(attributes: Iterable[Any]) -> Sequence[Any]:
    """Return the subgraphs in these attributes, in their order."""
    graphs: list[Any] = []
    for attribute in attributes:
        if attribute.HasField("g"):
            graphs.append(attribute.g)
        elif attribute.type == _GRAPHS:
            graphs += attribute.graphs
    return graphs


def sort_topologically(nodes: list[Any], outer_values: set[str]) -> list[Any]:
    """Return the nodes in topological order, with few changes to their present order.

    Raises TargetError, which names the node, when one reads what nothing makes, or its own result.
    """
    maker = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    waiting: list[int] = []
    readers: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        needed = {
            maker[name]
            for name in _value_names_from_other_nodes(node, number, maker, outer_values)
        }
        waiting.append(len(needed))
        for earlier in needed:
            readers.setdefault(earlier, []).append(number)
    ready = [number for number, count in enumerate(waiting) if not count]
    done: list[int] = []
    while ready:
        done.append(number := ready.pop())
        for reader in readers.get(number, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    if len(done) < len(nodes):
        stuck = min(set(range(len(nodes))) - set(done))
        raise TargetError(
            f"node {onnx_node_label(nodes[stuck], stuck)!r} depends on its own result",
            "remove the cycle: export the model again, with a Loop for parts that are repeated",
        )
    return [nodes[number] for number in done]


def _value_names_from_other_nodes(
    node: Any, number: int, maker_index_by_value: dict[str, int], known: set[str]
) -> list[str]:
    """Return the names of values that a node reads from other nodes. Raises TargetError."""
    requested = sorted(value_names_read_by_node(node) - known)
    missing = next((name for name in requested if name not in maker_index_by_value), None)
    if missing is not None:
        raise TargetError(
            f"node {onnx_node_label(node, number)!r} reads {missing!r}, which no node or "
            "input provides",
            "the file is damaged or incomplete; export the model again",
        )
    return requested
