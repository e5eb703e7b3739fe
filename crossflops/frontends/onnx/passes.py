"""List the passes, in their order, from an ONNX file to its graph and table of modules."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.frontends.dependence import mark_constant_nodes
from crossflops.frontends.onnx import binding, functions, loops, shapes
from crossflops.frontends.onnx.binding import OnnxFile
from crossflops.frontends.onnx.functions import Calls
from crossflops.frontends.onnx.graph import (
    Reading,
    build_graph,
    check_operands,
    take_module_notes,
    with_weight_size,
)
from crossflops.frontends.onnx.liveness import mark_dead_nodes, without_dead_nodes
from crossflops.frontends.onnx.modules import NodePlace, build_module_table, with_parameters
from crossflops.frontends.onnx.parameters import ARGUMENT, Size, weight_sizes_by_node
from crossflops.frontends.onnx.remarks import warn_of_empty_tensors, warn_of_newer_opsets
from crossflops.frontends.onnx.shapes import ImpossibleShapeError, InferenceRequest, infer_shapes
from crossflops.frontends.onnx.types import Type
from crossflops.frontends.passes import (
    Pass,
    Passes,
    PassGroup,
    Pipeline,
    Snapshot,
    fact_set,
    take_snapshot,
)
from crossflops.frontends.quantization import mark_value_storage_dtypes
from crossflops.ir.graph import Graph
from crossflops.ir.trace import Trace
from crossflops.threads import filter_warnings

if TYPE_CHECKING:
    from crossflops.frontends.onnx.kept import LoopOfFile
    from crossflops.frontends.onnx.noted_operations import OperationNotes
    from crossflops.frontends.onnx.noted_parameters import ParameterNotes

_STORED_APART = 4  # the first version of ONNX's IR in which an initializer need not be an input


class FileReading(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an ONNX file between the passes that turn it into a graph.

    `read` reads the `model`, which is changed in place and released when the graph exists: no
    other object may hold a part of it. `bound` are the sizes of its inputs, and `kept` means that
    it declared no others. `opset` has the operator sets, `editions` those of single nodes.
    Functions are `local`, and `apart` where they are not inlined; `wanted` holds the options for
    loops and branches. `placed` are the modules of nodes that were read before inference, `loops`
    are those to keep as one node. `weights` are those of nodes, `alone` is the graph without
    observed sizes.
    """

    read: Callable[[], Any]
    file: OnnxFile
    trace: Trace
    has_dead: bool = True
    model: Any = None
    notes: "ParameterNotes | None" = None
    operations: "OperationNotes | None" = None
    bound: dict[str, int] = {}
    kept: bool = True
    opset: dict[str, int] = {}
    local: Mapping[functions.Identity, Any] = {}
    apart: bool = False
    editions: Mapping[str, dict[str, int]] = {}
    wanted: InferenceRequest = InferenceRequest({}, {})
    placed: list[NodePlace] | None = None
    loops: "Mapping[str, LoopOfFile] | None" = None
    types: dict[str, Type] = {}
    inputs: Sequence[str] = ()
    results: Sequence[str] = ()
    weights: Mapping[str, Mapping[str, Size]] = {}
    graph: Graph | None = None
    alone: Graph | None = None

    @property
    def current_graph(self) -> Graph:
        """The graph of the file; a pass must have built it before."""
        assert self.graph is not None
        return self.graph


def file_snapshot(state: FileReading) -> Snapshot:
    """Return the nodes of the graph, or of the model before there is one, for the log."""
    if state.graph is not None or state.model is None:
        return take_snapshot(state.graph, state.trace)
    from crossflops.frontends.logged_nodes import proto_nodes_for_log

    nodes = dict(proto_nodes_for_log(state.model.graph))
    return Snapshot(nodes, take_snapshot(None, state.trace).values)


