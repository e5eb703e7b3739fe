"""The amount that a tool should print for a model: the bookings of its rules, call by call.

One walk serves every level: modules, functions, operators, the calls of a real run, and the nodes
of a file. Every operator call and every node is spoken for by one core booking, is seen by no rule
(for a named reason, or by default), or is unknown.

The nodes of a graph are calls, too: the lowest level of the tree, for tools that count a file.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

import msgspec

from crossflops.errors import CrossflopsError
from crossflops.ir.graph import Graph, Node, Op
from crossflops.ir.ledger import ZERO, Cost, CountedNode, Ledger, UncountedNode
from crossflops.ir.profile import Amount
from crossflops.ir.trace import NESTED, OBSERVED, UNWATCHED, Call, Level, Module, Setting, Trace
from crossflops.rules.conditions import PRE_HOOK, Site, matches_any_pattern
from crossflops.rules.rule import Convention, CostWeights, Rule, Share, formula_equation

WHOLE = "(graph)"  # the target of the call that stands for the graph itself


def trace_and_nodes_of_graph(graph: Graph, ledger: Ledger) -> tuple[Trace, dict[str, Node]]:
    """Return a trace with one call for the graph and one for each node in the ledger, and these
    nodes by their keys.

    Rules see by their role which results of a node are outputs of the graph.
    """
    results = frozenset(spec.name for spec in graph.outputs)
    everything = Node(
        key=graph.name, op=Op("", WHOLE, 0), inputs=graph.inputs, outputs=graph.outputs
    )
    nodes = [_node_with_output_roles(count, results) for count in ledger.counts]
    root = Module(id=0, names=("",), bases=(), params=(), children=(), training=False, settings={})
    calls = (
        _node_call(WHOLE, "graph", everything),
        *(_node_call(node.key, "node", node) for node in nodes),
    )
    trace = Trace(calls=calls, modules=(root,), setting=Setting())
    return trace, {WHOLE: everything, **{node.key: node for node in nodes}}


def _node_call(key: str, level: Level, node: Node) -> Call:
    """Return a graph node as a call without a parent, with the node's attributes as its
    settings.
    """
    settings: dict[str, Any] = dict(node.attrs)
    return Call(
        key=key,
        parent=None,
        level=level,
        target=str(node.op),
        module=0,
        settings=settings,
        live=not node.dead,
    )


def _node_with_output_roles(count: CountedNode | UncountedNode, results: frozenset[str]) -> Node:
    """Return the node of a count; its outputs that are outputs of the model have the role
    "output".
    """
    node = count.node
    if not any(spec is not None and spec.name in results for spec in node.outputs):
        return node
    outputs = tuple(
        msgspec.structs.replace(spec, role="output") if spec and spec.name in results else spec
        for spec in node.outputs
    )
    return msgspec.structs.replace(node, outputs=outputs)


_GROUND = ("operator", "node")  # levels on which contraction work is done, or not seen


def keep_shapes_of_graph(graph: Graph) -> Graph:
    """Return the graph unchanged: a tool takes the shapes of onnx.shape_inference, which the
    caller sets.
    """
    return graph


class PredictionError(CrossflopsError):
    """The tool itself is expected to fail on the model."""


class WatchError(PredictionError):
    """The real run that the tool makes could not be observed, although the tool itself may
    succeed.
    """


class _UnknownError(Exception):
    """A shape that a rule about a node needs is unknown, or a count is missing."""


class RuleMatch(msgspec.Struct, frozen=True, kw_only=True):
    """An amount that a rule books for a call: MACs of a core rule, the tool's unit of a part.

    It is booked `times` times. `path` is the module under which the tool reports it. `again` means
    that a rule about the module or the enclosing call has already counted the call (see
    `Call.via`: "mode"). An amount is a float where the tool computes with floats.
    """

    rule: Rule
    about: Call
    path: str
    amount: Amount
    times: int = 1
    again: bool = False

    @property
    def call(self) -> str:
        """The key of the call for which the amount is booked."""
        return self.about.key


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The amount that a tool should print for a model, with the bookings that it consists of.

    `covered` gives, for every operator call or node, the core booking (an index into `bookings`)
    or the "unseen" rule that accounts for it; `divisors` gives the value of each batch formula.
    Nodes in `unknown` cannot be predicted: their native MACs are used. `ledger` has one count for
    each node that a tool of files sees; it is None for a tool that runs a model.
    """

    convention: Convention
    setting: str
    bookings: tuple[RuleMatch, ...]
    covered: dict[str, int]
    unseen: dict[str, Rule]
    divisors: dict[Any, int] = {}
    unknown: dict[str, int] = {}
    ledger: Ledger | None = None

    @property
    def total(self) -> Amount:
        """The number that the tool should print, in the tool's own unit."""
        left = self.convention.unit * sum(self.unknown.values())
        return self.sum(self.bookings) + left

    def sum(self, bookings: Iterable[RuleMatch]) -> Amount:
        """Return the number that the tool makes of these rule matches, added in the order of the
        calls, in its own unit.
        """
        add = self.convention.adds_up or exact_sum
        return add([self._share_of_booking(booking) for booking in bookings])

    def amount_in_tool_unit(self, booking: RuleMatch) -> int:
        """Return the integer amount of one rule match in the tool's unit, before any division."""
        return int(self._share_of_booking(booking).amount)

    def amounts_divided_by_batch(self) -> tuple[int, ...]:
        """Return for each rule match, in order, its amount in the tool's unit after division by
        the batch size.

        The parts add up to the floored quotient of the sum.
        """
        sums = dict.fromkeys(self.divisors, 0)
        left = []
        for booking in self.bookings:
            worth, batch = self.amount_in_tool_unit(booking), booking.rule.batch
            if batch is not None:
                before, divisor = sums[batch], self.divisors[batch]
                sums[batch] += worth
                worth = sums[batch] // divisor - before // divisor
            left.append(worth)
        return tuple(left)

    def _share_of_booking(self, booking: RuleMatch) -> Share:
        """Return the amount of a rule match in the tool's unit, with its rule, its call and the
        batch size that divides it.
        """
        unit = self.convention.unit if booking.rule.kind == "core" else 1
        return Share(
            booking.rule,
            booking.amount * booking.times * unit,
            booking.about,
            self.divisors[booking.rule.batch] if booking.rule.batch else 1,
        )


