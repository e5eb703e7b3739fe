"""Build the graph that is counted from a weightless model whose shapes are known."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import msgspec

from crossflops.frontends.converted import graph_digest
from crossflops.frontends.onnx.binding import inputs_given_by_caller
from crossflops.frontends.onnx.forms import (
    Objection,
    operands_objection,
    unknown_operator_objection,
)
from crossflops.frontends.onnx.functions import Calls, operands_from_dtypes
from crossflops.frontends.onnx.inference import PIN
from crossflops.frontends.onnx.loops import (
    BRANCHES,
    RAN,
    Level,
    active_branch,
    graph_level,
    is_onnx_operator,
    loop_trip_count,
    subgraph_of_attribute,
)
from crossflops.frontends.onnx.modules import NodePlace, node_places
from crossflops.frontends.onnx.parameters import Size, total_weight_size, weight_bytes_by_type
from crossflops.frontends.onnx.shapes import OBJECTION
from crossflops.frontends.onnx.types import (
    Type,
    attribute_values,
    graph_value_types,
    initializer_types,
)
from crossflops.frontends.onnx.values import Value
from crossflops.ir.graph import (
    NO_CONVERSION,
    ConversionAnnotation,
    Graph,
    Node,
    Op,
    TensorSpec,
)
from crossflops.load.order import attribute_subgraphs, onnx_node_label
from crossflops.load.payload import ELEMENT_TYPES, has_typed_field_data
from crossflops.load.protobuf import newest_operator_version, schema_since_version
from crossflops.operators import find_operator_rule

Choice: TypeAlias = Literal["", "constant", "asked", "seen", "sum", "function"]
NUMBER = "crossflops.operation"  # of the operation that a node was written for, in its metadata


class Reading(msgspec.Struct, frozen=True):
    """The facts for building a file's graph: operator sets, the caller's options, functions.

    `trips` and `branches` are by node name. In a `flat` model no node has a body. `bodies` are the
    functions called so far, by unit. `noted` means that nodes may have numbers of the operations
    that they were written for.
    """

    opset: dict[str, int]
    editions: Mapping[str, dict[str, int]]
    trips: Mapping[str, int]
    branches: Mapping[str, str]
    calls: Calls | None = None
    flat: bool = False
    bodies: dict[str, Graph] = {}
    noted: bool = False


def take_module_notes(graph: Any, noted: bool = False) -> list[NodePlace]:
    """Return each node's module, and remove the exporter's notes on modules, in place.

    In files of PyTorch's exporter the notes are the larger part, which is not copied through
    ONNX's inference. Numbers of operations stay where there are any.
    """
    placed = node_places(graph.node, _graph_value_specs(graph, initializer_types(graph)))
    for node in graph.node:
        number = noted and _operation_number(node)
        node.ClearField("metadata_props")
        if number:
            node.metadata_props.add(key=NUMBER, value=number)
    return placed


def _operation_number(node: Any) -> str:
    """Return the number that an export noted at a node for its source operation, or ""."""
    return next((entry.value for entry in node.metadata_props if entry.key == NUMBER), "")


def _conversion_annotation(node: Any) -> ConversionAnnotation:
    """Return the annotation with the number of a node's source operation, or an empty one."""
    number = _operation_number(node)
    return ConversionAnnotation(written_for=number) if number else NO_CONVERSION


def build_graph(
    model: Any,
    types: dict[str, Type],
    name: str,
    bindings: dict[str, int],
    reading: Reading,
    placed: list[NodePlace] | None = None,
) -> tuple[Graph, list[NodePlace]]:
    """Return the graph of a model whose values have these types, and the module of each node.

    The modules are read unless they are given as `placed`.
    """
    specs = _graph_value_specs(model.graph, types)
    placed = node_places(model.graph.node, specs) if placed is None else placed
    inputs = [tensor.name for tensor in inputs_given_by_caller(model.graph)]
    graph = Graph(
        name=name,
        nodes=_level_nodes(graph_level(model.graph, types=types), specs, placed, reading),
        inputs=tuple(_with_role(specs[name], "input") for name in inputs if name in specs),
        outputs=tuple(
            _with_role(specs[o.name], "output") for o in model.graph.output if o.name in specs
        ),
        params=0,
        opset=reading.opset,
        bindings=bindings,
        listed=frozenset(t.name for t in model.graph.initializer if has_typed_field_data(t)),
    )
    return graph, placed


