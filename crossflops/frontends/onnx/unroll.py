"""Unroll loops whose runs differ in shapes, or in the branch of an If that they take."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from crossflops.errors import CrossflopsWarning
from crossflops.frontends.onnx.functions import names_read_from_parent
from crossflops.frontends.onnx.inference import SIZED
from crossflops.frontends.onnx.loops import (
    Level,
    graph_level,
    has_operator_at_any_depth,
    is_onnx_operator,
    loop_trip_count,
    loop_value_key,
    subgraph_of_attribute,
)
from crossflops.frontends.onnx.types import graph_value_types
from crossflops.frontends.onnx.values import Value
from crossflops.load.order import node_subgraphs, onnx_node_label

LIMIT = 10_000  # nodes that all loops together may become
_INT64, _BOOL = 7, 9  # TensorProto.DataType
_AXES_AS_INPUT = 13  # version of the operator set in which Unsqueeze takes its axes so
Place: TypeAlias = tuple[int, ...]  # number of a node, of one of its bodies, of a node in there


class Unrolling(NamedTuple):
    """The facts for copies of loops: operator set version, and options by node."""

    opset: int
    asked: tuple[dict[str, Any], ...]


def loops_with_varying_shapes(
    graph: Any,
    provided: Mapping[str, int],
    varying: set[str],
    outer: Level | None = None,
    location: Place = (),
) -> dict[Place, int]:
    """Return the outermost loops whose runs have different shapes, and how often each runs.

    The graph has been inferred; `varying` are the values that a loop carries with changing shape.
    """
    enclosing = graph_level(graph, outer)
    loops: dict[Place, int] = {}
    for number, node in enumerate(graph.node):
        here = (*location, number)
        if is_onnx_operator(node, "Loop") and subgraph_of_attribute(node) is not None:
            count = loop_trip_count(node, enclosing, provided)
            if count and _has_varying_shapes(node, enclosing, varying):
                loops[here] = count
                continue
        for which, body in enumerate(node_subgraphs(node)):
            loops |= loops_with_varying_shapes(body, provided, varying, enclosing, (*here, which))
    return loops


def _has_varying_shapes(node: Any, enclosing: Level, varying: set[str]) -> bool:
    """Return whether shapes in a Loop's body change from run to run."""
    body = subgraph_of_attribute(node)
    if any(loop_value_key(node, value) in varying for value in body.input[2:]):
        return True
    before, first = _body_levels_of_any_and_first_run(node, enclosing)
    types = graph_value_types(body)
    return any(
        inner.op_type in SIZED
        and any(name in first.values and name not in before.values for name in inner.input)
        and any(name and (name not in types or types[name].shape is None) for name in inner.output)
        for inner in body.node
    )


def _body_levels_of_any_and_first_run(node: Any, enclosing: Level) -> tuple[Level, Level]:
    """Return what is known in a Loop's body in every run, and what is known in its first run."""
    body = subgraph_of_attribute(node)
    before = graph_level(body, enclosing)
    bound = Level(body, before.shapes, dict(before.values))
    first = [Value(0, (0,)), None, *(enclosing.values.get(name) for name in node.input[2:])]
    for value, known in zip(body.input, first, strict=False):
        if known is not None:
            bound.values[value.name] = known
    return before, graph_level(body, bound, bound=True)


def loops_with_varying_branch(
    graph: Any,
    trips_given: Mapping[str, int],
    branches: Mapping[str, str],
    outer: Level | None = None,
    location: Place = (),
) -> dict[Place, int]:
    """Return the outermost loops with an If whose branch depends on the run, and their run counts.

    A branch that the caller chose (`branches`) is taken in every run.
    """
    enclosing = graph_level(graph, outer)
    loops: dict[Place, int] = {}
    for number, node in enumerate(graph.node):
        here = (*location, number)
        if (
            is_onnx_operator(node, "Loop")
            and subgraph_of_attribute(node) is not None
            and has_operator_at_any_depth(subgraph_of_attribute(node), "If")
        ):
            count = loop_trip_count(node, enclosing, trips_given)
            if count and _has_first_run_condition(
                *_body_levels_of_any_and_first_run(node, enclosing), branches
            ):
                loops[here] = count
                continue
        for which, body in enumerate(node_subgraphs(node)):
            loops |= loops_with_varying_branch(
                body, trips_given, branches, enclosing, (*here, which)
            )
    return loops


def _has_first_run_condition(before: Level, first: Level, branches: Mapping[str, str]) -> bool:
    """Return whether an If in the body has a condition that is known only in the first run."""
    for node in first.graph.node:
        if not is_onnx_operator(node, "If"):
            continue
        condition = node.input[0]
        if (
            node.name not in branches
            and condition in first.values
            and condition not in before.values
        ):
            return True
        for body in node_subgraphs(node):
            if has_operator_at_any_depth(body, "If") and _has_first_run_condition(
                graph_level(body, before), graph_level(body, first), branches
            ):
                return True
    return False


def unroll_loops(
    graph: Any, chosen: Mapping[Place, int], unrolling: Unrolling, sized: bool
) -> bool:
    """Replace these loops by copies of their bodies, in place; return whether any was replaced.

    A loop that would become more nodes than the limit allows is kept. Where its runs differ in
    their shapes (`sized`) a warning names it; a branch that stays open makes the count a bound,
    which the count reports.
    """
    room = LIMIT
    taken: dict[Place, int] = {}
    for index, count in chosen.items():
        node = _node_at_place(graph, index)
        size = count * _count_nodes_inside(subgraph_of_attribute(node))
        if size <= room:
            taken[index] = count
            room -= size
        elif sized:
            warnings.warn(
                f"the shapes in Loop {node.name!r} change in each iteration, and {count} "
                f"iterations need {size} nodes (limit: {LIMIT}); nodes that depend on these "
                "shapes are not counted",
                category=CrossflopsWarning,
                stacklevel=2,
            )
    _expand_loops(graph, taken, unrolling)
    return bool(taken)