def exact_sum(shares: Iterable[Share]) -> Amount:
    """Return the exact sum of the shares, each divided by its divisor; if the sum is not an
    integer, return the nearest float.
    """
    total = sum((Fraction(share.amount) / share.divisor for share in shares), start=Fraction())
    if total.denominator == 1:
        return total.numerator
    nearest = float(total)
    return int(nearest) if nearest.is_integer() else nearest


def predict(
    convention: Convention, trace: Trace, setting: Setting, ledger: Ledger | None = None
) -> Prediction:
    """Return a tool's prediction from its rules, applied to every call of the trace.

    The ledger is needed only by rules that weigh the native cost. Raises PredictionError where the
    tool itself would fail, WatchError where it is unknown what the tool sees.
    """
    return _CallWalk(convention, trace, convention.setting(setting).id, ledger).apply_rules()


def predict_nodes(convention: Convention, graph: Graph, ledger: Ledger) -> Prediction:
    """Return a tool's prediction from its rules, applied to every node of the graph.

    Raises PredictionError where the tool itself would fail.
    """
    visible = _with_shapes_of_tool(convention, graph, ledger)
    trace, nodes = trace_and_nodes_of_graph(graph, visible)
    walk = _CallWalk(convention, trace, "", None, nodes, visible)
    return msgspec.structs.replace(walk.apply_rules(), ledger=visible)


def _with_shapes_of_tool(convention: Convention, graph: Graph, ledger: Ledger) -> Ledger:
    """Return the ledger, with its nodes in the shapes that the tool infers if it infers shapes of
    its own.
    """
    if convention.shapes is None:
        return ledger
    try:
        nodes = convention.shapes(graph).nodes
    except LookupError as error:
        raise PredictionError(
            f"the shape inference of {convention.tool} fails on this model: {error}",
            f"leave out {convention.tool}, or see {formula_equation(convention.shapes)}",
        ) from error
    pairs = zip(ledger.counts, nodes, strict=True)
    counts = tuple(msgspec.structs.replace(count, node=node) for count, node in pairs)
    return Ledger(ledger.digest, counts)


# Under which module a tool sees a call.


