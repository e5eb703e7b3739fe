"""A subgraph of a .tflite file -> a graph and the table of its modules."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec

from crossflops.errors import InputError
from crossflops.frontends.converted import (
    all_nested_nodes,
    parameter_size_fields,
    with_graph_identity,
)
from crossflops.frontends.dependence import mark_constant_nodes
from crossflops.frontends.onnx.binding import shape_text, warn_about_file
from crossflops.frontends.onnx.liveness import mark_dead_nodes, without_dead_nodes
from crossflops.frontends.onnx.modules import NodePlace, build_module_table
from crossflops.frontends.onnx.parameters import WEIGHTS
from crossflops.frontends.tflite.file import TfliteFile
from crossflops.frontends.tflite.operators import write_operator_nodes
from crossflops.frontends.tflite.reading import (
    TfliteModel,
    TfliteOperator,
    TfliteSubgraph,
    read_tflite_model,
)
from crossflops.frontends.tflite.sizes import with_inferred_sizes
from crossflops.frontends.tflite.writer import OPSET, TfliteToGraphWriter
from crossflops.ir.graph import Control, Graph, Node, TensorSpec
from crossflops.ir.trace import Module, Parameter, Setting, Trace

_MOST_NESTED = 50  # subgraphs in subgraphs; a file that calls itself has no end


class _ConvertedSubgraph(NamedTuple):
    """A subgraph as a graph, with the place of each of its own nodes."""

    graph: Graph
    places: list[NodePlace]


def build_tflite_graph(
    file: TfliteFile, control: Control, setting: Setting
) -> tuple[Graph, Trace]:
    """Return the graph of the subgraph that a file's signature runs, and its modules.

    Raises TargetError, MissingExtraError, InputError, NormalizeError.
    """
    model = read_tflite_model(Path(file.path))
    index = file.subgraph_index(model)
    body = _subgraph_as_graph(model, index, Path(file.path).stem, control, "", 0)
    _warn_of_open_sizes(file, model, index)
    _check_control_keys(body.graph, control)
    graph = _with_signature_names(body.graph, model.input_names.get(index, {}), model, index)
    inputs = [spec.name for spec in graph.inputs]
    graph = mark_constant_nodes(graph, inputs)
    graph = without_dead_nodes(mark_dead_nodes(graph, [spec.name for spec in graph.outputs]))
    modules = _with_module_weights(build_module_table(body.places, graph.name), graph)
    sizes = parameter_size_fields(modules)
    trace = Trace(calls=(), modules=modules, setting=setting, framework="tflite")
    return with_graph_identity(graph, graph.name, **sizes), trace


def check_tflite_inputs(file: TfliteFile, specs: Sequence[TensorSpec]) -> None:
    """Raise InputError for a shape that is not the one which the file fixes for an input."""
    model = read_tflite_model(Path(file.path))
    index = file.subgraph_index(model)
    subgraph, names = model.subgraphs[index], model.input_names.get(index, {})
    known = {
        names.get(at) or subgraph.tensors[at].name: subgraph.tensors[at] for at in subgraph.inputs
    }
    for spec in specs:
        position = int(spec.name) if spec.name.isdecimal() and spec.name not in known else -1
        name = spec.name if not 0 <= position < len(known) else list(known)[position]
        if name not in known:
            raise InputError(
                f"the file has no input {spec.name!r}",
                f"its inputs are: {', '.join(known)}"
                if known
                else "leave out --input: the file has no inputs",
            )
        if spec.shape != known[name].shape:
            fixed = shape_text(known[name].shape)
            raise InputError(
                f"the sizes of a .tflite file cannot be changed: input {name!r} is {fixed}, "
                f"but --input gives {shape_text(spec.shape)}",
                "leave out --input, or convert the model for these sizes",
            )


def _warn_of_open_sizes(file: TfliteFile, model: TfliteModel, index: int) -> None:
    """Warn of inputs whose sizes the file leaves open, which are counted as 1."""
    subgraph = model.subgraphs[index]
    opened = [subgraph.tensors[at] for at in subgraph.inputs if subgraph.tensors[at].open_axes]
    if opened:
        shapes = ", ".join(f"{tensor.name} {shape_text(tensor.shape)}" for tensor in opened)
        warn_about_file(
            file.path,
            f"the file does not fix all input sizes; these sizes are counted as 1: {shapes}",
        )


def _subgraph_as_graph(
    model: TfliteModel, subgraph_index: int, name: str, control: Control, prefix: str, depth: int
) -> _ConvertedSubgraph:
    """Return a subgraph as a graph, with the modules of its nodes."""
    if depth > _MOST_NESTED or not 0 <= subgraph_index < len(model.subgraphs):
        raise InputError(
            f"subgraph number {subgraph_index} is missing in the file, calls itself, or is nested "
            f"deeper than {_MOST_NESTED} subgraphs",
            "the file is damaged: convert the model again",
        )
    subgraph = with_inferred_sizes(model.subgraphs[subgraph_index])
    writer = TfliteToGraphWriter(subgraph, prefix)
    for number, operator in enumerate(subgraph.operators):
        if all(subgraph.tensors[at].values is not None for at in operator.outputs):
            continue  # shapes that are known, which nothing computes
        writer.start_nodes_of_operator(number, operator)
        if operator.kind in ("IF", "WHILE", "CALL_ONCE") and not operator.is_custom:
            _write_if_or_while(writer, model, number, control, depth)
        else:
            write_operator_nodes(writer)
    graph = Graph(
        name=name,
        nodes=tuple(writer.nodes),
        inputs=tuple(
            _set_value_role(writer.value_of_tensor(at), "input") for at in subgraph.inputs
        ),
        outputs=tuple(
            _set_value_role(writer.value_of_tensor(at), "output") for at in subgraph.outputs
        ),
        params=0,
        opset={"": OPSET},
    )
    return _ConvertedSubgraph(graph, writer.places)


def _write_if_or_while(
    writer: TfliteToGraphWriter, model: TfliteModel, number: int, control: Control, depth: int
) -> None:
    """Write IF with both branches, or WHILE with its condition in front of its body.

    CALL_ONCE initializes variables before the first run, which no run repeats.
    """
    operator = writer.current_operator
    if operator.kind == "CALL_ONCE":
        return
    key = f"{writer.prefix}{operator.kind.lower()}_{number}"
    outputs = [writer.value_of_tensor(at) for at in operator.outputs]
    inputs = [writer.value_of_tensor(at) for at in operator.inputs]

    def graph_of_option(option: str) -> Graph:
        """Return the graph of the subgraph that an option names."""
        at, name = int(operator.option_value(option)), option.removesuffix("SubgraphIndex").lower()
        return _subgraph_as_graph(model, at, name, control, f"{key}/{name}/", depth + 1).graph

    if operator.kind == "IF":
        branches = {
            "then": graph_of_option("ThenSubgraphIndex"),
            "else": graph_of_option("ElseSubgraphIndex"),
        }
        chosen = control.branches.get(key, "")
        bodies = (branches[chosen],) if chosen in branches else tuple(branches.values())
        writer.add_node("If", inputs, outputs, bodies=bodies)
        if chosen:
            choice = "asked" if chosen in branches else "sum"
            writer.nodes[-1] = msgspec.structs.replace(writer.nodes[-1], choice=choice)
        return
    condition, inner = graph_of_option("CondSubgraphIndex"), graph_of_option("BodySubgraphIndex")
    trips = control.trips.get(key, _trip_count(writer, model, operator))
    writer.add_node(
        "Loop",
        (None, None, *inputs),
        outputs,
        bodies=(_loop_body_with_condition(condition, inner),),
        trips=trips,
    )


def _loop_body_with_condition(condition: Graph, body: Graph) -> Graph:
    """Return the body of a Loop, which also computes whether the loop continues.

    ONNX asks after each run, TFLite before: there it is asked once more, which is one comparison.
    """
    names = {spec.name: own.name for spec, own in zip(condition.inputs, body.inputs, strict=True)}
    condition = _rename_values(condition, names)
    step = TensorSpec(f"{body.name}:step", "int64", ())
    goes_on = TensorSpec(f"{body.name}:goes_on", "bool", ())
    return msgspec.structs.replace(
        body,
        nodes=(*condition.nodes, *body.nodes),
        inputs=(step, goes_on, *body.inputs),
        outputs=(*condition.outputs[:1], *body.outputs),
    )


def _trip_count(
    writer: TfliteToGraphWriter, model: TfliteModel, operator: TfliteOperator
) -> int | None:
    """Return how often a WHILE runs that counts to a constant in steps of 1, None for others."""
    condition = model.subgraphs[int(operator.option_value("CondSubgraphIndex"))]
    body = model.subgraphs[int(operator.option_value("BodySubgraphIndex"))]
    limits = [
        _counter_limit(writer, condition, body, operator, row)
        for row in _conjunct_operators(condition, condition.outputs[0])
    ]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known and len(known) == len(limits) else None


def _conjunct_operators(condition: TfliteSubgraph, index: int) -> list[TfliteOperator]:
    """Return the operators all of whose results must hold for a tensor to hold."""
    maker = next((row for row in condition.operators if index in row.outputs), None)
    if maker is None:
        return []
    if maker.kind == "LOGICAL_AND":
        return [row for at in maker.inputs for row in _conjunct_operators(condition, at)]
    return [maker]


def _counter_limit(
    writer: TfliteToGraphWriter,
    condition: TfliteSubgraph,
    body: TfliteSubgraph,
    operator: TfliteOperator,
    test: TfliteOperator,
) -> int | None:
    """Return after how many runs a counter in steps of 1 reaches its limit, None if unknown."""
    if test.kind != "LESS" or test.inputs[0] not in condition.inputs:
        return None
    at = condition.inputs.index(test.inputs[0])
    own = body.inputs[at]
    steps = next((row for row in body.operators if body.outputs[at] in row.outputs), None)
    if steps is None or steps.kind != "ADD" or own not in steps.inputs:
        return None
    added = next((operand for operand in steps.inputs if operand != own), own)
    if body.tensors[added].values != (1,):
        return None
    limit = test.inputs[1]
    end = condition.tensors[limit].values
    if limit in condition.inputs:
        position = condition.inputs.index(limit)
        is_kept = body.outputs[position] == body.inputs[position]
        end = (
            writer.tensor_or_copied_constant(operator.inputs[position]).values if is_kept else None
        )
    begin = writer.tensor_or_copied_constant(operator.inputs[at]).values
    if begin is None or end is None or len(begin) != 1 or len(end) != 1:
        return None
    return max(end[0] - begin[0], 0)


def _check_control_keys(graph: Graph, control: Control) -> None:
    """Raise InputError for a loop or a branch that the file does not have."""
    for flag, kind, thing, named in (
        ("--trips", "Loop", "loop", control.trips),
        ("--branch", "If", "branch", control.branches),
    ):
        keys = [node.key for node in all_nested_nodes(graph.nodes) if node.op.type == kind]
        for name in named:
            if name not in keys:
                raise InputError(
                    f"{flag} names {name!r}, but the file has no such {thing}",
                    f"write one of: {', '.join(keys)}" if keys else f"leave out {flag}",
                )


def _with_signature_names(
    graph: Graph, names: Mapping[int, str], model: TfliteModel, index: int
) -> Graph:
    """Return the graph with inputs under the names that the signature has for them."""
    indices = model.subgraphs[index].inputs
    own = [names.get(at) or model.subgraphs[index].tensors[at].name for at in indices]
    renamed = {
        spec.name: name
        for spec, name in zip(graph.inputs, own, strict=True)
        if own.count(name) == 1
    }
    return _rename_values(graph, renamed)


def _rename_values(graph: Graph, names: Mapping[str, str]) -> Graph:
    """Return the graph with values renamed, also in bodies."""

    def with_new_value_name(spec: TensorSpec | None) -> TensorSpec | None:
        """Return the value with its new name, if it has one."""
        if spec is None or spec.name not in names:
            return spec
        return msgspec.structs.replace(spec, name=names[spec.name])

    def with_renamed_operands(node: Node) -> Node:
        """Return the node with its operands renamed."""
        return msgspec.structs.replace(
            node,
            inputs=tuple(map(with_new_value_name, node.inputs)),
            outputs=tuple(map(with_new_value_name, node.outputs)),
        )

    return msgspec.structs.replace(
        graph,
        nodes=tuple(map(with_renamed_operands, graph.nodes)),
        inputs=tuple(with_new_value_name(spec) or spec for spec in graph.inputs),
        outputs=tuple(with_new_value_name(spec) or spec for spec in graph.outputs),
    )


def _set_value_role(spec: TensorSpec, role: str) -> TensorSpec:
    """Return a value with this role, unless it is a constant."""
    return spec if spec.role else msgspec.structs.replace(spec, role=role)


# The parameters: constants of floats or quantized numbers, of more than one element.


def _with_module_weights(modules: tuple[Module, ...], graph: Graph) -> tuple[Module, ...]:
    """Return the modules with the weights that their nodes are the first to read."""
    by_path: dict[str, list[Parameter]] = {}
    storages = count()
    for path, spec in _iterate_weights(graph):
        name = spec.name.rpartition("#")[0]
        parameter = Parameter(name, spec.shape or (), next(storages), spec.dtype)
        by_path.setdefault(path, []).append(parameter)
    return tuple(
        msgspec.structs.replace(row, params=tuple(by_path.get(row.path, ()))) for row in modules
    )


def _iterate_weights(graph: Graph) -> Iterator[tuple[str, TensorSpec]]:
    """Yield each weight once, with the module of the first node that reads it.

    A constant elsewhere, such as the state with which a loop begins, is not a parameter.
    """
    known: set[str] = set()
    for top in graph.nodes:
        for node in all_nested_nodes((top,)):
            for at in WEIGHTS.get(node.op.type, ()):
                spec = node.inputs[at] if at < len(node.inputs) else None
                if spec is not None and spec.role == "parameter" and spec.name not in known:
                    known.add(spec.name)
                    yield top.path, spec
