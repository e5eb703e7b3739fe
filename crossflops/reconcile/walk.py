"""From our MACs to a tool's number, by calls or by nodes, each step booked under its cause.

The order is fixed: graph identity, visibility, multiplicity, core formula, unit, components,
batch, precision. A step takes only what the steps before it left, so causes exclude each other
and add up by construction.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum

import msgspec

from crossflops.ir.convention import Convention
from crossflops.ir.ledger import Ledger
from crossflops.ir.profile import Amount, Profile
from crossflops.ir.reconciliation import Explanation, Reconciliation
from crossflops.ir.trace import OBSERVED, Call, Trace
from crossflops.reconcile.nodes import NodeBooking, NodePrediction, matching
from crossflops.reconcile.paths import (
    DIVIDED,
    Step,
    around,
    by_cause,
    by_path,
    home,
    rows,
    standings,
)
from crossflops.reconcile.prediction import Booking, Prediction, PredictionError, WatchError

FORCED = "scope.mode-forced-eval"
ELSEWHERE = "module.booked-elsewhere"
PER_MAC = "unit.mac-vs-flop"
SHARED = "module.shared-parents"
CONVERTER = "graph.converter"
WRITTEN = "docs/converters.md"


class Stage(IntEnum):
    """The steps, in their order."""

    GRAPH = 1
    VISIBILITY = 2
    MULTIPLICITY = 3
    FORMULA = 4
    UNIT = 5
    COMPONENT = 6
    BATCH = 7
    PRECISION = 8


def reconcile(
    prediction: Prediction,
    trace: Trace,
    ledger: Ledger,
    profile: Profile | None = None,
    base: Ledger | None = None,
) -> Reconciliation:
    """Explain the predicted total from the native count, and set it beside what was printed.

    Without a profile the tool is taken to print what its convention predicts. `base` is the
    native count that was asked for, where the tool forces another mode than that.
    """
    convention = prediction.convention
    macs = {key: cost.macs for key, cost in ledger.by_call.items()}
    ours = (base or ledger).total.macs
    forced = _forced_mode(ledger.total.macs - ours, convention.source)
    every = steps(prediction, trace, macs, ledger.converter_by_call)
    found = tuple(step for step in every if step.amount)
    whole = (step for step in found if step.stage < Stage.BATCH)
    moved = (*_moved(prediction, trace, macs), *_shown(prediction, trace))
    booked = (*whole, *moved, *_imposed(trace, ledger, base))
    return Reconciliation(
        tool=convention.tool,
        edition=convention.edition,
        unit=convention.unit,
        ours=ours,
        theirs=profile.total if profile else prediction.total,
        predicted=prediction.total,
        explanations=(*forced, *explanations(found)),
        by_path=by_path(prediction, trace, base or ledger, booked, profile),
    )


def unpredicted(
    convention: Convention, ledger: Ledger, profile: Profile, error: PredictionError
) -> Reconciliation:
    """A tool that answered where nothing was predicted, for this error: all of it is residual."""
    unwatched = isinstance(error, WatchError)
    return Reconciliation(
        tool=convention.tool,
        edition=convention.edition,
        ours=ledger.total.macs,
        theirs=profile.total,
        predicted=ledger.total.macs,
        explanations=(),
        obstacle=error.message if unwatched else f"it was predicted to fail: {error.message}",
    )


def _forced_mode(amount: int, reference: str) -> tuple[Explanation, ...]:
    if not amount:
        return ()
    return (Explanation(cause=FORCED, amount=amount, calls=(), reference=reference, macs=amount),)


def _imposed(trace: Trace, ledger: Ledger, base: Ledger | None) -> Iterator[Step]:
    """What the mode that the tool forces does to the native count, module by module."""
    for sign, one in ((1, ledger), (-1, base)) if base and base is not ledger else ():
        for count in one.counted:
            amount = sign * count.cost.macs
            yield Step(Stage.GRAPH, FORCED, amount, count.node.call, "", home(count.node, trace))


def _moved(prediction: Prediction, trace: Trace, macs: dict[str, int]) -> Iterator[Step]:
    """Work that the tool books under another module than ours: it changes no total."""
    for key, place in prediction.covered.items():
        ours = trace.modules[trace.by_key[key].module].path
        theirs = prediction.bookings[place].path
        amount = macs.get(key, 0)
        if amount and ours != theirs:
            yield Step(Stage.GRAPH, ELSEWHERE, -amount, key, "", ours)
            yield Step(Stage.GRAPH, ELSEWHERE, amount, key, "", theirs)


def _shown(prediction: Prediction, trace: Trace) -> Iterator[Step]:
    """How else a module with several parents stands in the numbers of those around it.

    The steps of a booking have all of it under the first name of its module.
    """
    for booking, standing in standings(prediction, trace):
        first = dict.fromkeys(around(booking.path), booking.times)
        if standing == first:
            continue
        dead = _is_dead(booking.about, trace)
        for path in {**first, **standing}:
            before, after = (
                msgspec.structs.replace(booking, times=times.get(path, 0))
                for times in (first, standing)
            )
            for step in _instead(prediction, before, after, dead):
                yield msgspec.structs.replace(step, path=path, alone=True)


def _instead(
    prediction: Prediction, before: Booking, after: Booking, dead: bool
) -> Iterator[Step]:
    """From what the tool makes of a booking so many times to so many others."""
    convention, clause = prediction.convention, after.clause
    if clause.kind == "core":
        macs = int(after.amount) * (after.times - before.times)
        unit = (convention.unit - 1) * macs
        yield Step(Stage.MULTIPLICITY, SHARED, macs, after.call, clause.reference, macs=macs)
        yield Step(Stage.UNIT, PER_MAC, unit, after.call, convention.source)
    else:
        step = _part(prediction, after, dead)
        yield msgspec.structs.replace(step, amount=step.amount - prediction.worth(before))


def steps(
    prediction: Prediction, trace: Trace, macs: dict[str, int], written: Mapping[str, int] = {}
) -> Iterator[Step]:
    """Every step, in the order of the bookings.

    `macs` are native MACs by operator call, `written` those that a converter put in besides.
    """
    ours = [0] * len(prediction.bookings)
    more = [0] * len(prediction.bookings)
    live = [False] * len(prediction.bookings)
    reached = [False] * len(prediction.bookings)
    for key, place in prediction.covered.items():
        ours[place] += macs.get(key, 0)
        more[place] += written.get(key, 0)
        live[place] |= trace.by_key[key].live
        reached[place] = True
    for place, booking in enumerate(prediction.bookings):
        if booking.clause.kind == "core":
            dead = reached[place] and not live[place]
            yield from _core(prediction, booking, (ours[place], more[place]), dead)
        else:
            yield _part(prediction, booking, _is_dead(booking.about, trace))
    yield from _invisible(prediction, trace, macs)
    for booking, left in zip(prediction.bookings, prediction.divided(), strict=True):
        amount, reference = left - prediction.worth(booking), booking.clause.reference
        yield Step(Stage.BATCH, DIVIDED, amount, booking.call, reference, booking.path)
    yield from _rounded(prediction)


def _rounded(prediction: Prediction) -> Iterator[Step]:
    """What the tool's own arithmetic loses or wins on the whole."""
    convention = prediction.convention
    amount = prediction.total - sum(prediction.divided())
    if amount:
        yield Step(Stage.PRECISION, convention.rounds, amount, "", convention.source)


