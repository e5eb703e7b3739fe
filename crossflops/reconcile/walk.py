"""From our MACs to a tool's number, step by step, each step booked under its cause.

The order is fixed: graph identity, visibility, multiplicity, core formula, unit, components. A
step takes only what the steps before it left, so causes exclude each other and add up by
construction.
"""

from collections.abc import Iterator
from enum import IntEnum

import msgspec

from crossflops.core.convention import Convention
from crossflops.core.ledger import Ledger
from crossflops.core.profile import Profile
from crossflops.core.reconciliation import Explanation, PathRow, Reconciliation
from crossflops.core.trace import Call, Trace
from crossflops.reconcile.prediction import Booking, Prediction


class Stage(IntEnum):
    """The steps, in their order."""

    GRAPH = 1
    VISIBILITY = 2
    MULTIPLICITY = 3
    FORMULA = 4
    UNIT = 5
    COMPONENT = 6


class Step(msgspec.Struct, frozen=True):
    """An amount booked under a cause, for one call."""

    stage: Stage
    cause: str
    amount: int
    call: str
    reference: str


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
    return Reconciliation(
        tool=convention.tool,
        edition=convention.edition,
        ours=ours,
        theirs=profile.total if profile else prediction.total,
        predicted=prediction.total,
        explanations=(*forced, *_explanations(steps(prediction, trace, macs))),
        by_path=_by_path(prediction, trace, macs, profile),
    )


def unpredicted(convention: Convention, ledger: Ledger, profile: Profile) -> Reconciliation:
    """A tool that answered where its convention says it fails: all of it is residual."""
    return Reconciliation(
        tool=convention.tool,
        edition=convention.edition,
        ours=ledger.total.macs,
        theirs=profile.total,
        predicted=ledger.total.macs,
        explanations=(),
    )


def _forced_mode(amount: int, reference: str) -> tuple[Explanation, ...]:
    if not amount:
        return ()
    cause = "scope.mode-forced-eval"
    return (Explanation(cause=cause, amount=amount, calls=(), reference=reference),)


def steps(prediction: Prediction, trace: Trace, macs: dict[str, int]) -> Iterator[Step]:
    """Every step, in the order of the bookings. `macs` are native MACs by operator call."""
    ours = [0] * len(prediction.bookings)
    live = [False] * len(prediction.bookings)
    reached = [False] * len(prediction.bookings)
    for key, place in prediction.covered.items():
        ours[place] += macs.get(key, 0)
        live[place] |= trace.by_key[key].live
        reached[place] = True
    for place, booking in enumerate(prediction.bookings):
        call = trace.by_key[booking.call]
        if booking.clause.kind == "core":
            dead = reached[place] and not live[place]
            yield from _core(prediction, booking, ours[place], dead)
        else:
            yield _part(booking, _is_dead(call, trace))
    yield from _invisible(prediction, macs)


def _core(prediction: Prediction, booking: Booking, ours: int, dead: bool) -> Iterator[Step]:
    clause, call = booking.clause, booking.call
    if clause.formula is None and not clause.weights:
        yield Step(Stage.VISIBILITY, clause.cause, -ours, call, clause.reference)
        return
    counted = booking.amount
    if dead:
        yield Step(Stage.GRAPH, "control.dead-code", counted, call, clause.reference)
    else:
        yield Step(Stage.FORMULA, clause.cause, counted - ours, call, clause.reference)
    repeated = counted * (booking.times - 1)
    yield Step(Stage.MULTIPLICITY, "module.shared-parents", repeated, call, clause.reference)
    unit = (prediction.convention.unit - 1) * (counted + repeated)
    yield Step(Stage.UNIT, "unit.mac-vs-flop", unit, call, prediction.convention.source)


def _part(booking: Booking, dead: bool) -> Step:
    clause, amount = booking.clause, booking.amount * booking.times
    if dead:
        return Step(Stage.GRAPH, "control.dead-code", amount, booking.call, clause.reference)
    return Step(Stage.COMPONENT, clause.cause, amount, booking.call, clause.reference)


def _invisible(prediction: Prediction, macs: dict[str, int]) -> Iterator[Step]:
    convention = prediction.convention
    for key, amount in macs.items():
        if key in prediction.covered:
            continue
        clause = prediction.unseen.get(key)
        cause = clause.cause if clause else convention.unseen
        reference = clause.reference if clause else convention.source
        yield Step(Stage.VISIBILITY, cause, -amount, key, reference)


def _is_dead(call: Call, trace: Trace) -> bool:
    """Whether nothing that the call did is used."""
    if call.storey == "operator":
        return not call.live
    operators = list(_operators(call, trace))
    return bool(operators) and not any(operator.live for operator in operators)


def _operators(call: Call, trace: Trace) -> Iterator[Call]:
    for child in trace.children.get(call.key, ()):
        if child.storey == "operator":
            yield child
        else:
            yield from _operators(child, trace)


def _explanations(found: Iterator[Step]) -> tuple[Explanation, ...]:
    grouped: dict[tuple[Stage, str], list[Step]] = {}
    for step in found:
        if step.amount:
            grouped.setdefault((step.stage, step.cause), []).append(step)
    return tuple(
        Explanation(
            cause=cause,
            amount=sum(step.amount for step in group),
            calls=tuple(step.call for step in group),
            reference=group[0].reference,
        )
        for (_, cause), group in sorted(grouped.items())
    )


def _by_path(
    prediction: Prediction, trace: Trace, macs: dict[str, int], profile: Profile | None
) -> tuple[PathRow, ...]:
    """Every module with all beneath it, in the order of the module table."""
    ours: dict[str, int] = {}
    predicted: dict[str, int] = {}
    for key, amount in macs.items():
        call = trace.by_key.get(key)
        _add(ours, trace.modules[call.module].path if call else "", amount)
    for booking in prediction.bookings:
        _add(predicted, booking.path, prediction.worth(booking))
    theirs = {entry.path: entry.amount for entry in profile.entries} if profile else {}
    rows = (
        PathRow(
            path=row.path,
            ours=ours.get(row.path, 0),
            predicted=predicted.get(row.path, 0),
            theirs=theirs.get(row.path),
        )
        for row in trace.modules
        if row.names
    )
    return tuple(row for row in rows if row.ours or row.predicted or row.theirs)


def _add(totals: dict[str, int], path: str, amount: int) -> None:
    """Add to a path and to every path above it, up to the root, ""."""
    while True:
        totals[path] = totals.get(path, 0) + amount
        if not path:
            return
        path = path.rpartition(".")[0]