def with_weight_size(graph: Graph, weights: Mapping[str, Mapping[str, Size]]) -> Graph:
    """Return the graph with the number and bytes of its weights, and with its digest."""
    params, param_bytes, _ = total_weight_size(weights)
    return msgspec.structs.replace(
        graph,
        params=params,
        param_bytes=param_bytes,
        param_bytes_by_type=weight_bytes_by_type(weights),
        digest=graph_digest(graph),
    )


def check_operands(key: str, node: Any, types: Mapping[str, Type], reading: Reading) -> None:
    """Raise OperandError if an operator does not accept the types or shapes of its operands."""
    op = _operator_instance(node.domain, node.op_type, _node_opset_version(node, reading))
    known, specs = (
        find_operator_rule(op),
        {name: _value_spec(name, kind, False) for name, kind in types.items()},
    )
    if known is not None:
        inputs = tuple(specs.get(name) or _unknown_value_spec(name) for name in node.input)
        known.check_operands(
            Node(key=key, op=op, inputs=inputs, outputs=(), attrs=attribute_values(node.attribute))
        )


def _graph_value_specs(graph: Any, types: Mapping[str, Type]) -> dict[str, TensorSpec]:
    """Return the tensor specs of the values that have a type, by name."""
    stored = {tensor.name for tensor in graph.initializer}
    return {name: _value_spec(name, kind, name in stored) for name, kind in types.items() if name}


def _value_spec(name: str, kind: Type, stored: bool) -> TensorSpec:
    """Return the spec of a value; a stored one has the role "parameter" (floats) or "constant"."""
    dtype = ELEMENT_TYPES.get(kind.dtype, "")
    role = ""
    if stored:
        role = "parameter" if dtype.startswith(("float", "bfloat")) else "constant"
    return TensorSpec(name, dtype, kind.shape, role)


def _with_role(spec: TensorSpec, role: str) -> TensorSpec:
    """Return a copy of a tensor spec with this role."""
    return msgspec.structs.replace(spec, role=role)


def _level_nodes(
    enclosing: Level,
    specs: Mapping[str, TensorSpec],
    node_places: list[NodePlace],
    reading: Reading,
) -> tuple[Node, ...]:
    """Return the nodes of one graph, each with its operands, its module and its bodies."""
    nodes = []
    full = _whole_number_values(enclosing.values)
    pinned = any(tensor.name.endswith(PIN) for tensor in enclosing.graph.initializer)
    for number, (node, index) in enumerate(zip(enclosing.graph.node, node_places, strict=True)):
        bodies: tuple[Graph, ...] = ()
        choice: Choice = ""
        # each look at a field of a message makes an object: one for each field
        read, results, written = node.input[:], node.output[:], node.attribute[:]
        if reading.calls is not None and reading.calls.is_function_call(node):
            bodies, choice = (_build_function_graph(node, enclosing, specs, reading),), "function"
        elif written and not reading.flat and attribute_subgraphs(written):
            names, choice = _branches_and_choice(node, enclosing, reading.branches)
            bodies = _build_body_graphs(node, names, enclosing, specs, index, reading)
        provided = [name.removesuffix(PIN) for name in read] if pinned else read
        version = _node_opset_version(node, reading)
        op, attrs = (
            _operator_instance(node.domain, node.op_type, version),
            attribute_values(written),
        )
        # of a version that is not known here, of which the reader is warned, nothing is said
        checked = choice != "function" and version <= newest_operator_version(op.domain)
        outputs = tuple([specs.get(name) or _unknown_value_spec(name) for name in results])
        plain = len(attrs) == len(written)  # whose names need not be read again
        labels: Collection[str] = attrs if plain else [item.name for item in written]
        wrong = _node_objection(node, version, labels, outputs) if checked else Objection()
        nodes.append(
            Node(
                key=onnx_node_label(node, number),
                op=op,
                inputs=tuple([specs.get(name) or _unknown_value_spec(name) for name in provided]),
                outputs=outputs,
                attrs=attrs,
                values={at: full[name] for at, name in enumerate(read) if name in full}
                | _integral_float_operands(op, read, enclosing.values),
                path=index.innermost_module_path,
                bodies=bodies,
                trips=loop_trip_count(node, enclosing, reading.trips) if bodies else None,
                choice=choice,
                conversion=_conversion_annotation(node) if reading.noted else NO_CONVERSION,
                objection=wrong.problem
                or _inference_objection(node)
                or _resize_scale_problem(node, op, enclosing),
                remedy=wrong.remedy,
            )
        )
    return tuple(nodes)


