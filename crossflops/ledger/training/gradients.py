"""The gradients of one node's operands, by the rule of its operator."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.ledger.training.flow import GradientFlow
from crossflops.operators import find_operator_rule
from crossflops.operators.gradient import Gradient
from crossflops.operators.rule import OperatorRule

_RECURRENT, _FIRST_STATE = ("LSTM", "GRU", "RNN"), 5


def node_gradient(
    flow: GradientFlow,
    node: Node,
    known: OperatorRule,
    indices: frozenset[int],
    forward: Cost,
    live: set[str] | None,
) -> Gradient:
    """Return the cost of the gradients of a node's operands at these positions.

    Args:
        flow: says which of joined tensors have a gradient.
        node: what is differentiated.
        known: its rule, whose `backward` can be called.
        indices: the indices of the inputs that have a gradient.
        forward: the work of the node itself.
        live: the names of its results that reach the loss.
    """
    assert callable(known.backward)
    node = _with_only_results_that_reach_loss(node, known, live)
    if (full := node.training.derived_as) is not None:
        return _gradient_from_full_operation(node, full, indices, forward)
    if flow.is_gradient_equal_in_all_loop_runs and node.op.type in _RECURRENT:
        indices |= {_FIRST_STATE}  # handed back as the states after it
    directions = _operand_positions_by_direction(flow, node, indices)
    if len(directions) == 1:
        return known.backward(node, indices, forward)
    operands: dict[int, Cost] = defaultdict(lambda: ZERO)
    inner = ZERO
    for own in filter(None, directions):
        both = known.backward(node, own, forward)
        inner += _half_cost(both.inner)
        for index, cost in both.operands.items():
            operands[index] += _half_cost(cost)
    return Gradient(operands, inner=inner)


def _operand_positions_by_direction(
    flow: GradientFlow, node: Node, indices: frozenset[int]
) -> list[frozenset[int]]:
    """Return, for each direction of a recurrent layer, the positions of the operands with a
    gradient; one set if the directions do not differ.

    A converter joins the weights of two directions, of which one may be frozen.
    """
    if node.op.type not in _RECURRENT:
        return [indices]
    joined = {
        index: flow.joined[spec.name]
        for index, spec in enumerate(node.inputs)
        if spec is not None and spec.name in flow.joined
    }
    ways = [
        frozenset(index for index in indices if index not in joined or joined[index][way])
        for way in (0, 1)
    ]
    return ways if ways[0] != ways[1] else [indices]


def _with_only_results_that_reach_loss(
    node: Node, known: OperatorRule, live: Iterable[str] | None
) -> Node:
    """Return the node with unnamed results where they do not reach the loss, if the rule of its
    gradient needs this.
    """
    if not known.by_result or not live:
        return node
    outputs = tuple(
        spec if spec is None or spec.name in live else replace(spec, name="")
        for spec in node.outputs
    )
    return replace(node, outputs=outputs)


def _gradient_from_full_operation(
    node: Node, full: Node, indices: frozenset[int], forward: Cost
) -> Gradient:
    """Return the cost of a node's gradients, from the full operation of which the node
    is a part.
    """
    known = find_operator_rule(full.op)
    assert known is not None
    assert callable(known.backward)
    names = [spec.name if spec is not None else "" for spec in node.inputs]
    operands = {
        index: index if names[index : index + 1] == [spec.name] else names.index(spec.name)
        for index, spec in enumerate(full.inputs)
        if spec is not None and spec.name in names
    }
    requested = frozenset(index for index, native in operands.items() if native in indices)
    gradient = known.backward(full, requested, forward) if requested else Gradient({})
    work = {operands[index]: cost for index, cost in gradient.operands.items()}
    return replace(gradient, operands=work)


def _half_cost(cost: Cost) -> Cost:
    """Return a cost with every amount halved, for one of two equal directions."""
    return Cost(**{kind: amount // 2 for kind, amount in msgspec.structs.asdict(cost).items()})