def _core(
    prediction: Prediction, booking: Booking, macs: tuple[int, int], dead: bool
) -> Iterator[Step]:
    """`macs` are ours, and those of the converter, which the tool may count, too."""
    clause, call, path = booking.clause, booking.call, booking.path
    ours, more = macs

    def step(stage: Stage, cause: str, amount: int) -> Step:
        return Step(stage, cause, amount, call, clause.reference, path, amount)

    if clause.formula is None and not clause.weights:
        yield step(Stage.VISIBILITY, clause.cause, -ours)
        return
    counted = int(booking.amount)
    if dead:
        yield step(Stage.GRAPH, "control.dead-code", counted)
    elif booking.again:
        yield step(Stage.MULTIPLICITY, clause.again, counted)
    else:
        put_in = max(min(more, counted - ours), 0)
        yield Step(Stage.GRAPH, CONVERTER, put_in, call, WRITTEN, path, put_in)
        yield step(Stage.FORMULA, clause.cause, counted - ours - put_in)
    repeated = counted * (booking.times - 1)
    yield step(Stage.MULTIPLICITY, SHARED, repeated)
    unit = (prediction.convention.unit - 1) * (counted + repeated)
    yield Step(Stage.UNIT, PER_MAC, unit, call, prediction.convention.source, path)


def _part(prediction: Prediction, booking: Booking, dead: bool) -> Step:
    clause, amount = booking.clause, prediction.worth(booking)
    stage, cause = Stage.COMPONENT, clause.cause
    if booking.again:
        stage, cause = Stage.MULTIPLICITY, clause.again
    if dead:
        stage, cause = Stage.GRAPH, "control.dead-code"
    return Step(stage, cause, amount, booking.call, clause.reference, booking.path)


def _invisible(prediction: Prediction, trace: Trace, macs: dict[str, int]) -> Iterator[Step]:
    convention = prediction.convention
    for key, amount in macs.items():
        if key in prediction.covered:
            continue
        clause = prediction.unseen.get(key)
        cause = clause.cause if clause else convention.unseen
        reference = clause.reference if clause else convention.source
        call = trace.by_key.get(key)
        path = trace.modules[call.module].path if call else ""
        yield Step(Stage.VISIBILITY, cause, -amount, key, reference, path, -amount)


def _is_dead(call: Call, trace: Trace) -> bool:
    """Whether nothing that the call did is used."""
    if call.level == "operator" or call.level in OBSERVED:
        return not call.live
    operators = list(_operators(call, trace))
    return bool(operators) and not any(operator.live for operator in operators)


