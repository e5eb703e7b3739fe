"""Infer the shape of every value from the inputs onwards, in rounds; compare with declared shapes.

What the file says about values inside it is used where inference ends, and held against it
where it does not.
"""

import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from crossflops.errors import CrossflopsWarning, TargetError
from crossflops.frontends.onnx.functions import Calls
from crossflops.frontends.onnx.inference import (
    infer_onnx_shapes,
    store_known_sizes,
    strict_inference_objection,
)
from crossflops.frontends.onnx.loops import (
    RAN,
    has_operator_at_any_depth,
    is_onnx_operator,
    keys_of_loop_values_with_varying_shape,
    levels_of_all_graphs,
    loop_value_key,
    write_chosen_branch_shapes,
    write_loop_shapes,
)
from crossflops.frontends.onnx.stand_ins import has_operator_without_inference, substitute_opset
from crossflops.frontends.onnx.types import (
    Type,
    graph_value_types,
    is_tensor_type,
    remove_shape,
    shape_from_proto,
    tensor_type,
    write_tensor_type,
)
from crossflops.ir.graph import Graph, Node
from crossflops.ir.measurement import Observation
from crossflops.load.order import node_subgraphs, onnx_node_label
from crossflops.load.payload import ELEMENT_TYPES, tensor_dims_problem
from crossflops.load.protobuf import has_own_shape_inference
from crossflops.load.reader import external_data_file

# Inference in rounds: what one finds out about loops, the next one starts from.

_ROUNDS = 48  # a Loop behind or inside a Loop takes one or two
_DEEPEST = 8  # loops within loops that are unrolled


class InferenceRequest(NamedTuple):
    """The caller's options for inference, by node name: how often loops run, which branches count.

    And the functions of the model that are called, where they are not inlined. A `flat` model has
    none, nor any node with a body: these need not be searched.
    """

    trips: dict[str, int]
    branches: dict[str, str]
    calls: Calls | None = None
    flat: bool = False


class InferredModel(NamedTuple):
    """A model with inferred shapes, and the values of its loops whose shape varies between runs.

    `varying` are keys of `loop_value_key`.
    """

    model: Any
    varying: set[str]


def infer_and_unroll(model: Any, requested: InferenceRequest) -> InferredModel:
    """Return the model with inferred shapes and unrolled loops."""
    if requested.flat or (
        requested.calls is None and not has_operator_at_any_depth(model.graph, "Loop", "If")
    ):
        return InferredModel(_infer_whole_model(model, requested), set())
    from crossflops.frontends.onnx.unroll import (  # most have no loop
        Unrolling,
        loops_with_varying_branch,
        loops_with_varying_shapes,
        unroll_loops,
    )

    inferred, varying = _infer_shapes_until_stable(model, requested)
    for _ in range(_DEEPEST):
        sized = loops_with_varying_shapes(inferred.graph, requested.trips, varying)
        chosen = sized or loops_with_varying_branch(
            inferred.graph, requested.trips, requested.branches
        )
        version = next((opset.version for opset in model.opset_import if not opset.domain), 1)
        config = Unrolling(version, (requested.trips, requested.branches))
        if not chosen or not unroll_loops(model.graph, chosen, config, bool(sized)):
            break
        inferred, varying = _infer_shapes_until_stable(model, requested)
    return InferredModel(inferred, varying)


def _infer_shapes_until_stable(model: Any, requested: InferenceRequest) -> InferredModel:
    """Return the model with inferred shapes, without unrolling.

    As soon as a value is found whose shape varies between runs of its loop, everything inferred
    with its first shape is discarded.
    """
    varying: set[str] = set()
    inferred = _infer_whole_model(model, requested)
    for _ in range(_ROUNDS):
        before = len(varying)
        changed = write_loop_shapes(inferred.graph, requested.trips, varying)
        changed |= write_chosen_branch_shapes(inferred.graph, requested.branches)
        if requested.calls is not None:
            changed |= requested.calls.write_result_types(inferred.graph)
        if not changed:
            varying |= keys_of_loop_values_with_varying_shape(inferred.graph)
        if len(varying) > before:
            inferred = _infer_whole_model(model, requested)
        elif changed:
            inferred = _infer_whole_model(inferred, requested)
        else:
            return InferredModel(inferred, varying)
    return InferredModel(_infer_whole_model(model, requested), varying)


