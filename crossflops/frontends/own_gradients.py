"""Describe functions with their own gradients in a graph that a converter wrote.

The converter leaves a node behind each, its home, and tells what the function was given. The
backward pass of a function is a program of its framework, which is converted and counted as any
other; which of it serves the gradient of which operand follows from its graph.
"""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

import msgspec

from crossflops.frontends.converted import all_nested_nodes
from crossflops.ir.graph import Function, Graph, Node, TensorSpec
from crossflops.ir.ledger import ZERO, Cost
from crossflops.ir.training import OwnBackward, OwnWork
from crossflops.operators import find_operator_rule, missing_rule_reason


class Application(msgspec.Struct, frozen=True):
    """A use of a function with its own gradient: its input values and the nodes that it became.

    `given` are the names of its inputs by index, of those that may have a gradient; `inside` the
    keys of the nodes that it became.
    """

    name: str
    kind: str
    home: str
    given: Mapping[int, str]
    inside: frozenset[str]


def with_own_gradient_functions(graph: Graph, applications: Iterable[Application]) -> Graph:
    """Return the graph with those of these functions (with their own gradients) that it has."""
    present = {node.key for node in graph.nodes}
    values: dict[str, TensorSpec] = {spec.name: spec for spec in graph.inputs}
    for node in graph.nodes:
        specs = (*node.inputs, *node.outputs)
        values.update((spec.name, spec) for spec in specs if spec is not None)
    functions = [
        Function(
            name=applied.name,
            nodes=tuple(n.key for n in graph.nodes if n.key in {*applied.inside, applied.home}),
            operands={index: (values[name],) for index, name in applied.given.items()},
            home=applied.home,
            kind=applied.kind,
        )
        for applied in applications
        if applied.home in present and values.keys() >= {*applied.given.values()}
    ]
    return msgspec.structs.replace(graph, functions=tuple(functions))


def with_unknown_gradient_reasons(graph: Graph, reasons: Mapping[str, str]) -> Graph:
    """Return the graph with a reason on each of these nodes (by key): its gradient is unknown."""

    def with_unknown_gradient_reason(node: Node) -> Node:
        """Return the node, and the nodes in its bodies, with the reason if there is one."""
        bodies = tuple(with_unknown_gradient_reasons(body, reasons) for body in node.bodies)
        reason = reasons.get(node.key.partition("@")[0], node.training.own_backward)
        return msgspec.structs.replace(node.with_training(own_backward=reason), bodies=bodies)

    return msgspec.structs.replace(
        graph, nodes=tuple(map(with_unknown_gradient_reason, graph.nodes))
    )


def backward_cost_of_graph(
    name: str, graph: Graph, gradients: Mapping[int, str], results: Collection[str] = ()
) -> OwnBackward:
    """Return the cost of a backward pass, given as a graph, by the operands that it serves.

    Work on the `results` of the forward pass is not part of the backward pass.
    """
    reasons: list[str] = []
    made = _keys_of_needed_nodes(graph, [*results])
    indices = {
        index: _keys_of_needed_nodes(graph, [output]) for index, output in gradients.items()
    }
    work: dict[frozenset[int], Cost] = defaultdict(lambda: ZERO)
    for node in graph.nodes:
        serves = frozenset(index for index, nodes in indices.items() if node.key in nodes)
        if node.key in made or not serves:
            continue
        cost = _node_forward_cost(node)
        if isinstance(cost, str):
            reasons.append(f"its backward pass: {cost}")
        else:
            work[serves] += cost
    return OwnBackward(
        name=name,
        ran=True,
        graded=frozenset(gradients),
        keeps=True,
        work=tuple(OwnWork(serves, cost) for serves, cost in work.items()),
        reason=next(iter(reasons), ""),
        as_needed=True,
    )


def unknown_custom_backward_cost(name: str, operands: Iterable[int], reason: str) -> OwnBackward:
    """Return a backward pass of unknown cost for a custom function, with the reason."""
    return OwnBackward(name, True, frozenset(operands), True, (), reason, as_needed=True)


def _keys_of_needed_nodes(graph: Graph, names: Sequence[str]) -> Container[str]:
    """Return the keys of the nodes that are needed to compute the values of these names."""
    needed, keys = set(names), set()
    for node in reversed(graph.nodes):
        if any(spec is not None and spec.name in needed for spec in node.outputs):
            keys.add(node.key)
            stored = [node, *all_nested_nodes(n for body in node.bodies for n in body.nodes)]
            needed.update(s.name for inner in stored for s in inner.inputs if s is not None)
    return keys


def _node_forward_cost(node: Node) -> Cost | str:
    """Return the forward cost of a node, or a text on why it is unknown."""
    if node.bodies:
        return f"it has a {node.op}, whose runs are not analysed"
    total = ZERO
    for meant in node.source_operations:
        known = find_operator_rule(meant.op)
        if known is None:
            return missing_rule_reason(meant.op)
        try:
            total += known.formula(meant)
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
            return str(error)
    return total
