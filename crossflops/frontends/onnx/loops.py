"""Find how often Loop and Scan bodies run, which branch of an If counts, and their results."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from crossflops.errors import InputError
from crossflops.frontends.onnx.types import (
    Shape,
    Type,
    graph_value_types,
    shape_from_proto,
    write_tensor_type,
)
from crossflops.frontends.onnx.values import (
    Value,
    single_integer,
    small_values_by_name,
    tensor_sequence_length,
)
from crossflops.ir.graph import Control
from crossflops.load.order import node_subgraphs, onnx_node_label

# A Loop whose condition compares counters: stepped through until it is false.

_MOST_STEPS = 10_000


def run_count_by_counters(
    body: Any,
    carried: list[Value | None],
    most: int | None,
    shapes: Mapping[str, tuple[int, ...] | None],
    enclosing: Mapping[str, Value],
) -> int | None:
    """Return how often a Loop's body runs, found by its counters step by step, or None.

    `carried` are the values that the loop starts with, as far as they are small whole numbers,
    `most` is the maximum number of runs, `shapes` and `enclosing` are further facts known inside.
    """
    for done in range(_MOST_STEPS):
        if most is not None and done >= most:
            return most
        names = [value.name for value in body.input]
        starts = [Value(0, (done,)), Value(0, (1,)), *carried]
        values = {n: v for n, v in zip(names, starts, strict=False) if v is not None}
        values_inside = small_values_by_name(body.node, (), shapes, {**enclosing, **values})
        goes_on = single_integer(values_inside.get(body.output[0].name))
        if goes_on is None:
            return None
        if not goes_on:
            return done + 1
        results = [value.name for value in body.output[1 : len(carried) + 1]]
        carried = [values_inside.get(name) for name in results]
    return None


_INT64, _BOOL = 7, 9  # TensorProto.DataType
LOOPS = ("Loop", "Scan", "SequenceMap")


class Level(NamedTuple):
    """A graph, and the shapes and small values known in it, also those of enclosing graphs."""

    graph: Any
    shapes: dict[str, Shape]
    values: dict[str, Value]


def graph_level(
    graph: Any,
    outer: Level | None = None,
    types: Mapping[str, Type] | None = None,
    bound: bool = False,
) -> Level:
    """Return a graph with the shapes and small values known in it and in enclosing graphs.

    The inputs of a subgraph have no known values, unless they are `bound` in `outer`.
    """
    kinds = graph_value_types(graph) if types is None else types
    shapes = {
        **(outer.shapes if outer else {}),
        **{name: kind.shape for name, kind in kinds.items()},
    }
    enclosing = dict(outer.values) if outer else {}
    for value in () if bound or not enclosing else graph.input:
        enclosing.pop(value.name, None)
    values = small_values_by_name(graph.node, graph.initializer, shapes, enclosing)
    return Level(graph, shapes, values)


def subgraph_of_attribute(node: Any, name: str = "body") -> Any:
    """Return the subgraph in a node's attribute of this name, or None."""
    return next(
        (
            attribute.g
            for attribute in node.attribute
            if attribute.name == name and attribute.HasField("g")
        ),
        None,
    )


def is_onnx_operator(node: Any, *names: str) -> bool:
    """Return whether a node is one of the named operators, in the domain ai.onnx."""
    return node.op_type in names and not node.domain


def loop_trip_count(node: Any, enclosing: Level, provided: Mapping[str, int]) -> int | None:
    """Return how often a Loop, Scan or SequenceMap runs, or None if unknown."""
    if node.name in provided:
        return provided[node.name]
    if is_onnx_operator(node, "Scan"):
        return _scan_length(node, enclosing)
    if is_onnx_operator(node, "SequenceMap"):
        return tensor_sequence_length(enclosing.values.get(node.input[0])) if node.input else None
    values = [enclosing.values.get(name) for name in (*node.input[:2], "", "")[:2]]
    condition = single_integer(values[1])
    if condition == 0:
        return 0
    if node.input[1:2] not in ([], [""]) and condition is None:
        return None
    most = single_integer(values[0])
    if most is None and node.input[:1] not in ([], [""]):
        return None
    if most is not None and (most <= 0 or _is_condition_always_true(node, enclosing)):
        return max(most, 0)
    return _counter_trip_count(node, enclosing, most)


