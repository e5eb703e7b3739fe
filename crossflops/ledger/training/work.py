"""The work of a training step, node by node: forward, gradients of inputs and of weights,
recomputation.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from crossflops.ir.graph import (
    START_MISSING,
    TURNED,
    UNSURE,
    WEIGHT_MISSING,
    Graph,
    Node,
    TensorSpec,
)
from crossflops.ir.ledger import ZERO, Cost
from crossflops.ir.training import (
    DIRECTLY,
    NO_STEP,
    OwnBackwards,
    Steps,
    TrainingStep,
    Unknown,
)
from crossflops.ledger.training.flow import GradientFlow
from crossflops.ledger.training.functions import (
    GraphFunction,
    functions_and_whether_backwards_are_known,
)
from crossflops.ledger.training.gradients import node_gradient
from crossflops.ledger.training.loops import (
    body_input_and_output_counts_before_states,
    loop_state_count,
    names_read_by_bodies,
)
from crossflops.ledger.training.operations import source_operations_on_graph_tensors
from crossflops.ledger.training.recomputation import find_recomputation
from crossflops.ledger.training.states import FIXED, GradientStates, is_differentiable_tensor
from crossflops.ledger.training.weights import TrainedWeights
from crossflops.operators import find_operator_rule, missing_rule_reason
from crossflops.operators.gradient import Gradient
from crossflops.operators.rule import OperatorRule

_CUT = "in an autograd.Function that returns no gradient; counted as if it returned one"
_RERUN_UNKNOWN = "it is unknown how much of it a checkpoint recomputes"

WorkByNode: TypeAlias = dict[str, TrainingStep]


class LevelWork(NamedTuple):
    """The training work of a graph by node key, and the names of values that reach the loss."""

    work: WorkByNode
    reaching_loss: set[str]


def count_training_step(
    graph: Graph,
    weights: TrainedWeights,
    *,
    cuts: bool = True,
    own: OwnBackwards = (),
) -> Steps:
    """Return the work of a training step of a graph: of every node, and the nodes for which it is
    unknown.

    Args:
        graph: the nodes of the forward pass.
        weights: says which stored tensors are trained.
        cuts: without them gradients flow through what is detached, and from every node.
        own: the backward passes of functions that have one, in their order, or why they are not
            known. Without them, or with those of others, the step is as the forward passes of the
            functions tell.
    """
    functions, are_known = functions_and_whether_backwards_are_known(graph, own)
    flow = GradientFlow(graph, weights, functions, cuts=cuts)
    counter = _StepCounter(flow, weights)
    missing_places = graph.severed if cuts else ()
    reaching_loss = {
        spec.name
        for index, spec in enumerate(graph.outputs)
        if is_differentiable_tensor(spec) and index not in missing_places
    }
    work, _ = counter.count_level("", graph, dict(flow.inputs), reaching_loss, set(reaching_loss))
    unknown, updated = tuple(counter.unknown.values()), tuple(flow.updated.values())
    derived = count_training_step(graph, weights) if are_known else None
    return Steps(work, unknown, updated, derived)


def total_work(step: Steps) -> TrainingStep:
    """Return the work of a training step, summed over all nodes."""
    return sum(step.by_key.values(), NO_STEP)


class _StepCounter:
    """A sum of the work of nodes by their keys; `unknown` are nodes without a full count."""

    def __init__(self, flow: GradientFlow, weights: TrainedWeights) -> None:
        self._flow, self._weights = flow, weights
        self._functions: dict[object, WorkByNode] = {}  # work of local functions that nodes share
        self.unknown: dict[str, Unknown] = {}

    def count_level(
        self,
        prefix: str,
        graph: Graph,
        values: GradientStates,
        reaching_loss: set[str],
        having_gradient: set[str],
    ) -> LevelWork:
        """Return the training work of one graph, and the names of values that reach the loss.

        Args:
            prefix: what keys of the level begin with.
            graph: the level.
            values: those from around the level, and grows.
            reaching_loss: the names of values that reach the loss.
            having_gradient: the names of values that have a gradient already, and grows.
        """
        reaching_loss = set(reaching_loss)
        level = self._flow.graph_level(graph)
        self._flow.record_states_forward(level, values)
        live = self._flow.results_that_reach_loss(level, values, reaching_loss)
        again = find_recomputation(self._flow, level, values, live)
        for node in again.unsure:
            self._record_unknown_backward(prefix + node.key, node, _RERUN_UNKNOWN)
        sibling_nodes: dict[str, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            sibling_nodes[node.conversion.written_for or node.key].append(node)
        work: WorkByNode = {}
        for node in graph.nodes:
            parts = sibling_nodes[node.conversion.written_for or node.key]
            for key, plain in self._count_node(prefix, node, parts, values, live, having_gradient):
                step = plain
                if times := again.times[node.key]:
                    early = self._flow.functions.forward_cost_for_gradients(node)
                    rerun = (plain.forward + early) * times
                    step = plain + TrainingStep(recomputed=rerun, checkpointed=rerun)
                work[key] = work.get(key, NO_STEP) + step
        return LevelWork(work, reaching_loss)

    def _count_node(
        self,
        prefix: str,
        node: Node,
        sibling_nodes: Sequence[Node],
        values: GradientStates,
        live: Mapping[str, set[str]],
        having_gradient: set[str],
    ) -> Iterable[tuple[str, TrainingStep]]:
        """Yield pairs (node key, training work): of one node, of the nodes in its bodies, or of
        its source operations.

        `sibling_nodes` are the nodes that were written for the same operation.
        """
        own = self._flow.functions.function_with_own_backward(node) if node.opened else None
        if node.bodies and node.is_operation_of_model and own is None:
            yield from self._count_bodies(prefix, node, values, live, having_gradient)
            return
        if own is not None:
            for inner in node.bodies[0].nodes:
                yield f"{node.key}/{inner.key}", TrainingStep(forward=_forward_cost(inner))
        if known := self._flow.functions.function_with_own_backward(node):
            step = TrainingStep(forward=_forward_cost(node))
            if node.key == known.function.home and node.key in live:
                step = step + self._count_function_backward(
                    prefix, known, node, values, having_gradient
                )
            yield prefix + node.key, step
        else:
            running = [live[part.key] for part in sibling_nodes if part.key in live]
            reached = set().union(*running) if running else None
            for meant in source_operations_on_graph_tensors(
                self._flow, node, sibling_nodes, values
            ):
                step = self._count_operation(prefix, meant, values, reached, having_gradient)
                yield prefix + node.key, step
        for stored in self._flow.functions.functions_without_nodes(node):
            step = self._count_function_backward(prefix, stored, node, values, having_gradient)
            yield prefix + node.key, step

    def _count_function_backward(
        self,
        prefix: str,
        stored: GraphFunction,
        node: Node,
        values: GradientStates,
        having_gradient: set[str],
    ) -> TrainingStep:
        """Return the work of a custom function's own backward pass; record it as unknown if it is
        not known in full.

        It is for weights where it serves nothing but gradients of what no input decides.
        """
        key, own = prefix + node.key, stored.own
        graded, provided = (
            self._flow.has_input_with_gradient(stored, node, values),
            stored.function.operands,
        )
        handed = list(self._flow.function_operands_with_gradient(stored, node, values))
        if own is None:
            if graded:
                self.unknown[key] = Unknown(
                    key, node, self._flow.functions.unknown_backward_message(stored)
                )
            return NO_STEP
        if own.reason:
            self.unknown[key] = Unknown(key, node, own.reason)
        elif not stored.function.nodes and own.ran and graded and not handed:
            self.unknown[key] = Unknown(key, node, _CUT)

        def depends_on_model_input(index: int) -> bool:
            """Return whether the operand at this position depends on an input of the model, or is
            unknown.
            """
            operands = provided.get(index, ())
            if index != DIRECTLY and not operands:
                return True
            states = (self._flow.value_state(spec, node, values) for spec in operands)
            return any(state.varying for state in states)

        step, requested = NO_STEP, {index for index, _ in handed}
        for work in own.work:
            if own.as_needed and work.places.isdisjoint(requested):
                continue
            if work.again:
                part = TrainingStep(recomputed=work.cost)
            elif not work.places or any(map(depends_on_model_input, work.places)):
                part = TrainingStep(inputs=work.cost)
            else:
                part = TrainingStep(weights=work.cost)
            step = step + part
        for index, spec in handed if stored.function.nodes else ():
            if spec.name in having_gradient:
                added = Cost(adds=spec.numel)
                step = step + (
                    TrainingStep(inputs=added)
                    if depends_on_model_input(index)
                    else TrainingStep(weights=added)
                )
            having_gradient.add(spec.name)
        return step

    def _count_bodies(
        self,
        prefix: str,
        node: Node,
        values: GradientStates,
        live: Mapping[str, set[str]],
        having_gradient: set[str],
    ) -> Iterable[tuple[str, TrainingStep]]:
        """Yield pairs (node key, training work) of the nodes in the bodies of a loop, a branch or
        a function.
        """
        if node.op.type in ("Loop", "Scan") and node.trips is None:
            self._record_unknown_backward(
                prefix + node.key, node, "the number of iterations depends on data"
            )
            return
        works: list[WorkByNode] = []
        reached = live.get(node.key, set())
        for body in node.bodies:
            if node.choice == "function":
                works.append(self._count_local_function(node, body, values, reached))
            else:
                works.append(
                    self._count_loop(
                        f"{prefix}{node.key}/", node, body, values, reached, having_gradient
                    )
                )
        if node.op.type == "If" and node.choice == "" and len(works) > 1:
            works = [max(works, key=_forward_macs_and_flops)]  # as the ledger counts it
        for work in works:
            yield from work.items()

    def _count_local_function(
        self, node: Node, body: Graph, values: GradientStates, reached: set[str]
    ) -> WorkByNode:
        """Return the training work of the nodes in a local function, by node key; nodes that call
        it with equal shapes share it.
        """
        (inner,) = self._flow.body_states_by_run(node, body, values)
        reaching_loss = self._flow.body_outputs_that_reach_loss(node, body, reached)
        names = [spec.name for spec in body.inputs]
        key = (id(body), tuple(inner.get(name) for name in names), frozenset(reaching_loss))
        if key not in self._functions:
            prefix = f"{body.name}/"
            self._functions[key], _ = self.count_level(
                prefix, body, inner, reaching_loss, set(reaching_loss)
            )
        return self._functions[key]

    def _count_loop(
        self,
        prefix: str,
        node: Node,
        body: Graph,
        values: GradientStates,
        reached: set[str],
        having_gradient: set[str],
    ) -> WorkByNode:
        """Return the training work of all runs of a loop's body, by node key.

        The last run hands on what reaches the loss of the node's own results; each one before
        also the states that have a gradient in the run behind it.
        """
        times = node.trips if node.trips is not None else 1
        runs = self._flow.body_states_by_run(node, body, values)
        first, results = body_input_and_output_counts_before_states(node)
        carried = loop_state_count(node, body)
        inputs = [spec.name for spec in body.inputs][first : first + carried]
        outputs = [spec.name for spec in body.outputs][results:]
        pairs = zip(outputs, node.outputs, strict=False)
        reaching_loss = frozenset(
            native for native, its in pairs if its is not None and its.name in reached
        )
        if self._flow.is_gradient_equal_in_all_loop_runs:
            if reaching_loss:  # a loop that does not reach the loss has no gradients at all
                handed = outputs[:carried]
                reaching_loss |= {end for end in handed if runs[-1].get(end, FIXED).trained}
            work, _ = self.count_level(
                prefix,
                body,
                dict(runs[-1]),
                set(reaching_loss),
                {*having_gradient, *reaching_loss},
            )
            return {name: step * times for name, step in work.items()}
        lasting = reaching_loss - set(outputs[:carried])
        known: dict[tuple[int, frozenset[str], frozenset[str]], tuple[WorkByNode, set[str]]] = {}
        outer = frozenset(names_read_by_bodies(node)) - {spec.name for spec in body.inputs}
        summed: WorkByNode = {}
        run = max(times, 1) - 1
        while run >= 0:
            phase = min(run, len(runs) - 1)
            key = phase, reaching_loss, frozenset(having_gradient & outer)
            if key not in known:
                taken = set(having_gradient) | set(reaching_loss)
                work, alive = self.count_level(
                    prefix, body, dict(runs[phase]), set(reaching_loss), taken
                )
                known[key] = work, alive
                having_gradient |= taken & outer
            work, alive = known[key]
            states = {end for name, end in zip(inputs, outputs, strict=False) if name in alive}
            before = lasting | states
            same = (
                before == reaching_loss
                and frozenset(having_gradient & outer) == key[2]
                and phase == len(runs) - 1
            )
            count = run - phase + 1 if same else 1
            for name, step in work.items():
                summed[name] = summed.get(name, NO_STEP) + step * min(count, times)
            run, reaching_loss = run - count, before
        return summed

    def _count_operation(
        self,
        prefix: str,
        node: Node,
        values: GradientStates,
        live: set[str] | None,
        having_gradient: set[str],
    ) -> TrainingStep:
        """Return the training work of one operation; record why, if a part of it is unknown.

        `live` are the results that reach the loss, None where the node does not run back.
        """
        key = prefix + node.key
        known = find_operator_rule(node.op)
        requested = self._flow.operands_with_gradient(node, values) if live is not None else []
        if requested and self._flow.cuts and UNSURE in node.training.severed:
            why = (
                "one operand is detached, but it is unknown which; counted as if none were "
                "detached"
            )
            self.unknown[key] = Unknown(key, node, why)
        reason = node.training.own_backward
        lost = reason == WEIGHT_MISSING and self._weights.trains_any()
        lost |= reason in (START_MISSING, TURNED)
        if (requested or lost) and reason:
            self.unknown[key] = Unknown(key, node, reason)
        if requested and (stored := self._flow.functions.enclosing_function(node)):
            self.unknown[key] = Unknown(
                key, node, self._flow.functions.unknown_backward_message(stored)
            )
        if known is None:
            return (
                self._record_unknown_backward(key, node, missing_rule_reason(node.op))
                if requested
                else NO_STEP
            )
        try:
            forward = known.formula(node)
            gradient = self._gradient_of_operands(key, node, known, requested, live, forward)
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
            return self._record_unknown_backward(key, node, str(error)) if requested else NO_STEP
        if gradient.doubt:
            self.unknown[key] = Unknown(key, node, gradient.doubt)
        step = TrainingStep(forward=forward, inputs=gradient.inner, recomputed=gradient.recomputed)
        for index, spec in requested:
            if index not in gradient.operands:
                continue
            work = gradient.operands[index]
            if (
                spec.name in having_gradient
            ):  # a further use: its gradient is added to that of the others
                work = work + Cost(adds=spec.numel)
            having_gradient.add(spec.name)
            varies = self._flow.operand_state(node, index, spec, values).varying
            part = TrainingStep(inputs=work) if varies else TrainingStep(weights=work)
            step = step + part
        return step

    def _gradient_of_operands(
        self,
        key: str,
        node: Node,
        known: OperatorRule,
        requested: Sequence[tuple[int, TensorSpec]],
        live: set[str] | None,
        forward: Cost,
    ) -> Gradient:
        """Return the cost of the gradients of these operands; record the node as unknown if there
        is no formula.
        """
        if not requested:
            return Gradient({})
        if isinstance(known.backward, str):
            self._record_unknown_backward(key, node, f"{node.op}: {known.backward}")
            return Gradient({})
        indices = frozenset(index for index, _ in requested)
        return node_gradient(self._flow, node, known, indices, forward, live)

    def _record_unknown_backward(self, key: str, node: Node, reason: str) -> TrainingStep:
        """Record that the backward pass of a node is unknown, with the reason; return a step
        without work.
        """
        self.unknown[key] = Unknown(key, node, reason)
        return NO_STEP


def _forward_cost(node: Node) -> Cost:
    """Return the forward cost of a node; zero if it is uncounted."""
    known = find_operator_rule(node.op)
    try:
        return known.formula(node) if known else ZERO
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
        return ZERO


def _forward_macs_and_flops(work: WorkByNode) -> tuple[int, int]:
    """Return (MACs, FLOPs) of the forward pass, summed over these nodes."""
    forward = sum(work.values(), NO_STEP).forward
    return forward.macs, forward.flops
