"""Find which nodes depend on the inputs of a model, and in how many of their runs.

A state that a loop carries may be constant in the first runs and depend on an input later: each
run is taken as it is. Runs are followed until what is carried depends on inputs as before an
earlier run; from there on they repeat. The nodes of a body are marked once for all runs, of which
those that are alike form a group. Bit i of the mask of a value says that it depends on an input
in the runs of group i.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import NamedTuple, TypeAlias

import msgspec

from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.operators import find_operator_rule

_MOST_RUNS = 1000  # that are followed one by one: what has not repeated by then stays as it is
_SCAN_WITHOUT_LENGTHS = 9  # version of the operator set from which Scan takes no sequence_lens
_DependenceMask: TypeAlias = (
    int  # bit i says that a value depends on an input in the runs of group i
)
State: TypeAlias = tuple[_DependenceMask, ...]  # the masks of what a loop carries


class _RunGroup(NamedTuple):
    """A group of equal runs of a body: the position of its outer group, its number of runs."""

    outer: int
    runs: int


class _MaskScope:
    """Bit masks of a graph's values: a bit is 1 if that group of runs depends on an input."""

    def __init__(
        self,
        enclosing: "_MaskScope | None" = None,
        groups: Sequence[_RunGroup] = (),
        inputs: Iterable[str] = (),
    ) -> None:
        """Create a scope of masks within another; `groups` are its own groups of runs."""
        self._masks = dict.fromkeys(inputs, 1)
        self._around = enclosing
        self._groups = groups

    def __getitem__(self, name: str) -> int:
        """Return a value's bit mask by name, from enclosing scopes too; 0 if unknown."""
        known = self._masks.get(name)
        if known is not None or self._around is None:
            return known or 0
        mask = self._around[name]
        return _inner_group_mask(mask, self._groups) if mask and self._groups else mask

    def masks_of_tensors(self, specs: Iterable[TensorSpec | None]) -> list[_DependenceMask]:
        """Return the bit mask of each tensor; 0 for a tensor that is omitted."""
        return [self[spec.name] if spec is not None else 0 for spec in specs]

    def set_masks(
        self, specs: Iterable[TensorSpec | None], masks: Iterable[_DependenceMask]
    ) -> None:
        """Store the bit mask of each tensor; also 0, to hide an outer value of the same name."""
        for spec, mask in zip(specs, masks, strict=False):
            if spec is not None:
                self._masks[spec.name] = mask


def _inner_group_mask(mask: _DependenceMask, groups: Sequence[_RunGroup]) -> _DependenceMask:
    """Return the bit mask of a body's run groups (bit i is group i): 1 if the outer group that
    contains the group has 1 in `mask`.
    """
    return sum(1 << at for at, group in enumerate(groups) if mask >> group.outer & 1)


def _outer_group_mask(mask: _DependenceMask, groups: Sequence[_RunGroup]) -> _DependenceMask:
    """Return the bit mask of outer run groups (bit i is group i): 1 if any inner group within the
    outer group has 1 in `mask`.
    """
    return _mask_union(1 << group.outer for at, group in enumerate(groups) if mask >> at & 1)


def _mask_union(masks: Iterable[_DependenceMask]) -> _DependenceMask:
    """Return the bitwise OR of all masks, or 0 if there are none."""
    joined = 0
    for mask in masks:
        joined |= mask
    return joined


def mark_constant_nodes(graph: Graph, inputs: Iterable[str], argument: str = "") -> Graph:
    """Return the graph with marks on nodes that depend on no input, in all or some of their runs.

    `inputs` are the names of the model's inputs. Arguments of functions that depend on none of
    them get the role `argument`, if there is one.
    """
    scope = _MaskScope(inputs=inputs)
    return msgspec.structs.replace(
        graph, nodes=_DependenceWalk(argument).mark_nodes(graph.nodes, scope, (1,))[0]
    )


