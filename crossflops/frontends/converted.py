"""Describe a graph that a converter wrote: source operations of its nodes, and its hash."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from crossflops.errors import InputError
from crossflops.ir.graph import Attribute, ConversionAnnotation, Graph, Node, Op, TensorSpec
from crossflops.ir.trace import Module, Parameter, Scalar, StepSetting
from crossflops.ir.training import is_trained
from crossflops.operators import find_operator_rule

# hashlib loads OpenSSL, which takes longer than to hash a model: as Lib/random.py, this looks for
# the lean module first, which has one name since Python 3.12 and another one before.
try:
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from hashlib import sha256


class ConvertedOperation(msgspec.Struct, frozen=True):
    """An operation of a framework's own program, from which a converter wrote nodes."""

    op: Op
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    settings: Mapping[str, Scalar] = {}
    operand_names: tuple[str, ...] = ()

    def as_node(self, key: str) -> Node:
        """Return the operation as a node of a graph with this key, so that it can be counted."""
        return Node(
            key=key,
            op=self.op,
            inputs=self.inputs,
            outputs=self.outputs,
            attrs={
                name: _to_node_attribute(value)
                for name, value in self.settings.items()
                if value is not None
            },
            operand_names=self.operand_names,
        )


def has_known_cost(domain: str, name: str) -> bool:
    """Return whether there is a cost rule for this operation of a framework."""
    return find_operator_rule(Op(domain, name, 1)) is not None


def _to_node_attribute(value: Scalar) -> Attribute:
    """Return a setting of a trace as an attribute of a node: a list becomes a tuple."""
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]


def with_notes_of_source_operations(
    nodes: tuple[Node, ...], operation: Callable[[Node], tuple[str, ConvertedOperation] | None]
) -> tuple[Node, ...]:
    """Return copies of the nodes, each with a note of the source operation that it was written
    for; the first node of an operation, or the one that is the operation itself, stands for its
    whole cost, the others for none.

    `operation` returns the identity and the operation that a node was written for, None where it
    was written for none.
    """
    meanings = {node.key: operation(node) for node in nodes}
    holders: dict[str, Node] = {}  # by the identity of an operation: the node with its cost
    for node in nodes:
        if (meaning := meanings[node.key]) is not None:
            identity, meant = meaning
            known = holders.setdefault(identity, node)
            if not _is_operator_of(known, meant) and _is_operator_of(node, meant):
                holders[identity] = node

    def with_source_operation_note(node: Node) -> Node:
        """Return the node, or the nodes of its bodies, with a note of the source operation."""
        meaning = meanings[node.key]
        if meaning is not None:
            identity, meant = meaning
            stands = (meant.as_node(node.key),) if holders[identity] is node else ()
            conversion = ConversionAnnotation(stands_for=stands, written_for=identity)
            return msgspec.structs.replace(node, conversion=conversion)
        bodies = tuple(
            msgspec.structs.replace(
                body, nodes=with_notes_of_source_operations(body.nodes, operation)
            )
            for body in node.bodies
        )
        return msgspec.structs.replace(node, bodies=bodies) if bodies else node

    return tuple(with_source_operation_note(node) for node in nodes)


def _is_operator_of(node: Node, operation: ConvertedOperation) -> bool:
    """Return whether a node has the operator of a source operation."""
    return (node.op.domain, node.op.type) == (operation.op.domain, operation.op.type)


def with_parameter_names(graph: Graph, names: Mapping[str, str]) -> Graph:
    """Return the graph with its weights renamed to the names of the model's parameters.

    `names` are the names of parameters by those of stored tensors.
    """

    def rename_spec(spec: TensorSpec | None) -> TensorSpec | None:
        """Return the tensor's spec with the parameter's name, if it is a weight."""
        if spec is None or spec.name not in names:
            return spec
        return msgspec.structs.replace(spec, name=names[spec.name])

    def rename_node_inputs(node: Node) -> Node:
        """Return the node with the weights among its inputs renamed, also those in its bodies."""
        bodies = tuple(with_parameter_names(body, names) for body in node.bodies)
        return msgspec.structs.replace(
            node, inputs=tuple(map(rename_spec, node.inputs)), bodies=bodies
        )

    functions = (
        msgspec.structs.replace(
            stored,
            operands={
                index: tuple(rename_spec(spec) or spec for spec in specs)
                for index, specs in stored.operands.items()
            },
        )
        for stored in graph.functions
    )
    return msgspec.structs.replace(
        graph, nodes=tuple(map(rename_node_inputs, graph.nodes)), functions=tuple(functions)
    )


def trainable_parameter_names(modules: Iterable[Module], step: StepSetting) -> set[str]:
    """Return the names of all parameters that a step trains; a tied one has several names."""
    names: dict[int, set[str]] = {}
    stored: dict[int, Parameter] = {}
    for row in modules:
        for path in row.names:
            for parameter in row.params:
                name = f"{path}.{parameter.name}".removeprefix(".")
                names.setdefault(parameter.storage, set()).add(name)
                stored[parameter.storage] = parameter

    return {
        name
        for storage, parameter in stored.items()
        if is_trained(names[storage], parameter.trainable, step)
        for name in names[storage]
    }


