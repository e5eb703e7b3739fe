"""Read and write notes in a file: for which operations of a framework its nodes were written.

A converter writes one operation as many nodes, which cost what that operation does
(`crossflops.ir.graph.ConversionAnnotation`). Of the nodes alone nobody can tell it. So an export
gives each of them a number, `crossflops.operation` in the metadata of the node, and notes in the
metadata of the model, `crossflops.operations`, what stands behind the numbers, in JSON:

    {"version": 1, "operations": {"3": {"<digest>": [{"op": ["jax", "sort", 1],
     "inputs": [["input_0", "float32", [3, 16]]], "outputs": ..., "attrs": {"dimension": 1}}]}}}

The digest is that of all nodes with the number: their operators, attributes, types and shapes, in
no order and without names. A loop that is counted run by run may have several of them. Names,
order, external data and a function around the nodes leave it as it is. Where a program removed,
merged or changed one of the nodes, they are counted as what they are.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from crossflops.frontends.converted import nodes_digest
from crossflops.frontends.onnx.binding import warn_about_file
from crossflops.frontends.onnx.graph import NUMBER
from crossflops.ir.graph import (
    NO_CONVERSION,
    Attribute,
    ConversionAnnotation,
    Graph,
    Node,
    Op,
    TensorSpec,
)
from crossflops.load.order import node_subgraphs, onnx_node_label
from crossflops.load.payload import tensor_dims_problem
from crossflops.load.protobuf import parse_model_proto

KEY = "crossflops.operations"  # in the metadata of the model
_VERSION = 1
_MOST = 3  # operations that are named


class NotedTensor(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A noted operand or result of an operation."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    role: str = ""
    storage: str = ""


class NotedOperation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A noted operation, with all that its cost depends on."""

    op: tuple[str, str, int]
    inputs: tuple[NotedTensor | None, ...] = ()
    outputs: tuple[NotedTensor | None, ...] = ()
    attrs: dict[str, Any] = {}
    values: dict[int, tuple[int, ...]] = {}

    def as_node(self, key: str) -> Node:
        """Return the noted operation as a node with this key, so that it can be counted."""
        return Node(
            key=key,
            op=Op(*self.op),
            inputs=tuple(map(_spec_from_note, self.inputs)),
            outputs=tuple(map(_spec_from_note, self.outputs)),
            attrs={name: _attribute_from_note(value) for name, value in self.attrs.items()},
            values=dict(self.values),
        )


class OperationNotes(msgspec.Struct, frozen=True, kw_only=True):
    """All notes on operations in a file, by operation number and digest of its nodes."""

    version: int
    operations: dict[str, dict[str, tuple[NotedOperation, ...]]]


def _spec_from_note(noted: NotedTensor | None) -> TensorSpec | None:
    """Return the tensor spec of a noted operand or result, or None if it is omitted."""
    if noted is None:
        return None
    return TensorSpec(noted.name, noted.dtype, noted.shape, noted.role, noted.storage)


def _attribute_from_note(value: Any) -> Attribute:
    """Return an attribute that was read from JSON as a node has it: a list becomes a tuple."""
    return tuple(value) if isinstance(value, list) else value


# What an export writes.


def note_operations(data: bytes, graph: Graph) -> bytes:
    """Return an ONNX model with notes on the framework operations of its nodes."""
    groups = list(_groups_by_operation(graph.nodes))
    if not groups:
        return data
    model = parse_model_proto(data)
    written = _nodes_by_name(model.graph)
    numbers: dict[str, str] = {}  # by the name of a node
    operations: dict[str, dict[str, tuple[NotedOperation, ...]]] = {}
    for nodes in groups:
        names = [node.key.partition("@")[0] for node in nodes]
        if not written.keys() >= set(names):
            continue  # several nodes have such a name: these are counted as what they are
        number = numbers.get(names[0], str(len(operations)))
        numbers |= dict.fromkeys(names, number)
        stands = (row for node in nodes for row in node.conversion.stands_for or ())
        operations.setdefault(number, {})[nodes_digest(nodes)] = tuple(
            map(_operation_note, stands)
        )
    for name, number in numbers.items():
        written[name].metadata_props.add(key=NUMBER, value=number)
    notes = OperationNotes(version=_VERSION, operations=operations)
    model.metadata_props.add(key=KEY, value=msgspec.json.encode(notes).decode())
    return bytes(model.SerializeToString())