def _counter_trip_count(node: Any, enclosing: Level, most: int | None) -> int | None:
    """Return how often a Loop runs (at most `most`) if its counters decide it, or None."""
    body = subgraph_of_attribute(node)
    if body is None or len(body.input) < 2 or not body.output:
        return None
    inner = graph_level(body, enclosing)
    carried = [enclosing.values.get(name) for name in node.input[2:]]
    return run_count_by_counters(body, carried, most, inner.shapes, inner.values)


def _is_condition_always_true(node: Any, enclosing: Level) -> bool:
    """Return whether the condition on which a Loop continues is always true."""
    body = subgraph_of_attribute(node)
    if body is None or len(body.input) < 2 or not body.output:
        return False
    inner = graph_level(body, enclosing)
    inner.values[body.input[1].name] = Value(0, (1,))
    return (
        single_integer(
            small_values_by_name(body.node, (), inner.shapes, inner.values).get(
                body.output[0].name
            )
        )
        == 1
    )


def _scan_length(node: Any, enclosing: Level) -> int | None:
    """Return how often a Scan runs, which is the length of its first scanned axis, or None."""
    indices = _attribute_integers(node, "num_scan_inputs", (0,))[0]
    if not 0 < indices <= len(node.input):
        return None
    if not any(attribute.name == "num_scan_inputs" for attribute in node.attribute):
        return None
    axes = _attribute_integers(node, "scan_input_axes", (0,) * indices)
    shape = enclosing.shapes.get(node.input[-indices])
    if shape is None or not axes or not -len(shape) <= axes[0] < len(shape):
        return None
    return shape[axes[0]]


