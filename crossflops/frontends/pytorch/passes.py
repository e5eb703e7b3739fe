"""The passes from a recorded run of a PyTorch model to its graph, in their order."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.frontends.converted import (
    parameter_size_fields,
    with_graph_identity,
    with_parameter_names,
)
from crossflops.frontends.dependence import mark_constant_nodes
from crossflops.frontends.logged_nodes import LoggedNode, ir_nodes_for_log
from crossflops.frontends.passes import (
    Pass,
    Passes,
    PassGroup,
    Pipeline,
    Snapshot,
    fact_set,
    take_snapshot,
)
from crossflops.frontends.pytorch.convert import gradients
from crossflops.frontends.pytorch.convert.exporter import (
    cast_indices_to_int64,
    convert_to_onnx_program,
)
from crossflops.frontends.pytorch.convert.graph import (
    fold_shape_arithmetic,
    model_input_names,
    parameter_aliases,
    to_graph,
    with_sparse_marks,
)
from crossflops.frontends.pytorch.convert.sparse import (
    replace_sparse_operators,
    sparse_operator_translations,
)
from crossflops.frontends.pytorch.convert.writing_operators import functionalizing_in_place_writes
from crossflops.frontends.pytorch.load.fakes import faking_grouped_products
from crossflops.frontends.pytorch.load.model import escaping_module_names, suppressing_output
from crossflops.frontends.pytorch.load.stored_types import parameter_bytes_in_file, storage_types
from crossflops.frontends.pytorch.load.tensors import registering_input_containers
from crossflops.frontends.pytorch.record.attention_windows import attention_windows
from crossflops.frontends.pytorch.record.custom_functions import (
    function_index_by_call,
    with_custom_functions,
    without_detach_calls_in_functions,
)
from crossflops.frontends.pytorch.record.data_dependence import (
    exporting_with_real_tensors,
    random_node_values,
    replaying_random_values,
    set_unknown_onnx_shapes,
)
from crossflops.frontends.pytorch.record.dropped_operators import DroppedOperators
from crossflops.frontends.pytorch.record.experts import expert_counts_by_call, idle_parameter_count
from crossflops.frontends.pytorch.record.modules import place_in_source_modules
from crossflops.frontends.pytorch.record.operators import calls_of_dropped_operators
from crossflops.frontends.pytorch.record.recorder import with_node_keys
from crossflops.frontends.pytorch.record.recording import ExportedRun
from crossflops.frontends.pytorch.record.sparse_constants import has_sparse
from crossflops.frontends.quantization import mark_value_storage_dtypes, mark_weight_storage_dtypes
from crossflops.frontends.seeds import seeding_random_generators
from crossflops.ir.graph import Graph
from crossflops.ir.trace import Call, Trace

if TYPE_CHECKING:
    from torch import nn


class Conversion(msgspec.Struct, frozen=True):
    """The state of a recorded run while it is converted to a graph.

    The program of the `recording` is converted, as `functional` without operators that write; the
    exporter's `forms` are those of operators that it does not know, `known` the numbers that a run
    draws. The result is `exported`, changed in place, and its `graph`.

    `inside` are the operator calls in custom functions, by their keys, `graded` all others that
    may cut gradients, by the names of their nodes in the program.
    """

    model: "nn.Module"
    recording: ExportedRun
    trace: Trace
    functional: Any = None
    forms: Mapping[Any, Any] = {}
    known: Mapping[str, Any] = {}
    dropped: DroppedOperators | None = None
    exported: Any = None
    graph: Graph | None = None
    inside: Mapping[str, int] = {}
    graded: Mapping[str, Call] = {}

    @property
    def current_graph(self) -> Graph:
        """The graph of this state; an earlier pass must have built it."""
        assert self.graph is not None
        return self.graph


def torch_conversion_snapshot(state: Conversion) -> Snapshot:
    """Return the nodes and values of a state for the log: of the graph, or of the program if there
    is no graph yet.
    """
    if state.graph is not None:
        return take_snapshot(state.graph, state.trace)
    nodes = (
        _program_log_nodes(state)
        if state.exported is None
        else ir_nodes_for_log(state.exported.model.graph)
    )
    return Snapshot(dict(nodes), take_snapshot(None, state.trace).values)


def _program_log_nodes(state: Conversion) -> Iterator[tuple[str, LoggedNode]]:
    """Yield (name, log entry with operator, inputs and result) for each call in the FX program."""
    program = state.recording.program if state.functional is None else state.functional
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        provided = tuple(stored.name for stored in node.all_input_nodes)
        yield node.name, LoggedNode(str(node.target), provided, (str(node.meta.get("val")),))


def _with_torch_fields(state: Conversion, **fields: Any) -> Conversion:
    """Return the state of the conversion with these fields replaced."""
    return msgspec.structs.replace(state, **fields)


# Facts: what holds of the program, of the exporter's model, and of the graph.

RECORDED = "the program is as it was recorded"
DRAWN = "the numbers that a run draws are known"
DENSE = "the program has no sparse tensors"
FUNCTIONAL = "the program has no operators that write"
EXPORTED = "the program has an ONNX form"
FOLDED = "shape arithmetic is folded"
LONG_PLACES = "indices are of the type that ONNX asks for"
SHAPED = "shapes that depend on values are known"
DROPPED = "operators that no output needs are noted"
GRAPH = "there is a graph"
CONSTANT = "constant nodes are marked"
STORED = "the types in which memory holds values are known"
SPARSE = "nodes with sparse operands are marked"
PROGRAM_NAMES = "weights are called as the program calls them"
MODEL_NAMES = "weights are called as the model calls them"
WEIGHTS_STORED = "the types in which a file stores weights are known"
GROUPED = "operator calls in custom functions are known"
DERIVED = "products that are derived as part of others are marked"
STARTS = "nodes that start gradients are marked"
LOST_STARTS = "gradients that start where no node is are known"
HOOKS = "nodes whose gradient a hook may change are marked"
HANDED_OUT = "nodes whose results a checkpoint hands out are marked"
VIEWS = "nodes that take a view made without gradients are marked"
PASTS = "inputs changed in place know what they were"
SEVERED = "inputs without gradients are known"
FUNCTIONS = "the graph has its custom functions"
LEAVES = "inputs and constants with a gradient are known"
WINDOWS = "the windows of attention are known"
HOOKED_WEIGHTS = "nodes that take a hooked parameter are marked"
TURNED_WEIGHTS = "nodes that take a frozen or trained parameter are marked"
IDENTIFIED = "the graph has its name, sizes and digest"
LINKED = "calls know their nodes"
UNCHOSEN = "products with experts that are not chosen are known"
PLACED = "nodes stand in the modules of the source model"


# From the program to the exporter's model.


def _export_torch_program(
    state: Conversion, run: Callable[[Conversion], Conversion]
) -> Conversion:
    """Run the passes of the export inside the contexts that PyTorch's exporter needs; return the
    new state.
    """
    inputs = state.recording.program.example_inputs
    with (
        suppressing_output(),
        escaping_module_names(),
        faking_grouped_products(),
        registering_input_containers(inputs),
    ):
        return run(state)


def _with_drawn_random_values(state: Conversion) -> Conversion:
    """Return the state with the random values that nodes of the program draw in a run."""
    states = state.recording.drawing
    with seeding_random_generators():
        known = {} if states is None else random_node_values(state.recording.program, states)
    return _with_torch_fields(state, known=known)


def _replace_sparse_in_program(state: Conversion) -> Conversion:
    """Replace the sparse operators of the program, and return the state with their ONNX
    translations.
    """
    if not has_sparse(state.recording.program):
        return state
    replace_sparse_operators(state.recording.program)
    return _with_torch_fields(state, forms={**state.forms, **sparse_operator_translations()})


def _run_on_functional_program(
    state: Conversion, run: Callable[[Conversion], Conversion]
) -> Conversion:
    """Run passes on a copy of the program without operators that write in place; return the new
    state.
    """
    # to the end of this, since the program is run once more where shapes depend on values
    with functionalizing_in_place_writes(state.recording.program) as (program, forms):
        return run(_with_torch_fields(state, functional=program, forms={**state.forms, **forms}))


def _write_torch_onnx(state: Conversion) -> Conversion:
    """Return the state with the ONNX program, and the operators that the export dropped."""
    dropped = DroppedOperators()
    surrounding = exporting_with_real_tensors if state.trace.runtime else nullcontext
    with replaying_random_values(state.known):
        exported = convert_to_onnx_program(state.functional, dropped, state.forms, surrounding)
    return _with_torch_fields(state, exported=exported, dropped=dropped)


def _fold_onnx_shape_arithmetic(state: Conversion) -> Conversion:
    """Fold the shape arithmetic of the ONNX program, and return the state."""
    fold_shape_arithmetic(state.exported)
    return state


def _cast_indices(state: Conversion) -> Conversion:
    """Cast the indices in the ONNX program to int64 where ONNX requires it, and return the
    state.
    """
    cast_indices_to_int64(state.exported.model)
    return state


def _fill_value_dependent_shapes(state: Conversion) -> Conversion:
    """If values decided the trace, set the shapes in the ONNX program that depend on values, by a
    run; return the state.
    """
    if state.trace.runtime:
        with seeding_random_generators():
            set_unknown_onnx_shapes(state.exported, state.known)
    return state


def _with_dropped_calls(state: Conversion) -> Conversion:
    """Return the state with the calls of dropped operators in its trace."""
    assert state.dropped is not None
    dropped = calls_of_dropped_operators(state.dropped, state.recording.operators)
    return _with_torch_fields(state, trace=msgspec.structs.replace(state.trace, dropped=dropped))


# From the exporter's model to the graph.


def _build_torch_graph(state: Conversion) -> Conversion:
    """Return the state with the graph of the ONNX program, with the module path of each node."""
    paths = {call.key: state.trace.modules[call.module].path for call in state.trace.calls}
    return _with_torch_fields(
        state, graph=to_graph(state.exported, state.recording.operators, paths)
    )


def _torch_graph_rewrite(
    change: Callable[[Graph, Conversion], Graph],
) -> Callable[[Conversion], Conversion]:
    """Return a pass that replaces the graph of a state by `change(graph, state)`."""
    return lambda state: _with_torch_fields(state, graph=change(state.current_graph, state))


def _rewrite_by_program(
    change: Callable[[Graph, Any, Mapping[str, Call]], Graph],
) -> Callable[[Conversion], Conversion]:
    """Return a pass that replaces the graph by `change(graph, program, operator calls)`."""
    return _torch_graph_rewrite(
        lambda graph, state: change(graph, state.recording.program, state.graded)
    )


def _rewrite_by_calls(
    change: Callable[[Graph, Mapping[str, Call]], Graph],
) -> Callable[[Conversion], Conversion]:
    """Return a pass that replaces the graph by `change(graph, operator calls)`."""
    return _torch_graph_rewrite(lambda graph, state: change(graph, state.graded))


def _mark_torch_constants(graph: Graph, state: Conversion) -> Graph:
    """Return the graph with a mark at each node whose results do not depend on the model's
    inputs.
    """
    return mark_constant_nodes(graph, model_input_names(state.exported))


def _mark_torch_storage_dtypes(graph: Graph, state: Conversion) -> Graph:
    """Return the graph with the dtypes in which memory holds quantized values."""
    return mark_value_storage_dtypes(graph)


def _mark_sparse(graph: Graph, state: Conversion) -> Graph:
    """Return the graph with a mark at each node that has a sparse operand or result in the
    program.
    """
    return with_sparse_marks(graph, state.recording.program, state.recording.operators)


def _find_calls_inside_custom_functions(state: Conversion) -> Conversion:
    """Return the state with the calls inside custom autograd functions, and the calls that may cut
    gradients.
    """
    run = state.recording
    inside = function_index_by_call(run.operators.values(), run.frames, run.applied)
    return _with_torch_fields(
        state,
        inside=inside,
        graded=without_detach_calls_in_functions(run.operators, run.frames, inside),
    )


def _add_custom_autograd_functions(graph: Graph, state: Conversion) -> Graph:
    """Return the graph with the custom autograd functions that the model applied."""
    run = state.recording
    if not run.applied:
        return graph
    present = {node.call for node in graph.nodes}
    origins = gradients.gradient_sources(run.program, run.operators, present)
    return with_custom_functions(graph, origins, run.operators, state.inside, run.applied)


def _name_torch_weights(graph: Graph, state: Conversion) -> Graph:
    """Return the graph with its weights named as in the model."""
    return with_parameter_names(
        graph, parameter_aliases(state.exported.exported_program, state.model)
    )


def _mark_stored_weight_types(graph: Graph, state: Conversion) -> Graph:
    """Mark the graph's weights with the types in which a file stores them, if it has others."""
    return mark_weight_storage_dtypes(graph, storage_types(state.model))