def _replace_reading_fields(state: FileReading, **fields: Any) -> FileReading:
    """Return a copy of the state with these fields set."""
    return msgspec.structs.replace(state, **fields)


# Facts: what holds of the model, and of the graph.

READ = "there is a model"
WRITTEN = "functions are as the file has them"
NOTES = "what an export noted of parameters and operations is known"
BOUND = "inputs have the sizes that are asked for"
LATER_IR = "what is stored need not be an input"
OPSETS = "operator sets are known"
FUNCTIONS = "functions are inlined, or known to be apart"
CONTROL = "what is said of loops and branches is known"
OBSERVED = "what a run showed of loops and branches is known"
CALLED = "functions that are apart are counted as they are called"
PLACED = "modules that notes tell of are known"
LOOPS = "loops that are to be seen whole are known"
INFERRED = "shapes are known"
GRAPH = "there is a graph"
CONSTANT = "constant nodes are marked"
STORED = "the types in which memory holds values are known"
SIZED = "the graph has its sizes and digest"
WARNED = "empty results are warned of"
MODULES = "there is a table of modules"
DEAD = "dead nodes are marked"
MEANT = "nodes stand for the operations that they were written for"
RESTORED = "unrolled loops are whole where they are to be"
DECIDED = "nodes that depend on a run are marked"
ALIVE = "dead nodes are left out"


# From the file to the model with its shapes.


def _read_file_model(state: FileReading) -> FileReading:
    """Return the state with the model that is read from the file."""
    return _replace_reading_fields(state, model=state.read())


def _read_notes(state: FileReading) -> FileReading:
    """Return the state with the notes in the file on its operations and parameters, if any."""
    if not state.model.metadata_props:  # as in most files
        return state
    from crossflops.frontends.onnx.noted_operations import read_operation_notes
    from crossflops.frontends.onnx.noted_parameters import read_parameter_notes

    model, path = state.model, state.file.path
    operations = read_operation_notes(model, path)
    return _replace_reading_fields(
        state, notes=read_parameter_notes(model, path), operations=operations
    )


def _bind_sizes(state: FileReading) -> FileReading:
    """Return the state with the caller's sizes bound to the model's inputs."""
    graph, file = state.model.graph, state.file
    before = _input_size_declarations(graph)
    bound = binding.bind_input_sizes(graph, file.dims, file.specs, file.path)
    return _replace_reading_fields(
        state,
        bound=bound,
        kept=all(map(_has_declared_sizes, before, _input_size_declarations(graph))),
    )


def _input_size_declarations(graph: Any) -> list[list[int | None]]:
    """Return the declared sizes of each input of the model; None for one that is no number."""
    return [
        [
            dim.dim_value if dim.WhichOneof("value") == "dim_value" else None
            for dim in value.type.tensor_type.shape.dim
        ]
        for value in binding.inputs_given_by_caller(graph)
    ]


def _has_declared_sizes(declared: list[int | None], bound: list[int | None]) -> bool:
    """Return whether an input, once bound, has all the sizes that the file declared."""
    return len(declared) <= len(bound) and all(map(_is_declared_size, declared, bound))


def _is_declared_size(declared: int | None, bound: int | None) -> bool:
    """Return whether a bound size is the declared one, or the file declares none."""
    return declared in (None, bound)


def _increase_old_ir_version(state: FileReading) -> FileReading:
    """Return the state with an IR version in which initializers need not be inputs.

    onnxruntime allows them in any version.
    """
    state.model.ir_version = max(state.model.ir_version, _STORED_APART)
    return state


def _read_opsets(state: FileReading) -> FileReading:
    """Return the state with the model's operator set versions; warn if onnx is older."""
    opset = {imported.domain: imported.version for imported in state.model.opset_import}
    warn_of_newer_opsets(state.file.path, opset)
    return _replace_reading_fields(state, opset=opset)