def _groups_by_operation(nodes: Iterable[Node]) -> Iterator[list[Node]]:
    """Yield the nodes in groups, one for each framework operation that they were written for."""
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        if not node.is_operation_of_model:
            groups.setdefault(node.conversion.written_for or node.key, []).append(node)
        else:
            for body in node.bodies:
                yield from _groups_by_operation(body.nodes)
    yield from groups.values()


def _nodes_by_name(graph: Any) -> dict[str, Any]:
    """Return nodes by name, also those in subgraphs, without names that several nodes have."""
    by_name: dict[str, Any] = {}
    times: Counter[str] = Counter()
    levels = [graph]
    while levels:
        for number, node in enumerate(levels.pop().node):
            name = onnx_node_label(node, number)
            by_name[name] = node
            times[name] += 1
            levels += node_subgraphs(node)
    return {name: node for name, node in by_name.items() if times[name] == 1}


def _operation_note(node: Node) -> NotedOperation:
    """Return the note of a node's operation: operator, operands, results and attributes."""
    return NotedOperation(
        op=(node.op.domain, node.op.type, node.op.since),
        inputs=tuple(map(_note_tensor, node.inputs)),
        outputs=tuple(map(_note_tensor, node.outputs)),
        attrs=dict(node.attrs),
        values=node.values,
    )


def _note_tensor(spec: TensorSpec | None) -> NotedTensor | None:
    """Return the note of an operand or result, or None if it is omitted."""
    if spec is None:
        return None
    return NotedTensor(spec.name, spec.dtype, spec.shape, spec.role, spec.storage)


# What a file says of its operations, and whether that still holds.


def read_operation_notes(model: Any, path: str) -> OperationNotes | None:
    """Return the notes on operations in a ModelProto, or None if there are none.

    Warns of unreadable notes.
    """
    text = next((entry.value for entry in model.metadata_props if entry.key == KEY), None)
    if text is None:
        return None
    try:
        notes = msgspec.json.decode(text, type=OperationNotes)
    except (msgspec.MsgspecError, RecursionError):
        notes = None
    if notes is None or notes.version != _VERSION or not _has_possible_shapes(notes):
        warn_about_file(
            path,
            "the notes of crossflops on operations in this file cannot be read; the nodes that "
            "a converter wrote are counted instead",
        )
        return None
    return notes


def _has_possible_shapes(notes: OperationNotes) -> bool:
    """Return whether all noted shapes are possible: not negative, not too large."""
    rows = (
        row for known in notes.operations.values() for stored in known.values() for row in stored
    )
    shapes = (tensor.shape for row in rows for tensor in (*row.inputs, *row.outputs) if tensor)
    return not any(tensor_dims_problem(shape) for shape in shapes if shape is not None)


def with_noted_operations(
    graph: Graph, notes: OperationNotes, without_run: Graph | None = None
) -> tuple[Graph, str]:
    """Return the graph with the noted operations at its nodes, and a warning ("" if none).

    The first node that an output depends on has the cost of all. `without_run` is the graph
    without observed sizes, which change no node. Returns the graph, and a sentence about
    operations whose nodes have changed since, "" where there are none.
    """
    walk = _NotedWalk(notes)
    nodes = walk.place_operations((without_run or graph).nodes)
    altered = [number for number in notes.operations if number not in walk.numbers]
    altered = list(dict.fromkeys((*altered, *walk.altered)))
    if without_run is not None:
        nodes = _NotedWalk(notes, trusted=walk.numbers.difference(altered)).place_operations(
            graph.nodes
        )
    sentence = _describe_altered_nodes(altered, notes) if altered else ""
    return msgspec.structs.replace(graph, nodes=nodes), sentence