def _infer_whole_model(model: Any, requested: InferenceRequest) -> Any:
    """Return the model with shapes that ONNX infers once, with substitutes where needed."""
    count = len(model.graph.node)
    # what a call gives back is not known at first, which would be an error
    strict = requested.calls is None
    if has_operator_without_inference(model.graph, substitute_opset(model)):
        from crossflops.frontends.onnx.stand_ins.exchange import (
            infer_with_stand_ins as infer_foreign,
        )

        inferred = infer_foreign(model, strict)
    else:
        inferred = infer_onnx_shapes(model, strict)
    if len(inferred.graph.node) != count:
        raise TargetError(
            "the shape inference of onnx removed nodes of the model",
            "install a newer onnx: pip install --upgrade onnx",
        )
    return inferred


OBJECTION = "crossflops.objection"  # the key, in the properties of a node
_MOST_WARNINGS = 5
Declared = dict[str, Type]


class ImpossibleShapeError(TargetError):
    """A node would have a result whose shape no tensor can have.

    `key` is the node's key, `types` are those of its operands.
    """

    def __init__(
        self, message: str, hint: str, key: str, node: Any, types: Mapping[str, Type]
    ) -> None:
        """Take the error's text and hint, the node with its key, and the types known so far."""
        super().__init__(message, hint)
        self.key = key
        self.node = node
        self.types = types


_AWAY = r"external data into raw data for tensor: ([^\n]*)"
_OF_A_RUN = re.compile(r"^.*\[\d+\]/")  # before names of values in a loop that is unrolled
_OBJECTION = r"\(op_type:(?:Loop|Scan), node name: (.*?)\): ([^\n]*)"


class _Level(NamedTuple):
    """A graph with the types in it, and whether it has the same shapes in every run."""

    graph: Any
    steady: bool
    types: dict[str, Type]


class Gap(NamedTuple):
    """A value whose shape is unknown, with the graph that it is in."""

    graph: Any
    name: str


def infer_shapes(
    model: Any,
    bound: Mapping[str, int],
    requested: InferenceRequest,
    trusted: bool,
    ran: Mapping[str, Type] = {},
) -> tuple[Any, dict[str, Type]]:
    """Return the model with all shapes that can be known, and the types of its values by name.

    The options in `requested` grow with the copies of loops.

    `trusted` says whether the file's declarations hold for these inputs; `ran` are the types that
    a run showed. Shapes that ONNX's own inference leaves open come from the run, from the file,
    and otherwise from onnx-shape-inference where that is installed. Contradictions are warnings.
    Raises NormalizeError, or TargetError for shapes that no tensor can have.
    """
    if trusted:
        _write_contradictions_into_loops(model, bound)
    stated = _remove_declarations(model.graph, bound, flat=requested.flat)
    declared = stated if trusted else {}
    model, varying = infer_and_unroll(model, requested)
    inferred = _levels_with_types(model.graph, varying, requested.flat)
    _warn_of_other_shapes(inferred, declared, "the file declares")
    _warn_of_other_shapes(inferred, ran, "the run has")
    gaps = _unknown_shape_values(inferred)
    for _ in range(_DEEPEST):
        if not gaps or not store_known_sizes(model.graph):
            break
        model, varying = infer_and_unroll(model, requested)
        inferred = _levels_with_types(model.graph, varying, requested.flat)
        gaps = _unknown_shape_values(inferred)
    _write_inference_errors_into_nodes(model, gaps)
    if gaps and _fill_shape_gaps(gaps, {**declared, **ran}):
        model, varying = infer_and_unroll(model, requested)
        inferred = _levels_with_types(model.graph, varying, requested.flat)
        gaps = _unknown_shape_values(inferred)
        _write_inference_errors_into_nodes(model, gaps)
    if gaps and _fill_from_symbolic_inference(model, inferred, gaps):
        model, varying = infer_and_unroll(model, requested)
        inferred = _levels_with_types(model.graph, varying, requested.flat)
        _unknown_shape_values(inferred)
    return model, inferred[0].types


