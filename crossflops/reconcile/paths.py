"""Where a tool's number comes from: each module with all beneath it, cause by cause."""

from collections.abc import Iterable, Mapping

import msgspec

from crossflops.core.graph import Node
from crossflops.core.ledger import Ledger
from crossflops.core.profile import Amount, Profile
from crossflops.core.reconciliation import PathRow
from crossflops.core.trace import Trace
from crossflops.reconcile.bookings import Booking, Prediction


class Step(msgspec.Struct, frozen=True):
    """An amount booked under a cause, for one call and under one module.

    `macs` is the part of it that stands in MACs, which the step of the unit then scales.
    """

    stage: int
    cause: str
    amount: Amount
    call: str
    reference: str
    path: str = ""
    macs: int = 0


def by_path(
    prediction: Prediction,
    trace: Trace,
    ledger: Ledger,
    steps: Iterable[Step],
    profile: Profile | None,
) -> tuple[PathRow, ...]:
    """Every module with all beneath it, in the order of the module table.

    The causes of a row add up to `predicted - ours`. Work that a tool books under another module
    is a step away from the one and a step towards the other.
    """
    causes = by_cause(steps)
    predicted = _predicted(prediction, causes)
    theirs = {entry.path: entry.amount for entry in profile.entries} if profile else {}
    return rows(trace, ledger, predicted, causes, theirs)


def by_cause(steps: Iterable[Step]) -> dict[str, dict[str, Amount]]:
    """Amount by cause of all beneath each module."""
    causes: dict[str, dict[str, Amount]] = {}
    for step in sorted(steps, key=lambda step: step.stage):
        for path in around(step.path):
            found = causes.setdefault(path, {})
            found[step.cause] = found.get(step.cause, 0) + step.amount
    return causes


def rows(
    trace: Trace,
    ledger: Ledger,
    predicted: Mapping[str, Amount],
    causes: Mapping[str, Mapping[str, Amount]],
    theirs: Mapping[str, Amount],
) -> tuple[PathRow, ...]:
    """A row for each module that anybody counts something in; the mappings are by its path."""
    ours: dict[str, int] = {}
    for count in ledger.counted:
        for path in around(home(count.node, trace)):
            ours[path] = ours.get(path, 0) + count.cost.macs
    found = (
        PathRow(
            path=row.path,
            ours=ours.get(row.path, 0),
            predicted=predicted.get(row.path, 0),
            theirs=theirs.get(row.path),
            causes={cause: n for cause, n in causes.get(row.path, {}).items() if n},
        )
        for row in trace.modules
        if row.names
    )
    return tuple(row for row in found if row.ours or row.predicted or row.theirs)


def _predicted(prediction: Prediction, causes: dict[str, dict[str, Amount]]) -> dict[str, Amount]:
    """What the tool makes of all beneath each module; what it rounds there joins the causes."""
    inside: dict[str, list[Booking]] = {}
    whole: dict[str, int] = {}
    for booking, left in zip(prediction.bookings, prediction.divided(), strict=True):
        for path in around(booking.path):
            inside.setdefault(path, []).append(booking)
            whole[path] = whole.get(path, 0) + left
    predicted = {path: prediction.sum(bookings) for path, bookings in inside.items()}
    rounds = prediction.convention.rounds
    for path, amount in predicted.items():
        found = causes.setdefault(path, {})
        found[rounds] = found.get(rounds, 0) + amount - whole[path]
    return predicted


def home(node: Node, trace: Trace) -> str:
    """The module in which the node ran: that of its call, where the trace knows it."""
    call = trace.by_key.get(node.call)
    return trace.modules[call.module].path if call else node.path


def around(path: str) -> tuple[str, ...]:
    """The module and all around it, the root "" last."""
    found = [path]
    while path:
        path = path.rpartition(".")[0]
        found.append(path)
    return tuple(found)
