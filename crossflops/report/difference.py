"""Two reports set against each other, as a reviewer asks: what changed, moved, appeared, vanished.

Derived from the rows of both and from nothing else, so that saved reports do as well as models.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.reconciliation import CauseRow, Work
from crossflops.report.report import Report, UncountedRow

Kind: TypeAlias = Literal["changed", "moved", "appeared", "vanished"]
Rows: TypeAlias = Mapping[str, tuple[str, Work]]  # by path or key: a class or operator, its work


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A module without what is beneath it, or a node, that is not as it was.

    `name` is that of the second model, of the first where it vanished; `before` its name in the
    first where it moved. `first` and `second` are its work, zero where it is not there.
    """

    kind: Kind
    name: str
    what: str
    before: str = ""
    first: Work = Work()
    second: Work = Work()

    @property
    def delta(self) -> Work:
        """What was added."""
        return self.second - self.first


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """From the first model to the second. `causes` are there where both were models, not files.

    `over` names the totals that grew by more than `max_increase`, a share, if one was given.
    `uncounted_before` and `uncounted` are the nodes of each without a count, `new_uncounted` those
    that came in: `max_increase` does not hold beside these.
    """

    first: str
    second: str
    first_work: Work
    second_work: Work
    modules: tuple[Change, ...]
    nodes: tuple[Change, ...]
    causes: tuple[CauseRow, ...] | UnsetType = UNSET
    max_increase: float | None = None
    over: tuple[str, ...] = ()
    uncounted_before: tuple[UncountedRow, ...] = ()
    uncounted: tuple[UncountedRow, ...] = ()
    new_uncounted: tuple[UncountedRow, ...] = ()
    doubts: dict[str, str] = {}

    @property
    def holds(self) -> bool:
        """Whether nothing grew by more than `max_increase`, as far as all work was counted."""
        return not self.over and (self.max_increase is None or not self.new_uncounted)


KINDS = ("macs", "flops", "params")


def difference(
    first: Report, second: Report, names: tuple[str, str], most: Fraction | None = None
) -> Difference:
    """What is between two reports; `most` is the share by which a total may grow."""
    before, after = work(first), work(second)
    over: tuple[str, ...] = ()
    if most is not None:
        pairs = ((kind, getattr(before, kind), getattr(after, kind)) for kind in KINDS)
        over = tuple(kind for kind, old, new in pairs if new > old * (1 + most))
    return Difference(
        first=names[0],
        second=names[1],
        first_work=before,
        second_work=after,
        modules=tuple(changes(own_work(first), own_work(second))),
        nodes=tuple(changes(_nodes(first), _nodes(second))),
        max_increase=None if most is None else float(most),
        over=over,
        uncounted_before=first.uncounted,
        uncounted=second.uncounted,
        new_uncounted=_new_uncounted(first, second),
        doubts=_doubts(second),
    )


def _new_uncounted(first: Report, second: Report) -> tuple[UncountedRow, ...]:
    """Return the uncounted nodes of the second that the first has not as often, by operator."""
    left = Counter((row.op, row.reason) for row in first.uncounted)
    came = []
    for row in second.uncounted:
        if left[row.op, row.reason]:
            left[row.op, row.reason] -= 1
        else:
            came.append(row)
    return tuple(came)


def _doubts(report: Report) -> dict[str, str]:
    """Return the grade of every total that is no exact count."""
    grades = report.totals.exactness or {}
    return {name: grade for name, grade in grades.items() if grade != "exact"}


def work(report: Report) -> Work:
    """The totals."""
    return Work(macs=report.macs, flops=report.flops, params=report.params)


def own_work(report: Report) -> dict[str, tuple[str, Work]]:
    """Class and work of every module, without those beneath it; "" is the model itself."""
    rows = {
        row.path: (row.class_, Work(macs=row.macs, flops=row.flops, params=row.params))
        for row in report.modules
    }
    known = dict(rows)
    for path, (_, amount) in rows.items():
        parent = path
        while parent:
            parent = parent.rpartition(".")[0]
            if parent in rows:
                known[parent] = (known[parent][0], known[parent][1] - amount)
                break
    return known


def _nodes(report: Report) -> dict[str, tuple[str, Work]]:
    """Operator and work of every node that has work: the second Relu of a module is `path/Relu#2`.

    Exporters number nodes through the whole model, so that a layer more would rename all behind
    it. Where no module is known, a node has its name.
    """
    places: Counter[str] = Counter()
    rows: dict[str, tuple[str, Work]] = {}
    for row in report.nodes:
        place = f"{row.path}/{row.op}" if row.path else row.node
        places[place] += 1
        name = f"{place}#{places[place]}" if places[place] > 1 else place
        rows[name] = (row.op, Work(macs=row.macs, flops=row.flops))
    return {name: row for name, row in rows.items() if row[1] != Work()}


def changes(first: Rows, second: Rows) -> Iterator[Change]:
    """What differs, the largest in MACs first. What vanished here and appeared there has moved."""
    rows = [
        Change(kind="changed", name=name, what=second[name][0], first=work, second=second[name][1])
        for name, (what, work) in first.items()
        if name in second and (what, work) != second[name]
    ]
    gone = {name: row for name, row in first.items() if name not in second}
    for name, (what, amount) in second.items():
        if name in first:
            continue
        before = next((old for old, row in gone.items() if row == (what, amount)), None)
        if before is None:
            rows.append(Change(kind="appeared", name=name, what=what, second=amount))
        else:
            del gone[before]
            rows.append(
                Change(
                    kind="moved", name=name, before=before, what=what, first=amount, second=amount
                )
            )
    for name, (what, amount) in gone.items():
        rows.append(Change(kind="vanished", name=name, what=what, first=amount))

    def size(change: Change) -> tuple[int, int, int]:
        delta = change.delta
        return -abs(delta.macs), -abs(delta.flops), -abs(delta.params)

    yield from sorted(rows, key=size)
