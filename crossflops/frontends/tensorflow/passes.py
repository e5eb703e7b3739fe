"""List the passes, in their order, from a traced TensorFlow function to its graph."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from crossflops.frontends.converted import with_graph_identity, with_parameter_names
from crossflops.frontends.decided import (
    DecidableConversion,
    Runnable,
    decide_unknown_sizes_by_run,
    mark_nodes_decided_by_run,
)
from crossflops.frontends.frontend import Run
from crossflops.frontends.logged_nodes import (
    LoggedNode,
    attribute_comparison_key,
    brief_message_text,
    proto_nodes_for_log,
)
from crossflops.frontends.onnx.reading import normalize_onnx_bytes
from crossflops.frontends.passes import (
    Pass,
    Passes,
    PassGroup,
    Pipeline,
    Snapshot,
    fact_set,
    take_snapshot,
)
from crossflops.frontends.tensorflow.convert import converter
from crossflops.frontends.tensorflow.convert.branches import (
    copy_shared_functions,
    replace_cases_by_ifs,
)
from crossflops.frontends.tensorflow.convert.converter import WritingNotes
from crossflops.frontends.tensorflow.convert.gradients import (
    WeightNames,
    add_custom_gradient_functions,
    find_parameter_names,
    mark_unknown_gradients_and_recomputed_nodes,
    sever_stopped_nodes,
    with_argument_names,
)
from crossflops.frontends.tensorflow.convert.loop_counters import compare_counters_as_int64
from crossflops.frontends.tensorflow.convert.operators import (
    count_nodes_as_operations,
    link_operations,
    training_step_calls,
)
from crossflops.frontends.tensorflow.convert.own_gradients import (
    OwnGradient,
    result_count_by_gradient,
)
from crossflops.frontends.tensorflow.convert.tensorflow_only_operations import create_lookup_tables
from crossflops.frontends.tensorflow.observe.training_step import freeze_training_step
from crossflops.frontends.tensorflow.record.freezing import calls_functions, freeze_variables
from crossflops.frontends.tensorflow.record.layers import LayerTable
from crossflops.frontends.tensorflow.record.tracing import TracedFunction
from crossflops.ir.graph import Control, Graph
from crossflops.ir.trace import Setting, Trace
from crossflops.load.protobuf import parse_model_proto


class TensorFlowConversion(DecidableConversion, frozen=True, kw_only=True):
    """The state of a traced function between the passes that convert it to a graph.

    Frozen, with loops and branches whole, it is `whole`, and as a GraphDef the `definition`, which
    is changed in place, and `inlined`. tf2onnx's result is first a graph of its own (`writing`),
    then the `model`, changed in place, and finally the bytes (`data`). `stopped` are its nodes
    through which no gradient flows, and `given` has the further values that custom gradient
    functions pass on, by the names of the nodes that pass them.

    `lowered` is the graph as TensorFlow runs it, with loops lowered, and `lowered_function` that
    function; `owns` are its custom
    gradient functions. `sizes` are those of the graph.
    """

    traced: TracedFunction
    trace: Trace = Trace(calls=(), modules=(), setting=Setting(), framework="tensorflow")
    weighted: bool = False
    name: str = ""
    control: Control = Control()
    run: Run | None = None
    runnable: Callable[[], Runnable] | None = None
    lowered: Any = None
    lowered_function: Any = None
    layers: LayerTable | None = None
    owns: Sequence[OwnGradient] = ()
    sizes: Mapping[str, Any] = {}
    whole: Any = None
    definition: Any = None
    inlined: Any = None
    imported: Any = None
    noted: WritingNotes = WritingNotes({}, set())
    left: set[str] = set()
    writing: Any = None
    model: Any = None
    stopped: Collection[str] = ()
    given: Mapping[str, Sequence[str]] = {}
    data: bytes = b""
    weights: WeightNames = WeightNames()

    @property
    def result_counts(self) -> Mapping[str, int]:
        """The number of results of each custom gradient that is followed, by operation name."""
        return result_count_by_gradient(self.owns)

    @property
    def layer_table(self) -> LayerTable:
        """The table of modules; only a conversion to a graph has one."""
        assert self.layers is not None
        return self.layers


def tensorflow_snapshot(state: TensorFlowConversion) -> Snapshot:
    """Return the nodes of the graph, or of the form before it, for the log of passes."""
    if state.graph is not None:
        return take_snapshot(state.graph, state.trace)
    nodes: Iterator[tuple[str, LoggedNode]] = iter(())
    if state.data or state.model is not None:
        nodes = proto_nodes_for_log(
            (parse_model_proto(state.data) if state.data else state.model).graph
        )
    elif state.writing is not None:
        nodes = _nodes_of_writing(state.writing)
    elif state.definition is not None:
        nodes = _nodes_of_definition(state.definition if state.inlined is None else state.inlined)
    return Snapshot(dict(nodes), take_snapshot(None, state.trace).values)


def _nodes_of_definition(definition: Any) -> Iterator[tuple[str, LoggedNode]]:
    """Yield (name, node) of a GraphDef and of its functions, for the log of passes."""
    functions = (
        (f"{stored.signature.name}/", stored.node_def) for stored in definition.library.function
    )
    for enclosing, nodes in (("", definition.node), *functions):
        for node in nodes:
            attributes = (
                f"{name} {brief_message_text(stored)}" for name, stored in node.attr.items()
            )
            logged = LoggedNode(node.op, tuple(node.input), (), (), tuple(sorted(attributes)))
            yield f"{enclosing}{node.name}", logged


def _nodes_of_writing(graph: Any, enclosing: str = "") -> Iterator[tuple[str, LoggedNode]]:
    """Yield (name, node) of tf2onnx's graph and of its bodies, for the log of passes."""
    for node in graph.get_nodes():
        yield (
            f"{enclosing}{node.name}",
            LoggedNode(
                op=node.type,
                inputs=tuple(node.input),
                outputs=tuple(node.output),
                attributes=tuple(
                    sorted(map(attribute_comparison_key, node.get_onnx_attrs().values()))
                ),
            ),
        )
        for body in (node.get_body_graphs() or {}).values():
            yield from _nodes_of_writing(body, f"{enclosing}{node.name}/")