def _describe_altered_nodes(altered: Sequence[str], notes: OperationNotes) -> str:
    """Return a warning that nodes of these operations were changed after the file was written."""
    known = (notes.operations.get(number, {}) for number in altered)
    names = dict.fromkeys(
        f"{row.op[0]}.{row.op[1]}"
        for variants in known
        for stored in variants.values()
        for row in stored
    )
    more = len(names) - _MOST
    listed = ", ".join(list(names)[:_MOST]) + (f" and {more} others" if more > 0 else "")
    return (
        f"nodes of {len(altered)} of {len(notes.operations)} operations were changed after "
        f"crossflops wrote the file ({listed or 'unknown'}); the changed nodes are counted"
    )


class _NotedWalk:
    """A walk that gives nodes their noted operations, also in bodies, which stay shared."""

    def __init__(self, notes: OperationNotes, trusted: Container[str] = ()) -> None:
        """Take the notes of a file, and the operation numbers that are trusted unchecked."""
        self._operations, self._trusted = notes.operations, trusted
        self._bodies: dict[int, tuple[Graph, Graph]] = {}
        self.numbers: set[str] = set()
        self.altered: list[str] = []

    def place_operations(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return the nodes with the noted operations that they were written for."""
        groups: dict[tuple[str, str], list[Node]] = {}
        for node in nodes:
            if node.conversion.written_for:
                groups.setdefault(_number_and_run(node), []).append(node)
        meant = {key: self._match_operations(key[0], stored) for key, stored in groups.items()}
        first = {
            key: next((node for node in stored if not node.dead), stored[0])
            for key, stored in groups.items()
        }
        placed = []
        for node in nodes:
            key = _number_and_run(node)
            operations = meant.get(key)
            if operations is None:
                placed.append(self._with_operations_in_bodies(node))
                continue
            stands = tuple(row.as_node(node.key) for row in operations)
            conversion = ConversionAnnotation(
                stands_for=stands if node is first[key] else (), written_for="@".join(key)
            )
            placed.append(msgspec.structs.replace(node, conversion=conversion))
        return tuple(placed)

    def _match_operations(
        self, number: str, nodes: list[Node]
    ) -> tuple[NotedOperation, ...] | None:
        """Return the noted operations of these nodes, or None if the nodes were changed since."""
        self.numbers.add(number)
        variants = self._operations.get(number, {})
        known = variants.get(nodes_digest(nodes))
        if known is None and number in self._trusted and len(variants) == 1:
            (known,) = variants.values()
        if known is None:
            self.altered.append(number)
        return known

    def _with_operations_in_bodies(self, node: Node) -> Node:
        """Return a node without an own operation, with those of the nodes in its bodies."""
        bodies = tuple(map(self._place_operations_in_body, node.bodies))
        same = all(new is old for new, old in zip(bodies, node.bodies, strict=True))
        if same and node.conversion == NO_CONVERSION:
            return node
        return msgspec.structs.replace(node, bodies=bodies, conversion=NO_CONVERSION)

    def _place_operations_in_body(self, body: Graph) -> Graph:
        """Return a body with the noted operations at its nodes; each body is copied once."""
        if id(body) not in self._bodies:
            nodes = self.place_operations(body.nodes)
            same = all(new is old for new, old in zip(nodes, body.nodes, strict=True))
            made = body if same else msgspec.structs.replace(body, nodes=nodes)
            self._bodies[id(body)] = body, made  # held, so that no other has its id
        return self._bodies[id(body)][1]


def _number_and_run(node: Node) -> tuple[str, str]:
    """Return a node's operation number, and the iteration of an unrolled loop that it is in (""
    if it is in none).
    """
    return node.conversion.written_for, node.key.partition("@")[2]
