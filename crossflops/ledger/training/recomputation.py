"""The nodes of checkpoints that a backward pass runs once more.

What a checkpoint does when it runs again is said in `crossflops.ledger.checkpoints`; here stands
which of them are asked for anything, given what has a gradient and reaches the loss.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from crossflops.ir.graph import Checkpoint, KeptForBackward, Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.ledger.checkpoints import (
    CheckpointPart,
    RecomputedNodes,
    nodes_rerun_by_jax_checkpoint,
    nodes_rerun_by_pytorch_checkpoint,
)
from crossflops.ledger.training.flow import GradientFlow, GraphLevel
from crossflops.ledger.training.states import GradientStates
from crossflops.operators import find_operator_rule


class Recomputation(NamedTuple):
    """How often each node of a level runs again, by key, and nodes for which this is unknown."""

    times: Counter[str]
    unsure: tuple[Node, ...]


def find_recomputation(
    flow: GradientFlow, level: GraphLevel, values: GradientStates, live: Mapping[str, set[str]]
) -> Recomputation:
    """Return how often each node runs again in a checkpoint, and the nodes for which this is
    unknown.

    Args:
        flow: says which operands have a gradient.
        level: the nodes, and their checkpoints.
        values: what is known of each value.
        live: the nodes that run back, by key: `GradientFlow.results_that_reach_loss`.
    """
    asked: set[int] = set()  # the numbers of the checkpoints that run again
    times: Counter[str] = Counter()
    unsure: list[Node] = []
    for part in reversed(level.checkpoints):
        search = _CheckpointSearch(flow, part, values)
        again = search.find_recomputed_nodes(live, asked)
        times.update(node.key for node in again.nodes)
        unsure += again.unsure
    return Recomputation(times, tuple(unsure))


class _CheckpointSearch:
    """The search for the nodes of one checkpoint that run again."""

    def __init__(self, flow: GradientFlow, part: CheckpointPart, values: GradientStates) -> None:
        self._flow, self._part, self._values = flow, part, values

    def find_recomputed_nodes(
        self, live: Mapping[str, set[str]], asked: set[int]
    ) -> RecomputedNodes:
        """Return the nodes of the checkpoint that run again; if the checkpoint runs again, add its
        number to `asked`.
        """
        part, unit = self._part, self._flow.functions.name_of_function_that_saves_tensors
        asking = [
            node
            for node in part.nodes
            if node.key in live and self._positions_of_inputs_with_gradient(node)
        ]
        if part.checkpoint_kind == "needed":
            again = nodes_rerun_by_jax_checkpoint(
                part, {node.key: self._positions_of_inputs_with_gradient(node) for node in asking}
            )
        else:
            if part.checkpoint_kind != "reentrant":
                pieces = part.nodes_by_piece(unit).items()
                keeping = {
                    name for name, nodes in pieces if self._keeps_tensor_for_backward(nodes)
                }
                asking = [
                    node for node in asking if self._needs_recomputation(node, keeping, asked)
                ]
            again = RecomputedNodes()
            if asking:
                again = nodes_rerun_by_pytorch_checkpoint(
                    part, self._keeps_tensor_for_backward, self._retention_in_checkpoint, unit
                )
        if asking:
            asked.add(part.checkpoint.number)
        return again

    def _positions_of_inputs_with_gradient(self, node: Node) -> frozenset[int]:
        """Return the positions of a node's inputs that have a gradient."""
        return frozenset(
            index for index, _ in self._flow.operands_with_gradient(node, self._values)
        )

    def _keeps_tensor_for_backward(self, nodes: tuple[Node, ...]) -> bool:
        """Return whether PyTorch keeps a tensor of this call for its backward pass."""
        if known := self._flow.functions.function_with_own_backward(nodes[0]):
            return self._flow.has_input_with_gradient(known, nodes[0], self._values)
        costs = [self._forward_cost_and_gradient_macs(node) for node in nodes]
        if any(forward.macs for forward, _ in costs):  # bias alone needs no operand
            return any(macs for _, macs in costs)
        return any(bool(self._positions_of_inputs_with_gradient(node)) for node in nodes)

    def _needs_recomputation(self, node: Node, keeping: set[str | int], asked: set[int]) -> bool:
        """Return whether the backward pass of a node needs a tensor that this checkpoint
        recomputes.

        A nested checkpoint counts as one node.

        `keeping` are the pieces for which PyTorch keeps something: a bias alone asks for nothing.
        """
        inner = self._part.inner_checkpoint(node)
        if inner:
            return inner.number in asked
        return (
            self._retention_in_checkpoint(node, None) != "nothing"
            and self._flow.functions.name_of_function_that_saves_tensors(node) in keeping
        )

    def _retention_in_checkpoint(self, node: Node, inner: Checkpoint | None) -> KeptForBackward:
        """Return what a node, or the nested checkpoint `inner`, keeps for the backward pass:
        "operands", "results", ... or "nothing".

        A custom function keeps tensors once its forward pass has run.
        """
        if inner is not None:
            if inner.kind != "reentrant":
                return "operands"
            return "nothing" if inner.number in self._flow.ungiven else "results"
        if known := self._flow.functions.function_with_own_backward(node):
            return "results" if known.own and known.own.keeps else "nothing"
        return node.training.checkpoint.keeps if node.training.checkpoint else "nothing"

    def _forward_cost_and_gradient_macs(self, node: Node) -> tuple[Cost, int]:
        """Return the forward cost of a node, and the MACs of its gradients."""
        known = find_operator_rule(node.op)
        try:
            forward = known.formula(node) if known else ZERO
            indices = self._positions_of_inputs_with_gradient(node)
            if known is None or isinstance(known.backward, str) or not indices:
                return forward, 0
            gradient = known.backward(node, indices, forward)
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
            return ZERO, 0  # which is named where the node is counted
        return forward, sum(gradient.operands.values(), gradient.inner).macs