def _inline_file_functions(state: FileReading) -> FileReading:
    """Return the state with local functions inlined, or noted as separate if too large."""
    model, local = state.model, functions.local_functions(state.model)
    separate = bool(local) and not (
        state.file.inlined and functions.node_count_after_inlining(model, local) <= functions.LIMIT
    )
    editions = {} if separate else functions.inline_function_calls(model, local)
    return _replace_reading_fields(state, local=local, apart=separate, editions=editions)


def _name_nodes_and_resolve_control(state: FileReading) -> FileReading:
    """Return the state with the caller's loop counts and branches by node name."""
    stored = loops.name_nodes_with_bodies(_graphs_with_name_prefix(state))
    asked = loops.control_by_node_name(stored, state.file.control)
    return _replace_reading_fields(
        state, wanted=InferenceRequest(*asked, flat=not (stored or state.apart))
    )


def _graphs_with_name_prefix(state: FileReading) -> Iterator[tuple[str, Any]]:
    """Yield (prefix of node names, graph): the main graph, and local functions not inlined."""
    yield "", state.model.graph
    if state.apart:
        yield from ((f"{function.name}/", function) for function in state.local.values())


def _add_observed_control(state: FileReading) -> FileReading:
    """Return the state with the loop counts and branches of an observed run, if any."""
    if state.file.seen is None:
        return state
    requested = shapes.merge_observed_control(state.model.graph, state.wanted, state.file.seen)
    return _replace_reading_fields(state, wanted=requested)


def _separate_large_functions(state: FileReading) -> FileReading:
    """Return the state with functions that are not inlined outside the model, for inference."""
    if not state.apart:
        return state
    copies = {
        key: type(function).FromString(function.SerializeToString())
        for key, function in state.local.items()
    }
    del state.model.functions[:]

    def infer_function_shapes(unit: Any) -> tuple[Any, dict[str, Type]]:
        """Return a function's model with inferred shapes, and the types of its values by name."""
        return infer_shapes(unit, {}, nested, trusted=False)

    nested = state.wanted._replace(calls=Calls(copies, state.opset, infer_function_shapes))
    return _replace_reading_fields(state, wanted=nested, local={})


def _read_module_notes(state: FileReading) -> FileReading:
    """Return the state with each node's module; remove the exporter's notes, in place."""
    if not state.wanted.flat:
        return state
    noted = state.operations is not None
    return _replace_reading_fields(state, placed=take_module_notes(state.model.graph, noted))


def _find_loops_to_restore(state: FileReading) -> FileReading:
    """Return the state with the file's Loop nodes, if tools are to see them as one node each."""
    if state.file.inlined:
        return state
    from crossflops.frontends.onnx.kept import loop_nodes_by_name  # of tools alone

    return _replace_reading_fields(state, loops=loop_nodes_by_name(state.model.graph))


def _infer_file_shapes(state: FileReading) -> FileReading:
    """Return the state with the shape of each value. Raises ImpossibleShapeError."""
    ran = shapes.types_of_run(state.file.seen)
    try:
        inferred, types = infer_shapes(state.model, state.bound, state.wanted, state.kept, ran)
    except ImpossibleShapeError as error:
        check_operands(error.key, error.node, error.types, _graph_reading(state))
        raise
    # in place: the functions that are apart have the same table
    state.opset.update((stored.domain, stored.version) for stored in inferred.opset_import)
    return _replace_reading_fields(state, model=inferred, types=types)


def _graph_reading(state: FileReading) -> Reading:
    """Return the facts of the state with which a graph is built."""
    noted = state.operations is not None
    return Reading(state.opset, state.editions, *state.wanted, noted=noted)


# From these to the graph.


def _build_file_graph(state: FileReading) -> FileReading:
    """Return the state with the graph that is counted, and the module of each node."""
    model = state.model
    name = model.graph.name or Path(state.file.path).stem
    graph, placed = build_graph(
        model, state.types, name, state.bound, _graph_reading(state), state.placed
    )
    return _replace_reading_fields(
        state,
        model=None,
        types={},
        graph=graph,
        placed=placed,
        inputs=[tensor.name for tensor in binding.inputs_given_by_caller(model.graph)],
        results=[output.name for output in model.graph.output],
    )