def _replace_tensorflow_fields(state: TensorFlowConversion, **fields: Any) -> TensorFlowConversion:
    """Return a copy of the state with these fields set."""
    return msgspec.structs.replace(state, **fields)


# Facts: what holds of the GraphDef, of what tf2onnx wrote, and of the graph.

FROZEN = "the function is frozen"
UNORDERED = "nothing only orders operations"
SEEDLESS = "random numbers come from a seed that is not set"
INLINABLE = "functions can be inlined"
PAIRS = "branches come in twos"
LIGHT = "weights are there by shape alone"
INLINED = "functions are inlined"
UNSHARED = "each branch and loop has a function of its own"
TABLES = "the graph makes its tables"
IMPORTED = "TensorFlow has the graph"
WRITTEN = "the graph has an ONNX form"
OPTIMIZED = "there is no more than the graph needs"
GROUPS = "convolutions have their groups"
MODEL = "there is an ONNX model"
SHAPES = "shapes are told that ONNX cannot infer"
ALIASES = "what stops gradients is an alias"
HANDED = "what hands results on is an alias"
ERRORS = "ONNX has the complementary error function"
STILL = "loops carry nothing that stands still"
PADS = "no pads are negative"
WHOLE = "whole numbers are compared as they are"
OWNED = "operators that ONNX lacks are in a domain of their own"
COUNTERS = "compared counters are of one type"
BYTES = "the ONNX form is bytes"
GRAPH = "there is a graph with the sizes that a run showed"
FORWARD = "calls are those of the forward pass"
LINKED = "nodes and calls know each other"
MEANT = "nodes stand for the operations that they were written for"
SEVERED = "inputs without gradients are known"
FOUND = "the names of weights are known"
GRADIENTS = "nodes know how their gradients are made"
MODEL_NAMES = "weights are called as the layers call them"
FUNCTIONS = "the graph has its functions with gradients of their own"
STEPS = "calls of the training step are known"
DECIDED = "nodes that depend on a run are marked"
ARGUMENTS = "weights that come as arguments are called so"
IDENTIFIED = "the graph has its name, sizes and digest"


