"""Explain the difference between the native MACs and a tool's number, call by call, by causes in a
fixed order.

The order is fixed: graph identity, visibility, multiplicity, core formula, unit, components,
batch, precision. A step takes only what the steps before it left, so causes exclude each other and
add up by construction. A tool that counts a file is walked in the same way, node by node.

The steps of one account, by module with all beneath it, say where a tool's number comes from. Some
accounts begin elsewhere: at the count of a model that was rebuilt for the tool, or at the exact
count of a training step.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from crossflops.ir.graph import Node
from crossflops.ir.ledger import Ledger
from crossflops.ir.profile import Amount, Profile
from crossflops.ir.reconciliation import (
    Explanation,
    ParamsExplanation,
    ParamsReconciliation,
    PathRow,
    Reconciliation,
)
from crossflops.ir.trace import OBSERVED, Call, Times, Trace
from crossflops.ir.training import gradient_call_key, rerun_call_key, score_rerun_key
from crossflops.rules.prediction import Prediction, RuleMatch
from crossflops.rules.rule import Convention

DIVIDED = "scope.batch-divided"


class PathStep(msgspec.Struct, frozen=True):
    """An amount of one cause, for one call and in one module.

    `macs` is the part of it that stands in MACs, which the step of the unit then scales. It is in
    the number of every module around as well, unless it is `alone`.
    """

    stage: int
    cause: str
    amount: Amount
    call: str
    reference: str
    path: str = ""
    macs: int = 0
    alone: bool = False


def rows_by_path(
    prediction: Prediction,
    trace: Trace,
    ledger: Ledger,
    steps: Iterable[PathStep],
    printed: Mapping[str, Amount],
) -> tuple[PathRow, ...]:
    """Return a row for each module, in the order of the module table: native MACs, the tool's
    predicted and printed number, and the causes between them.

    `printed` is what the tool shows for a module, by its path.

    The causes of a row add up to `predicted - ours`. Work that a tool books under another module
    is a step away from the one and a step towards the other.
    """
    causes = step_amounts_by_cause(steps)
    predicted = _prediction_by_path(prediction, trace, causes)
    return rows_of_modules(trace, ledger, predicted, causes, printed)


def step_amounts_by_cause(steps: Iterable[PathStep]) -> dict[str, dict[str, Amount]]:
    """Return {module path: {cause: amount}}, with the amounts of all submodules in it."""
    causes: dict[str, dict[str, Amount]] = {}
    for step in sorted(steps, key=lambda step: step.stage):
        for path in (step.path,) if step.alone else path_and_ancestors(step.path):
            of_path = causes.setdefault(path, {})
            of_path[step.cause] = of_path.get(step.cause, 0) + step.amount
    return causes


def rows_of_modules(
    trace: Trace,
    ledger: Ledger,
    predicted: Mapping[str, Amount],
    causes: Mapping[str, Mapping[str, Amount]],
    reported: Mapping[str, Amount],
) -> tuple[PathRow, ...]:
    """Return a row for each module in which something is counted; `predicted`, `causes` and
    `reported` are by module path.
    """
    native: dict[str, int] = {}
    for count in ledger.counted:
        for path in path_and_ancestors(module_path_of_node(count.node, trace)):
            native[path] = native.get(path, 0) + count.cost.macs
    path_rows = (
        PathRow(
            path=row.path,
            ours=native.get(row.path, 0),
            predicted=predicted.get(row.path, 0),
            theirs=reported.get(row.path),
            causes={cause: n for cause, n in causes.get(row.path, {}).items() if n},
        )
        for row in trace.modules
        if row.names
    )
    return tuple(row for row in path_rows if row.ours or row.predicted or row.theirs)


def _prediction_by_path(
    prediction: Prediction, trace: Trace, causes: dict[str, dict[str, Amount]]
) -> dict[str, Amount]:
    """Return {module path: the number that the tool is predicted to show for it}, submodules
    included; add its rounding to `causes`.
    """
    inside: dict[str, list[RuleMatch]] = {}
    for booking, standing in module_contributions(prediction, trace):
        for path, times in standing.items():
            same = times == booking.times
            counted = booking if same else msgspec.structs.replace(booking, times=times)
            inside.setdefault(path, []).append(counted)
    predicted: dict[str, Amount] = {}
    for path, bookings in inside.items():
        row = msgspec.structs.replace(prediction, bookings=tuple(bookings))
        predicted[path], left = row.sum(bookings), sum(row.amounts_divided_by_batch())
        of_path = causes.setdefault(path, {})
        for cause, amount in (
            (DIVIDED, left - sum(map(row.amount_in_tool_unit, bookings))),
            (prediction.convention.rounds, predicted[path] - left),
        ):
            of_path[cause] = of_path.get(cause, 0) + amount
    return predicted


def module_contributions(
    prediction: Prediction, trace: Trace
) -> Iterator[tuple[RuleMatch, dict[str, int]]]:
    """Yield each rule match with {module path: how often the match counts in the tool's number of
    that module}.

    A tool that adds up the tree of modules shows a module under all of its parents; any other has
    its own rule for that, and is taken to show it under the first of its names.
    """
    shown: dict[Times, dict[str, dict[str, int]]] = {}
    for booking in prediction.bookings:
        times = booking.rule.times
        if times is None or times.within is None or booking.rule.in_total_only:
            yield booking, dict.fromkeys(path_and_ancestors(booking.path), booking.times)
            continue
        if times not in shown:
            shown[times] = _inner_module_times_by_path(times.within(trace.modules), trace)
        yield booking, shown[times][booking.path]


def _inner_module_times_by_path(
    times_by_module_id: Mapping[int, Mapping[int, int]], trace: Trace
) -> dict[str, dict[str, int]]:
    """Return {module path: {path of a module below it: how often it counts}}, without unregistered
    modules.
    """
    named = {row.id: row.path for row in trace.modules if row.names}
    return {
        path: {
            named[storage]: times
            for storage, times in times_by_module_id[module].items()
            if storage in named and times
        }
        for module, path in named.items()
    }


def module_path_of_node(node: Node, trace: Trace) -> str:
    """Return the path of the module in which a node ran: that of its recorded call, else the
    node's own path.
    """
    call = trace.calls_by_key.get(node.call)
    return trace.modules[call.module].path if call else node.path


def path_and_ancestors(path: str) -> tuple[str, ...]:
    """Return a module path and the paths of its ancestors, the innermost first and the model ""
    last.
    """
    paths = [path]
    while path:
        path = path.rpartition(".")[0]
        paths.append(path)
    return tuple(paths)


FORCED = "scope.mode-forced-eval"
ELSEWHERE = "module.booked-elsewhere"
PER_MAC = "unit.mac-vs-flop"
SHARED = "module.shared-parents"
CONVERTER = "graph.converter"
DECOMPOSED, ALONE = "graph.export-decomposition", "graph.one-side-alone"
_STEP = (
    gradient_call_key(""),
    score_rerun_key(""),
    rerun_call_key(""),
)  # ends of the keys of the backward pass
# Causes that say themselves why only the tool has work: what was run twice, or but begun.
_OF_ONE_SIDE = frozenset({"backward", "control"})
BY_MODE = "function.mode"
BODY, UNSEEN = "operator.custom-body", "operator.custom-unseen"
TAUGHT = "operator.taught"
OTHER_FILE = "graph.other-file"
WRITTEN = "docs/converters.md"


class Stage(IntEnum):
    """The stages of an explanation, in their order."""

    GRAPH = 1
    VISIBILITY = 2
    MULTIPLICITY = 3
    FORMULA = 4
    UNIT = 5
    COMPONENT = 6
    BATCH = 7
    PRECISION = 8


class NativeWork(msgspec.Struct, frozen=True):
    """The native MACs, by key of the operator call or, for a tool that counts files, of the node.

    `macs` are what the tool finds there, `written` what a converter put in besides and the tool
    may find, `paths` the module of each node; empty where the trace knows it.
    """

    macs: Mapping[str, int]
    written: Mapping[str, int] = {}
    paths: Mapping[str, str] = {}


def reconcile(
    prediction: Prediction,
    trace: Trace,
    ledger: Ledger,
    profile: Profile | None = None,
    base: Ledger | None = None,
) -> Reconciliation:
    """Return the explanation of a tool's total: the causes that lead from the native MACs to the
    predicted total, and the printed total.

    Without a profile the tool is taken to print what its convention predicts. `base` is the
    native count that was asked for: another than `ledger` where the tool forces another mode, or
    was given another file. The entries of the profile are amounts by module or, of a tool that
    counts a file, by node.
    """
    native = base or ledger
    if prediction.ledger is not None:
        first = list(_converter_work_steps(prediction.ledger, native))
        ground, moved = native_work_of_nodes(prediction.ledger), []
    else:
        first = list(_mode_change_steps(trace, ledger, native))
        ground = NativeWork(
            {key: cost.macs for key, cost in ledger.costs_by_call.items()},
            ledger.converter_macs_by_call,
        )
        moved = [
            *_relocation_steps(prediction, trace, ground.macs),
            *_multi_parent_steps(prediction, trace),
        ]
    walked = _give_decompositions_one_cause(
        [step for step in steps_of_rule_matches(prediction, trace, ground) if step.amount]
    )
    unbatched = (step for step in walked if step.stage < Stage.BATCH)
    convention = prediction.convention
    return Reconciliation(
        tool=convention.tool,
        edition=convention.edition,
        unit=convention.unit,
        ours=native.total.macs,
        theirs=profile.total if profile else prediction.total,
        predicted=prediction.total,
        explanations=(
            *_mode_change_explanations(first, convention),
            *explanations_by_cause([*_steps_without_mode_change(first), *walked]),
        ),
        by_path=rows_by_path(
            prediction,
            trace,
            native,
            [*unbatched, *moved, *first],
            _tool_amounts_by_path(profile, ground),
        ),
    )


def residual_reconciliation(
    convention: Convention, ledger: Ledger, profile: Profile, obstacle: str
) -> Reconciliation:
    """Return a reconciliation for a tool without a prediction: no causes, and `obstacle` says
    why.
    """
    return Reconciliation(
        tool=convention.tool,
        edition=convention.edition,
        ours=ledger.total.macs,
        theirs=profile.total,
        predicted=ledger.total.macs,
        explanations=(),
        obstacle=obstacle,
    )


# Graph identity: what the tool is given is not what was counted.


def _mode_change_steps(trace: Trace, ledger: Ledger, native: Ledger) -> Iterator[PathStep]:
    """Yield the changes of the native MACs because the tool forces another mode, such as
    evaluation, by module.
    """
    for sign, counted in ((1, ledger), (-1, native)) if native is not ledger else ():
        for count in counted.counted:
            amount = sign * count.cost.macs
            path = module_path_of_node(count.node, trace)
            yield PathStep(Stage.GRAPH, FORCED, amount, count.node.call, "", path)


def _converter_work_steps(file: Ledger, native: Ledger) -> Iterator[PathStep]:
    """Yield the MACs by which the file that the tool counts exceeds ours, by module, and for each
    node those that a converter added.
    """
    more: dict[str, int] = {}
    collapsed_paths = tuple(_paths_of_modules_counted_whole(file, native))
    for sign, ledger in ((1, file), (-1, native)):
        for count in ledger.counted:
            more[count.node.path] = more.get(count.node.path, 0) + sign * count.cost.macs
    for path, amount in more.items():
        reference = "the file given to the tool"
        inside = any(enclosing in collapsed_paths for enclosing in path_and_ancestors(path))
        cause = BODY if inside else OTHER_FILE
        yield PathStep(Stage.GRAPH, cause, amount, path, reference, path, amount)
    for count in file.counted:
        node, amount = count.node, count.converter_macs
        yield PathStep(Stage.GRAPH, CONVERTER, amount, node.key, WRITTEN, node.path, amount)


def _paths_of_modules_counted_whole(file: Ledger, native: Ledger) -> Iterator[str]:
    """Yield the paths of modules that a formula counts as a whole, although the file has their
    single nodes.
    """
    in_file = {count.node.key: count.node.op for count in file.counts}
    for count in native.counts:
        node = count.node
        if node.op.domain and in_file.get(node.key, node.op) != node.op:
            yield node.path


def _mode_change_explanations(
    first: Iterable[PathStep], convention: Convention
) -> tuple[Explanation, ...]:
    """Return one explanation with the MACs by which the forced mode changes the total; () if they
    are 0.
    """
    amount = sum(int(step.amount) for step in first if step.cause == FORCED)
    if not amount:
        return ()
    source = convention.source
    return (Explanation(cause=FORCED, amount=amount, calls=(), reference=source, macs=amount),)


def _steps_without_mode_change(first: Iterable[PathStep]) -> list[PathStep]:
    """Return the steps with an amount other than 0, without those of the forced mode."""
    return [step for step in first if step.cause != FORCED and step.amount]


def native_work_of_nodes(file: Ledger) -> NativeWork:
    """Return the native MACs by node of a file, including those that a converter added."""
    return NativeWork(
        {count.node.key: count.cost.macs + count.converter_macs for count in file.counted},
        paths={count.node.key: count.node.path for count in file.counts},
    )


def _tool_amounts_by_path(profile: Profile | None, ground: NativeWork) -> dict[str, Amount]:
    """Return {module path: number that the tool printed for it}; a tool that counts nodes is
    summed by module.
    """
    printed: dict[str, Amount] = {}
    for entry in profile.entries if profile else ():
        if not ground.paths:
            printed[entry.path] = entry.amount
            continue
        for path in path_and_ancestors(ground.paths.get(entry.path, "")):
            printed[path] = printed.get(path, 0) + entry.amount
    return printed


def _relocation_steps(
    prediction: Prediction, trace: Trace, macs: Mapping[str, int]
) -> Iterator[PathStep]:
    """Yield pairs of steps that move MACs from the module where the work is done to the module
    where the tool counts it.
    """
    for key, index in prediction.covered.items():
        native = trace.modules[trace.calls_by_key[key].module].path
        reported = prediction.bookings[index].path
        amount = macs.get(key, 0)
        if amount and native != reported:
            yield PathStep(Stage.GRAPH, ELSEWHERE, -amount, key, "", native)
            yield PathStep(Stage.GRAPH, ELSEWHERE, amount, key, "", reported)


def _multi_parent_steps(prediction: Prediction, trace: Trace) -> Iterator[PathStep]:
    """Yield steps that correct the numbers of modules that have several parents, or are inside of
    one.

    The steps of a booking have all of it under the first name of its module.
    """
    for booking, standing in module_contributions(prediction, trace):
        first = dict.fromkeys(path_and_ancestors(booking.path), booking.times)
        if standing == first:
            continue
        dead = _has_unused_results(booking.about, trace)
        for path in {**first, **standing}:
            before, after = (
                msgspec.structs.replace(booking, times=times.get(path, 0))
                for times in (first, standing)
            )
            for step in _multiplicity_correction_steps(prediction, before, after, dead):
                yield msgspec.structs.replace(step, path=path, alone=True)


def _multiplicity_correction_steps(
    prediction: Prediction, before: RuleMatch, after: RuleMatch, dead: bool
) -> Iterator[PathStep]:
    """Yield the steps from a rule match that counts `before.times` times to one that counts
    `after.times` times.
    """
    convention, rule = prediction.convention, after.rule
    if rule.kind == "core":
        macs = int(after.amount) * (after.times - before.times)
        unit = (convention.unit - 1) * macs
        yield PathStep(Stage.MULTIPLICITY, SHARED, macs, after.call, rule.reference, macs=macs)
        yield PathStep(Stage.UNIT, PER_MAC, unit, after.call, convention.source)
    else:
        step = _component_step(prediction, after, dead)
        yield msgspec.structs.replace(
            step, amount=step.amount - prediction.amount_in_tool_unit(before)
        )


# From the work that is there to what the tool makes of it.


def steps_of_rule_matches(
    prediction: Prediction, trace: Trace, ground: NativeWork
) -> Iterator[PathStep]:
    """Yield the steps from the native MACs to the predicted number, for each rule match of the
    tool, then those for unseen work and rounding.
    """
    native = [0] * len(prediction.bookings)
    written = [0] * len(prediction.bookings)
    live = [False] * len(prediction.bookings)
    reached = [False] * len(prediction.bookings)
    for key, index in prediction.covered.items():
        native[index] += ground.macs.get(key, 0)
        written[index] += ground.written.get(key, 0)
        call = prediction.bookings[index].about if key in ground.paths else trace.calls_by_key[key]
        live[index] |= call.live
        reached[index] = True
    derived: Counter[tuple[str, ...]] = Counter()  # ours of all gradients of one operator
    for index, booking in enumerate(prediction.bookings):
        derived[booking.about.of] += native[index]
    for index, booking in enumerate(prediction.bookings):
        if booking.rule.kind == "core":
            dead = reached[index] and not live[index]
            macs = native[index], written[index]
            of = booking.about.of
            known = derived[of] if of else native[index]
            booking = _with_cause_if_one_sided(_with_custom_operator_cause(booking, trace), known)
            yield from _contraction_steps(prediction, booking, macs, dead)
        else:
            dead = _has_unused_results(booking.about, trace)
            yield _component_step(prediction, _with_custom_operator_cause(booking, trace), dead)
    yield from _invisible_work_steps(prediction, trace, ground)
    for booking, left in zip(
        prediction.bookings, prediction.amounts_divided_by_batch(), strict=True
    ):
        amount, reference = left - prediction.amount_in_tool_unit(booking), booking.rule.reference
        yield PathStep(Stage.BATCH, DIVIDED, amount, booking.call, reference, booking.path)
    yield from _rounding_steps(prediction)


def _with_custom_operator_cause(booking: RuleMatch, trace: Trace) -> RuleMatch:
    """Return the rule match, with another cause if its call comes from a custom operator or from a
    mode of the model.

    A custom operator's body made it (in a real run that is a call which does work of such an
    operator), or a mode of the model's did, which adds a part or counts a product once more.
    """
    call = booking.about
    if booking.rule.cause == TAUGHT:
        return booking
    custom = any(trace.calls_by_key[key].custom for key in call.of if key in trace.calls_by_key)
    if booking.rule.amount is not None and (custom or trace.enclosing_operator(call)):
        return replace(booking, rule=replace(booking.rule, cause=BODY, again=BODY))
    if call.via == "mode" and (booking.again or booking.rule.kind == "part"):
        return replace(booking, rule=replace(booking.rule, cause=BY_MODE, again=BY_MODE))
    return booking


def _give_decompositions_one_cause(walked: list[PathStep]) -> list[PathStep]:
    """Return the steps; if one side has work without a counterpart, all decompositions get this
    cause, so that they cancel out.

    Work that stands in another place of the other side cancels out with it.
    """
    if not any(step.cause == ALONE for step in walked):
        return walked
    return [replace(s, cause=ALONE) if s.cause == DECOMPOSED else s for s in walked]


def _with_cause_if_one_sided(booking: RuleMatch, native: int) -> RuleMatch:
    """Return the rule match, with the cause "one side alone" if its work and ours, `native` MACs,
    may not be the same work.

    An operator with work on both sides may be decomposed otherwise; its gradients are the same
    products, or they are not. `native` is the work of all native gradients of the operator, which
    stand at one call of the tool's.
    """
    rule, counted = booking.rule, booking.amount
    if rule.amount is None:
        return booking
    backward = _is_backward_or_rerun(booking.about)
    if rule.cause == DECOMPOSED:
        alone = backward or not native or not counted
    else:
        alone = backward and not native and rule.cause.partition(".")[0] not in _OF_ONE_SIDE
    return replace(booking, rule=replace(rule, cause=ALONE)) if alone else booking


def _is_backward_or_rerun(call: Call) -> bool:
    """Return whether the call does work of the backward pass, or is the rerun of a forward
    call.
    """
    return any(key.endswith(_STEP) for key in (call.key, *call.of))


def _rounding_steps(prediction: Prediction) -> Iterator[PathStep]:
    """Yield one step with the amount by which the tool's own rounding changes its total, if there
    is any.
    """
    convention = prediction.convention
    amount = prediction.sum(prediction.bookings) - sum(prediction.amounts_divided_by_batch())
    if amount:
        yield PathStep(Stage.PRECISION, convention.rounds, amount, "", convention.source)


def _contraction_steps(
    prediction: Prediction, booking: RuleMatch, macs: tuple[int, int], dead: bool
) -> Iterator[PathStep]:
    """Yield the steps for a rule match of a contraction; `macs` are (native MACs, MACs that a
    converter added).
    """
    rule, call, path = booking.rule, booking.call, booking.path
    native, written = macs

    def path_step_of_rule_match(stage: Stage, cause: str, amount: int) -> PathStep:
        """Return a step of this rule match with `amount` MACs."""
        return PathStep(stage, cause, amount, call, rule.reference, path, amount)

    if rule.amount is None:
        yield path_step_of_rule_match(Stage.VISIBILITY, rule.cause, -native)
        return
    counted = int(booking.amount)
    if dead:
        yield path_step_of_rule_match(Stage.GRAPH, "control.dead-code", counted)
    elif booking.again:
        yield path_step_of_rule_match(Stage.MULTIPLICITY, rule.again, counted)
    else:
        put_in = max(min(written, counted - native), 0)
        yield PathStep(Stage.GRAPH, CONVERTER, put_in, call, WRITTEN, path, put_in)
        yield path_step_of_rule_match(Stage.FORMULA, rule.cause, counted - native - put_in)
    repeated = counted * (booking.times - 1)
    yield path_step_of_rule_match(Stage.MULTIPLICITY, SHARED, repeated)
    unit = (prediction.convention.unit - 1) * (counted + repeated)
    yield PathStep(Stage.UNIT, PER_MAC, unit, call, prediction.convention.source, path)


def _component_step(prediction: Prediction, booking: RuleMatch, dead: bool) -> PathStep:
    """Return the step for a rule match of other work than a contraction; `dead` means that no
    result of it is used.
    """
    rule, amount = booking.rule, prediction.amount_in_tool_unit(booking)
    stage, cause = Stage.COMPONENT, rule.cause
    if booking.again:
        stage, cause = Stage.MULTIPLICITY, rule.again
    if dead:
        stage, cause = Stage.GRAPH, "control.dead-code"
    return PathStep(stage, cause, amount, booking.call, rule.reference, booking.path)


def _invisible_work_steps(
    prediction: Prediction, trace: Trace, ground: NativeWork
) -> Iterator[PathStep]:
    """Yield a step that takes away the native MACs of each call or node that no rule of the tool
    counts, with the cause.

    Unknown work of a node stays as in the native count.
    """
    convention = prediction.convention
    done = {key for call in (*trace.calls, *trace.observed) for key in call.of}
    for key, amount in ground.macs.items():
        if key in prediction.covered:
            continue
        call = None if key in ground.paths else trace.calls_by_key.get(key)
        path = trace.modules[call.module].path if call else ground.paths.get(key, "")
        if key in prediction.unknown:
            unit = (convention.unit - 1) * amount
            yield PathStep(Stage.UNIT, PER_MAC, unit, key, convention.source, path)
            continue
        rule = prediction.unseen.get(key)
        default = UNSEEN if call is not None and call.custom else convention.unseen
        missed = call is not None and _is_backward_or_rerun(call) and key not in done
        if default == DECOMPOSED or (missed and convention.step == "runs"):
            default = ALONE
        cause = rule.cause if rule else default
        reference = rule.reference if rule else convention.source
        yield PathStep(Stage.VISIBILITY, cause, -amount, key, reference, path, -amount)


def _has_unused_results(call: Call, trace: Trace) -> bool:
    """Return whether the results of a call are never used."""
    if call.level in OBSERVED or call.level in ("operator", "node"):
        return not call.live
    if trace.enclosing_operator(call):
        return not call.live
    operators = list(_operator_descendants(call, trace))
    return bool(operators) and not any(operator.live for operator in operators)


def _operator_descendants(call: Call, trace: Trace) -> Iterator[Call]:
    """Yield the operator calls below a call, without those inside of another operator."""
    for child in trace.children.get(call.key, ()):
        if child.level == "operator":
            yield child
        else:
            yield from _operator_descendants(child, trace)


def explanations_by_cause(walked: Iterable[PathStep]) -> tuple[Explanation, ...]:
    """Return one explanation for each cause, with the sum of its steps, in the order of the
    stages; sums of 0 are left out.
    """
    grouped: dict[str, list[PathStep]] = {}
    for step in sorted(walked, key=lambda step: (step.stage, step.cause)):
        grouped.setdefault(step.cause, []).append(step)
    return tuple(
        Explanation(
            cause=cause,
            amount=sum(step.amount for step in group),
            calls=tuple(step.call for step in group),
            reference=group[0].reference,
            macs=sum(step.macs for step in group),
        )
        for cause, group in grouped.items()
        if sum(step.amount for step in group)  # parts of one whole may cancel out
    )


# From the count of a model to that of what was rebuilt from it through ONNX, for a tool.

REBUILT = "graph.rebuilt"
_BY = {"torch": "onnx2torch", "tensorflow": "crossflops.rebuild.tensorflow"}


def reconciliation_from_file(
    account: Reconciliation, file: Ledger, rebuilt: Ledger, framework: str
) -> Reconciliation:
    """Return a copy of the account of a rebuilt model that begins at the count of the original
    file: one more cause explains the difference between the two.

    `account` begins at the module's. The nodes of the file that are named are those of operators
    whose work is another in the module, and the reference says by how much, operator by operator.
    """
    amount = rebuilt.total.macs - file.total.macs
    if not amount:
        return account
    differences = _mac_changes_by_operator(file, rebuilt)
    step = Explanation(
        cause=REBUILT,
        amount=amount,
        calls=tuple(count.node.key for count in file.counted if count.node.op.type in differences),
        reference=f"{_BY[framework]}: "
        + ", ".join(f"{op} {by:+}" for op, by in differences.items()),
        macs=amount,
    )
    return msgspec.structs.replace(
        account,
        ours=file.total.macs,
        explanations=(step, *account.explanations),
        by_path=tuple(_row_from_file_count(row, amount) for row in account.by_path),
    )


def parameters_from_file(
    account: ParamsReconciliation, params: int, framework: str
) -> ParamsReconciliation:
    """Return a copy of the parameter account of a rebuilt model that begins at the original's
    `params`: one more cause explains the difference.
    """
    amount = account.ours - params
    if not amount:
        return account
    step = ParamsExplanation(cause=REBUILT, amount=amount, parameters=(), reference=_BY[framework])
    return msgspec.structs.replace(
        account, ours=params, explanations=(step, *account.explanations)
    )


def _mac_changes_by_operator(file: Ledger, rebuilt: Ledger) -> dict[str, int]:
    """Return {operator type: MACs of the rebuilt model - MACs of the file}, without differences of
    0.
    """
    macs: dict[str, int] = {}
    for sign, ledger in ((-1, file), (1, rebuilt)):
        for count in ledger.counted:
            name = count.node.op.type
            macs[name] = macs.get(name, 0) + sign * count.cost.macs
    return {op: macs[op] for op in sorted(macs) if macs[op]}


def _row_from_file_count(row: PathRow, amount: int) -> PathRow:
    """Return the row of a module, changed only for the whole model: it begins at the file's count,
    which is `amount` MACs less.
    """
    if row.path:
        return row
    causes = row.causes if row.causes is UNSET else {REBUILT: amount, **row.causes}
    return msgspec.structs.replace(row, ours=row.ours - amount, causes=causes)


# From the exact count of a training step to a tool that takes the forward pass three times.

_RULE = "the tool takes the forward pass three times"


def threefold_forward_reconciliation(
    forward: Reconciliation,
    trace: Trace,
    ledger: Ledger,
    differences: Mapping[str, Mapping[str, int]],
    profile: Profile,
) -> Reconciliation:
    """Return the explanation from the exact MACs of a training step to three times the tool's
    number of the forward pass.

    `trace` and `ledger` are those of the native forward pass, `differences` the MACs by cause and
    node that lead from three times that pass to the step.
    """
    totals = {cause: sum(by_key.values()) for cause, by_key in differences.items()}
    to_rule = [
        Explanation(cause=cause, amount=-macs, calls=(), reference=_RULE, macs=-macs)
        for cause, macs in totals.items()
        if macs
    ]
    threefold = [
        replace(
            row, amount=3 * row.amount, macs=UNSET if row.macs is UNSET else 3 * int(row.macs or 0)
        )
        for row in forward.explanations
    ]
    return replace(
        forward,
        ours=3 * ledger.total.macs + sum(totals.values()),
        theirs=profile.total,
        predicted=3 * forward.predicted,
        explanations=(*to_rule, *threefold),
        by_path=tuple(
            _rows_of_threefold_pass(
                forward, trace, _cause_macs_by_path(trace, ledger, differences), profile
            )
        ),
    )


def _cause_macs_by_path(
    trace: Trace, ledger: Ledger, differences: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Return {module path: {cause: MACs}}, with the MACs of all submodules in it."""
    owners = {
        count.node.key: path_and_ancestors(module_path_of_node(count.node, trace))
        for count in ledger.counted
    }
    by_path: dict[str, dict[str, int]] = {}
    for cause, by_key in differences.items():
        for key, macs in by_key.items():
            for path in owners.get(key, ()):
                of_path = by_path.setdefault(path, {})
                of_path[cause] = of_path.get(cause, 0) + macs
    return by_path


def _rows_of_threefold_pass(
    forward: Reconciliation, trace: Trace, rule: Mapping[str, Mapping[str, int]], profile: Profile
) -> Iterator[PathRow]:
    """Yield a row for each module: MACs of the exact training step, three times the tool's forward
    number, and the causes between them.
    """
    known = {row.path: row for row in forward.by_path}
    printed = {entry.path: entry.amount for entry in profile.entries}
    for module in trace.modules:
        path = module.path
        if not module.names or (path not in known and not rule.get(path)):
            continue
        before = known.get(path, PathRow(path=path, ours=0, predicted=0))
        to_rule = rule.get(path, {})
        causes = {cause: -macs for cause, macs in to_rule.items() if macs}
        yield PathRow(
            path=path,
            ours=3 * before.ours + sum(to_rule.values()),
            predicted=3 * before.predicted,
            theirs=printed.get(path),
            causes=causes | {cause: 3 * amount for cause, amount in (before.causes or {}).items()},
        )
