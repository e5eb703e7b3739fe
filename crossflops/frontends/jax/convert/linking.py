"""Turn the equations of a JAX program into calls, and link nodes to them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from crossflops.frontends.converted import (
    ConvertedOperation,
    all_nested_nodes,
    has_known_cost,
    with_notes_of_source_operations,
)
from crossflops.frontends.jax.convert.lowering import DOMAIN, Equation
from crossflops.frontends.jax.record.scopes import module_calls_in_stack, module_path_of_call
from crossflops.ir.graph import Graph, Node, Op
from crossflops.ir.trace import Call, Module, Scalar

MADE = "jax2onnx."  # before the type of a node that only the converter put in
ROOT = "(model)"
# They only hold other equations: what is in them is called, not they.
_HOLDERS = (
    *("jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_lin"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "xla_call"),
    *("shard_map", "pallas_call"),
)
# They move values. Beside a node that computes, for the same equation, the converter needs them.
_MOVERS = (
    *("Transpose", "Reshape", "Cast", "CastLike", "Squeeze", "Unsqueeze", "Identity", "Expand"),
    *("Shape", "Concat", "Slice", "Constant", "ConstantOfShape"),
)


class LinkedGraph(NamedTuple):
    """A graph whose nodes have calls and modules, and the calls with their nodes."""

    graph: Graph
    calls: tuple[Call, ...]


def link_equations(
    graph: Graph,
    equations: Sequence[Equation],
    origins: Mapping[str, int],
    rows: tuple[Module, ...],
    arguments: Mapping[str, Mapping[str, Scalar]] = {},
) -> LinkedGraph:
    """Return the graph with each node's call and module, and the calls with their nodes.

    A node that only the converter inserted (a layout transposition, say) gets a call of its own,
    whose target says so. `origins` are the equations by the names of nodes, `arguments` the plain
    arguments of each call of a module by the name of the call.
    """
    ids = {path: row.id for row in rows for path in row.names}
    chains = [_enclosing_module_calls(equation, ids) for equation in equations]
    keys = _equation_keys(equations, chains)
    computing = _computing_equations(graph.nodes, origins)
    nodes: dict[str, list[str]] = {}
    made: dict[str, Call] = {}

    def with_call_and_module_path(node: Node, enclosing: int | None) -> Node:
        """Return a node with its call and module path; list it under the call."""
        number = origins.get(node.key.partition("@")[0], enclosing)
        name = chains[number][-1] if number is not None else ""
        path = module_path_of_call(name)
        key = keys[number] if number is not None else ""
        if node.op.type in _MOVERS and (number is None or number in computing):
            key = f"{node.key} ({MADE})"
            made[key] = _jax_converter_call(key, node, ids[path], _module_call_key(name))
        nodes.setdefault(key, []).append(node.key)
        bodies = tuple(
            msgspec.structs.replace(
                body, nodes=tuple(with_call_and_module_path(node, number) for node in body.nodes)
            )
            for body in node.bodies
        )
        return msgspec.structs.replace(node, call=key, path=path, bodies=bodies)

    graph = msgspec.structs.replace(
        graph, nodes=tuple(with_call_and_module_path(node, None) for node in graph.nodes)
    )
    linked_calls = [
        _equation_call(key, equation, chain, ids, nodes.get(key, ()))
        for key, equation, chain in zip(keys, equations, chains, strict=True)
        if equation.primitive not in _HOLDERS or key in nodes
    ]
    own = (_with_call_nodes(call, nodes[call.key]) for call in made.values())
    return LinkedGraph(graph, (*_module_calls(chains, rows, ids, arguments), *linked_calls, *own))


def count_nodes_as_equations(
    graph: Graph, equations: Sequence[Equation], origins: Mapping[str, int]
) -> Graph:
    """Return the graph with nodes counted as the JAX operation they were written for."""
    nodes = with_notes_of_source_operations(graph.nodes, _operation_lookup(equations, origins))
    return msgspec.structs.replace(graph, nodes=nodes)


def _operation_lookup(
    equations: Sequence[Equation], origins: Mapping[str, int]
) -> Callable[[Node], tuple[str, ConvertedOperation] | None]:
    """Return a function that gives a node's outermost JAX operation with a known cost.

    Operations in unrolled loops exist once for each run.
    """
    outermost: list[int | None] = []
    for number, equation in enumerate(equations):
        above = outermost[equation.around] if equation.around is not None else None
        own = (
            number
            if any(has_known_cost(DOMAIN, name) for name in equation.cost_rule_names)
            else None
        )
        outermost.append(own if above is None else above)

    def source_operation_of_node(node: Node) -> tuple[str, ConvertedOperation] | None:
        """Return (key, operation) that a node was written for, or None if its cost is unknown."""
        name, _, run = node.key.partition("@")
        number = origins.get(name)
        chosen = outermost[number] if number is not None else None
        if chosen is None:
            return None
        equation = equations[chosen]
        name = next(name for name in equation.cost_rule_names if has_known_cost(DOMAIN, name))
        op = Op(DOMAIN, name, 1)
        return f"{chosen}@{run}", ConvertedOperation(
            op, equation.inputs, equation.outputs, equation.settings
        )

    return source_operation_of_node


def _enclosing_module_calls(equation: Equation, ids: dict[str, int]) -> tuple[str, ...]:
    """Return the names of the module calls around an equation, outermost ("") first."""
    names = module_calls_in_stack(equation.stack)
    return ("", *(name for name in names if name and module_path_of_call(name) in ids))


def _equation_keys(equations: Iterable[Equation], chains: Iterable[tuple[str, ...]]) -> list[str]:
    """Return a unique key for each equation: its module's path, primitive and a number."""
    times: Counter[str] = Counter()
    keys = []
    for equation, chain in zip(equations, chains, strict=True):
        path = module_path_of_call(chain[-1])
        name = f"{path}/{equation.primitive}" if path else equation.primitive
        times[name] += 1
        keys.append(name if times[name] == 1 else f"{name}_{times[name]}")
    return keys


