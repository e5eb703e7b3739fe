"""List the passes, in their order, from a JAX function to its graph."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from crossflops.frontends.converted import (
    parameter_size_fields,
    with_graph_identity,
    with_parameter_names,
)
from crossflops.frontends.decided import (
    DecidableConversion,
    Runnable,
    decide_unknown_sizes_by_run,
    mark_nodes_decided_by_run,
)
from crossflops.frontends.frontend import Run
from crossflops.frontends.jax.convert.added_nodes import (
    add_nodes_to_make_runnable,
    count_added_nodes_as_nothing,
    is_added_node_key,
)
from crossflops.frontends.jax.convert.converter import (
    convert_with_first_working_rules,
    declare_opsets,
    drop_dropout_mode_inputs,
    drop_zero_biases,
    give_weights_unique_names,
    name_model_inputs,
    remove_large_weight_values,
    replace_vector_gemms,
    replace_window_sums_by_average_pools,
    serialize_jax_model,
    store_weights_transposed,
    write_jax_onnx,
)
from crossflops.frontends.jax.convert.gradients import (
    mark_gradient_stops_and_recomputed_nodes,
    with_custom_derivative_functions,
)
from crossflops.frontends.jax.convert.linking import count_nodes_as_equations, link_equations
from crossflops.frontends.jax.convert.lowering import Equation, LoweringRecorder, name_model_nodes
from crossflops.frontends.jax.convert.own_gradients import (
    MarkedResult,
    OwnFunction,
    own_gradient_functions,
    turn_markers_into_identity_nodes,
)
from crossflops.frontends.jax.observe.xla import xla_view_calls
from crossflops.frontends.jax.record.function import Pure
from crossflops.frontends.logged_nodes import ir_nodes_for_log
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
from crossflops.ir.graph import Control, Graph, Node
from crossflops.ir.trace import Setting, Trace
from crossflops.load.protobuf import parse_model_proto


class JaxConversion(DecidableConversion, frozen=True, kw_only=True):
    """The state of a JAX function between the passes that convert it to a graph.

    jax2onnx's result is the `model` (of onnx_ir), changed in place, with its `recorder`. `data`
    are the bytes of the model whose shapes are to be inferred, `declared` those with jax2onnx's
    shapes, `file` the ones of the two that were read. By names in these there are the equations of
    nodes (`origins`), the weights of the function (`weights`), and the custom derivative functions
    (`own`), of which `markers` has the nodes. With `to_run` it has all that a runtime needs.
    """

    function: Pure
    trace: Trace = Trace(calls=(), modules=(), setting=Setting(), framework="jax")
    name: str = ""
    control: Control = Control()
    views: Sequence[Setting] = ()
    run: Run | None = None
    runnable: Callable[[], Runnable] | None = None
    opaque: bool = False
    to_run: bool = False
    recorder: LoweringRecorder | None = None
    model: Any = None
    markers: Mapping[int, MarkedResult] = {}
    origins: Mapping[str, int] = {}
    weights: Mapping[str, str] = {}
    own: tuple[OwnFunction, ...] = ()
    data: bytes = b""
    declared: bytes = b""
    file: bytes = b""

    @property
    def equations(self) -> Sequence[Equation]:
        """The equations from which jax2onnx wrote the model."""
        assert self.recorder is not None
        return self.recorder.equations


def jax_snapshot(state: JaxConversion) -> Snapshot:
    """Return the nodes of the graph, or of the ONNX model before there is one, for the log."""
    if state.graph is not None:
        return take_snapshot(state.graph, state.trace)
    model = state.model
    if model is None and state.declared:
        import onnx_ir as ir

        model = ir.from_proto(parse_model_proto(state.declared))
    nodes = ir_nodes_for_log(model.graph.all_nodes()) if model is not None else ()
    return Snapshot(dict(nodes), take_snapshot(None, state.trace).values)


def _with_state_fields(state: JaxConversion, **fields: Any) -> JaxConversion:
    """Return a copy of the state with these fields set."""
    return msgspec.structs.replace(state, **fields)


# Facts: what holds of the model that jax2onnx wrote, and of the graph.

WRITTEN = "the function has an ONNX form"
TURNED = "stored weights lie as they are read"
BIASES = "no bias of zeros is added"
MODES = "no Dropout is told to drop nothing"
PRODUCTS = "ONNX has the products of vectors"
SUMS = "sums of windows multiply nothing"
ALIASES = "what is behind functions of their own derivative is an alias"
NODE_NAMES = "nodes have names of their own"
WEIGHT_NAMES = "weights have names of their own"
INPUT_NAMES = "inputs are called as arguments are"
OWN = "functions with derivatives of their own are known"
RUNNABLE = "slices start inside, and what only a runtime needs is there"
LIGHT = "large weights are there by shape alone"
OPSETS = "the opset has all operators"
BYTES = "the ONNX form is bytes"
GRAPH = "there is a graph"
OBSERVED = "sizes that a run showed are known"
LINKED = "nodes and calls know each other"
MEANT = "nodes stand for the operations that they were written for"
GRADIENTS = "nodes know how their gradients are made"
ONNX_NAMES = "weights are called as the ONNX form calls them"
MODEL_NAMES = "weights are called as the model calls them"
FUNCTIONS = "the graph has its functions with derivatives of their own"
DECIDED = "nodes that depend on a run are marked"
IDENTIFIED = "the graph has its name, sizes and digest"
PROGRAMS = "instructions of XLA are known"


# From the function to the bytes of its ONNX form.


def _retry_without_failing_rules(
    state: JaxConversion, run: Callable[[JaxConversion], JaxConversion]
) -> JaxConversion:
    """Return the state after these passes, with rules of jax2onnx that do not fail."""
    return convert_with_first_working_rules(
        lambda opaque: run(_with_state_fields(state, opaque=opaque))
    )


def _write_onnx_model(state: JaxConversion) -> JaxConversion:
    """Return the state with jax2onnx's ONNX model, and the record of its equations."""
    model, recorder = write_jax_onnx(state.function, state.opaque, state.to_run)
    return _with_state_fields(state, model=model, recorder=recorder)