def _operators(call: Call, trace: Trace) -> Iterator[Call]:
    for child in trace.children.get(call.key, ()):
        if child.level == "operator":
            yield child
        else:
            yield from _operators(child, trace)


def explanations(found: Iterable[Step]) -> tuple[Explanation, ...]:
    """One for each cause, in the order of the stages at which they are booked first."""
    grouped: dict[str, list[Step]] = {}
    for step in sorted(found, key=lambda one: (one.stage, one.cause)):
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


# From our MACs to the number of a tool that counts a graph, node by node.
#
# The steps are those of `walk`, in the same order. Should the tool have been given another file
# than the graph that is counted, the difference between the two comes first.

OTHER_FILE = "graph.other-file"


def reconcile_nodes(
    prediction: NodePrediction, trace: Trace, profile: Profile, base: Ledger
) -> Reconciliation:
    """Explain the predicted total from the native count, and set it beside what was printed.

    `base` is the native count, that of the graph or of another one, and `trace` belongs to it.
    The entries of the profile are amounts by node; the rows are those of the modules that the
    nodes belong to.
    """
    convention = prediction.convention
    found = [*_other_file(prediction, base), *node_steps(prediction)]
    booked = [step for step in found if step.amount]
    homes = {one.node.key: one.node.path for one in prediction.ledger.counts}
    worths = ((one.node.key, prediction.worth(one)) for one in prediction.bookings)
    printed = ((entry.path, entry.amount) for entry in profile.entries)
    return Reconciliation(
        tool=convention.tool,
        edition=convention.edition,
        unit=convention.unit,
        ours=base.total.macs,
        theirs=profile.total,
        predicted=prediction.total,
        explanations=explanations(booked),
        by_path=rows(
            trace,
            base,
            _by_module(homes, worths),
            by_cause(booked),
            _by_module(homes, printed),
        ),
    )


def node_steps(prediction: NodePrediction) -> Iterator[Step]:
    """Every step from the native MACs of these nodes, in the order of the nodes."""
    macs = {}
    for one in prediction.ledger.counted:
        node, more = one.node, one.converter_macs
        macs[node.key] = one.cost.macs + more
        yield Step(Stage.GRAPH, CONVERTER, more, node.key, WRITTEN, node.path, more)
    for booking in prediction.bookings:
        clause, node = booking.clause, booking.node
        if clause.kind == "core":
            yield from _node_core(prediction, booking, macs.pop(node.key, 0))
        else:
            stage, amount = Stage.COMPONENT, booking.amount
            yield Step(stage, clause.cause, amount, node.key, clause.reference, node.path)
    yield from _invisible_nodes(prediction, macs)


def _node_core(prediction: NodePrediction, booking: NodeBooking, ours: int) -> Iterator[Step]:
    clause, node, counted = booking.clause, booking.node, booking.amount
    wrong = counted - ours
    yield Step(Stage.FORMULA, clause.cause, wrong, node.key, clause.reference, node.path, wrong)
    convention = prediction.convention
    unit = (convention.unit - 1) * counted
    yield Step(Stage.UNIT, PER_MAC, unit, node.key, convention.source, node.path)


def _invisible_nodes(prediction: NodePrediction, macs: dict[str, int]) -> Iterator[Step]:
    """`macs` are those of the nodes that no core clause is about.

    What is not known of a node is left as it is natively.
    """
    convention = prediction.convention
    for one in prediction.ledger.counted:
        node, amount = one.node, -macs.get(one.node.key, 0)
        if node.key in prediction.unknown:
            unit = -(convention.unit - 1) * amount
            yield Step(Stage.UNIT, PER_MAC, unit, node.key, convention.source, node.path)
            continue
        told = next((c for c in matching(convention, node) if c.kind == "unseen"), None)
        cause = told.cause if told else convention.unseen
        reference = told.reference if told else convention.source
        yield Step(Stage.VISIBILITY, cause, amount, node.key, reference, node.path, amount)


def _other_file(prediction: NodePrediction, base: Ledger) -> Iterator[Step]:
    """Module by module, what the file of the tool has more than ours."""
    more: dict[str, int] = {}
    for sign, ledger in ((1, prediction.ledger), (-1, base)):
        for one in ledger.counted:
            more[one.node.path] = more.get(one.node.path, 0) + sign * one.cost.macs
    for path, amount in more.items():
        told = "the file that the tool was given"
        yield Step(Stage.GRAPH, OTHER_FILE, amount, path, told, path, amount)


def _by_module(
    homes: Mapping[str, str], amounts: Iterable[tuple[str, Amount]]
) -> dict[str, Amount]:
    """Amounts by node, added up for all beneath each module."""
    found: dict[str, Amount] = {}
    for node, amount in amounts:
        for path in around(homes.get(node, "")):
            found[path] = found.get(path, 0) + amount
    return found
