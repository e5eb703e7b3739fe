"""Where a tool's number comes from: each module with all beneath it, cause by cause."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from crossflops.ir.graph import Node
from crossflops.ir.ledger import Ledger
from crossflops.ir.modules import Times
from crossflops.ir.profile import Amount
from crossflops.ir.reconciliation import PathRow
from crossflops.ir.trace import Trace
from crossflops.rules.prediction import Booking, Prediction

DIVIDED = "scope.batch-divided"


class PathStep(msgspec.Struct, frozen=True):
    """An amount booked under a cause, for one call and under one module.

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


def by_path(
    prediction: Prediction,
    trace: Trace,
    ledger: Ledger,
    steps: Iterable[PathStep],
    printed: Mapping[str, Amount],
) -> tuple[PathRow, ...]:
    """Every module with all beneath it, in the order of the module table.

    `printed` is what the tool shows for a module, by its path.

    The causes of a row add up to `predicted - ours`. Work that a tool books under another module
    is a step away from the one and a step towards the other.
    """
    causes = by_cause(steps)
    predicted = _predicted(prediction, trace, causes)
    return rows(trace, ledger, predicted, causes, printed)


def by_cause(steps: Iterable[PathStep]) -> dict[str, dict[str, Amount]]:
    """Amount by cause of all beneath each module."""
    causes: dict[str, dict[str, Amount]] = {}
    for step in sorted(steps, key=lambda step: step.stage):
        for path in (step.path,) if step.alone else around(step.path):
            of_path = causes.setdefault(path, {})
            of_path[step.cause] = of_path.get(step.cause, 0) + step.amount
    return causes


def rows(
    trace: Trace,
    ledger: Ledger,
    predicted: Mapping[str, Amount],
    causes: Mapping[str, Mapping[str, Amount]],
    theirs: Mapping[str, Amount],
) -> tuple[PathRow, ...]:
    """A row for each module in which something is counted; the mappings are by its path."""
    ours: dict[str, int] = {}
    for count in ledger.counted:
        for path in around(home(count.node, trace)):
            ours[path] = ours.get(path, 0) + count.cost.macs
    path_rows = (
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
    return tuple(row for row in path_rows if row.ours or row.predicted or row.theirs)


def _predicted(
    prediction: Prediction, trace: Trace, causes: dict[str, dict[str, Amount]]
) -> dict[str, Amount]:
    """What the tool makes of all beneath each module; what it divides there joins the causes."""
    inside: dict[str, list[Booking]] = {}
    for booking, standing in standings(prediction, trace):
        for path, times in standing.items():
            same = times == booking.times
            counted = booking if same else msgspec.structs.replace(booking, times=times)
            inside.setdefault(path, []).append(counted)
    predicted: dict[str, Amount] = {}
    for path, bookings in inside.items():
        row = msgspec.structs.replace(prediction, bookings=tuple(bookings))
        predicted[path], left = row.sum(bookings), sum(row.divided())
        of_path = causes.setdefault(path, {})
        for cause, amount in (
            (DIVIDED, left - sum(map(row.worth, bookings))),
            (prediction.convention.rounds, predicted[path] - left),
        ):
            of_path[cause] = of_path.get(cause, 0) + amount
    return predicted


def standings(prediction: Prediction, trace: Trace) -> Iterator[tuple[Booking, dict[str, int]]]:
    """Every booking, and how often it stands in the number of each module, by its path.

    A tool that adds up the tree of modules shows a module under all of its parents; any other has
    its own rule for that, and is taken to show it under the first of its names.
    """
    shown: dict[Times, dict[str, dict[str, int]]] = {}
    for booking in prediction.bookings:
        times = booking.rule.times
        if times is None or times.within is None or booking.rule.in_total_only:
            yield booking, dict.fromkeys(around(booking.path), booking.times)
            continue
        if times not in shown:
            shown[times] = _by_name(times.within(trace.modules), trace)
        yield booking, shown[times][booking.path]


def _by_name(times_of: Mapping[int, Mapping[int, int]], trace: Trace) -> dict[str, dict[str, int]]:
    """The same table by paths; what is registered nowhere has none."""
    named = {row.id: row.path for row in trace.modules if row.names}
    return {
        path: {
            named[storage]: times
            for storage, times in times_of[module].items()
            if storage in named and times
        }
        for module, path in named.items()
    }


def home(node: Node, trace: Trace) -> str:
    """The module in which the node ran: that of its call, where the trace knows it."""
    call = trace.by_key.get(node.call)
    return trace.modules[call.module].path if call else node.path


def around(path: str) -> tuple[str, ...]:
    """The module and all around it, the root "" last."""
    paths = [path]
    while path:
        path = path.rpartition(".")[0]
        paths.append(path)
    return tuple(paths)