def _model_rewrite(change: Callable[[Any], None]) -> Callable[[JaxConversion], JaxConversion]:
    """Return a pass that changes the ONNX model of the state in place."""

    def rewrite_model_in_place(state: JaxConversion) -> JaxConversion:
        """Return the state; change its ONNX model in place."""
        change(state.model)
        return state

    return rewrite_model_in_place


def _average_pool_windows(state: JaxConversion) -> JaxConversion:
    """Return the state; replace Convs that sum windows by average pools, in place."""
    replace_window_sums_by_average_pools(
        state.model, [equation.primitive for equation in state.equations]
    )
    return state


def _turn_markers_into_identities(state: JaxConversion) -> JaxConversion:
    """Return the state with marker nodes as Identity nodes, and these by equation."""
    return _with_state_fields(state, markers=turn_markers_into_identity_nodes(state.model))


def _name_nodes(state: JaxConversion) -> JaxConversion:
    """Return the state with unique names of nodes, and the equation number of each."""
    return _with_state_fields(state, origins=name_model_nodes(state.model))


def _name_model_weights(state: JaxConversion) -> JaxConversion:
    """Return the state with unique names of weights, and the model's names by these."""
    return _with_state_fields(state, weights=give_weights_unique_names(state.model))


def _name_inputs_after_arguments(state: JaxConversion) -> JaxConversion:
    """Return the state; name the inputs of its ONNX model after the arguments."""
    name_model_inputs(state.model, state.function.names)
    return state


def _find_custom_derivatives(state: JaxConversion) -> JaxConversion:
    """Return the state with the functions that have a custom derivative."""
    assert state.recorder is not None
    return _with_state_fields(state, own=own_gradient_functions(state.recorder.own, state.markers))


def _make_runnable(state: JaxConversion) -> JaxConversion:
    """Return the state with nodes added that make its ONNX model exact."""
    added = add_nodes_to_make_runnable(state.model, state.equations, state.origins, state.to_run)
    return _with_state_fields(state, origins={**state.origins, **added})


def _serialize_model(state: JaxConversion) -> JaxConversion:
    """Return the state with the bytes of the ONNX model instead of the model."""
    data, declared = serialize_jax_model(state.model)
    return _with_state_fields(state, data=data, declared=declared, model=None)


# From these to the graph.


def _read_jax_graph(state: JaxConversion) -> JaxConversion:
    """Return the state with its graph: inferred shapes, or declared ones if some are open."""
    graph = _graph_from_bytes(state, state.data)
    if all(map(_has_known_output_shapes, graph.nodes)):
        return _with_state_fields(state, graph=graph, file=state.data)
    return _with_state_fields(
        state, graph=_graph_from_bytes(state, state.declared), file=state.declared
    )