def _inference_objection(node: Any) -> str:
    """Return the problem that shape inference noted at a node, or ""."""
    notes = node.metadata_props
    return str(notes[-1].value) if notes and notes[-1].key == OBJECTION else ""


def _resize_scale_problem(node: Any, op: Op, enclosing: Level) -> str:
    """Return a text on why onnxruntime rejects the scales of a Resize or Upsample, or "".

    onnxruntime/core/providers/cpu/tensor/upsamplebase.h: ScalesValidation.
    """
    if op.domain or op.type not in ("Resize", "Upsample"):
        return ""
    index = 2 if op.type == "Resize" and op.since >= 11 else 1
    stored = enclosing.values.get(node.input[index]) if index < len(node.input) else None
    written = next(
        (attribute.floats for attribute in node.attribute if attribute.name == "scales"), ()
    )
    least = min(stored.items if stored else written, default=1)
    if op.type == "Upsample" and least < 1:
        return f"a scale is {least:g}, but Upsample needs at least 1"
    return f"a scale is {least:g}, but Resize needs more than 0" if least <= 0 else ""


def _node_objection(
    node: Any, version: int, names: Collection[str], results: Sequence[TensorSpec | None]
) -> Objection:
    """Return the problem with a node's inputs and attribute names (empty if there is none).

    An operator of other versions is counted where the file says which sizes its results have.
    """
    domain, name = node.domain, node.op_type
    wrong = operands_objection(domain, name, version, node.input[:], names)
    if not wrong.problem and any(spec is not None and spec.shape is None for spec in results):
        return unknown_operator_objection(domain, name, version)
    return wrong


def _whole_number_values(values: Mapping[str, Value]) -> dict[str, tuple[int, ...]]:
    """Return those of the values that are vectors or scalars of integers, by name."""
    full = {
        name: tuple(item for item in value.items if isinstance(item, int))
        for name, value in values.items()
        if value.rank in (0, 1)
    }
    return {name: items for name, items in full.items() if len(items) == len(values[name].items)}


def _integral_float_operands(
    op: Op, read: Sequence[str], values: Mapping[str, Value]
) -> dict[int, tuple[int, ...]]:
    """Return by index the known floats that an operator reads as integers, such as bits."""
    known = find_operator_rule(op)
    if known is None or not known.numbers:
        return {}
    there = [at for at in known.numbers if at < len(read) and read[at] in values]
    floats = {at: values[read[at]] for at in there}
    return {
        at: tuple(map(int, value.items))
        for at, value in floats.items()
        if value.rank in (0, 1) and all(item == int(item) for item in value.items)
    }


def _unknown_value_spec(name: str) -> TensorSpec | None:
    """Return the spec of a value without a known type; None for an omitted one (name "")."""
    return TensorSpec(name, "", None) if name else None


