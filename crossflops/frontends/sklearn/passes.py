"""List the passes, in their order, from a fitted estimator to its graph."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from crossflops.errors import CrossflopsWarning
from crossflops.frontends.boosting.trees import BoostedTrees
from crossflops.frontends.converted import parameter_size_fields, with_graph_identity
from crossflops.frontends.logged_nodes import proto_nodes_for_log
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
from crossflops.frontends.sklearn.boosted import read_trees_of_parts
from crossflops.frontends.sklearn.converter import (
    convert_with_retry_at_older_opset,
    count_as_estimator_computes,
    declare_shapes,
    remove_unread_nodes,
    skl2onnx_input_types,
    write_estimator_onnx,
)
from crossflops.frontends.sklearn.estimators import (
    Part,
    estimator_parts,
    list_modules,
    place_in_modules,
)
from crossflops.frontends.sklearn.lost_settings import reject_lost_settings
from crossflops.ir.graph import Graph, TensorSpec
from crossflops.ir.trace import Trace
from crossflops.load.protobuf import parse_model_proto
from crossflops.threads import filter_warnings


class EstimatorConversion(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an estimator between the passes that convert it to a graph.

    `inside` are all estimators in it, `trees` those of models of XGBoost, LightGBM and CatBoost
    among them by their id, `types` the input types for skl2onnx. Its result is `written` for
    operators of an `opset`, changed in place, and finally the bytes (`data`). By the names of its
    nodes, `makers` are the ids of the estimators that they were made for, and `points` the numbers
    of thresholds between which they interpolate; in `empty` nodes the estimator computes nothing.
    """

    model: Any
    args: tuple[TensorSpec, ...]
    kwargs: Mapping[str, TensorSpec]
    trace: Trace
    inside: list[Part] = []
    trees: Mapping[int, BoostedTrees] = {}
    types: list[tuple[str, Any]] = []
    opset: dict[str, int] | None = None
    written: Any = None
    makers: Mapping[str, int] = {}
    empty: Collection[str] = ()
    points: Mapping[str, int] = {}
    data: bytes = b""
    graph: Graph | None = None

    @property
    def class_name(self) -> str:
        """The name of the estimator's class."""
        return type(self.model).__name__

    @property
    def estimators(self) -> list[Any]:
        """The estimator and all estimators in it, parents first."""
        return [part.estimator for part in self.inside]

    @property
    def module_path_by_node(self) -> dict[str, str]:
        """By node name, the path of the estimator that the node was made for."""
        paths = {id(part.estimator): part.path for part in self.inside}
        return {node: paths[maker] for node, maker in self.makers.items() if maker in paths}

    @property
    def current_graph(self) -> Graph:
        """The graph of the estimator; a pass must have built it before."""
        assert self.graph is not None
        return self.graph


def estimator_snapshot(state: EstimatorConversion) -> Snapshot:
    """Return the nodes of the graph, or of the ONNX model before there is one, for the log."""
    if state.graph is not None:
        return take_snapshot(state.graph, state.trace)
    written = parse_model_proto(state.data) if state.data else state.written
    nodes = proto_nodes_for_log(written.graph) if written is not None else ()
    return Snapshot(dict(nodes), take_snapshot(None, state.trace).values)


def _replace_estimator_fields(state: EstimatorConversion, **fields: Any) -> EstimatorConversion:
    """Return a copy of the state with these fields set."""
    return msgspec.structs.replace(state, **fields)


# Facts: what holds of the estimator, of what skl2onnx wrote, and of the graph.

FOUND = "the estimators in the model are known"
KEPT = "skl2onnx loses no setting"
TYPED = "inputs have types that skl2onnx takes"
WRITTEN = "the estimator has an ONNX form"
READ = "each node is read"
DECLARED = "shapes are declared that ONNX cannot infer"
BYTES = "the ONNX form is bytes"
GRAPH = "there is a graph"
COMPUTED = "nodes stand for what the estimator computes"
MODULES = "there is a table of modules"
PLACED = "nodes stand in modules"
IDENTIFIED = "the graph has its name, sizes and digest"


# From the estimator to the bytes of its ONNX form.


def _find_estimators(state: EstimatorConversion) -> EstimatorConversion:
    """Return the state with a list of the estimators in the model and their paths, and with the
    trees of those of other libraries.
    """
    inside = estimator_parts(state.model)
    trees = read_trees_of_parts(part.estimator for part in inside)
    return _replace_estimator_fields(state, inside=inside, trees=trees)


def _check_lost_settings(state: EstimatorConversion) -> EstimatorConversion:
    """Return the state unchanged. Raises NormalizeError if skl2onnx would lose a setting."""
    reject_lost_settings(state.estimators)
    return state


def _set_skl2onnx_input_types(state: EstimatorConversion) -> EstimatorConversion:
    """Return the state with skl2onnx's type for each input."""
    return _replace_estimator_fields(state, types=skl2onnx_input_types(state.args, state.kwargs))


def _attempt_estimator_opsets(
    state: EstimatorConversion, run: Callable[[EstimatorConversion], EstimatorConversion]
) -> EstimatorConversion:
    """Return the state after these passes, with an older opset if the default one fails."""

    def run_passes_with_opset(opset: dict[str, int] | None) -> EstimatorConversion:
        """Return the state after the passes with these opset versions (None: the default)."""
        return run(_replace_estimator_fields(state, opset=opset))

    return convert_with_retry_at_older_opset(
        run_passes_with_opset, state.model, state.estimators, state.trees
    )