def _graph_from_bytes(state: JaxConversion, data: bytes) -> Graph:
    """Return the graph that is counted, read from the bytes of an ONNX model."""
    setting = state.trace.setting
    return normalize_onnx_bytes(data, state.name, setting, state.control, state.observed)[0]


def _has_known_output_shapes(node: Node) -> bool:
    """Return whether all output shapes of a node, and in its bodies, are known."""
    known = all(spec is None or spec.shape is not None for spec in node.outputs)
    return known and all(
        _has_known_output_shapes(inner) for body in node.bodies for inner in body.nodes
    )


def _decide_unknown_sizes(
    state: JaxConversion, run: Callable[[JaxConversion], JaxConversion]
) -> JaxConversion:
    """Return the state after these passes; if sizes stay unknown, a run decides them."""
    assert state.runnable is not None
    return decide_unknown_sizes_by_run(state, run, state.runnable, state.run)


def _read_graph_with_run_sizes(state: JaxConversion) -> JaxConversion:
    """Return the state with its graph read again with the sizes of the run, if any."""
    if state.observed is None:
        return state
    return _with_state_fields(state, graph=_graph_from_bytes(state, state.data))


def _link_jax_equations(state: JaxConversion) -> JaxConversion:
    """Return the state with equations and modules on the nodes, and calls in the trace."""
    graph, calls = link_equations(
        state.current_graph,
        state.equations,
        state.origins,
        state.trace.modules,
        state.function.called.calls.arguments,
    )
    return _with_state_fields(
        state, graph=graph, trace=msgspec.structs.replace(state.trace, calls=calls)
    )


def _graph_rewrite(
    change: Callable[[Graph, JaxConversion], Graph],
) -> Callable[[JaxConversion], JaxConversion]:
    """Return a pass that replaces the graph of the state by `change(graph, state)`."""
    return lambda state: _with_state_fields(state, graph=change(state.current_graph, state))


def _count_nodes_as_equations(graph: Graph, state: JaxConversion) -> Graph:
    """Return the graph with nodes counted as the JAX operations they were written for."""
    origins = {
        name: number for name, number in state.origins.items() if not is_added_node_key(name)
    }
    return count_added_nodes_as_nothing(count_nodes_as_equations(graph, state.equations, origins))


def _mark_stops_and_recomputed_nodes(graph: Graph, state: JaxConversion) -> Graph:
    """Return the graph with marks on nodes without gradients and on recomputed nodes."""
    return mark_gradient_stops_and_recomputed_nodes(graph, state.equations, state.origins)


def _add_custom_derivative_functions(graph: Graph, state: JaxConversion) -> Graph:
    """Return the graph with its functions that have a custom derivative."""
    return with_custom_derivative_functions(graph, state.own, state.origins, state.equations)


def _name_weights_as_in_model(graph: Graph, state: JaxConversion) -> Graph:
    """Return the graph with weights named as in the JAX model."""
    return with_parameter_names(graph, state.weights)


def _identify_jax_graph(graph: Graph, state: JaxConversion) -> Graph:
    """Return the graph with the name, parameter sizes and hash of the model."""
    return with_graph_identity(graph, state.name, **parameter_size_fields(state.trace.modules))


def _observe_xla_programs(state: JaxConversion) -> JaxConversion:
    """Return the state with the calls of XLA's programs in its trace."""
    observed = tuple(xla_view_calls(state.function, state.trace, state.current_graph, state.views))
    return _with_state_fields(state, trace=msgspec.structs.replace(state.trace, observed=observed))