# What identifies a graph: the name and the parameters of its model, and its structure.


def parameter_size_fields(modules: Iterable[Module]) -> dict[str, Any]:
    """Return fields of a graph: number and bytes of all parameters, shared storage once."""
    stored = {stored_value.storage: stored_value for row in modules for stored_value in row.params}
    by_type: dict[str, int] = {}
    for stored_value in stored.values():
        by_type[stored_value.dtype] = by_type.get(stored_value.dtype, 0) + stored_value.nbytes
    return {
        "param_bytes_by_type": by_type,
        "params": sum(stored_value.numel for stored_value in stored.values()),
        "param_bytes": sum(stored_value.nbytes for stored_value in stored.values()),
    }


LARGEST = 1 << 30  # bytes of weights in the file of a converter; protobuf holds 2 GiB


def require_weights_fit_in_file(nbytes: int) -> None:
    """Raise InputError if weights of `nbytes` bytes are too large for a converter's file."""
    if nbytes > LARGEST:
        raise InputError(
            f"the weights take {nbytes} bytes, but a converted file can have at most {LARGEST}",
            "count the model itself, or export it with --to model-explorer, without weights",
        )


def with_graph_identity(graph: Graph, name: str, **sizes: Any) -> Graph:
    """Return the graph with the name and sizes of its model, and the hash of its structure."""
    graph = msgspec.structs.replace(graph, name=name, **sizes)
    return msgspec.structs.replace(graph, digest=graph_digest(graph))


def graph_digest(graph: Graph) -> str:
    """Return a hash (16 hex digits) of a graph's operators, attributes and shapes, in order."""
    return _graph_digest_with_cache(graph, {})


def _graph_digest_with_cache(graph: Graph, functions: dict[int, str]) -> str:
    """Return a hash of a graph's nodes; `functions` caches the hashes of function bodies."""
    encode = msgspec.json.Encoder().encode
    hashed = sha256(b"[")
    for index, node in enumerate(graph.nodes):  # a list of all rows would be the graph once more
        hashed.update(b"," if index else b"")
        hashed.update(encode(_node_digest_row(node, functions)))
    hashed.update(b"]")
    written: str = hashed.hexdigest()
    return written[:16]


def nodes_digest(nodes: Iterable[Node]) -> str:
    """Return a hash of the operators, attributes and shapes of nodes; their order is ignored."""
    encode = msgspec.json.Encoder().encode
    functions: dict[int, str] = {}
    return hash_text(
        b"\n".join(sorted(encode(_node_digest_row(node, functions)) for node in nodes)).decode()
    )


def hash_text(text: str) -> str:
    """Return a short hash of a text."""
    written: str = sha256(text.encode()).hexdigest()
    return written[:16]


def _node_digest_row(node: Node, functions: dict[int, str]) -> tuple[Any, ...]:
    """Return the values of a node to hash: operator, attributes, dtypes, shapes and bodies."""
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
            functions[id(body)] = _graph_digest_with_cache(body, functions)
        return (*row, functions[id(body)])
    inner = [
        [_node_digest_row(stored, functions) for stored in body.nodes] for body in node.bodies
    ]
    return (*row, str(node.trips), inner)


# What the frontends of several frameworks read alike.


def plain_layer_settings(
    attributes: Iterable[tuple[str, Any]], left_out: Container[str] = ()
) -> dict[str, Scalar]:
    """Return a layer's public attributes by name that are plain values or tuples of numbers."""
    settings: dict[str, Scalar] = {}
    for name, value in attributes:
        if name.startswith("_") or name in left_out:
            continue
        if isinstance(value, tuple) and all(isinstance(item, int | float) for item in value):
            settings[name] = list(value)
        elif value is None or isinstance(value, bool | int | float | str):
            settings[name] = value
    return settings


def with_node_marks(graph: Graph, calls: Container[str], **marks: Any) -> Graph:
    """Return the graph with the fields `marks` set on the nodes of these calls."""
    nodes = (
        msgspec.structs.replace(node, **marks) if node.call in calls else node
        for node in graph.nodes
    )
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def all_nested_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield all nodes, also those in bodies; a node precedes the nodes in its bodies.

    A body that several nodes share, as callers of a function do, is read once: functions that call
    each other twice would take exponential time. Levels are kept on a stack, as bodies may be
    deeply nested.
    """
    read: set[int] = set()
    levels = [iter(nodes)]
    while levels:
        node = next(levels[-1], None)
        if node is None:
            levels.pop()
            continue
        yield node
        for body in reversed(node.bodies):
            if id(body) not in read:
                read.add(id(body))
                levels.append(iter(body.nodes))