def _file_graph_rewrite(
    change: Callable[[Graph, FileReading], Graph],
) -> Callable[[FileReading], FileReading]:
    """Return a pass that replaces the graph of the state by `change(graph, state)`."""
    return lambda state: _replace_reading_fields(state, graph=change(state.current_graph, state))


def _mark_file_constants(graph: Graph, state: FileReading) -> Graph:
    """Return the graph with marks on nodes that depend on no input of the model."""
    return mark_constant_nodes(graph, state.inputs, ARGUMENT)


def _mark_file_storage_dtypes(graph: Graph, state: FileReading) -> Graph:
    """Return the graph, if quantized, with the dtype in which each value is stored."""
    return mark_value_storage_dtypes(graph)


def _count_file_parameters(state: FileReading) -> FileReading:
    """Return the state with the weights of each node, and their sum in the graph."""
    weights = weight_sizes_by_node(state.current_graph.nodes)
    return _replace_reading_fields(
        state, weights=weights, graph=with_weight_size(state.current_graph, weights)
    )


def _warn_of_empty_results(state: FileReading) -> FileReading:
    """Return the state unchanged; warn if the graph has values without elements."""
    warn_of_empty_tensors(state.file.path, state.current_graph)
    return state


def _list_modules(state: FileReading) -> FileReading:
    """Return the state with the table of modules and their parameters in its trace."""
    graph, placed = state.current_graph, state.placed or []
    if state.notes is None:
        modules = with_parameters(build_module_table(placed, graph.name), graph, state.weights)
    else:
        from crossflops.frontends.onnx.noted_parameters import (
            parameter_places,
            with_noted_parameters,
        )

        rows = build_module_table([*placed, *parameter_places(state.notes)], graph.name)
        graph, modules = with_noted_parameters(graph, rows, state.notes)
    trace = msgspec.structs.replace(state.trace, modules=modules)
    return _replace_reading_fields(state, graph=graph, trace=trace)


def _mark_unused_nodes(graph: Graph, state: FileReading) -> Graph:
    """Return the graph with marks on nodes that no output depends on, if there may be any."""
    return mark_dead_nodes(graph, state.results) if state.has_dead else graph


def _apply_operation_notes(graph: Graph, state: FileReading) -> Graph:
    """Return the graph with the noted operations, which are counted instead of their nodes."""
    if state.operations is None:
        return graph
    from crossflops.frontends.onnx.noted_operations import with_noted_operations

    graph, sentence = with_noted_operations(graph, state.operations, state.alone)
    if sentence and state.file.inlined:  # of what tools see it was said before
        binding.warn_about_file(state.file.path, sentence)
    return graph


def _restore_loops(graph: Graph, state: FileReading) -> Graph:
    """Return the graph with one node for each unrolled loop, if tools are to see it so."""
    if state.loops is None:
        return graph
    from crossflops.frontends.onnx.kept import with_restored_loops

    return with_restored_loops(graph, state.loops)


def _with_and_without_run(
    state: FileReading, apply_passes: Callable[[FileReading], FileReading]
) -> FileReading:
    """Return the state after `apply_passes`. If values of a run of the file were observed, the
    result also has the graph that the passes give without these values, as `alone`.
    """
    made = apply_passes(state)
    if state.file.seen is None:
        return made
    without_run = msgspec.structs.replace(state.file, seen=None)
    with filter_warnings("ignore"):
        return _replace_reading_fields(
            made, alone=apply_passes(_replace_reading_fields(state, file=without_run)).graph
        )


def _mark_nodes_that_run_decided(graph: Graph, state: FileReading) -> Graph:
    """Return the graph with marks on nodes whose shapes or branches come from the run."""
    return (
        shapes.mark_nodes_that_run_changed(graph, state.alone)
        if state.alone is not None
        else graph
    )