def hook_module_of_call(call: Call, trace: Trace) -> Module:
    """Return the module under which a tool with hooks sees a call: the nearest registered module
    called by `__call__`.

    Work in a module called by `.forward`, or in an unregistered module, belongs to the caller's
    module.
    """
    for enclosing in (call, *trace.ancestors(call)):
        if enclosing.level == "module" and enclosing.via == "call":
            module = trace.modules[enclosing.module]
            if module.names:
                return module
    return trace.modules[0]


def module_that_collects_call(call: Call, trace: Trace, ruled: Container[str]) -> Module | None:
    """Return the module to which a tool that replaces functions adds the work of this call, or
    None if it adds it to no module.

    A hook of the tool begins and ends the list of a module. Pre-hooks that the model had before
    run ahead of it, so they belong to the enclosing module; calls with a rule (`ruled`, by key)
    have no list. Source: deepspeed/profiling/flops_profiler/profiler.py: start_profile.
    """
    early = passed = False
    for enclosing in trace.ancestors(call):
        if enclosing.target == PRE_HOOK:
            early = True
        elif enclosing.level == "module" and enclosing.via == "call":
            module = trace.modules[enclosing.module]
            if module.names and not early and enclosing.key not in ruled:
                return module
            passed |= bool(module.names)
            early = False
    return None if passed else trace.modules[0]


BookingIndex: TypeAlias = int  # the position of a rule match in `Prediction.bookings`
# In the place of a core booking: what lies inside a ruled module is not looked at.
_SHADOWED: BookingIndex = -1


