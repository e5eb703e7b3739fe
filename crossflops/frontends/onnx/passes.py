"""The passes from an ONNX file to its graph and the table of its modules, in their order."""

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
    with_size,
    without_notes,
)
from crossflops.frontends.onnx.liveness import leave_out_dead, mark_dead
from crossflops.frontends.onnx.modules import NodePlace, build_module_table, with_parameters
from crossflops.frontends.onnx.parameters import ARGUMENT, Size, weight_sizes_by_node
from crossflops.frontends.onnx.remarks import warn_of_empty, warn_of_newer
from crossflops.frontends.onnx.shapes import ImpossibleShapeError, InferenceRequest, infer_shapes
from crossflops.frontends.onnx.types import Type
from crossflops.frontends.passes import (
    Pass,
    Passes,
    PassGroup,
    Pipeline,
    Snapshot,
    fact_set,
    look_at,
)
from crossflops.frontends.quantization import mark_value_storage
from crossflops.ir.graph import Graph
from crossflops.ir.trace import Trace
from crossflops.threads import filter_warnings

if TYPE_CHECKING:
    from crossflops.frontends.onnx.kept import LoopOfFile
    from crossflops.frontends.onnx.noted_operations import OperationNotes
    from crossflops.frontends.onnx.noted_parameters import ParameterNotes

_STORED_APART = 4  # the first version of ONNX's IR in which an initializer need not be an input