def _write_estimator(state: EstimatorConversion) -> EstimatorConversion:
    """Return the state with the ONNX model of skl2onnx, and the estimator of each node."""
    made = write_estimator_onnx(state.model, state.types, state.estimators, state.opset)
    return _replace_estimator_fields(
        state, written=made.model, makers=made.makers, empty=made.empty, points=made.points
    )


def _remove_unread_nodes(state: EstimatorConversion) -> EstimatorConversion:
    """Return the state; remove the nodes of its ONNX model that nothing reads, in place."""
    remove_unread_nodes(state.written.graph)
    return state


def _declare_estimator_shapes(state: EstimatorConversion) -> EstimatorConversion:
    """Return the state; declare shapes that ONNX cannot infer in its model, in place."""
    declare_shapes(state.written.graph, state.types)
    return state


def _serialize_estimator(state: EstimatorConversion) -> EstimatorConversion:
    """Return the state with the bytes of the ONNX model instead of the model."""
    return _replace_estimator_fields(state, data=state.written.SerializeToString(), written=None)


# From these to the graph.


def _read_estimator_graph(state: EstimatorConversion) -> EstimatorConversion:
    """Return the state with the graph that is counted, read from the ONNX bytes."""
    # skl2onnx says of an output what the estimator would give, not what its nodes make
    with filter_warnings("ignore", CrossflopsWarning, "shape mismatch"):
        graph, _ = normalize_onnx_bytes(state.data, state.class_name, state.trace.setting)
    return _replace_estimator_fields(state, graph=graph)


def _count_nodes_as_estimators_compute(state: EstimatorConversion) -> EstimatorConversion:
    """Return the state with nodes that are counted as computations of their estimators."""
    known = {id(estimator): estimator for estimator in state.estimators}
    makers = {node: known.get(maker) for node, maker in state.makers.items()}
    graph = state.current_graph
    nodes = tuple(
        count_as_estimator_computes(node, makers, state.empty, state.points, state.trees)
        for node in graph.nodes
    )
    return _replace_estimator_fields(state, graph=msgspec.structs.replace(graph, nodes=nodes))


def _list_estimator_modules(state: EstimatorConversion) -> EstimatorConversion:
    """Return the state with the table of modules, which are the estimators, in its trace."""
    modules = list_modules(state.inside, set(state.module_path_by_node.values()), state.trees)
    return _replace_estimator_fields(
        state, trace=msgspec.structs.replace(state.trace, modules=modules)
    )


def _place_estimator_nodes(state: EstimatorConversion) -> EstimatorConversion:
    """Return the state with the module path of its estimator on each node of the graph."""
    return _replace_estimator_fields(
        state, graph=place_in_modules(state.current_graph, state.module_path_by_node)
    )


def _identify_estimator_graph(state: EstimatorConversion) -> EstimatorConversion:
    """Return the state with the name, parameter sizes and hash of the model in its graph."""
    sizes = parameter_size_fields(state.trace.modules)
    return _replace_estimator_fields(
        state, graph=with_graph_identity(state.current_graph, state.class_name, **sizes)
    )


_WRITE: Passes[EstimatorConversion] = (
    Pass("write ONNX", _write_estimator, fact_set(FOUND, KEPT, TYPED), fact_set(WRITTEN)),
    Pass("drop unread nodes", _remove_unread_nodes, fact_set(WRITTEN), fact_set(READ)),
    Pass("declare shapes", _declare_estimator_shapes, fact_set(WRITTEN), fact_set(DECLARED)),
    Pass("serialize", _serialize_estimator, fact_set(READ, DECLARED), fact_set(BYTES)),
)
PIPELINE = Pipeline(
    room="crossflops.frontends.sklearn",
    passes=(
        Pass("find estimators", _find_estimators, ensures=fact_set(FOUND)),
        Pass("refuse lost settings", _check_lost_settings, fact_set(FOUND), fact_set(KEPT)),
        Pass("type inputs", _set_skl2onnx_input_types, ensures=fact_set(TYPED)),
        PassGroup(
            "with operators that converters know",
            _attempt_estimator_opsets,
            _WRITE,
            fact_set(FOUND),
        ),
        Pass("read ONNX", _read_estimator_graph, fact_set(BYTES), fact_set(GRAPH)),
        Pass(
            "stand for estimators",
            _count_nodes_as_estimators_compute,
            fact_set(GRAPH),
            fact_set(COMPUTED),
        ),
        Pass("list modules", _list_estimator_modules, fact_set(WRITTEN), fact_set(MODULES)),
        Pass(
            "place in modules", _place_estimator_nodes, fact_set(GRAPH, COMPUTED), fact_set(PLACED)
        ),
        Pass(
            "identify graph",
            _identify_estimator_graph,
            fact_set(GRAPH, MODULES),
            fact_set(IDENTIFIED),
        ),
    ),
    look=estimator_snapshot,
    given=fact_set(),
    wanted=fact_set(PLACED, IDENTIFIED),
)