class _DependenceWalk:
    """A walk over graphs from the first node to the last.

    A function has one graph for all equal calls, since it is counted once.
    """

    def __init__(self, argument: str) -> None:
        """Start with empty caches of function bodies for the marks of one model argument."""
        self._argument = argument
        self._functions: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Graph] = {}
        self._ends: dict[tuple[int, tuple[int, ...]], list[int]] = {}

    def mark_nodes(
        self, nodes: Iterable[Node], scope: _MaskScope, group_runs: Sequence[int]
    ) -> tuple[tuple[Node, ...], _DependenceMask]:
        """Return the marked nodes, and a bit mask of the run groups that need an input.

        `group_runs` says how many runs each group has. The masks of results are written to the
        scope.
        """
        marked, everything = [], 0
        for node in nodes:
            provided = scope.masks_of_tensors(node.inputs)
            mask = _mask_union(provided)
            if not node.bodies:
                scope.set_masks(node.outputs, [mask] * len(node.outputs))
            else:
                results = self.result_masks(node, scope)
                node, inside = self._with_marked_bodies(node, scope, group_runs)
                scope.set_masks(node.outputs, results)
                mask |= inside
            marked.append(_with_number_of_constant_runs(node, mask, provided, group_runs))
            everything |= mask
        return tuple(marked), everything

    def result_masks(self, node: Node, scope: _MaskScope) -> list[_DependenceMask]:
        """Return the bit mask of each result of a node: the run groups that need an input."""
        provided = scope.masks_of_tensors(node.inputs)
        if not node.bodies:
            return [_mask_union(provided)] * len(node.outputs)
        if node.choice == "function":
            return self._function_result_masks(node.bodies[0], tuple(provided))
        if _is_loop(node):
            return self._masks_over_iterations(node, scope).results
        mask = _mask_union(provided)
        ends = [
            self._body_output_masks(body, scope, [mask] * len(body.inputs)) for body in node.bodies
        ]
        indices = range(len(node.outputs))
        return [mask | _mask_union(end[at] for end in ends if at < len(end)) for at in indices]

    def _function_result_masks(
        self, body: Graph, provided: tuple[_DependenceMask, ...]
    ) -> list[_DependenceMask]:
        """Return the bit masks of a function's results, given the bit masks of its arguments."""
        key = id(body), provided
        if key not in self._ends:
            self._ends[key] = self._body_output_masks(body, None, provided)
        return self._ends[key]

    def _body_output_masks(
        self, body: Graph, enclosing: _MaskScope | None, provided: Sequence[_DependenceMask]
    ) -> list[_DependenceMask]:
        """Return the bit masks of a body's outputs, given the bit masks of its inputs."""
        scope = _MaskScope(enclosing)
        scope.set_masks(body.inputs, provided)
        for node in body.nodes:
            scope.set_masks(node.outputs, self.result_masks(node, scope))
        return scope.masks_of_tensors(body.outputs)

    def _with_marked_bodies(
        self, node: Node, scope: _MaskScope, group_runs: Sequence[int]
    ) -> tuple[Node, _DependenceMask]:
        """Return a copy of a node with subgraphs (a loop, a branch or a function call) in which
        each node of the subgraphs says in how many runs it needs no input; and a bit mask of the
        groups of runs in which a node of them needs an input.
        """
        if node.choice == "function":
            body = self._mark_function_body(
                node.bodies[0], scope.masks_of_tensors(node.inputs), group_runs
            )
            return msgspec.structs.replace(node, bodies=(body,)), 0
        bodies, everything = [], 0
        for body in node.bodies:
            inner, within = _MaskScope(scope), group_runs
            groups: tuple[_RunGroup, ...] = ()
            if _is_loop(node):
                course = self._masks_over_iterations(node, scope)
                groups = course.run_groups(group_runs)
                inner, within = _MaskScope(scope, groups), [group.runs for group in groups]
                inner.set_masks(body.inputs, course.body_input_masks(groups))
            else:
                provided = _mask_union(scope.masks_of_tensors(node.inputs))
                inner.set_masks(body.inputs, [provided] * len(body.inputs))
            nodes, mask = self.mark_nodes(body.nodes, inner, within)
            bodies.append(msgspec.structs.replace(body, nodes=nodes))
            everything |= _outer_group_mask(mask, groups) if groups else mask
        return msgspec.structs.replace(node, bodies=tuple(bodies)), everything

    def _mark_function_body(
        self, body: Graph, provided: Sequence[_DependenceMask], group_runs: Sequence[int]
    ) -> Graph:
        """Return a copy of a function's body, marked for arguments with these bit masks."""
        masks, similar = _merge_equal_groups(provided, group_runs)
        key = id(body), masks, similar
        if key not in self._functions:
            fixed = {
                spec.name: msgspec.structs.replace(spec, role=self._argument)
                for spec, mask in zip(body.inputs, masks, strict=False)
                if not mask and self._argument
            }
            scope = _MaskScope()
            scope.set_masks(body.inputs, masks)
            number = sum(known == key[0] for known, *_ in self._functions)
            nodes = _with_replaced_specs(body.nodes, fixed)
            self._functions[key] = msgspec.structs.replace(
                body,
                name=f"{body.name}@{number + 1}" if number else body.name,
                nodes=self.mark_nodes(nodes, scope, similar)[0],
                inputs=tuple(fixed.get(spec.name, spec) for spec in body.inputs),
            )
        return self._functions[key]

    def _masks_over_iterations(self, node: Node, scope: _MaskScope) -> "_LoopIterationMasks":
        """Return the bit masks in each iteration of a loop, up to the one where they repeat."""
        body, form = node.bodies[0], _loop_start_masks(node, scope)
        states: list[State] = []
        stacked = [0] * max(len(body.outputs) - len(form.first), 0)
        state = form.first
        while state not in states and len(states) < _MOST_RUNS and node.trips != len(states):
            states.append(state)
            ends = self._body_output_masks(body, scope, form.input_masks(state))
            # a body that gives back too little cannot run, which is said where it is counted
            state = (*ends[: len(form.first)], *form.first[len(ends) :])
            stacked = [a | b for a, b in zip(stacked, ends[len(form.first) :], strict=False)]
        back = states.index(state) if state in states else None
        if back is None and node.trips != len(states):
            back = len(states) - 1
        course = _LoopIterationMasks(form, tuple(states), back, node.trips)
        last = (
            _state_union([*states, state])
            if node.trips is None
            else course.masks_after_last_iteration(state)
        )
        if not form.decides:
            return course._replace(results=[*last, *stacked])
        # whatever decides how often the body runs decides about all results
        decided = _mask_union(scope.masks_of_tensors(node.inputs[:2])) | _mask_union(
            s[0] for s in (*states, state)
        )
        return course._replace(results=[mask | decided for mask in (*last[1:], *stacked)])