def _write_inference_errors_into_nodes(model: Any, gaps: list[Gap]) -> None:
    """Write the errors of shape inference into the metadata of the nodes that cause them.

    Their operands have shapes, and their results none.
    """
    missing = {gap.name for gap in gaps}
    graphs = list(_all_graphs(model.graph)) if gaps else []
    types = {name: kind for graph in graphs for name, kind in graph_value_types(graph).items()}
    known = {name for name, kind in types.items() if kind.dtype and kind.shape is not None} | {""}
    opset = {opset.domain: opset.version for opset in model.opset_import}
    suspects = [
        node
        for graph in graphs
        for node in graph.node
        if not missing.isdisjoint(node.output) and known.issuperset(node.input)
        if has_own_shape_inference(node.domain, node.op_type, opset.get(node.domain, 1))
        and not node_subgraphs(node)
    ]
    for node in suspects[:_MOST_WARNINGS]:
        if complaint := strict_inference_objection(_single_node_model(model, node, types, graphs)):
            if away := re.search(_AWAY, complaint):
                raise _missing_tensor_error(node, away[1], graphs)
            _write_objection_into_node(node, complaint)


def _missing_tensor_error(node: Any, name: str, graphs: Iterable[Any]) -> TargetError:
    """Return the error for sizes that are computed from a tensor whose file is missing."""
    stored = (tensor for graph in graphs for tensor in graph.initializer)
    path = next((external_data_file(tensor) for tensor in stored if tensor.name == name), "")
    return TargetError(
        f"node {node.name or node.op_type!r} needs the values of {name!r}, which are stored in "
        + (f"the missing file {path!r}" if path else "a missing file"),
        f"put {path or 'that file'} into the folder of the model: files of weights may be "
        "missing, but this tensor is needed to compute sizes",
    )


def _single_node_model(
    model: Any, node: Any, types: Mapping[str, Type], graphs: Iterable[Any]
) -> Any:
    """Return a model of one node, with the types of its inputs and their stored values."""
    alone = type(model)(ir_version=model.ir_version, opset_import=model.opset_import)
    open_ = dict.fromkeys(filter(None, node.input))
    for graph in graphs:
        for tensor in graph.initializer:
            if tensor.name in open_:
                alone.graph.initializer.add().CopyFrom(tensor)
                del open_[tensor.name]
        for maker in graph.node:
            if maker.op_type == "Constant" and maker.output[0] in open_:
                alone.graph.node.add().CopyFrom(maker)
                del open_[maker.output[0]]
    alone.graph.node.add().CopyFrom(node)
    for name in open_:
        write_tensor_type(
            alone.graph.input.add(name=name).type, types[name].shape or (), types[name].dtype
        )
    for name in filter(None, node.output):
        alone.graph.output.add(name=name)
    return alone