def _leave_out_unused_nodes(graph: Graph, state: FileReading) -> Graph:
    """Return the graph without its dead nodes."""
    return without_dead_nodes(graph)


_INFER: Passes[FileReading] = (
    Pass("read model", _read_file_model, ensures=fact_set(READ, WRITTEN)),
    Pass("read notes", _read_notes, fact_set(WRITTEN), fact_set(NOTES)),
    Pass("bind inputs", _bind_sizes, fact_set(READ), fact_set(BOUND)),
    Pass("raise version", _increase_old_ir_version, fact_set(READ), fact_set(LATER_IR)),
    Pass("read opsets", _read_opsets, fact_set(WRITTEN), fact_set(OPSETS)),
    Pass(
        "inline functions",
        _inline_file_functions,
        fact_set(READ),
        fact_set(FUNCTIONS),
        ends=fact_set(WRITTEN),
    ),
    Pass("name control", _name_nodes_and_resolve_control, fact_set(FUNCTIONS), fact_set(CONTROL)),
    Pass("add observed control", _add_observed_control, fact_set(CONTROL), fact_set(OBSERVED)),
    Pass(
        "call functions", _separate_large_functions, fact_set(OPSETS, OBSERVED), fact_set(CALLED)
    ),
    Pass("take notes of modules", _read_module_notes, fact_set(NOTES, CONTROL), fact_set(PLACED)),
    Pass("find whole loops", _find_loops_to_restore, fact_set(FUNCTIONS), fact_set(LOOPS)),
    Pass(
        "infer shapes",
        _infer_file_shapes,
        fact_set(BOUND, LATER_IR, CALLED, PLACED, LOOPS),
        fact_set(INFERRED),
    ),
)
_BUILD: Passes[FileReading] = (
    Pass("build graph", _build_file_graph, fact_set(INFERRED), fact_set(GRAPH)),
    Pass(
        "mark constant",
        _file_graph_rewrite(_mark_file_constants),
        fact_set(GRAPH),
        fact_set(CONSTANT),
    ),
    Pass(
        "mark storage",
        _file_graph_rewrite(_mark_file_storage_dtypes),
        fact_set(CONSTANT),
        fact_set(STORED),
    ),
    Pass("count parameters", _count_file_parameters, fact_set(STORED), fact_set(SIZED)),
    Pass("warn of empty results", _warn_of_empty_results, fact_set(CONSTANT), fact_set(WARNED)),
    Pass("list modules", _list_modules, fact_set(NOTES, SIZED), fact_set(MODULES)),
    Pass("mark dead", _file_graph_rewrite(_mark_unused_nodes), fact_set(GRAPH), fact_set(DEAD)),
    Pass(
        "restore loops",
        _file_graph_rewrite(_restore_loops),
        fact_set(DEAD, MODULES),
        fact_set(RESTORED),
    ),
)
PIPELINE = Pipeline(
    room="crossflops.frontends.onnx",
    passes=(
        PassGroup("with and without a run", _with_and_without_run, (*_INFER, *_BUILD)),
        Pass(
            "mark decisions",
            _file_graph_rewrite(_mark_nodes_that_run_decided),
            fact_set(RESTORED),
            fact_set(DECIDED),
        ),
        Pass(
            "stand for noted operations",
            _file_graph_rewrite(_apply_operation_notes),
            fact_set(NOTES, DECIDED),
            fact_set(MEANT),
        ),
        Pass(
            "leave out dead",
            _file_graph_rewrite(_leave_out_unused_nodes),
            fact_set(DECIDED, MEANT),
            fact_set(ALIVE),
        ),
    ),
    look=file_snapshot,
    given=fact_set(),
    wanted=fact_set(WARNED, MODULES, MEANT, ALIVE),
)