# From the function to the bytes of its ONNX form.


def _freeze_function(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with the function frozen: its variables are constants of a GraphDef."""
    full = state.lowered_function
    if full is None or state.weighted or calls_functions(state.traced.function):
        full = freeze_variables(
            state.traced.function, lowers_control_flow=False, keeps_weights=state.weighted
        )
    return _replace_tensorflow_fields(
        state, whole=full, definition=full.graph.as_graph_def(add_shapes=True)
    )


def _graph_def_rewrite(
    change: Callable[[Any], object],
) -> Callable[[TensorFlowConversion], TensorFlowConversion]:
    """Return a pass that changes the GraphDef of the state in place."""

    def rewrite_graph_def_in_place(state: TensorFlowConversion) -> TensorFlowConversion:
        """Return the state; change its GraphDef in place."""
        change(state.definition)
        return state

    return rewrite_graph_def_in_place


def _replace_large_weights(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with large weights as one repeated number, unless it is `weighted`."""
    if not state.weighted:
        converter.replace_large_weights_by_one_number(state.definition)
    return state


def _retry_without_failing_loops(
    state: TensorFlowConversion, run: Callable[[TensorFlowConversion], TensorFlowConversion]
) -> TensorFlowConversion:
    """Return the state after these passes; loops that tf2onnx cannot convert are left."""

    def run_passes_leaving_loops(noted: WritingNotes, left: set[str]) -> TensorFlowConversion:
        """Return the state after the passes, with kinds of loops in `left` not converted."""
        return run(_replace_tensorflow_fields(state, noted=noted, left=left))

    return _replace_tensorflow_fields(
        converter.convert_leaving_failing_loops(run_passes_leaving_loops),
        definition=None,
        inlined=None,
    )


def _inline_definition(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with the GraphDef's functions inlined, without unneeded nodes."""
    inlined = converter.inline_functions(state.definition, state.whole, state.result_counts)
    return _replace_tensorflow_fields(state, inlined=inlined)


def _copy_shared_functions(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with one copy of a function for each branch or loop that has it."""
    return _replace_tensorflow_fields(state, inlined=copy_shared_functions(state.inlined))


def _create_lookup_tables(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state; let its GraphDef create the lookup tables it would get as inputs."""
    create_lookup_tables(state.inlined)
    return state


def _import_definition(
    state: TensorFlowConversion, run: Callable[[TensorFlowConversion], TensorFlowConversion]
) -> TensorFlowConversion:
    """Return the state after these passes, which have the GraphDef as a tf.Graph."""
    requested = (state.weighted, state.noted, state.left, state.result_counts)
    with converter.importing_definition_as_graph(state.inlined, *requested) as graph:
        made = run(_replace_tensorflow_fields(state, imported=graph))
    return _replace_tensorflow_fields(made, imported=None, writing=None)


def _write_tf2onnx_graph(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with tf2onnx's graph of ONNX nodes."""
    return _replace_tensorflow_fields(
        state, writing=converter.write_tensorflow_onnx(state.imported, state.whole)
    )


def _run_tf2onnx_optimizers(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with aliases removed and loops in ONNX's form, by tf2onnx."""
    return _replace_tensorflow_fields(
        state, writing=converter.run_tf2onnx_alias_and_loop_optimizers(state.writing)
    )


def _set_convolution_groups(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state; set the groups of convolutions in tf2onnx's graph, in place."""
    converter.set_convolution_groups(state.writing)
    return state


def _make_onnx_model(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with the ONNX model that tf2onnx makes of its graph."""
    return _replace_tensorflow_fields(state, model=state.writing.make_model("crossflops"))


def _write_known_shapes(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state; write shapes that ONNX cannot infer into the ONNX model, in place."""
    converter.write_known_shapes(state.model.graph, state.imported, state.writing)
    return state


def _onnx_graph_rewrite(
    change: Callable[[Any], None],
) -> Callable[[TensorFlowConversion], TensorFlowConversion]:
    """Return a pass that changes the graph of the ONNX model in place."""

    def rewrite_onnx_graph_in_place(state: TensorFlowConversion) -> TensorFlowConversion:
        """Return the state; change the graph of its ONNX model in place."""
        change(state.model.graph)
        return state

    return rewrite_onnx_graph_in_place


def _turn_gradient_stops_into_identities(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with nodes that stop gradients as Identity nodes, and their names."""
    return _replace_tensorflow_fields(
        state, stopped=converter.turn_gradient_stops_into_identities(state.model.graph)
    )


def _turn_custom_gradients_into_identities(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with custom gradients as Identity nodes, and with their operands."""
    provided = converter.turn_custom_gradients_into_identities(
        state.model.graph, state.result_counts
    )
    return _replace_tensorflow_fields(state, given=provided)


def _move_unknown_operators_to_domain(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with nodes that ONNX lacks in TensorFlow's domain."""
    if converter.move_unknown_operators_to_domain(state.model.graph):
        state.model.opset_import.add(domain=converter.DOMAIN, version=1)
    return state


def _serialize_tensorflow(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with the bytes of the ONNX model instead of the model."""
    return _replace_tensorflow_fields(state, data=state.model.SerializeToString(), model=None)


# From these to the graph.


def _decide_unknown_sizes(
    state: TensorFlowConversion, run: Callable[[TensorFlowConversion], TensorFlowConversion]
) -> TensorFlowConversion:
    """Return the state after these passes; if sizes stay unknown, a run decides them."""
    assert state.runnable is not None
    return decide_unknown_sizes_by_run(state, run, state.runnable, state.run)


def _read_tensorflow_graph(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with the graph that is counted, read from the ONNX bytes."""
    setting = state.trace.setting
    # what nobody reads of a loop's states is converted, and TensorFlow does not run it
    graph, _ = normalize_onnx_bytes(
        state.data, state.name, setting, state.control, state.observed, has_dead=True
    )
    return _replace_tensorflow_fields(state, graph=graph)


def _link_nodes_and_calls(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with operations and layers on the nodes, and nodes on the calls."""
    graph, calls = link_operations(
        state.current_graph,
        state.trace.calls,
        state.lowered,
        state.layer_table,
        state.noted.origins,
    )
    return _replace_tensorflow_fields(
        state, graph=graph, trace=msgspec.structs.replace(state.trace, calls=calls)
    )


def _tensorflow_graph_rewrite(
    change: Callable[[Graph, TensorFlowConversion], Graph],
) -> Callable[[TensorFlowConversion], TensorFlowConversion]:
    """Return a pass that replaces the graph of the state by `change(graph, state)`."""
    return lambda state: _replace_tensorflow_fields(
        state, graph=change(state.current_graph, state)
    )


def _count_nodes_as_operations(graph: Graph, state: TensorFlowConversion) -> Graph:
    """Return the graph with nodes counted as the operations that they were written for."""
    return count_nodes_as_operations(graph, state.trace.calls, state.lowered, state.noted.origins)


def _sever_stopped_gradients(graph: Graph, state: TensorFlowConversion) -> Graph:
    """Return the graph with marks on inputs of nodes through which no gradient flows."""
    return sever_stopped_nodes(graph, state.stopped)


def _find_parameter_names(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with the parameter behind each stored tensor of the graph."""
    weights = find_parameter_names(
        state.current_graph, state.traced.function, state.whole.graph, state.layer_table
    )
    return _replace_tensorflow_fields(state, weights=weights)


def _mark_unknown_gradients_and_recomputed(graph: Graph, state: TensorFlowConversion) -> Graph:
    """Return the graph with marks on nodes that are recomputed or have no known gradient."""
    return mark_unknown_gradients_and_recomputed_nodes(
        graph, state.lowered, state.owns, state.weights.missing
    )


def _name_weights_as_in_model(graph: Graph, state: TensorFlowConversion) -> Graph:
    """Return the graph with weights named as the parameters of the model."""
    return with_parameter_names(graph, state.weights.names)


def _add_custom_gradient_functions(graph: Graph, state: TensorFlowConversion) -> Graph:
    """Return the graph with its custom gradient functions."""
    return add_custom_gradient_functions(graph, state.owns, state.weights.names, state.given)


def _add_training_step_calls(state: TensorFlowConversion) -> TensorFlowConversion:
    """Return the state with the calls of a training step in its trace, if one is requested."""
    step = state.trace.setting.step
    if not step:
        return state
    graph = freeze_training_step(state.traced, state.layer_table, step)
    calls = training_step_calls(state.trace.calls, graph, state.layer_table)
    return _replace_tensorflow_fields(
        state, trace=msgspec.structs.replace(state.trace, calls=calls)
    )


def _name_inputs_after_arguments(graph: Graph, state: TensorFlowConversion) -> Graph:
    """Return the graph with inputs named after arguments, if the model has no parameters."""
    if any(row.params for row in state.trace.modules):
        return graph
    return with_argument_names(graph, state.traced.function)  # in which weights may come


def _identify_tensorflow_graph(graph: Graph, state: TensorFlowConversion) -> Graph:
    """Return the graph with the name, parameter sizes and hash of the model."""
    return with_graph_identity(graph, state.name, **state.sizes)


_WRITE: Passes[TensorFlowConversion] = (
    Pass("write ONNX", _write_tf2onnx_graph, fact_set(IMPORTED), fact_set(WRITTEN)),
    Pass("remove own additions", _run_tf2onnx_optimizers, fact_set(WRITTEN), fact_set(OPTIMIZED)),
    Pass("tell groups", _set_convolution_groups, fact_set(WRITTEN), fact_set(GROUPS)),
    Pass("make model", _make_onnx_model, fact_set(OPTIMIZED, GROUPS), fact_set(MODEL)),
    Pass("tell shapes", _write_known_shapes, fact_set(IMPORTED, MODEL), fact_set(SHAPES)),
)
_ATTEMPT: Passes[TensorFlowConversion] = (
    Pass(
        "inline functions",
        _inline_definition,
        fact_set(UNORDERED, INLINABLE, PAIRS, LIGHT),
        fact_set(INLINED),
    ),
    Pass("unshare functions", _copy_shared_functions, fact_set(INLINED), fact_set(UNSHARED)),
    Pass("make tables", _create_lookup_tables, fact_set(INLINED), fact_set(TABLES)),
    PassGroup(
        "in a graph of TensorFlow",
        _import_definition,
        _WRITE,
        fact_set(SEEDLESS, UNSHARED, TABLES),
        opens=fact_set(IMPORTED),
    ),
)
_EXPORT: Passes[TensorFlowConversion] = (
    Pass("freeze function", _freeze_function, ensures=fact_set(FROZEN)),
    Pass(
        "drop order",
        _graph_def_rewrite(converter.remove_control_inputs),
        fact_set(FROZEN),
        fact_set(UNORDERED),
    ),
    Pass(
        "forget seeds",
        _graph_def_rewrite(converter.remove_seed_inputs),
        fact_set(FROZEN),
        fact_set(SEEDLESS),
    ),
    Pass(
        "allow inlining",
        _graph_def_rewrite(converter.remove_inlining_bans),
        fact_set(FROZEN),
        fact_set(INLINABLE),
    ),
    Pass(
        "split branches",
        _graph_def_rewrite(replace_cases_by_ifs),
        fact_set(UNORDERED),
        fact_set(PAIRS),
    ),
    Pass("empty weights", _replace_large_weights, fact_set(FROZEN), fact_set(LIGHT)),
    PassGroup(
        "with loops that do not fail", _retry_without_failing_loops, _ATTEMPT, fact_set(FROZEN)
    ),
    Pass(
        "make aliases", _turn_gradient_stops_into_identities, fact_set(SHAPES), fact_set(ALIASES)
    ),
    Pass(
        "hand on results",
        _turn_custom_gradients_into_identities,
        fact_set(SHAPES),
        fact_set(HANDED),
    ),
    Pass(
        "write out erfc",
        _onnx_graph_rewrite(converter.replace_erfc),
        fact_set(SHAPES),
        fact_set(ERRORS),
    ),
    # an alias in a loop says that a value stands still
    Pass(
        "bring out of loops",
        _onnx_graph_rewrite(converter.read_unchanging_states_from_outside),
        fact_set(ALIASES),
        fact_set(STILL),
    ),
    Pass(
        "pad outputs",
        _onnx_graph_rewrite(converter.replace_negative_pads),
        fact_set(SHAPES),
        fact_set(PADS),
    ),
    Pass(
        "compare whole numbers",
        _onnx_graph_rewrite(converter.compare_integers_without_casts),
        fact_set(SHAPES),
        fact_set(WHOLE),
    ),
    Pass(
        "own unknown operators",
        _move_unknown_operators_to_domain,
        fact_set(ALIASES, HANDED, ERRORS),
        fact_set(OWNED),
    ),
    Pass(
        "widen counters",
        _onnx_graph_rewrite(compare_counters_as_int64),
        fact_set(STILL, WHOLE),
        fact_set(COUNTERS),
    ),
    Pass("serialize", _serialize_tensorflow, fact_set(PADS, OWNED, COUNTERS), fact_set(BYTES)),
)
_READ = Pass("read ONNX", _read_tensorflow_graph, fact_set(BYTES), fact_set(GRAPH))
_STAND = Pass(
    "stand for operations",
    _tensorflow_graph_rewrite(_count_nodes_as_operations),
    fact_set(GRAPH, FORWARD),
    fact_set(MEANT),
)
_LINK: Passes[TensorFlowConversion] = (
    _READ,
    Pass("link operations", _link_nodes_and_calls, fact_set(GRAPH, FORWARD), fact_set(LINKED)),
    _STAND,
    Pass(
        "sever inputs",
        _tensorflow_graph_rewrite(_sever_stopped_gradients),
        fact_set(GRAPH),
        fact_set(SEVERED),
    ),
    Pass("find weights", _find_parameter_names, fact_set(LINKED), fact_set(FOUND)),
    Pass(
        "mark gradients",
        _tensorflow_graph_rewrite(_mark_unknown_gradients_and_recomputed),
        fact_set(LINKED, SEVERED, FOUND),
        fact_set(GRADIENTS),
    ),
    Pass(
        "call weights",
        _tensorflow_graph_rewrite(_name_weights_as_in_model),
        fact_set(FOUND),
        fact_set(MODEL_NAMES),
    ),
    Pass(
        "add own functions",
        _tensorflow_graph_rewrite(_add_custom_gradient_functions),
        fact_set(LINKED, MODEL_NAMES),
        fact_set(FUNCTIONS),
    ),
    Pass(
        "add training step",
        _add_training_step_calls,
        fact_set(LINKED),
        fact_set(STEPS),
        ends=fact_set(FORWARD),
    ),
    Pass("mark decisions", mark_nodes_decided_by_run, fact_set(GRAPH), fact_set(DECIDED)),
)
PIPELINE = Pipeline(
    room="crossflops.frontends.tensorflow",
    passes=(
        *_EXPORT,
        PassGroup("with what a run decides", _decide_unknown_sizes, _LINK, fact_set(BYTES)),
        Pass(
            "name arguments",
            _tensorflow_graph_rewrite(_name_inputs_after_arguments),
            fact_set(DECIDED, MODEL_NAMES, FUNCTIONS),
            fact_set(ARGUMENTS),
        ),
        Pass(
            "identify graph",
            _tensorflow_graph_rewrite(_identify_tensorflow_graph),
            fact_set(DECIDED),
            fact_set(IDENTIFIED),
        ),
    ),
    look=tensorflow_snapshot,
    given=fact_set(FORWARD),
    wanted=fact_set(MEANT, GRADIENTS, STEPS, ARGUMENTS, IDENTIFIED),
)
# As far as a file with weights goes, and a run.
TO_FILE = msgspec.structs.replace(
    PIPELINE, passes=(*_EXPORT, _READ, _STAND), wanted=fact_set(BYTES, MEANT)
)
TO_BYTES = msgspec.structs.replace(PIPELINE, passes=_EXPORT, wanted=fact_set(BYTES))