def _is_loop(node: Node) -> bool:
    """Return whether a node is one of ONNX's `Loop`, `Scan` or `SequenceMap`."""
    return not node.op.domain and node.op.type in ("Loop", "Scan", "SequenceMap")


class _LoopStartMasks(NamedTuple):
    """The masks at a loop's start: of carried values, and of inputs before and after them.

    The first carried value `decides` whether a Loop continues.
    """

    first: State
    before: State = ()
    behind: State = ()
    decides: bool = False

    def input_masks(self, state: State) -> State:
        """Return the masks of a loop body's inputs if its carried values have masks `state`."""
        return (*self.before, *state, *self.behind)


def _loop_start_masks(node: Node, scope: _MaskScope) -> _LoopStartMasks:
    """Return the masks of carried values and other inputs with which a loop begins."""
    provided = tuple(scope.masks_of_tensors(node.inputs))
    if node.op.type == "Loop":
        return _LoopStartMasks((provided[1:2] or (0,)) + provided[2:], before=(0,), decides=True)
    if node.op.type == "SequenceMap":
        return _LoopStartMasks((), behind=provided)
    if node.op.since < _SCAN_WITHOUT_LENGTHS:
        provided = provided[1:]
    indices = node.attrs.get("num_scan_inputs")
    cut = len(provided) - (indices if isinstance(indices, int) else 0)
    return _LoopStartMasks(provided[: max(cut, 0)], behind=provided[max(cut, 0) :])


def _state_union(states: Sequence[State]) -> State:
    """Return the bitwise OR of several loop states, position by position."""
    return tuple(map(_mask_union, zip(*states, strict=True)))