def _subgraph_specs(
    values: Iterable[Any], specs: Mapping[str, TensorSpec]
) -> tuple[TensorSpec, ...]:
    """Return the specs of a subgraph's inputs or outputs (`values`)."""
    names = [value.name for value in values if value.name]
    return tuple(specs.get(name) or TensorSpec(name, "", None) for name in names)


def _node_opset_version(node: Any, reading: Reading) -> int:
    """Return the version of the operator set that a node's operator is from."""
    imports = reading.opset
    if reading.editions and node.name in reading.editions:
        imports = reading.editions[node.name]
    domain = node.domain
    return imports.get(domain, reading.opset.get(domain, 1))


@lru_cache(maxsize=1024)
def _operator_instance(domain: str, name: str, version: int) -> Op:
    """Return the operator of this version; all nodes share one object."""
    return Op(domain, name, schema_since_version(domain, name, version))


def _branches_and_choice(
    node: Any, enclosing: Level, branches: Mapping[str, str]
) -> tuple[tuple[str, ...], Choice]:
    """Return the attributes of a node's counted subgraphs, and why an If's branch is chosen."""
    if not is_onnx_operator(node, "If"):
        return tuple(attribute.name for attribute in node.attribute if attribute.HasField("g")), ""
    stated = branches.get(node.name)
    chosen = active_branch(node, enclosing, branches)
    if not chosen:
        return BRANCHES, "" if stated is None else "sum"
    if stated is None:
        return (chosen,), "constant"
    return (chosen,), "seen" if stated.startswith(RAN) else "asked"


def _build_body_graphs(
    node: Any,
    names: Iterable[str],
    enclosing: Level,
    specs: Mapping[str, TensorSpec],
    location: NodePlace,
    reading: Reading,
) -> tuple[Graph, ...]:
    """Return the subgraphs in these attributes of a node as graphs."""
    bodies = []
    for name in names:
        proto = subgraph_of_attribute(node, name)
        if proto is None:
            continue
        types = graph_value_types(proto)
        inside = {**specs, **_graph_value_specs(proto, types)}
        within = [
            _subgraph_node_place(inner, location) for inner in node_places(proto.node, inside)
        ]
        nodes = _level_nodes(graph_level(proto, enclosing, types), inside, within, reading)
        bodies.append(
            Graph(
                name=name,
                nodes=nodes,
                inputs=_subgraph_specs(proto.input, inside),
                outputs=_subgraph_specs(proto.output, inside),
                params=0,
                opset=reading.opset,
            )
        )
    return tuple(bodies)


def _build_function_graph(
    node: Any, enclosing: Level, specs: Mapping[str, TensorSpec], reading: Reading
) -> Graph:
    """Return the function that a node calls as a graph; calls with equal operands share it."""
    assert reading.calls is not None
    provided = {name: specs.get(name) or TensorSpec(name, "", None) for name in node.input if name}
    types = {name: (spec.dtype, spec.shape) for name, spec in provided.items()}
    unit = reading.calls.function_unit(node, operands_from_dtypes(node, types, enclosing.values))
    if unit.name not in reading.bodies:
        graph = unit.model.graph
        known = unit.types
        inside = _graph_value_specs(graph, known)
        there = msgspec.structs.replace(
            reading, opset=reading.calls.opset_of_called_function(node), editions={}
        )
        reading.bodies[unit.name] = Graph(
            name=unit.name,
            nodes=_level_nodes(
                graph_level(graph, types=known), inside, node_places(graph.node, inside), there
            ),
            inputs=tuple(inside.get(name, TensorSpec(name, "", None)) for name in unit.inputs),
            outputs=_subgraph_specs(graph.output, inside),
            params=0,
            opset=there.opset,
        )
    return reading.bodies[unit.name]


def _subgraph_node_place(inner: NodePlace, outer: NodePlace) -> NodePlace:
    """Return the module of a node in a subgraph, given that and the module of the outer node."""
    return (
        outer
        if not inner.innermost_module_path
        or inner.innermost_module_path.startswith(outer.innermost_module_path) is False
        else inner
    )