def _node_at_place(graph: Any, location: Place) -> Any:
    """Return the node at a path in a graph: (node index, body index, node index in it, ...)."""
    node = graph.node[location[0]]
    return (
        node
        if len(location) == 1
        else _node_at_place(list(node_subgraphs(node))[location[1]], location[2:])
    )


def _count_nodes_inside(graph: Any) -> int:
    """Return the number of nodes in a graph and in all graphs in it."""
    return sum(1 + sum(map(_count_nodes_inside, node_subgraphs(node))) for node in graph.node)


def _expand_loops(graph: Any, chosen: Mapping[Place, int], unrolling: Unrolling) -> None:
    """Replace the chosen loops of a graph by the nodes of all their runs, in place."""
    if not chosen:
        return
    nodes: list[Any] = []
    for number, node in enumerate(graph.node):
        if (number,) in chosen:
            nodes += _unroll_loop_runs(node, chosen[number,], graph, unrolling)
            continue
        for which, body in enumerate(node_subgraphs(node)):
            begin = (number, which)
            _expand_loops(body, {p[2:]: c for p, c in chosen.items() if p[:2] == begin}, unrolling)
        nodes.append(node)
    copies = [_copy_loop_node(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _copy_loop_node(node: Any) -> Any:
    """Return a copy of a node of the file."""
    return type(node).FromString(node.SerializeToString())


def _unroll_loop_runs(loop: Any, count: int, graph: Any, unrolling: Unrolling) -> list[Any]:
    """Return the nodes of all runs of a Loop, then the nodes that make its results."""
    body = subgraph_of_attribute(loop)
    shared = {tensor.name: f"{loop.name}/{tensor.name}" for tensor in body.initializer}
    for tensor in body.initializer:
        moved = graph.initializer.add()
        moved.CopyFrom(tensor)
        moved.name = shared[tensor.name]
    carried = list(loop.input[2:])
    stacks: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    nodes: list[Any] = []
    for run in range(count):
        names = dict(shared)
        for value, kind in zip(body.input[:2], (_INT64, _BOOL), strict=False):
            names[value.name] = f"{loop.name}[{run}]/{value.name}"
            graph.initializer.add(
                name=names[value.name],
                data_type=kind,
                raw_data=run.to_bytes(8, "little") if kind == _INT64 else b"\1",
            )
        names |= {value.name: name for value, name in zip(body.input[2:], carried, strict=False)}
        nodes += _copy_loop_run(loop, body.node, run, names, unrolling)
        results = [names.get(value.name, value.name) for value in body.output]
        carried = results[1 : 1 + len(carried)]
        for stack, name in zip(stacks, results[1 + len(carried) :], strict=True):
            stack.append(name)
    return [*nodes, *_loop_result_nodes(loop, carried, stacks, graph, unrolling.opset)]


def _copy_loop_run(
    loop: Any, nodes: Iterable[Any], run: int, names: dict[str, str], unrolling: Unrolling
) -> list[Any]:
    """Return the nodes of run number `run` of a Loop, with names of their own."""
    folder = loop.name.rpartition("/")[0]
    suffix = f"@{loop.name.replace('/', '.')}[{run}]"
    copies = []
    for number, origin in enumerate(nodes):
        node = _copy_loop_node(origin)
        key = onnx_node_label(origin, number)
        node.name = (key if "/" in key or not folder else f"{folder}/{key}") + suffix
        for question in unrolling.asked:
            if origin.name in question:
                question[node.name] = question[origin.name]
        _rename_inputs(node, names)
        for index, name in enumerate(origin.output):
            if name:
                names[name] = node.output[index] = f"{loop.name}[{run}]/{name}"
        copies.append(node)
    return copies


def _rename_inputs(node: Any, names: Mapping[str, str]) -> None:
    """Replace the value names that a node and its bodies read by `names`, in place."""
    for index, name in enumerate(node.input):
        node.input[index] = names.get(name, name)
    for body in node_subgraphs(node):
        inner = names_read_from_parent(body, names)
        for inner_node in body.node:
            _rename_inputs(inner_node, inner)
        for value in body.output:
            value.name = inner.get(value.name, value.name)


def _loop_result_nodes(
    loop: Any, carried: list[str], stacks: list[list[str]], graph: Any, opset: int
) -> list[Any]:
    """Return nodes for a Loop's results: carried values of the last run, and stacked outputs."""
    made = type(loop)
    results = [
        made(op_type="Identity", name=f"{loop.name}/{name}", input=[last], output=[name])
        for name, last in zip(loop.output, carried, strict=False)
        if name
    ]
    for name, parts in zip(loop.output[len(carried) :], stacks, strict=False):
        if not name:
            continue
        raised = [f"{part}#{number}" for number, part in enumerate(parts)]
        for part, high in zip(parts, raised, strict=True):
            node = made(op_type="Unsqueeze", name=high, input=[part], output=[high])
            if opset < _AXES_AS_INPUT:
                node.attribute.add(name="axes", type=7, ints=[0])
            else:
                axes = f"{loop.name}/axes"
                if all(tensor.name != axes for tensor in graph.initializer[-1:]):
                    graph.initializer.add(name=axes, data_type=7, dims=[1], raw_data=bytes(8))
                node.input.append(axes)
            results.append(node)
        joined = made(op_type="Concat", name=f"{loop.name}/{name}", input=raised, output=[name])
        joined.attribute.add(name="axis", type=2, i=0)
        results.append(joined)
    return results