def _all_graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph, and all graphs in its nodes at any depth."""
    return (inner for inner, _ in _all_graphs_and_steadiness(graph, frozenset(), True))


def _all_graphs_and_steadiness(
    graph: Any, varying: Collection[str], steady: bool
) -> Iterator[tuple[Any, bool]]:
    """Yield a graph and all graphs in it, and whether all runs of each have equal shapes."""
    yield graph, steady
    for node in graph.node:
        for body in node_subgraphs(node) if node.attribute else ():
            same = not varying or all(
                loop_value_key(node, value) not in varying for value in body.input
            )
            yield from _all_graphs_and_steadiness(body, varying, steady and same)


def _write_contradictions_into_loops(model: Any, bound: Mapping[str, int]) -> None:
    """Write into Loop and Scan nodes how their inputs contradict their bodies, if they do.

    A runtime compares the nodes of a body with the sizes that the body declares.
    """
    loops = {
        node.name: node for node in model.graph.node if is_onnx_operator(node, "Loop", "Scan")
    }
    if not loops:
        return
    copy = type(model)()
    copy.CopyFrom(model)
    _remove_declarations(copy.graph, bound, with_body_inputs=False)
    for name, complaint in re.findall(_OBJECTION, strict_inference_objection(copy)):
        if name in loops:
            _write_objection_into_node(loops[name], complaint)


def _write_objection_into_node(node: Any, complaint: str) -> None:
    """Write a text on a problem into the metadata of a node, as its last entry."""
    node.metadata_props.add(key=OBJECTION, value=complaint.rpartition("Error] ")[2])


def _remove_declarations(
    graph: Any, bound: Mapping[str, int], with_body_inputs: bool = True, flat: bool = False
) -> Declared:
    """Remove the declared shapes of computed values, in place; return the full ones by name.

    Declarations of body inputs are removed only if `with_body_inputs`.
    """
    taken: Declared = {}
    double: set[str] = set()
    for number, stored in enumerate((graph,) if flat else _all_graphs(graph)):
        provided = (
            stored.input if number and with_body_inputs else ()
        )  # the inputs of the model itself are what we start from
        kept = []
        open_values = (*stored.output, *provided)
        for index, value in enumerate((*open_values, *stored.value_info)):
            kind = value.type
            for dim in kind.tensor_type.shape.dim if bound else ():
                if dim.dim_param in bound:
                    dim.dim_value = bound[dim.dim_param]
            stated = tensor_type(kind)
            if stated is not None and taken.setdefault(value.name, stated) != stated:
                double.add(value.name)
            if stated is None and index >= len(open_values):
                kept.append(value)
        del stored.value_info[:]
        stored.value_info.extend(kept)
        for value in open_values:
            # an output without a type may yet turn out to be a sequence
            if is_tensor_type(value.type) and (number or value.type.HasField("tensor_type")):
                remove_shape(value.type)
    return {
        name: stated
        for name, stated in taken.items()
        if name not in double
        and stated.shape is not None
        and not tensor_dims_problem(stated.shape)
    }


def _levels_with_types(graph: Any, varying: Collection[str], flat: bool) -> list[_Level]:
    """Return a graph and all graphs in it, each with its types.

    In a branch, which may never run, a shape that no tensor can have is removed.
    """
    if flat:
        return [_Level(graph, True, graph_value_types(graph))]
    inside = []
    for depth, (inner, steady) in enumerate(_all_graphs_and_steadiness(graph, varying, True)):
        if depth:
            _remove_impossible_shapes(inner)
        inside.append(_Level(inner, steady, graph_value_types(inner)))
    return inside


def _unknown_shape_values(inferred: Iterable[_Level]) -> list[Gap]:
    """Return the results of nodes whose shape is unknown. Raises TargetError for impossible ones.

    A value that a loop computes in another shape with every run is left out.

    Raises TargetError for a shape that no tensor can have.
    """
    gaps: list[Gap] = []
    for inner, steady, types in inferred:
        missing = []
        for number, node in enumerate(inner.node):
            for name in node.output[:]:
                known = types.get(name)
                if known is None or known.shape is None:
                    missing.append(name)
                elif wrong := tensor_dims_problem(known.shape):
                    raise ImpossibleShapeError(
                        f"{name!r} of node {onnx_node_label(node, number)!r} {wrong}",
                        "the attributes or constants of that node are damaged: export the "
                        "model again",
                        onnx_node_label(node, number),
                        node,
                        types,
                    )
        if missing and steady:
            others = _non_tensor_names(inner) | {""}
            gaps += (Gap(inner, name) for name in missing if name not in others)
    return gaps


def _non_tensor_names(graph: Any) -> set[str]:
    """Return the names of a graph's values that are not tensors."""
    values = (*graph.value_info, *graph.output)
    return {value.name for value in values if not is_tensor_type(value.type)}


def _remove_impossible_shapes(graph: Any) -> None:
    """Remove the declared shapes in a graph that no tensor can have, in place."""
    for value in (*graph.value_info, *graph.output):
        shape = shape_from_proto(value.type) if is_tensor_type(value.type) else None
        if shape is not None and tensor_dims_problem(shape):
            remove_shape(value.type)


def _fill_shape_gaps(gaps: list[Gap], types: Mapping[str, Type]) -> bool:
    """Write types by name to the values of unknown shape; return whether any was in `types`.

    The type of a value in the body of a Loop holds in every run.
    """
    filled = False
    for inner, name in gaps:
        stated = types.get(name) or types.get(_OF_A_RUN.sub("", name))
        if stated is not None:
            values = (*inner.value_info, *inner.output)
            value_info = next((value for value in values if value.name == name), None)
            write_tensor_type(
                (value_info or inner.value_info.add(name=name)).type,
                stated.shape or (),
                stated.dtype,
            )
            filled = True
    return filled


