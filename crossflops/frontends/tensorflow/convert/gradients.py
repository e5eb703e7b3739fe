"""Mark the gradients of a TensorFlow graph: weights, recomputed and stopped operations.

tf2onnx keeps the names of variables, but for those that a handler writes anew: a bias that moves
into a convolution, the weights of a recurrent layer. These are found by their layer and size.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import msgspec

from crossflops.frontends.converted import all_nested_nodes, with_parameter_names
from crossflops.frontends.own_gradients import Application, with_own_gradient_functions
from crossflops.frontends.tensorflow.convert.own_gradients import (
    KIND,
    OwnGradient,
    operations_without_gradient,
    recompute_regions,
)
from crossflops.frontends.tensorflow.record.layers import LayerTable
from crossflops.ir.graph import WEIGHT_MISSING, Checkpoint, Graph, Node, TensorSpec

_WITHIN = (
    "a checkpoint inside another checkpoint is recomputed twice; only one recomputation is counted"
)


def make_names_unique(names: Iterable[str]) -> list[str]:
    """Return names made unique by numbers: "Variable", "Variable_2"."""
    times: Counter[str] = Counter()
    different = []
    for name in names:
        times[name] += 1
        different.append(name if times[name] == 1 else f"{name}_{times[name]}")
    return different


class WeightNames(NamedTuple):
    """Names of parameters by stored tensor, and the parameters that the graph no longer has."""

    names: Mapping[str, str] = {}
    missing: frozenset[str] = frozenset()


def find_parameter_names(
    graph: Graph, function: Any, full: Any, layers: LayerTable
) -> WeightNames:
    """Return the names of parameters by stored tensor of a graph, and the missing parameters.

    `function` is the traced one, `full` the graph that was converted.
    """
    names = _parameters_by_constant(function, layers)
    stored = {op.outputs[0].name for op in full.get_operations() if op.type == "Const"}
    read = {name for name in stored if full.get_tensor_by_name(name).consumers()}
    anew, lost = _match_new_tensors(graph, names, stored, layers)
    missing = {names[constant] for constant in names if constant in read} & lost
    return WeightNames(names | anew, frozenset(missing))


def mark_unknown_gradients_and_recomputed_nodes(
    graph: Graph, frozen: Any, owns: Sequence[OwnGradient], missing: Collection[str]
) -> Graph:
    """Return the graph with marks on nodes that are recomputed, or have no known gradient.

    `frozen` is the graph as TensorFlow runs it, `owns` are its custom gradient functions,
    `missing` parameters that the graph no longer has.
    """
    nodes = tuple(_with_gradient_marks(graph.nodes, _GradientMarks(frozen, owns), missing))
    return msgspec.structs.replace(graph, nodes=nodes)


def add_custom_gradient_functions(
    graph: Graph,
    owns: Iterable[OwnGradient],
    names: Mapping[str, str],
    provided: Mapping[str, Sequence[str]],
) -> Graph:
    """Return the graph with its custom gradient functions, if their gradients are followed.

    `provided` are their inputs, `names` those of parameters by stored tensors.
    """
    applied = (
        _custom_gradient_application(own, graph, provided.get(own.name, ()), names) for own in owns
    )
    return with_own_gradient_functions(graph, filter(None, applied))


def _custom_gradient_application(
    own: OwnGradient, graph: Graph, provided: Sequence[str], names: Mapping[str, str]
) -> Application | None:
    """Return where a custom gradient function is used in the graph, or None if not followed."""
    if own.unfollowed or len(provided) != own.operands:
        return None
    return Application(
        name=own.name,
        kind=KIND,
        home=own.name,
        given={index: names.get(value, value) for index, value in enumerate(provided)},
        inside=frozenset(node.key for node in graph.nodes if node.call in own.inside),
    )


class _GradientMarks:
    """Facts on gradients of a frozen graph by operation name: recomputed, stopped, unknown.

    `reasons` says why gradients are not followed. Recomputed operations are in `again` with a
    number, and no gradient flows through `stopped`.
    """

    def __init__(self, frozen: Any, owns: Iterable[OwnGradient]) -> None:
        """Find recomputed regions and operations without gradients in a frozen graph."""
        self.again: dict[str, int] = {}
        known = operations_without_gradient(frozen)
        self.reasons, self.stopped = dict(known.reasons), known.stopped
        for number, part in enumerate(recompute_regions(frozen), 1):
            self.reasons |= dict.fromkeys(part & self.again.keys(), _WITHIN)
            self.again |= dict.fromkeys(part, number)
        for own in owns:
            if own.unfollowed:
                self.reasons |= dict.fromkeys(own.inside | own.behind, own.unfollowed)


def _parameters_by_constant(function: Any, layers: LayerTable) -> dict[str, str]:
    """Return the names of parameters by the names of their constants in a frozen graph.

    tensorflow/python/framework/convert_to_constants.py: a constant has the name of the placeholder
    by which the function captures the variable.
    """
    names = {}
    stored = {id(variable.handle): variable for variable in function.graph.variables}
    for outer, placeholder in function.graph.captures:
        name = layers.weights.get(id(stored.get(id(outer))))
        if name is not None:
            names[placeholder.name] = name
    return names


def _match_new_tensors(
    graph: Graph, names: dict[str, str], stored: set[str], layers: LayerTable
) -> tuple[dict[str, str], set[str]]:
    """Return parameter names by tensor that tf2onnx made, and the parameters without a match."""
    nodes = list(all_nested_nodes(graph.nodes))
    present = {spec.name for node in nodes for spec in node.inputs if spec is not None}
    lost = {name for constant, name in names.items() if constant not in present}
    shapes = {
        f"{path}.{stored_value.name}".removeprefix("."): (path, stored_value.shape)
        for row in layers.rows
        for path in row.names
        for stored_value in row.params
    }
    anew: dict[str, str] = {}
    for node, spec in _new_weight_tensors(nodes, stored):
        near = [
            name
            for name in sorted(lost)
            if name in shapes and _is_nested_module(shapes[name][0], node.path)
        ]
        similar = [
            name
            for name in near
            if _sizes_without_ones(shapes[name][1]) == _sizes_without_ones(spec.shape or ())
        ]
        # a weight that is cast is reshaped with that, as the kernels of attention by their heads
        similar = similar or [name for name in near if prod(shapes[name][1]) == spec.numel]
        # biases of a recurrent layer, which ONNX wants twice, and weights side by side
        parts = [name for name in near if spec.numel % max(prod(shapes[name][1]), 1) == 0]
        if not similar and not parts:  # a further use, as of a tied table that is transposed
            similar = _names_if_single(
                name
                for name in sorted({*names.values()} & shapes.keys())
                if _is_nested_module(shapes[name][0], node.path)
                and _sizes_without_ones(shapes[name][1]) == _sizes_without_ones(spec.shape or ())
            )
        if spec.name not in anew and (similar or parts):
            anew[spec.name] = (similar or parts)[0]
            lost.discard(anew[spec.name])
    return anew, lost


def _names_if_single(names: Iterable[str]) -> list[str]:
    """Return the names if there is exactly one, otherwise []."""
    distinct = list(names)
    return distinct if len(distinct) == 1 else []


def _new_weight_tensors(
    nodes: Iterable[Node], stored: set[str]
) -> Iterator[tuple[Node, TensorSpec]]:
    """Yield (node, tensor) of stored floats that tf2onnx made itself, most axes first."""
    pairs = [
        (node, spec)
        for node in nodes
        for spec in node.inputs
        if spec is not None
        and spec.role == "parameter"
        and "float" in spec.dtype
        and spec.shape
        and spec.name not in stored
    ]
    return iter(sorted(pairs, key=lambda pair: -len(pair[1].shape or ())))


def _is_nested_module(path: str, other: str) -> bool:
    """Return whether one of two module paths is inside the other, or equal to it."""
    return not path or not other or f"{path}.".startswith(f"{other}.") or other.startswith(path)


def _sizes_without_ones(shape: tuple[int, ...]) -> list[int]:
    """Return the sizes of a shape other than 1, in ascending order."""
    return sorted(size for size in shape if size != 1)


def with_argument_names(graph: Graph, function: Any) -> Graph:
    """Return the graph with its inputs named after the function's arguments ("0.kernel")."""
    tensors = (tensor.name for tensor in function.inputs)
    names = dict(zip(tensors, argument_names(function), strict=False))
    inputs = (msgspec.structs.replace(i, name=names.get(i.name, i.name)) for i in graph.inputs)
    outputs = (msgspec.structs.replace(o, name=names.get(o.name, o.name)) for o in graph.outputs)
    return msgspec.structs.replace(
        with_parameter_names(graph, names), inputs=tuple(inputs), outputs=tuple(outputs)
    )