def _add_gradient_leaves(graph: Graph, state: Conversion) -> Graph:
    """Return the graph with the inputs and constants that have a gradient among its `starts`."""
    return msgspec.structs.replace(graph, starts={**graph.starts, **state.recording.leaves})


def _add_attention_windows(graph: Graph, state: Conversion) -> Graph:
    """Return the graph with the sliding windows (in keys) of the model's attention modules."""
    return msgspec.structs.replace(graph, windows=attention_windows(state.model))


def _mark_readers_of_hooked_parameters(graph: Graph, state: Conversion) -> Graph:
    """Return the graph with a mark at each node that reads a parameter with a gradient hook."""
    stored = state.model.named_parameters(remove_duplicate=False)
    return gradients.mark_readers_of_hooked_weights(
        graph, {name for name, kept in stored if kept._backward_hooks}
    )


def _mark_readers_of_changed_parameters(graph: Graph, state: Conversion) -> Graph:
    """Return the graph with a mark at each node that reads a parameter whose `requires_grad` the
    model changes in a run.
    """
    return gradients.mark_readers_of_changed_weights(graph, state.recording.turned)


def _with_torch_graph_identity(graph: Graph, state: Conversion) -> Graph:
    """Return the graph with its name, its hash and the sizes of its parameters."""
    sizes = parameter_size_fields(state.trace.modules)
    for kind, packed in zip(("params", "param_bytes"), state.recording.packed, strict=True):
        sizes[kind] += packed
    sizes["idle_params"] = idle_parameter_count(state.trace)
    if types := storage_types(state.model):
        sizes |= parameter_bytes_in_file(state.model, types)
    return with_graph_identity(graph, type(state.model).__name__, **sizes)