def _computing_equations(nodes: Iterable[Node], origins: Mapping[str, int]) -> set[int]:
    """Return the numbers of the equations with a node that computes, not only moves values."""
    return {
        origins[name]
        for node in all_nested_nodes(nodes)
        if node.op.type not in _MOVERS and (name := node.key.partition("@")[0]) in origins
    }


def _module_calls(
    chains: Iterable[tuple[str, ...]],
    rows: tuple[Module, ...],
    ids: dict[str, int],
    arguments: Mapping[str, Mapping[str, Scalar]],
) -> Iterator[Call]:
    """Yield each call of a module that ran, within the module around it when it first ran."""
    enclosing: dict[str, str | None] = {"": None}
    for chain in chains:
        for outer, inner in pairwise(chain):
            if inner != outer:
                enclosing.setdefault(inner, _module_call_key(outer))
    for name, parent in enclosing.items():
        number = ids[module_path_of_call(name)]
        yield Call(
            key=_module_call_key(name),
            parent=parent,
            level="module",
            target=rows[number].bases[0],
            module=number,
            via="call",
            arguments=dict(arguments.get(name, {})),
        )


def _module_call_key(name: str) -> str:
    """Return the key of the call of a module with this name ("" is the root)."""
    return name or ROOT


def _equation_call(
    key: str, equation: Equation, chain: tuple[str, ...], ids: dict[str, int], nodes: Iterable[str]
) -> Call:
    """Return the operator call of an equation, in its innermost module."""
    return Call(
        key=key,
        parent=_module_call_key(chain[-1]),
        level="operator",
        target=equation.primitive,
        module=ids[module_path_of_call(chain[-1])],
        settings={**equation.settings, "stack": equation.stack},
        inputs=equation.inputs,
        outputs=equation.outputs,
        nodes=tuple(nodes),
    )


def _jax_converter_call(key: str, node: Node, module: int, parent: str) -> Call:
    """Return a call for a node that belongs to no equation: the converter added it."""
    return Call(
        key=key,
        parent=parent,
        level="operator",
        target=f"{MADE}{node.op.type}",
        module=module,
        outputs=tuple(spec for spec in node.outputs if spec is not None),
    )


def _with_call_nodes(call: Call, nodes: Iterable[str]) -> Call:
    """Return a copy of a call with these node keys."""
    return msgspec.structs.replace(call, nodes=tuple(nodes))