def argument_names(function: Any) -> list[str]:
    """Return the names of a concrete function's inputs by argument, such as "0" or "0.kernel".

    They are in the order of its inputs, before its captures.
    """
    from tensorflow.python.util.nest import flatten_with_joined_string_paths

    return [
        name
        for stored in function.structured_input_signature
        for name, _ in flatten_with_joined_string_paths(stored, separator=".")
    ]


def sever_stopped_nodes(graph: Graph, stopped: Collection[str]) -> Graph:
    """Return the graph with marks on these nodes: no gradient flows through their input 0."""

    def with_severed_input(node: Node) -> Node:
        """Return the node, and those in its bodies, with the input that passes no gradient."""
        bodies = tuple(sever_stopped_nodes(body, stopped) for body in node.bodies)
        indices = (0,) if node.key in stopped else node.training.severed
        return msgspec.structs.replace(node.with_training(severed=indices), bodies=bodies)

    return msgspec.structs.replace(graph, nodes=tuple(map(with_severed_input, graph.nodes)))


def _with_gradient_marks(
    nodes: Iterable[Node], marks: _GradientMarks, missing: Collection[str]
) -> Iterator[Node]:
    """Yield the nodes with marks for recomputation, and for stopped or unknown gradients."""
    for node in nodes:
        bodies = tuple(
            msgspec.structs.replace(
                body, nodes=tuple(_with_gradient_marks(body.nodes, marks, missing))
            )
            for body in node.bodies
        )
        number = marks.again.get(node.call)
        part = Checkpoint(number, "needed") if number else None
        reason = marks.reasons.get(node.call, "")
        if any(name.rpartition(".")[0] == node.path for name in missing):
            reason = WEIGHT_MISSING
        severed = node.training.severed
        if node.call in marks.stopped:
            severed = tuple(range(len(node.inputs)))
        marked = node.with_training(own_backward=reason, checkpoint=part, severed=severed)
        yield msgspec.structs.replace(marked, bodies=bodies)