def _fill_from_symbolic_inference(model: Any, known: Iterable[_Level], gaps: list[Gap]) -> bool:
    """Fill unknown shapes by onnx-shape-inference, if installed; return whether it filled any."""
    try:
        import onnx_ir
        from onnx_shape_inference import infer_symbolic_shapes
    except ImportError:
        return False
    try:
        inferred = onnx_ir.from_proto(model)
        infer_symbolic_shapes(inferred, warn_on_missing=False)
        types = _full_shape_types(onnx_ir.to_proto(inferred).graph)
    except Exception as error:  # whatever it stumbles over, what is known already stands
        warnings.warn(
            f"onnx-shape-inference failed: {error}", category=CrossflopsWarning, stacklevel=2
        )
        return False
    _warn_of_other_shapes(known, types, "onnx-shape-inference gives")
    return _fill_shape_gaps(gaps, types)


def _full_shape_types(graph: Any) -> dict[str, Type]:
    """Return by name the types of all values, also in bodies, with known and valid shapes."""
    return {
        name: stated
        for stored in _all_graphs(graph)
        for name, stated in graph_value_types(stored).items()
        if stated.shape is not None and not tensor_dims_problem(stated.shape)
    }


def _warn_of_other_shapes(
    inferred: Iterable[_Level], types: Mapping[str, Type], origin: str
) -> None:
    """Warn of each result of a node that has another shape in `types`, which is from `origin`."""
    compared = 0
    for stored, _, known in inferred if types else ():
        others = {
            name: native
            for name, stated in types.items()
            if name in known
            and (native := known[name].shape) is not None
            and native != stated.shape
            and not tensor_dims_problem(native)
        }
        for number, node in enumerate(stored.node if others else ()):
            for name in node.output:
                if name in others and compared < _MOST_WARNINGS:
                    native, reported = others[name], types[name]
                    compared += 1
                    warnings.warn(
                        f"shape mismatch for {name!r} (node {onnx_node_label(node, number)!r}): "
                        f"{origin} {reported.shape}, inference gives {native}",
                        category=CrossflopsWarning,
                        stacklevel=2,
                    )


# What a run showed, put into the terms of a file: names of loops, and types of values.

_NUMBERS = {name: number for number, name in ELEMENT_TYPES.items()}


def merge_observed_control(
    graph: Any, requested: InferenceRequest, observation: Observation
) -> InferenceRequest:
    """Return the request with loop counts and branches of a run, where the caller gave none."""
    trips, branches = {}, {}
    for enclosing in levels_of_all_graphs(graph):
        for node in enclosing.graph.node:
            first = node.output[0] if node.output else ""
            if first in observation.trips:
                trips[node.name] = observation.trips[first]
            if first in observation.branches:
                branches[node.name] = f"{RAN}{observation.branches[first]}"
    return requested._replace(
        trips=trips | requested.trips, branches=branches | requested.branches
    )


def types_of_run(observation: Observation | None) -> Mapping[str, Type]:
    """Return the types of values by name, as a run showed them; empty without a run."""
    values = observation.values if observation else {}
    return {
        name: Type(_NUMBERS.get(value.dtype, 0), value.shape) for name, value in values.items()
    }


def mark_nodes_that_run_changed(graph: Graph, without_run: Graph) -> Graph:
    """Return the graph with marks on nodes that differ from the same graph without a run."""
    before = {node.key: node for node in without_run.nodes}
    nodes = tuple(_mark_changed_node(node, before.get(node.key)) for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=nodes)


def _mark_changed_node(node: Node, before: Node | None) -> Node:
    """Return the node with a mark if its shapes or branch differ from those in `before`."""
    same = before is not None and _control_state(node) == _control_state(before)
    others = before.bodies if same and before is not None else ()
    bodies = (
        tuple(map(mark_nodes_that_run_changed, node.bodies, others))
        if same
        else tuple(
            mark_nodes_that_run_changed(body, msgspec.structs.replace(body, nodes=()))
            for body in node.bodies
        )
    )
    depends = (
        before is None
        or not same
        or _node_shapes_and_values(node) != _node_shapes_and_values(before)
    )
    return msgspec.structs.replace(node, bodies=bodies, depends_on_inputs=depends)


def _control_state(node: Node) -> tuple[object, ...]:
    """Return a node's loop count, chosen branch and number of bodies, for comparison."""
    return node.trips, node.choice, len(node.bodies)


def _node_shapes_and_values(node: Node) -> tuple[object, ...]:
    """Return the shapes of a node's inputs and outputs and its small values, for comparison."""
    return tuple(tensor and tensor.shape for tensor in (*node.inputs, *node.outputs)), node.values