def _attribute_integers(node: Any, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return the integers in a node's attribute as a tuple, or the default if it is not set."""
    for attribute in node.attribute:
        if attribute.name == name:
            return tuple(attribute.ints) or (attribute.i,)
    return default


def has_operator_at_any_depth(graph: Any, *names: str) -> bool:
    """Return whether a graph or a graph nested in it has one of the named operators of ai.onnx."""
    for node in graph.node:
        if is_onnx_operator(node, *names):
            return True
        if node.attribute and any(
            has_operator_at_any_depth(body, *names) for body in node_subgraphs(node)
        ):
            return True
    return False


def write_loop_shapes(
    graph: Any, provided: Mapping[str, int], varying: set[str], outer: Level | None = None
) -> bool:
    """Write shapes inferred around and in loops, in place; return whether any changed.

    A value that a Loop carries has one shape if the body returns it with its initial shape;
    `varying` collects the other ones. Everything inferred with such a shape is wrong.
    """
    if not has_operator_at_any_depth(graph, "Loop"):
        return False
    enclosing = graph_level(graph, outer)
    changed = False
    for node in graph.node:
        if is_onnx_operator(node, "Loop") and subgraph_of_attribute(node) is not None:
            changed |= _write_shapes_of_loop(node, enclosing, provided, varying)
        for body in node_subgraphs(node):
            changed |= write_loop_shapes(body, provided, varying, enclosing)
    return changed


def loop_value_key(node: Any, value: Any) -> str:
    """Return a key for a value that a Loop carries: the name of the Loop and of the value."""
    return f"{node.name}/{value.name}"


def keys_of_loop_values_with_varying_shape(graph: Any) -> set[str]:
    """Return the keys of carried values whose shape may differ between runs of their Loop."""
    unproven_loops = set()
    for node in graph.node:
        body = subgraph_of_attribute(node) if is_onnx_operator(node, "Loop") else None
        inside = graph_value_types(body) if body is not None else {}
        for value, result in zip(body.input[2:], body.output[1:], strict=False) if body else ():
            came, gave = shape_from_proto(value.type), inside.get(result.name)
            if came is not None and (gave is None or gave.shape != came):
                unproven_loops.add(loop_value_key(node, value))
        for inner in node_subgraphs(node):
            unproven_loops |= keys_of_loop_values_with_varying_shape(inner)
    return unproven_loops


def _write_shapes_of_loop(
    node: Any, enclosing: Level, provided: Mapping[str, int], varying: set[str]
) -> bool:
    """Write known types of a Loop's carried values and results; return whether any changed."""
    body = subgraph_of_attribute(node)
    carried = max(len(node.input) - 2, 0)
    changed = False
    for value, kind in zip(body.input[:2], (_INT64, _BOOL), strict=False):
        if shape_from_proto(value.type) is None:  # the counter and the condition
            write_tensor_type(value.type, (), kind)
            changed = True
    inside = graph_value_types(body)
    for index, name in enumerate(node.input[2:]):
        if len(body.input) <= index + 2 or len(body.output) <= index + 1:
            break
        value, result = body.input[index + 2], inside.get(body.output[index + 1].name)
        came, gave = enclosing.shapes.get(name), result.shape if result else None
        if loop_value_key(node, value) in varying or came is None:
            continue
        if shape_from_proto(value.type) is None:
            write_tensor_type(value.type, came, 0)
            # as long as nothing speaks against it, the next loop may start from it, too
            declare_output_shape(enclosing, node.output, index, came, 0)
            changed = True
        elif gave is not None and gave != came:
            varying.add(loop_value_key(node, value))
            changed = True
        elif gave is not None:
            changed |= declare_output_shape(
                enclosing, node.output, index, gave, result.dtype if result else 0
            )
    count = loop_trip_count(node, enclosing, provided)
    for index in range(carried, len(node.output)):
        stacked = inside.get(body.output[index + 1].name) if len(body.output) > index + 1 else None
        if count is not None and stacked is not None and stacked.shape is not None:
            shape = (count, *stacked.shape)
            changed |= declare_output_shape(enclosing, node.output, index, shape, stacked.dtype)
    return changed


def declare_output_shape(
    enclosing: Level, outputs: Any, index: int, shape: tuple[int, ...], dtype: int
) -> bool:
    """Declare the shape of a node's output if it is unknown; return whether it was."""
    name = outputs[index] if index < len(outputs) else ""
    if not name or enclosing.shapes.get(name) is not None:
        return False
    values = (*enclosing.graph.value_info, *enclosing.graph.output)
    declared = [value for value in values if value.name == name]  # an output may stand in both
    for value in declared or (enclosing.graph.value_info.add(name=name),):
        write_tensor_type(value.type, shape, dtype)
    enclosing.shapes[name] = shape
    return True


def levels_of_all_graphs(graph: Any, outer: Level | None = None) -> Iterator[Level]:
    """Yield a graph, and then each graph nested in it, with what is known in it."""
    enclosing = graph_level(graph, outer)
    yield enclosing
    for node in graph.node:
        for body in node_subgraphs(node):
            yield from levels_of_all_graphs(body, enclosing)


# What a caller says about control flow: how often a body runs, and which branch counts.

CHOICES = ("then", "else", "sum")
RAN = "ran "  # before the side that a run took, where the caller asks for none
_Said = TypeVar("_Said", int, str)
Names = dict[str, str]


def name_nodes_with_bodies(graphs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return (key, node) of each node with bodies, and set the name of the node in place.

    `graphs` are that of the model and those of functions, each with the prefix of its node keys.
    """
    return [
        stored
        for prefix, graph in graphs
        for stored in _name_nodes_with_bodies_in_graph(graph, prefix)
    ]


def control_by_node_name(
    stored: Iterable[tuple[str, Any]], control: Control
) -> tuple[dict[str, int], dict[str, str]]:
    """Return the caller's loop counts, and branches, each by node name. Raises InputError.

    A node is addressed by its own name, or by its key in a report, with the names of its parent
    nodes in front. Raises InputError for a name that no such node has.
    """
    loops: Names = {}
    choices: Names = {}
    for key, node in stored:
        if is_onnx_operator(node, *LOOPS):
            loops |= {node.name: node.name, key: node.name}
        elif is_onnx_operator(node, "If"):
            choices |= {node.name: node.name, key: node.name}
    for name, count in control.trips.items():
        if count < 0:
            raise InputError(
                f"the number of iterations of the loop {name!r} must be at least 0, got {count}",
                f"give, for example, --trips {name}=8",
            )
    for name, choice in control.branches.items():
        if choice not in CHOICES:
            raise InputError(
                f"the branch of the node {name!r} must be then, else or sum, got {choice!r}",
                f"give, for example, --branch {name}=then",
            )
    return (
        _resolve_control_names(control.trips, loops, "Loop, Scan or SequenceMap node", "--trips"),
        _resolve_control_names(control.branches, choices, "If node", "--branch"),
    )


def _resolve_control_names(
    provided: Mapping[str, _Said], names: Names, what: str, flag: str
) -> dict[str, _Said]:
    """Return the caller's options by node name. Raises InputError for a name that is unknown."""
    for name in provided:
        if name not in names:
            known = ", ".join(sorted(names))
            raise InputError(
                f"the model has no {what} {name!r}",
                f"{flag} can name: {known}" if known else f"leave out {flag}",
            )
    return {names[name]: value for name, value in provided.items()}


def _name_nodes_with_bodies_in_graph(graph: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield (key, node) of all nodes with bodies, at any depth, and set their names in place."""
    for number, node in enumerate(graph.node):
        inner = node_subgraphs(node)
        if inner:
            node.name = onnx_node_label(node, number)
            yield f"{prefix}{node.name}", node
        for body in inner:
            yield from _name_nodes_with_bodies_in_graph(body, f"{prefix}{node.name}/")


# The branch of an If that runs, where that is known, and what its results look like.

BRANCHES = ("then_branch", "else_branch")


def active_branch(node: Any, enclosing: Level, branches: Mapping[str, str]) -> str:
    """Return the attribute of the If branch that counts, such as "then_branch"; "" for both."""
    if node.name in branches:
        side = branches[node.name].removeprefix(RAN)
        return "" if side == "sum" else f"{side}_branch"
    condition = single_integer(enclosing.values.get(node.input[0])) if node.input else None
    return "" if condition is None else BRANCHES[0 if condition else 1]


def write_chosen_branch_shapes(
    graph: Any, branches: Mapping[str, str], outer: Level | None = None
) -> bool:
    """Copy output shapes of the chosen branch to each If, in place; return whether any changed.

    Inference gives a result the sizes that both branches agree on, and leaves the others open.
    """
    if not has_operator_at_any_depth(graph, "If"):
        return False
    enclosing = graph_level(graph, outer)
    changed = False
    for node in graph.node:
        chosen = active_branch(node, enclosing, branches) if is_onnx_operator(node, "If") else ""
        body = subgraph_of_attribute(node, chosen) if chosen else None
        inside = graph_value_types(body) if body is not None else {}
        for index, result in enumerate(body.output if body is not None else ()):
            known_result = inside.get(result.name)
            if known_result is not None and known_result.shape is not None:
                changed |= declare_output_shape(
                    enclosing, node.output, index, known_result.shape, known_result.dtype
                )
        for inner in node_subgraphs(node):
            changed |= write_chosen_branch_shapes(inner, branches, enclosing)
    return changed
