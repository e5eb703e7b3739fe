"""Find which values of a graph have a gradient, and which of them reach the loss.

One pass along the nodes says what has a gradient, one back what reaches the loss. An operand has
one where something trained lies upstream and a float output of the model, of which the loss is the
sum, lies downstream. Constants, the model's inputs and what is detached have none.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.ledger.checkpoints import CheckpointPart, enclosing_checkpoints
from crossflops.ledger.checkpoints import parts_of_checkpoints as checkpoint_parts
from crossflops.ledger.training.functions import GraphFunction, GraphFunctions
from crossflops.ledger.training.loops import (
    add_copied_results_that_reach_loss,
    body_input_and_output_counts_before_states,
    copies_of_unrolled_nodes,
    loop_state_count,
    names_read_by_bodies,
)
from crossflops.ledger.training.states import (
    FIXED,
    GradientState,
    GradientStates,
    is_differentiable_tensor,
    join_states,
)
from crossflops.ledger.training.weights import TrainedWeights
from crossflops.operators import find_operator_rule
from crossflops.operators.gradient import no_gradient

_ROUNDED = "QuantizeLinear"  # gradients go straight through its whole numbers


class GraphLevel(NamedTuple):
    """The nodes of a graph without those of bodies, and the checkpoints and loops among them.

    `starts` and `stops` are the checkpoints by the key of their first and last node, `copies` the
    nodes of each loop that was unrolled.
    """

    graph: Graph
    checkpoints: tuple[CheckpointPart, ...]
    starts: Mapping[str, Sequence[CheckpointPart]]
    stops: Mapping[str, Sequence[CheckpointPart]]
    copies: Sequence[Sequence[Node]]


class GradientFlow:
    """The flow of gradients through a graph with these weights and functions.

    Without `cuts` they flow through what is detached, and from every node.
    """

    def __init__(
        self, graph: Graph, weights: TrainedWeights, functions: GraphFunctions, *, cuts: bool
    ) -> None:
        self._weights, self.functions, self.cuts = weights, functions, cuts
        self.inputs: GradientStates = {
            spec.name: weights.model_input_state(spec) for spec in graph.inputs
        }
        self.names_of_trained_constants = weights.names_of_trained_constants(
            graph
        )  # results of nodes that are trained
        provided = {name for name, value in self.inputs.items() if value.trained}
        self._parameters = provided | self.names_of_trained_constants
        starts = {name: GradientState(True, varying) for name, varying in graph.starts.items()}
        self.inputs |= starts
        self.updated: dict[str, TensorSpec] = {}  # stored tensors that get a gradient
        self.joined: dict[str, list[bool]] = {}  # of two tensors in one: which has a gradient
        self.ungiven: set[int] = set()  # reentrant checkpoints whose arguments have no gradient
        # by the key of a node and the place of an input what another run of its loop says of it
        self._alike: dict[tuple[str, int], GradientState] = {}
        self._handed_out: dict[str, int] = {}  # by value the reentrant checkpoint it comes from

    @property
    def is_gradient_equal_in_all_loop_runs(self) -> bool:
        """Whether a value that has a gradient in one run of a loop has it in every run."""
        return self._weights.is_gradient_equal_in_all_loop_runs

    def graph_level(self, graph: Graph) -> GraphLevel:
        """Return a graph together with its checkpoints and the copies of its unrolled loops."""
        checkpoints = checkpoint_parts(graph) if self.cuts else ()
        starts: dict[str, list[CheckpointPart]] = defaultdict(list)
        stops: dict[str, list[CheckpointPart]] = defaultdict(list)
        for part in checkpoints:
            starts[part.nodes[0].key].append(part)
            stops[part.nodes[-1].key].append(part)
        copies = copies_of_unrolled_nodes(graph) if self.is_gradient_equal_in_all_loop_runs else []
        return GraphLevel(graph, checkpoints, starts, stops, copies)

    def record_states_forward(self, level: GraphLevel, values: GradientStates) -> None:
        """Record in `values`, for every value of the graph by name, whether it has a gradient and
        depends on an input.
        """
        unsettled = True
        while unsettled:
            for node in level.graph.nodes:
                for part in level.starts.get(node.key, ()):
                    self._record_reentrant_checkpoint_without_gradient(part, values)
                self._record_result_states(node, values)
                for part in reversed(level.stops.get(node.key, ())):
                    self._record_gradients_of_reentrant_results(part)
            unsettled = self._join_states_of_loop_runs(level.copies, values)

    def results_that_reach_loss(
        self, level: GraphLevel, values: GradientStates, reaching_loss: set[str]
    ) -> dict[str, set[str]]:
        """Return the names of the results through which a node's gradients reach the loss, by the
        key of each node that has a backward pass.

        `reaching_loss` are the names of all that does, and grows.
        """
        live: dict[str, set[str]] = {}
        unsettled = True
        while unsettled:
            live = self._results_that_reach_loss_by_node_in_one_walk(level, values, reaching_loss)
            unsettled = add_copied_results_that_reach_loss(level.copies, reaching_loss)
        return live

    def _results_that_reach_loss_by_node_in_one_walk(
        self, level: GraphLevel, values: GradientStates, reaching_loss: set[str]
    ) -> dict[str, set[str]]:
        """Return the same as `results_that_reach_loss`, after one walk over the nodes from the
        last to the first; `reaching_loss` grows.
        """
        live: dict[str, set[str]] = {}
        for node in reversed(level.graph.nodes):
            for part in level.stops.get(node.key, ()):
                if part.checkpoint_kind == "reentrant" and part.results & reaching_loss:
                    reaching_loss |= part.results  # what misses the loss gets zeros for gradients
            reached = {spec.name for spec in node.outputs if spec and spec.name in reaching_loss}
            if self.cuts and _is_formula_without_gradient(node):
                continue  # its results may be outputs of the model: nothing flows back from them
            known = self.functions.function_with_own_backward(node)
            if reached or not self.cuts or (known and known.runs_without_reaching_loss):
                live[node.key] = reached
                graded = {spec.name: spec for _, spec in self.operands_with_gradient(node, values)}
                self.updated |= {
                    name: spec
                    for name, spec in graded.items()
                    if (name not in values and self.value_state(spec, node, values).trained)
                    or name in self._parameters
                }
                if known:  # it gives gradients to the function's operands alone
                    reaching_loss |= graded.keys()
                elif node.opened:
                    reaching_loss |= graded.keys() & self._names_of_operands_reached(
                        node, values, reached
                    )
                else:
                    reaching_loss |= graded.keys() | names_read_by_bodies(node)
        return live

    def _names_of_operands_reached(
        self, node: Node, values: GradientStates, reached: set[str]
    ) -> set[str]:
        """Return the names of the operands of an opened operator to which its body gives gradients
        of these results.
        """
        (body,) = node.bodies
        (inner,) = self.body_states_by_run(node, body, values)
        ends = self.body_outputs_that_reach_loss(node, body, reached)
        self.results_that_reach_loss(self.graph_level(body), inner, ends)
        operands = zip(body.inputs, node.inputs, strict=False)
        return {its.name for own, its in operands if its is not None and own.name in ends}

    def body_outputs_that_reach_loss(
        self, node: Node, body: Graph, reached: Collection[str]
    ) -> set[str]:
        """Return the names of the outputs of a function body through which gradients of these
        results of its node flow; the body may detach an output.
        """
        pairs = enumerate(zip(body.outputs, node.outputs, strict=False))
        missed = body.severed if self.cuts else ()
        return {
            own.name
            for index, (own, its) in pairs
            if index not in missed and its is not None and its.name in reached
        }

    def value_state(self, spec: TensorSpec, node: Node, values: GradientStates) -> GradientState:
        """Return the gradient state of a tensor that the node reads."""
        known = values.get(spec.name)
        if known is None:
            return GradientState(self._weights.is_trained_operand(spec, node), varying=False)
        number = self._handed_out.get(spec.name)
        if number is None or not is_differentiable_tensor(spec):
            return known
        inside = any(checkpoint.number == number for checkpoint in enclosing_checkpoints(node))
        return known if inside else known._replace(trained=True)

    def operand_state(
        self, node: Node, index: int, spec: TensorSpec, values: GradientStates
    ) -> GradientState:
        """Return the gradient state of a node's input, joined with its state in other runs of the
        same loop.
        """
        known = self.value_state(spec, node, values)
        return join_states(known, self._alike.get((node.key, index), FIXED))

    def operands_with_gradient(
        self, node: Node, values: GradientStates
    ) -> list[tuple[int, TensorSpec]]:
        """Return the inputs of a node that get a gradient through it, each with its position."""
        severed = node.training.severed if self.cuts and node.is_operation_of_model else ()
        if self.is_in_checkpoint_without_gradient(node):
            return []
        if known := self.functions.function_with_own_backward(node):
            return list(self.function_operands_with_gradient(known, node, values))
        inputs = (node.training.past.get(index, spec) for index, spec in enumerate(node.inputs))
        return [
            (index, spec)
            for index, spec in enumerate(inputs)
            if spec is not None
            and index not in severed
            and self.operand_state(node, index, spec, values).trained
        ]

    def function_operands_with_gradient(
        self, stored: GraphFunction, node: Node, values: GradientStates
    ) -> Iterator[tuple[int, TensorSpec]]:
        """Yield the inputs to which a custom autograd function passes gradients, each with its
        position in the call.
        """
        if stored.own is None or not stored.own.ran or node.key != stored.function.home:
            return
        for index in sorted(stored.own.graded):
            for spec in stored.function.operands.get(index, ()):
                if is_differentiable_tensor(spec) and self.value_state(spec, node, values).trained:
                    yield index, spec

    def has_input_with_gradient(
        self, stored: GraphFunction, node: Node, values: GradientStates
    ) -> bool:
        """Return whether an input of the custom autograd function has a gradient."""
        return not self.is_in_checkpoint_without_gradient(node) and any(
            self.value_state(spec, node, values).trained for spec in stored.operands
        )

    def is_in_checkpoint_without_gradient(self, node: Node) -> bool:
        """Return whether the node is in a reentrant checkpoint that no input with a gradient
        enters, so that it has no backward pass.
        """
        return any(checkpoint.number in self.ungiven for checkpoint in enclosing_checkpoints(node))

    def _join_states_of_loop_runs(
        self, copies: Iterable[Sequence[Node]], values: GradientStates
    ) -> bool:
        """Give each input in a loop the gradient state that it has in any run; return whether a
        state changed.
        """
        events = False
        for runs in copies:
            graded = {
                index for node in runs for index, _ in self.operands_with_gradient(node, values)
            }
            for index in graded:
                provided = [(node, node.inputs[index]) for node in runs]
                states = [
                    self.operand_state(n, index, spec, values) for n, spec in provided if spec
                ]
                joined = reduce(join_states, states, FIXED)
                if any(state != joined for state in states):
                    self._alike |= {(node.key, index): joined for node in runs}
                    events = True
        return events

    def _record_reentrant_checkpoint_without_gradient(
        self, part: CheckpointPart, values: GradientStates
    ) -> None:
        """Record a reentrant checkpoint if no tensor with a gradient enters it."""
        graded = any(
            self.value_state(spec, node, values).trained
            for node in part.nodes
            for spec in node.inputs
            if spec is not None and spec.name in part.given and spec.name in values
        )
        if part.checkpoint.weights:
            graded |= any(
                self._weights.is_trained_operand(spec, node)
                for node in part.nodes
                for spec in node.inputs
                if spec is not None and spec.name not in values
            )
        if part.checkpoint_kind == "reentrant" and not graded:
            self.ungiven.add(part.checkpoint.number)

    def _record_gradients_of_reentrant_results(self, part: CheckpointPart) -> None:
        """Record that outside a reentrant checkpoint all its results have a gradient, if a tensor
        with a gradient entered it.

        In the checkpoint itself that is so only for what has one anyway.
        """
        if part.checkpoint_kind == "reentrant" and part.checkpoint.number not in self.ungiven:
            results = dict.fromkeys(part.results, part.checkpoint.number)
            self._handed_out = results | self._handed_out  # the innermost leaves first

    def _record_result_states(self, node: Node, values: GradientStates) -> None:
        """Record in `values` the gradient states of a node's results."""
        trained = node.training.starts or (
            bool(self.operands_with_gradient(node, values)) and not _has_no_gradient(node)
        )
        if stored := self.functions.function_with_own_backward(node):
            trained = self.has_input_with_gradient(stored, node, values)
            if stored.own and stored.own.as_needed:  # nothing asks for what it hands on to nobody
                trained = bool(self.operands_with_gradient(node, values))
        provided = [
            self.value_state(spec, node, values) for spec in node.inputs if spec is not None
        ]
        if node.op.type == "Concat" and len(provided) == 2 and node.outputs[0]:
            self.joined[node.outputs[0].name] = [value.trained for value in provided]
        varying = any(value.varying for value in provided) or (not node.constant and not provided)
        results = [GradientState(trained, varying)] * len(node.outputs)
        if node.bodies:
            results = self._result_states_of_bodies(node, values, varying)
        operands = (spec for _, spec in self.operands_with_gradient(node, values))
        straight = {spec.dtype for spec in operands if not is_differentiable_tensor(spec)}
        for spec, value in zip(node.outputs, results, strict=True):
            if spec is not None:
                graded = (
                    is_differentiable_tensor(spec)
                    or node.op.type == _ROUNDED
                    or spec.dtype in straight
                )
                has_one = value.trained or spec.name in self.names_of_trained_constants
                values[spec.name] = GradientState(has_one and graded, value.varying)

    def _result_states_of_bodies(
        self, node: Node, values: GradientStates, varying: bool
    ) -> list[GradientState]:
        """Return the gradient state of each result of a node with bodies, such as a loop.

        A loop runs until no more of its values have a gradient.
        """
        results = [GradientState(False, varying)] * len(node.outputs)
        for body in node.bodies:
            for inner in self.body_states_by_run(node, body, values):
                ends = body.outputs[body_input_and_output_counts_before_states(node)[1] :]
                missed = body.severed if self.cuts and node.opened else ()
                for index, spec in enumerate(ends[: len(results)]):
                    state = inner.get(spec.name, FIXED)
                    own = state._replace(trained=False) if index in missed else state
                    results[index] = join_states(results[index], own)
        return results

    def body_states_by_run(
        self, node: Node, body: Graph, values: GradientStates
    ) -> list[GradientStates]:
        """Return the gradient states of the values in a loop's body: of its first run, of the next
        one, and so on until they no longer change.
        """
        if node.choice == "function":
            return [
                self._body_states_after_run(
                    {}, node, body, self._body_input_states(node, body, values)
                )
            ]
        first, results = body_input_and_output_counts_before_states(node)
        states = [spec.name for spec in body.inputs][first : first + loop_state_count(node, body)]
        ends = [spec.name for spec in body.outputs][results:]
        provided = self._body_input_states(node, body, values)
        runs = [self._body_states_after_run(values, node, body, provided)]
        if self.is_gradient_equal_in_all_loop_runs:
            return [
                self._stable_body_states(
                    node, body, values, provided, dict(zip(states, ends, strict=False))
                )
            ]
        while states:
            handed = {
                name: runs[-1].get(end, FIXED) for name, end in zip(states, ends, strict=False)
            }
            if all(provided.get(name) == value for name, value in handed.items()):
                break
            provided = {**provided, **handed}
            if any(all(run.get(n) == v for n, v in provided.items()) for run in runs):
                break  # states that change places: the runs before have seen all of it
            runs.append(self._body_states_after_run(values, node, body, provided))
        return runs

    def _stable_body_states(
        self,
        node: Node,
        body: Graph,
        values: GradientStates,
        provided: GradientStates,
        states: dict[str, str],
    ) -> GradientStates:
        """Return the gradient states of the values in a loop's body after which further runs
        change nothing.
        """
        while True:
            run = self._body_states_after_run(values, node, body, provided)
            joined = {
                name: join_states(provided.get(name, FIXED), run.get(end, FIXED))
                for name, end in states.items()
            }
            if all(provided.get(name, FIXED) == value for name, value in joined.items()):
                return run
            provided = {**provided, **joined}

    def _body_input_states(
        self, node: Node, body: Graph, values: GradientStates
    ) -> GradientStates:
        """Return the gradient states of a body's inputs in its first run, by name.

        An operand of an opened operator that is detached, or that it takes without gradients, has
        no gradient in its body either.
        """
        severed = node.training.severed if self.cuts and node.opened else ()
        states = {}
        for index, (name, spec) in enumerate(zip(body.inputs, node.inputs, strict=False)):
            state = self.value_state(spec, node, values) if spec is not None else FIXED
            states[name.name] = state._replace(trained=False) if index in severed else state
        return states

    def _body_states_after_run(
        self, ancestors: GradientStates, node: Node, body: Graph, provided: GradientStates
    ) -> GradientStates:
        """Return the gradient states of the values of a body, by name, after one run with the
        inputs `provided`.
        """
        starts = {name: GradientState(True, varying) for name, varying in body.starts.items()}
        inner = {**ancestors, **provided, **starts}
        for below in body.nodes:
            self._record_result_states(below, inner)
        return inner


def _is_formula_without_gradient(node: Node) -> bool:
    """Return whether a user's formula counts the node and says that it has no gradient.

    Other operators without a gradient, such as rounding, may give zeros, which flow on.
    """
    known = find_operator_rule(node.op)
    return known is not None and known.is_own and _has_no_gradient(node)


def _has_no_gradient(node: Node) -> bool:
    """Return whether the operator of a node passes no gradient to any operand."""
    known = find_operator_rule(node.op)
    return known is not None and known.backward is no_gradient and node.is_operation_of_model