_EXPORT: Passes[JaxConversion] = (
    Pass("write ONNX", _write_onnx_model, ensures=fact_set(WRITTEN)),
    Pass(
        "turn weights",
        _model_rewrite(store_weights_transposed),
        fact_set(WRITTEN),
        fact_set(TURNED),
    ),
    Pass("drop zero biases", _model_rewrite(drop_zero_biases), fact_set(TURNED), fact_set(BIASES)),
    Pass(
        "drop dropout modes",
        _model_rewrite(drop_dropout_mode_inputs),
        fact_set(WRITTEN),
        fact_set(MODES),
    ),
    Pass(
        "write out vector products",
        _model_rewrite(replace_vector_gemms),
        fact_set(BIASES),  # a bias of zeros would be added
        fact_set(PRODUCTS),
    ),
    Pass("average windows", _average_pool_windows, fact_set(TURNED), fact_set(SUMS)),
    # of values that those before may replace, notes are kept here
    Pass(
        "make aliases", _turn_markers_into_identities, fact_set(PRODUCTS, SUMS), fact_set(ALIASES)
    ),
    Pass("name nodes", _name_nodes, fact_set(ALIASES), fact_set(NODE_NAMES)),
    Pass("name weights", _name_model_weights, fact_set(TURNED), fact_set(WEIGHT_NAMES)),
    Pass("name inputs", _name_inputs_after_arguments, fact_set(WRITTEN), fact_set(INPUT_NAMES)),
    Pass(
        "find own functions",
        _find_custom_derivatives,
        fact_set(ALIASES, NODE_NAMES, WEIGHT_NAMES, INPUT_NAMES),
        fact_set(OWN),
    ),
    Pass("make runnable", _make_runnable, fact_set(NODE_NAMES, SUMS), fact_set(RUNNABLE)),
    # what asks whether all numbers of a tensor are 0 has to come before
    Pass(
        "shed weights",
        _model_rewrite(remove_large_weight_values),
        fact_set(BIASES, MODES, WEIGHT_NAMES),
        fact_set(LIGHT),
    ),
    Pass("declare opsets", _model_rewrite(declare_opsets), fact_set(ALIASES), fact_set(OPSETS)),
    Pass("serialize", _serialize_model, fact_set(LIGHT, OPSETS, OWN, RUNNABLE), fact_set(BYTES)),
)
_STAND = Pass(
    "stand for equations",
    _graph_rewrite(_count_nodes_as_equations),
    fact_set(GRAPH),
    fact_set(MEANT),
)
_LINK: Passes[JaxConversion] = (
    Pass(
        "read observed sizes",
        _read_graph_with_run_sizes,
        fact_set(GRAPH),
        fact_set(OBSERVED, ONNX_NAMES),
    ),
    Pass("link equations", _link_jax_equations, fact_set(OBSERVED), fact_set(LINKED)),
    _STAND,
    Pass(
        "mark gradients",
        _graph_rewrite(_mark_stops_and_recomputed_nodes),
        fact_set(OBSERVED),
        fact_set(GRADIENTS),
    ),
    Pass(
        "add own functions",
        _graph_rewrite(_add_custom_derivative_functions),
        fact_set(ONNX_NAMES),
        fact_set(FUNCTIONS),
    ),
    Pass(
        "call weights",
        _graph_rewrite(_name_weights_as_in_model),
        fact_set(ONNX_NAMES, FUNCTIONS),
        fact_set(MODEL_NAMES),
        ends=fact_set(ONNX_NAMES),
    ),
    Pass("mark decisions", mark_nodes_decided_by_run, fact_set(OBSERVED), fact_set(DECIDED)),
)
_TO_BYTES = PassGroup("with rules that do not fail", _retry_without_failing_rules, _EXPORT)
_READ = Pass("read ONNX", _read_jax_graph, fact_set(BYTES), fact_set(GRAPH))
PIPELINE = Pipeline(
    room="crossflops.frontends.jax",
    passes=(
        _TO_BYTES,
        _READ,
        PassGroup("with what a run decides", _decide_unknown_sizes, _LINK, fact_set(GRAPH)),
        Pass(
            "identify graph",
            _graph_rewrite(_identify_jax_graph),
            fact_set(DECIDED),
            fact_set(IDENTIFIED),
        ),
        Pass("observe programs", _observe_xla_programs, fact_set(LINKED), fact_set(PROGRAMS)),
    ),
    look=jax_snapshot,
    given=fact_set(),
    wanted=fact_set(MEANT, GRADIENTS, MODEL_NAMES, DECIDED, IDENTIFIED, PROGRAMS),
)
# As far as a file with weights goes, and a run.
TO_FILE = msgspec.structs.replace(
    PIPELINE, passes=(_TO_BYTES, _READ, _STAND), wanted=fact_set(MEANT)
)
TO_BYTES = msgspec.structs.replace(PIPELINE, passes=(_TO_BYTES,), wanted=fact_set(BYTES))