class _LoopIterationMasks(NamedTuple):
    """The masks of a loop's carried values in its first runs (`states`), then again from `back`.

    With None the loop has ended by then. `results` are the masks of its results.
    """

    form: _LoopStartMasks
    states: tuple[State, ...]
    back: int | None
    trips: int | None
    results: list[int] = []

    def masks_after_last_iteration(self, state: State) -> State:
        """Return the masks of the carried values after the last iteration: the state that the
        repetition has then reached; `state` if the number of iterations is unknown or no state
        repeats.
        """
        if self.back is None or self.trips is None:
            return state
        return self.states[self.back + (self.trips - self.back) % (len(self.states) - self.back)]

    def run_groups(self, outer_group_runs: Sequence[int]) -> tuple[_RunGroup, ...]:
        """Return a loop body's run groups: one for each of `states` and each outer group."""
        times = [self._runs_with_state(at) for at in range(len(self.states))] or [0]
        return tuple(
            _RunGroup(outer, n * of) for of in times for outer, n in enumerate(outer_group_runs)
        )

    def _runs_with_state(self, state_index: int) -> int:
        """Return how often the body runs with that state; 1 if the iterations are unknown."""
        if self.back is None or self.trips is None or state_index < self.back:
            return 1
        period = len(self.states) - self.back
        return -((state_index - self.trips) // period)

    def body_input_masks(self, groups: Sequence[_RunGroup]) -> list[_DependenceMask]:
        """Return the bit masks of a loop body's inputs: one bit for each of these run groups."""
        states = self.states or (self.form.first,)
        enclosing = len(groups) // len(states)
        shifted = (
            [mask << at * enclosing for mask in self.form.input_masks(state)]
            for at, state in enumerate(states)
        )
        return [_mask_union(masks) for masks in zip(*shifted, strict=True)]


def _merge_equal_groups(
    masks: Sequence[_DependenceMask], group_runs: Sequence[int]
) -> tuple[State, tuple[int, ...]]:
    """Return the masks with equal run groups merged, and the relative numbers of their runs."""
    total: dict[tuple[bool, ...], int] = {}
    for at, count in enumerate(group_runs):
        column = tuple(bool(mask >> at & 1) for mask in masks)
        total[column] = total.get(column, 0) + count
    columns = sorted(total)
    common = gcd(*total.values()) or 1
    joined = [
        sum(1 << at for at, column in enumerate(columns) if column[index])
        for index in range(len(masks))
    ]
    return tuple(joined), tuple(total[column] // common for column in columns)


def _with_number_of_constant_runs(
    node: Node,
    mask: _DependenceMask,
    provided: Sequence[_DependenceMask],
    group_runs: Sequence[int],
) -> Node:
    """Return a copy of the node that says in how many of its runs it needs no input of the model,
    and on which of its own inputs the other runs depend.
    """
    if not mask:
        return msgspec.structs.replace(node, constant=True)
    full = (
        sum(count for at, count in enumerate(group_runs) if not mask >> at & 1),
        sum(group_runs),
    )
    known = None if node.bodies else find_operator_rule(node.op)
    if known is None or known.constant_part is None:
        return msgspec.structs.replace(node, constant_runs=full) if full[0] else node
    inputs: dict[frozenset[int], int] = {}
    for at, count in enumerate(group_runs):
        indices = frozenset(index for index, mask in enumerate(provided) if mask >> at & 1)
        if indices:
            inputs[indices] = inputs.get(indices, 0) + count
    parts = tuple((count, indices) for indices, count in inputs.items())
    return msgspec.structs.replace(node, constant_runs=full, varying_inputs=parts)


def _with_replaced_specs(
    nodes: Iterable[Node], others: Mapping[str, TensorSpec]
) -> tuple[Node, ...]:
    """Return the nodes with the tensors of these names replaced by `others`."""
    if not others:
        return tuple(nodes)

    def replace_spec(spec: TensorSpec | None) -> TensorSpec | None:
        """Return the tensor in `others` with the same name, or the tensor itself."""
        return others.get(spec.name, spec) if spec is not None else None

    return tuple(
        msgspec.structs.replace(
            node,
            inputs=tuple(map(replace_spec, node.inputs)),
            bodies=node.bodies
            if node.choice == "function"
            else tuple(
                msgspec.structs.replace(body, nodes=_with_replaced_specs(body.nodes, others))
                for body in node.bodies
            ),
        )
        for node in nodes
    )