def _link_calls_to_graph_nodes(state: Conversion) -> Conversion:
    """Return the state whose trace has, for each call, the keys of the graph nodes that it
    became.
    """
    calls = with_node_keys(state.trace.calls, state.current_graph)
    return _with_torch_fields(state, trace=msgspec.structs.replace(state.trace, calls=calls))


def _add_calls_of_unchosen_experts(graph: Graph, state: Conversion) -> Graph:
    """Return the graph with the calls that also compute experts which a token did not choose."""
    return msgspec.structs.replace(graph, unchosen=expert_counts_by_call(state.trace))


def _move_to_source_modules(state: Conversion) -> Conversion:
    """Return the state with nodes and modules as in the source model, if the model is an exported
    program.
    """
    graph, trace = place_in_source_modules(state.model, state.current_graph, state.trace)
    return _with_torch_fields(state, graph=graph, trace=trace)


_EXPORT: Passes[Conversion] = (
    Pass("find drawn numbers", _with_drawn_random_values, fact_set(RECORDED), fact_set(DRAWN)),
    Pass(
        "write out sparse",
        _replace_sparse_in_program,
        ensures=fact_set(DENSE),
        ends=fact_set(RECORDED),
    ),
    PassGroup(
        "without operators that write",
        _run_on_functional_program,
        (
            Pass(
                "write ONNX",
                _write_torch_onnx,
                fact_set(DRAWN, DENSE, FUNCTIONAL),
                fact_set(EXPORTED),
            ),
            Pass(
                "fold shape arithmetic",
                _fold_onnx_shape_arithmetic,
                fact_set(EXPORTED),
                fact_set(FOLDED),
            ),
            Pass("cast places", _cast_indices, fact_set(FOLDED), fact_set(LONG_PLACES)),
            Pass(
                "fill shapes",
                _fill_value_dependent_shapes,
                fact_set(LONG_PLACES, FUNCTIONAL),
                fact_set(SHAPED),
            ),
        ),
        requires=fact_set(DENSE),
        opens=fact_set(FUNCTIONAL),
    ),
    Pass("note dropped operators", _with_dropped_calls, fact_set(EXPORTED), fact_set(DROPPED)),
)
# What says why a backward pass is not followed is overwritten by what follows it in the list.
_GRADIENTS: tuple[Pass[Conversion], ...] = (
    Pass("group custom functions", _find_calls_inside_custom_functions, ensures=fact_set(GROUPED)),
    Pass(
        "mark derived products",
        _rewrite_by_calls(gradients.mark_products_with_other_gradient),
        fact_set(GROUPED, PROGRAM_NAMES, STORED, SPARSE),
        fact_set(DERIVED),
    ),
    Pass(
        "mark starts",
        _rewrite_by_calls(gradients.mark_gradient_starts),
        fact_set(GRAPH, GROUPED),
        fact_set(STARTS),
    ),
    Pass(
        "mark lost starts",
        _rewrite_by_program(gradients.add_gradient_starts_without_nodes),
        fact_set(GROUPED, PROGRAM_NAMES),
        fact_set(LOST_STARTS),
    ),
    Pass(
        "mark hooks",
        _rewrite_by_program(gradients.mark_hooked_tensors),
        fact_set(LOST_STARTS),
        fact_set(HOOKS),
    ),
    Pass(
        "mark handed out",
        _rewrite_by_program(gradients.mark_reentrant_checkpoint_outputs),
        fact_set(HOOKS),
        fact_set(HANDED_OUT),
    ),
    Pass(
        "mark views",
        _rewrite_by_program(gradients.mark_readers_of_no_grad_views),
        fact_set(HANDED_OUT),
        fact_set(VIEWS),
    ),
    Pass(
        "restore pasts",
        _rewrite_by_program(gradients.restore_overwritten_inputs),
        fact_set(LOST_STARTS, PROGRAM_NAMES),
        fact_set(PASTS),
    ),
    Pass(
        "sever inputs",
        _rewrite_by_program(gradients.mark_detached_inputs),
        fact_set(PASTS, PROGRAM_NAMES),
        fact_set(SEVERED),
    ),
)
_GRAPH: tuple[Pass[Conversion], ...] = (
    Pass("build graph", _build_torch_graph, fact_set(SHAPED), fact_set(GRAPH, PROGRAM_NAMES)),
    Pass(
        "mark constant",
        _torch_graph_rewrite(_mark_torch_constants),
        fact_set(PROGRAM_NAMES),
        fact_set(CONSTANT),
    ),
    Pass(
        "mark storage",
        _torch_graph_rewrite(_mark_torch_storage_dtypes),
        fact_set(CONSTANT),
        fact_set(STORED),
    ),
    Pass("mark sparse", _torch_graph_rewrite(_mark_sparse), fact_set(GRAPH), fact_set(SPARSE)),
    *_GRADIENTS,
    Pass(
        "add custom functions",
        _torch_graph_rewrite(_add_custom_autograd_functions),
        fact_set(GROUPED, PROGRAM_NAMES, STORED),
        fact_set(FUNCTIONS),
    ),
    Pass(
        "name weights",
        _torch_graph_rewrite(_name_torch_weights),
        fact_set(PROGRAM_NAMES, FUNCTIONS),
        fact_set(MODEL_NAMES),
        ends=fact_set(PROGRAM_NAMES),
    ),
    Pass(
        "store weights",
        _torch_graph_rewrite(_mark_stored_weight_types),
        fact_set(MODEL_NAMES),
        fact_set(WEIGHTS_STORED),
    ),
    Pass(
        "add leaves",
        _torch_graph_rewrite(_add_gradient_leaves),
        fact_set(SEVERED),
        fact_set(LEAVES),
    ),
    Pass(
        "add attention windows",
        _torch_graph_rewrite(_add_attention_windows),
        fact_set(GRAPH),
        fact_set(WINDOWS),
    ),
    Pass(
        "mark hooked weights",
        _torch_graph_rewrite(_mark_readers_of_hooked_parameters),
        fact_set(MODEL_NAMES, VIEWS),
        fact_set(HOOKED_WEIGHTS),
    ),
    Pass(
        "mark turned weights",
        _torch_graph_rewrite(_mark_readers_of_changed_parameters),
        fact_set(MODEL_NAMES, HOOKED_WEIGHTS),
        fact_set(TURNED_WEIGHTS),
    ),
    Pass(
        "identify graph",
        _torch_graph_rewrite(_with_torch_graph_identity),
        fact_set(GRAPH),
        fact_set(IDENTIFIED),
    ),
    Pass("link calls", _link_calls_to_graph_nodes, fact_set(GRAPH), fact_set(LINKED)),
    Pass(
        "add unchosen experts",
        _torch_graph_rewrite(_add_calls_of_unchosen_experts),
        fact_set(GRAPH),
        fact_set(UNCHOSEN),
    ),
    Pass(
        "place in modules",
        _move_to_source_modules,
        fact_set(IDENTIFIED, LINKED, UNCHOSEN),
        fact_set(PLACED),
    ),
)
PIPELINE = Pipeline(
    room="crossflops.frontends.pytorch",
    passes=(PassGroup("export", _export_torch_program, _EXPORT), *_GRAPH),
    look=torch_conversion_snapshot,
    given=fact_set(RECORDED),
    wanted=fact_set(
        *(DROPPED, DERIVED, STARTS, FUNCTIONS, LEAVES, WINDOWS, TURNED_WEIGHTS, PLACED),
        WEIGHTS_STORED,
    ),
)