class FileReading(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an ONNX file while it is turned into a graph.

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
        """The graph, after the pass that makes it."""
        assert self.graph is not None
        return self.graph


def file_snapshot(state: FileReading) -> Snapshot:
    """Return the nodes of the present graph or file, for the log of passes."""
    if state.graph is not None or state.model is None:
        return look_at(state.graph, state.trace)
    from crossflops.frontends.logged_nodes import nodes_of_proto

    nodes = dict(nodes_of_proto(state.model.graph))
    return Snapshot(nodes, look_at(None, state.trace).values)


def _replace_reading_fields(state: FileReading, **fields: Any) -> FileReading:
    """Return the state with these fields replaced."""
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
    """Read the model from the file."""
    return _replace_reading_fields(state, model=state.read())


def _read_notes(state: FileReading) -> FileReading:
    """Read the operations and parameters that crossflops noted in the file's metadata, if any."""
    if not state.model.metadata_props:  # as in most files
        return state
    from crossflops.frontends.onnx.noted_operations import read_operation_notes
    from crossflops.frontends.onnx.noted_parameters import read_parameter_notes

    model, path = state.model, state.file.path
    operations = read_operation_notes(model, path)
    return _replace_reading_fields(
        state, notes=read_parameter_notes(model, path), operations=operations
    )


def _bind(state: FileReading) -> FileReading:
    """Bind the open input sizes of the model to the caller's sizes."""
    graph, file = state.model.graph, state.file
    before = _input_size_declarations(graph)
    bound = binding.bind(graph, file.dims, file.specs, file.path)
    return _replace_reading_fields(
        state,
        bound=bound,
        kept=all(map(_has_declared_sizes, before, _input_size_declarations(graph))),
    )


def _input_size_declarations(graph: Any) -> list[list[int | None]]:
    """Return the sizes of each input that are numbers, None for the others."""
    return [
        [
            dim.dim_value if dim.WhichOneof("value") == "dim_value" else None
            for dim in value.type.tensor_type.shape.dim
        ]
        for value in binding.model_inputs(graph)
    ]


def _has_declared_sizes(declared: list[int | None], bound: list[int | None]) -> bool:
    """Return whether a bound input keeps all sizes that the file declared."""
    return len(declared) <= len(bound) and all(map(_is_declared_size, declared, bound))


def _is_declared_size(declared: int | None, bound: int | None) -> bool:
    """Return whether a bound size equals the declared one, or none was declared."""
    return declared in (None, bound)


def _raise_version(state: FileReading) -> FileReading:
    """Raise the model's IR version so that inference reads initializers that are not inputs.

    onnxruntime allows them in any version.
    """
    state.model.ir_version = max(state.model.ir_version, _STORED_APART)
    return state


def _read_opsets(state: FileReading) -> FileReading:
    """Collect the operator set versions, and warn if they are newer than supported."""
    opset = {imported.domain: imported.version for imported in state.model.opset_import}
    warn_of_newer(state.file.path, opset)
    return _replace_reading_fields(state, opset=opset)


def _inline_file_functions(state: FileReading) -> FileReading:
    """Inline calls of local functions, unless there are too many nodes or they are kept apart."""
    model, local = state.model, functions.local(state.model)
    separate = bool(local) and not (
        state.file.inlined and functions.size_after_inlining(model, local) <= functions.LIMIT
    )
    editions = {} if separate else functions.inline_function_calls(model, local)
    return _replace_reading_fields(state, local=local, apart=separate, editions=editions)


def _name_control(state: FileReading) -> FileReading:
    """Turn the caller's loop counts and branch choices into options by node name."""
    stored = loops.holders(_graphs(state))
    asked = loops.control_by_node_name(stored, state.file.control)
    return _replace_reading_fields(
        state, wanted=InferenceRequest(*asked, flat=not (stored or state.apart))
    )


def _graphs(state: FileReading) -> Iterator[tuple[str, Any]]:
    """Yield the main graph and the separate local functions, each with the prefix of its names."""
    yield "", state.model.graph
    if state.apart:
        yield from ((f"{function.name}/", function) for function in state.local.values())


def _add_observed(state: FileReading) -> FileReading:
    """Add the loop counts and branches of an observed run to the options, if there is a run."""
    if state.file.seen is None:
        return state
    requested = shapes.merge_observed_control(state.model.graph, state.wanted, state.file.seen)
    return _replace_reading_fields(state, wanted=requested)


def _call_functions(state: FileReading) -> FileReading:
    """Remove separate functions from the model, to infer each once per kind of call."""
    if not state.apart:
        return state
    copies = {
        key: type(function).FromString(function.SerializeToString())
        for key, function in state.local.items()
    }
    del state.model.functions[:]

    def infer(unit: Any) -> tuple[Any, dict[str, Type]]:
        """Infer the shapes of a function's model; return the model and its types by value name."""
        return infer_shapes(unit, {}, nested, trusted=False)

    nested = state.wanted._replace(calls=Calls(copies, state.opset, infer))
    return _replace_reading_fields(state, wanted=nested, local={})


def _take_notes(state: FileReading) -> FileReading:
    """Remove the exporter's notes from a flat graph, and keep the modules that they name."""
    if not state.wanted.flat:
        return state
    noted = state.operations is not None
    return _replace_reading_fields(state, placed=without_notes(state.model.graph, noted))


def _find_loops(state: FileReading) -> FileReading:
    """Find the loops that are unrolled later, to restore them for tools."""
    if state.file.inlined:
        return state
    from crossflops.frontends.onnx.kept import loops_of  # of tools alone

    return _replace_reading_fields(state, loops=loops_of(state.model.graph))


def _infer_file_shapes(state: FileReading) -> FileReading:
    """Infer the shape of every value of the model. Raises ImpossibleShapeError."""
    ran = shapes.types(state.file.seen)
    try:
        inferred, types = infer_shapes(state.model, state.bound, state.wanted, state.kept, ran)
    except ImpossibleShapeError as error:
        check_operands(error.key, error.node, error.types, _reading(state))
        raise
    # in place: the functions that are apart have the same table
    state.opset.update((stored.domain, stored.version) for stored in inferred.opset_import)
    return _replace_reading_fields(state, model=inferred, types=types)


def _reading(state: FileReading) -> Reading:
    """Return the operator sets and the caller's options for building the graph."""
    noted = state.operations is not None
    return Reading(state.opset, state.editions, *state.wanted, noted=noted)


# From these to the graph.


def _build_file_graph(state: FileReading) -> FileReading:
    """Build the graph that is counted from the inferred model, with the modules of its nodes."""
    model = state.model
    name = model.graph.name or Path(state.file.path).stem
    graph, placed = build_graph(
        model, state.types, name, state.bound, _reading(state), state.placed
    )
    return _replace_reading_fields(
        state,
        model=None,
        types={},
        graph=graph,
        placed=placed,
        inputs=[tensor.name for tensor in binding.model_inputs(model.graph)],
        results=[output.name for output in model.graph.output],
    )


def _file_graph_rewrite(
    change: Callable[[Graph, FileReading], Graph],
) -> Callable[[FileReading], FileReading]:
    """Return a pass that rewrites only the graph of the state."""
    return lambda state: _replace_reading_fields(state, graph=change(state.current_graph, state))


def _mark_file_constants(graph: Graph, state: FileReading) -> Graph:
    """Mark the nodes that depend on no input of the model."""
    return mark_constant_nodes(graph, state.inputs, ARGUMENT)


def _mark_file_storage(graph: Graph, state: FileReading) -> Graph:
    """Mark the values that are views of the storage of others."""
    return mark_value_storage(graph)


def _count_file_parameters(state: FileReading) -> FileReading:
    """Count the parameters and their bytes, each storage once, and add them to the graph."""
    weights = weight_sizes_by_node(state.current_graph.nodes)
    return _replace_reading_fields(
        state, weights=weights, graph=with_size(state.current_graph, weights)
    )


def _warn_of_empty_results(state: FileReading) -> FileReading:
    """Warn if the file's graph has results without elements."""
    warn_of_empty(state.file.path, state.current_graph)
    return state


def _list_modules(state: FileReading) -> FileReading:
    """Build the table of the modules with their parameters, and add it to the trace."""
    graph, placed = state.current_graph, state.placed or []
    if state.notes is None:
        modules = with_parameters(build_module_table(placed, graph.name), graph, state.weights)
    else:
        from crossflops.frontends.onnx.noted_parameters import parameter_places, with_noted

        rows = build_module_table([*placed, *parameter_places(state.notes)], graph.name)
        graph, modules = with_noted(graph, rows, state.notes)
    trace = msgspec.structs.replace(state.trace, modules=modules)
    return _replace_reading_fields(state, graph=graph, trace=trace)


def _mark_dead(graph: Graph, state: FileReading) -> Graph:
    """Mark the nodes that no output depends on, if the file has any."""
    return mark_dead(graph, state.results) if state.has_dead else graph


def _apply_operation_notes(graph: Graph, state: FileReading) -> Graph:
    """Give nodes the framework operations noted in the file, which are counted instead of them."""
    if state.operations is None:
        return graph
    from crossflops.frontends.onnx.noted_operations import stand_for_noted

    graph, sentence = stand_for_noted(graph, state.operations, state.alone)
    if sentence and state.file.inlined:  # of what tools see it was said before
        binding.warn_about_file(state.file.path, sentence)
    return graph


def _restore_loops(graph: Graph, state: FileReading) -> Graph:
    """Replace the unrolled copies of loops by one node for each loop, for tools."""
    if state.loops is None:
        return graph
    from crossflops.frontends.onnx.kept import with_loops

    return with_loops(graph, state.loops)


def _with_and_without_run(
    state: FileReading, run: Callable[[FileReading], FileReading]
) -> FileReading:
    """Run the next passes; with an observed run, also without it to compare both graphs."""
    made = run(state)
    if state.file.seen is None:
        return made
    without_run = msgspec.structs.replace(state.file, seen=None)
    with filter_warnings("ignore"):
        return _replace_reading_fields(
            made, alone=run(_replace_reading_fields(state, file=without_run)).graph
        )


def _mark_decisions(graph: Graph, state: FileReading) -> Graph:
    """Mark the nodes whose shapes or choices come from the observed run."""
    return shapes.mark_dependent_nodes(graph, state.alone) if state.alone is not None else graph


def _leave_out_dead(graph: Graph, state: FileReading) -> Graph:
    """Remove the dead nodes from the graph."""
    return leave_out_dead(graph)


_INFER: Passes[FileReading] = (
    Pass("read model", _read_file_model, ensures=fact_set(READ, WRITTEN)),
    Pass("read notes", _read_notes, fact_set(WRITTEN), fact_set(NOTES)),
    Pass("bind inputs", _bind, fact_set(READ), fact_set(BOUND)),
    Pass("raise version", _raise_version, fact_set(READ), fact_set(LATER_IR)),
    Pass("read opsets", _read_opsets, fact_set(WRITTEN), fact_set(OPSETS)),
    Pass(
        "inline functions",
        _inline_file_functions,
        fact_set(READ),
        fact_set(FUNCTIONS),
        ends=fact_set(WRITTEN),
    ),
    Pass("name control", _name_control, fact_set(FUNCTIONS), fact_set(CONTROL)),
    Pass("add observed control", _add_observed, fact_set(CONTROL), fact_set(OBSERVED)),
    Pass("call functions", _call_functions, fact_set(OPSETS, OBSERVED), fact_set(CALLED)),
    Pass("take notes of modules", _take_notes, fact_set(NOTES, CONTROL), fact_set(PLACED)),
    Pass("find whole loops", _find_loops, fact_set(FUNCTIONS), fact_set(LOOPS)),
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
        _file_graph_rewrite(_mark_file_storage),
        fact_set(CONSTANT),
        fact_set(STORED),
    ),
    Pass("count parameters", _count_file_parameters, fact_set(STORED), fact_set(SIZED)),
    Pass("warn of empty results", _warn_of_empty_results, fact_set(CONSTANT), fact_set(WARNED)),
    Pass("list modules", _list_modules, fact_set(NOTES, SIZED), fact_set(MODULES)),
    Pass("mark dead", _file_graph_rewrite(_mark_dead), fact_set(GRAPH), fact_set(DEAD)),
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
            _file_graph_rewrite(_mark_decisions),
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
            _file_graph_rewrite(_leave_out_dead),
            fact_set(DECIDED, MEANT),
            fact_set(ALIVE),
        ),
    ),
    look=file_snapshot,
    given=fact_set(),
    wanted=fact_set(WARNED, MODULES, MEANT, ALIVE),
)