class _CallWalk:
    """One walk over a call tree, with the state that its steps share."""

    def __init__(
        self,
        convention: Convention,
        trace: Trace,
        setting: str,
        ledger: Ledger | None,
        nodes: Mapping[str, Node] = {},
        seen: Ledger | None = None,
    ) -> None:
        self.convention = convention
        self.trace = trace
        self.setting = setting
        self.costs = ledger.costs_by_call if ledger else {}
        self.nodes = nodes
        self.counts = {count.node.key: count for count in seen.counts} if seen else {}
        self.times = {
            rule.times: rule.times.of(trace.modules) for rule in convention.rules if rule.times
        }
        self.counted: set[str] = set()  # calls of modules that a rule books
        self.bookings: list[RuleMatch] = []
        self.covered: dict[str, int] = {}
        self.unseen: dict[str, Rule] = {}
        self.unknown: dict[str, int] = {}
        self.rules: dict[str, list[Rule]] = {}
        self.unseen_rules = [rule for rule in convention.rules if rule.kind == "unseen"]
        for rule in convention.rules:
            if rule.kind != "unseen":
                self.rules.setdefault(rule.level, []).append(rule)

    def apply_rules(self) -> Prediction:
        # Calls come parents first, so what covers a parent is known before its children.
        """Apply the rules to every call, parents first, and return the prediction."""
        core: dict[str, BookingIndex | None] = {}
        for call in self.trace.calls:
            above = core.get(call.parent or "")
            core[call.key] = (
                self._apply_to_node(call) if self.nodes else self._apply_to_call(call, above)
            )
        for call in self._calls_recorded_for_tool():
            self._book_matching_rules(self._call_context(call), None)
        return Prediction(
            convention=self.convention,
            setting=self.setting,
            bookings=tuple(self.bookings),
            covered=self.covered,
            unseen=self.unseen,
            divisors=self._batch_sizes_by_function(),
            unknown=self.unknown,
        )

    def _call_context(self, call: Call) -> Site:
        """Return the call as rules see it: with the trace, the tool's setting and the node."""
        return Site(call, self.trace, self.setting, self.nodes.get(call.key))

    def _batch_sizes_by_function(self) -> dict[Any, int]:
        """Return the batch size that each batch function of the rules gives for this model; raise
        PredictionError if it gives none.
        """
        batches = dict.fromkeys(rule.batch for rule in self.convention.rules if rule.batch)
        divisors = {}
        for batch in batches:
            try:
                divisors[batch] = batch(self.trace)
            except (LookupError, ValueError, TypeError) as error:
                raise self._failure_error(
                    "the model", error, f"for its batch size {formula_equation(batch)}"
                ) from error
            if not divisors[batch]:
                problem = ZeroDivisionError("a batch of 0")
                raise self._failure_error(
                    "the model", problem, f"for its batch size {formula_equation(batch)}"
                )
        return divisors

    def _calls_recorded_for_tool(self) -> list[Call]:
        """Return the calls recorded in a real run for this tool, as the tool's convention reads
        them.

        They are empty for a model of another framework. Raises WatchError when the model fails
        while it is observed, ValueError when the trace was recorded for other tools.
        """
        foreign = self.convention.framework != self.trace.framework
        if self.convention.sees not in OBSERVED or not self.trace.calls or foreign:
            return []
        watched = (self.convention.sees, self.setting)
        calls = [call for call in self.trace.observed if (call.level, call.setting) == watched]
        if not calls:
            raise ValueError(
                f"the trace contains no {self.convention.sees} calls ({self.setting})"
            )
        failed = next((call for call in calls if call.target == UNWATCHED), None)
        if failed is not None:
            raise WatchError(
                f"crossflops could not record the run of {self.convention.tool}, so its number "
                f"is not explained: {failed.settings['reason']}",
                "this is an error in crossflops: please report it",
            )
        reads = self.convention.reads
        return list(reads(calls, self.trace)) if reads else calls

    def _apply_to_node(self, call: Call) -> BookingIndex | None:
        """Apply the rules to a graph node; return the index of the booking that covers it, or
        None. Mark the node as unknown if a shape or a count is missing.
        """
        booked, count = len(self.bookings), self.counts.get(call.key)
        try:
            if isinstance(count, UncountedNode) and not self.convention.verified:
                raise _UnknownError(count.reason)
            core = self._apply_to_call(call, None)
            spoken_for = call.key in self.covered or call.key in self.unseen
            multiplies = isinstance(count, CountedNode) and bool(count.cost.macs)
            if multiplies and not spoken_for and not self.convention.verified:
                raise _UnknownError(f"{self.convention.tool} has no rule for {call.target}")
        except _UnknownError:
            del self.bookings[booked:]
            self.covered.pop(call.key, None)
            self.unseen.pop(call.key, None)
            self.unknown[call.key] = count.cost.macs if isinstance(count, CountedNode) else 0
            return None
        return core

    def _apply_to_call(self, call: Call, above: BookingIndex | None) -> BookingIndex | None:
        """Apply the rules to a call; return the index of the booking that covers the calls inside
        it, or None.
        """
        core = self._covering_booking_of_parent(call, above)
        hidden = core == _SHADOWED and call.level != "function"
        if (
            self._is_counted_by_tool(call)
            and not hidden
            and not self._is_inside_counted_function(core, call)
        ):
            core = self._book_matching_rules(
                self._call_context(call), None if core == _SHADOWED else core
            )
        if call.level in _GROUND:
            self._record_booking_or_reason(call, core)
        return core

    def _book_matching_rules(self, site: Site, core: BookingIndex | None) -> BookingIndex | None:
        """Book the rules that match a call; return the index of the booking that covers the call,
        or `core` if no rule matches.
        """
        call = site.call
        added = self.convention.rules_add and call.level == "module"
        above, spoken = None if added else core, False
        for rule in self.rules.get(call.level, ()):
            if not self._matches_and_counts(rule, site):
                continue
            if rule.kind == "fails":
                self._raise_if_failure_rule_holds(rule, site)
            elif rule.kind == "part":
                self._add_booking(
                    rule, site, bool(rule.again) and self._is_counted_by_module_or_hook(call)
                )
            elif not spoken:
                again = above is not None and (
                    call.via == "mode"
                    or (bool(rule.again) and self._covers_operator_inside(above, call))
                )
                if above is not None and not rule.again and not again:
                    continue
                self._add_booking(rule, site, again)
                spoken = True
                core = above if again else len(self.bookings) - 1
                self._record_covered_operators(call, len(self.bookings) - 1)
        return core

    def _raise_if_failure_rule_holds(self, rule: Rule, site: Site) -> None:
        """Raise PredictionError if a rule of the kind "fails" says that the tool raises an error
        on this call.
        """
        if rule.amount is not None and not self._rule_amount_for_call(rule, site):
            return
        if site.node is not None:
            raise self._node_failure_error(rule, site.node)
        reason = site.settings.get("reason", f"it raises on {site.target}")
        raise self._failure_error(
            site.key, reason, f"according to rule {rule.id} ({rule.reference})"
        )

    def _record_covered_operators(self, call: Call, core: int) -> None:
        """Record that the booking `core` covers the operators that a call ran, or the custom
        operator in whose body it was called.
        """
        body = self.trace.enclosing_operator(call) if call.parent and not call.of else None
        inner = self._operator_keys_inside(call) if self.bookings[core].rule.whole else ()
        for key in (*call.of, *([body.key] if body else ()), *inner):
            self.covered.setdefault(key, core)
            self.unseen.pop(key, None)

    def _covers_operator_inside(self, core: int, call: Call) -> bool:
        """Return whether the booking `core` covers one of the operator calls inside this call."""
        stands_for = self.bookings[core].rule.stands_for
        return any(
            matches_any_pattern(below.target, stands_for)
            for below in self._operators_beneath(call)
        )

    def _operators_beneath(self, call: Call) -> Iterator[Call]:
        """Yield the operator calls inside a call, but not those inside another operator call."""
        for child in self.trace.children.get(call.key, ()):
            if child.level == "operator":
                yield child
            else:
                yield from self._operators_beneath(child)

    def _operator_keys_inside(self, call: Call) -> Iterator[str]:
        """Yield the keys of all operator calls inside a call, at every depth."""
        for child in self.trace.children.get(call.key, ()):
            if child.level == "operator":
                yield child.key
            yield from self._operator_keys_inside(child)

    def _is_counted_by_module_or_hook(self, call: Call) -> bool:
        """Return whether the nearest module or hook around the call was booked by a rule."""
        for enclosing in self.trace.ancestors(call):
            if enclosing.level == "module" or enclosing.via == "hook":
                return enclosing.key in self.counted
        return False

    def _covering_booking_of_parent(
        self, call: Call, above: BookingIndex | None
    ) -> BookingIndex | None:
        """Return the index of the booking of an outer call that covers this one, _SHADOWED if the
        tool does not look at it, or None.
        """
        if call.via == "hook" and above != _SHADOWED:
            return None  # what a hook does is not what the module around it stands for
        return _SHADOWED if self._is_inside_counted_module(call, above) else above

    def _is_inside_counted_function(self, core: BookingIndex | None, call: Call) -> bool:
        """Return whether a rule has already counted a function call around this call as a whole.

        Calls that a torch mode of the model makes by name are booked once more.
        """
        if core is None or call.via == "mode":
            return False
        return self.bookings[core].rule.level == "function"

    def _is_inside_counted_module(self, call: Call, above: BookingIndex | None) -> bool:
        """Return whether this module is inside a counted module, so that the tool does not look at
        it.

        A parametrization, say.
        """
        if self.convention.rules_add or call.level != "module":
            return False
        if above is None or above == _SHADOWED:
            return False
        return self.bookings[above].rule.level == "module"

    def _is_counted_by_tool(self, call: Call) -> bool:
        """Return whether the tool counts a call, by its fused kernel and by whether its result is
        used, stored or dead.
        """
        kernel = call.fused.get(self.setting, NESTED)
        if call.level == "function" and not kernel.startswith(NESTED):
            return False  # it ran in the place of the function
        stored = call.stored and self.convention.counts_stored
        return call.live or stored or self.convention.counts_dead

    def _matches_and_counts(self, rule: Rule, site: Site) -> bool:
        """Return whether a rule matches the call and the tool counts the call at least once."""
        return applies_to_call(rule, site) and self._times_counted_by_tool(rule, site.call) > 0

    def _times_counted_by_tool(self, rule: Rule, call: Call) -> int:
        """Return how many times the tool counts a call under this rule.

        Once per visit of its own module, or of the module that owns a function.
        """
        if call.level == "module":
            owner: Module | None = self.trace.modules[call.module]
        else:
            owner = self._module_that_counts(call)
        if owner is None:
            return 0
        return 1 if rule.times is None else self.times[rule.times][owner.id]

    def _add_booking(self, rule: Rule, site: Site, already_counted: bool = False) -> None:
        """Add a booking: a rule, its amount for the call, and how often the tool counts
        the call.
        """
        call = site.call
        if call.level == "module":
            self.counted.add(call.key)
        self.bookings.append(
            RuleMatch(
                rule=rule,
                about=call,
                path="" if rule.in_total_only else self._module_path_in_report(site),
                amount=rule.factor * self._rule_amount_for_call(rule, site),
                times=self._times_counted_by_tool(rule, call),
                again=already_counted,
            )
        )

    def _module_path_in_report(self, site: Site) -> str:
        """Return the path of the module under which the tool reports the call; "" also if it has
        none.
        """
        if site.node is not None:
            return site.node.path
        owner = self._module_that_counts(site.call)
        return owner.path if owner else ""

    def _rule_amount_for_call(self, rule: Rule, site: Site) -> Amount:
        """Return the amount that a rule gives for a call; raise PredictionError if its formula
        fails.
        """
        if rule.amount is None or isinstance(rule.amount, CostWeights):
            native = self._native_cost_of_call(site)
            return rule.amount.cost_amount(native) if rule.amount else 0
        if site.node is not None:
            return self._rule_amount_for_node(rule, rule.amount, site.node)
        try:
            return rule.amount(site)
        except (LookupError, ValueError, TypeError, ArithmeticError) as error:
            name = f"according to rule {rule.id} ({rule.reference})"
            raise self._failure_error(site.key, error, name) from error

    def _native_cost_of_call(self, site: Site) -> Cost:
        """Return crossflops' own cost of a call; raise _UnknownError if its node is uncounted."""
        count = self.counts.get(site.key)
        if isinstance(count, UncountedNode):
            raise _UnknownError(count.reason)
        return count.cost if count is not None else self._native_cost_of_calls_inside(site.call)

    def _rule_amount_for_node(
        self, rule: Rule, formula: Callable[[Node], Amount], node: Node
    ) -> Amount:
        """Return the amount of a formula for a node, times the number of runs of the loops that
        contain it.
        """
        count = self.counts.get(node.key)
        try:
            return formula(node) * (count.times if isinstance(count, CountedNode) else 1)
        except (LookupError, TypeError, ArithmeticError) as error:
            raise self._node_failure_error(rule, node) from error
        except ValueError as error:
            raise _UnknownError(str(error)) from error

    def _node_failure_error(self, rule: Rule, node: Node) -> PredictionError:
        """Return the error which says that the tool cannot count the operator of a node."""
        tool = self.convention.tool
        return PredictionError(
            f"{tool} cannot count the node {node.key} ({node.op}), according to rule {rule.id} "
            f"({rule.reference})",
            f"leave out {tool}; `crossflops explain {tool}` lists its rules",
        )

    def _failure_error(self, what: str, error: object, ground: str) -> PredictionError:
        """Return the error which says that the tool cannot count `what`. The ground is a phrase
        that names the rule or the formula which says so, such as "according to rule X".
        """
        tool = self.convention.tool
        return PredictionError(
            f"{tool} cannot count {what}, {ground}: {error}",
            f"leave out {tool}; `crossflops explain {tool}` lists its rules",
        )

    def _native_cost_of_calls_inside(self, call: Call) -> Cost:
        """Return the native cost of a call and of all calls inside it."""
        cost = self.costs.get(call.key, ZERO)
        below = (
            self._native_cost_of_calls_inside(child)
            for child in self.trace.children.get(call.key, ())
        )
        return sum(below, cost)

    def _record_booking_or_reason(self, call: Call, core: BookingIndex | None) -> None:
        """Record which booking covers an operator call, or else which rule says why the tool does
        not see it.
        """
        if core is not None and core != _SHADOWED:
            stands_for = self.bookings[core].rule.stands_for
            if matches_any_pattern(call.target, stands_for):
                self.covered[call.key] = core
                return
        site = self._call_context(call)
        for rule in self.unseen_rules:
            if applies_to_call(rule, site):
                self.unseen[call.key] = rule
                return

    def _module_that_counts(self, call: Call) -> Module | None:
        """Return the module under which the tool counts a call, or None if it counts the call
        under none.
        """
        if self.convention.sees == call.level == "function":
            return module_that_collects_call(call, self.trace, self.counted)
        return hook_module_of_call(call, self.trace)


def applies_to_call(rule: Rule, site: Site) -> bool:
    """Return whether a rule applies to this call: its level, its targets and all its conditions
    fit.
    """
    return (
        rule.level == site.call.level
        and matches_any_pattern(site.target, rule.targets)
        and all(condition.holds(site) for condition in rule.where)
    )
