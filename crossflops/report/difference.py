"""Two reports set against each other, as a reviewer asks: what changed, moved, appeared, vanished.

Derived from the rows of both and from nothing else, so that saved reports do as well as models.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.reconciliation import CauseRow, Work
from crossflops.operators.float_forms import float_form
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
        nodes=tuple(changes(*_node_rows(first, second))),
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


class _NodeRow(NamedTuple):
    """A node with work: its own name, its module, its operator and its work."""

    node: str
    path: str
    op: str
    work: Work


def _nodes(report: Report) -> dict[str, _NodeRow]:
    """Every node that has work, by name: the second Relu of a module is `path/Relu#2`.

    Exporters number nodes through the whole model, so that a layer more would rename all behind
    it. Where no module is known, a node has its name, without what a quantizer appends to it. An
    operator on small integers is called as that on floats.
    """
    places: Counter[str] = Counter()
    rows: dict[str, _NodeRow] = {}
    for row in report.nodes:
        node = _own_name(row.node)
        place = f"{row.path}/{float_form(row.op)}" if row.path else node
        places[place] += 1
        name = f"{place}#{places[place]}" if places[place] > 1 else place
        rows[name] = _NodeRow(node, row.path, row.op, Work(macs=row.macs, flops=row.flops))
    return {name: row for name, row in rows.items() if row.work != Work()}


def _own_name(node: str) -> str:
    """The name of a node without what onnxruntime's quantizers append to it."""
    return node.removesuffix("_quant").removesuffix("_MatMul")


def _node_rows(first: Report, second: Report) -> tuple[Rows, Rows]:
    """Operator and work by name, with one name for what is one node in both.

    Beside those of one name, that is a node of one name of its own, whose module a quantizer
    left out, and a linear layer of one module that is Gemm in one and MatMul in the other.
    """
    before, after = _nodes(first), _nodes(second)
    left = {name: row for name, row in before.items() if name not in after}
    by_node = {(row.node, _family(row)): name for name, row in left.items()}
    by_place = {(row.path, _family(row)): name for name, row in left.items() if row.path}
    renamed = {}
    for name, row in after.items():
        keys = (by_node.get((row.node, _family(row))), by_place.get((row.path, _family(row))))
        known = next((key for key in keys if key in left), None) if name not in before else None
        if known is not None:
            del left[known]
        renamed[known or name] = row
    return _plain(before), _plain(renamed)


def _plain(rows: Mapping[str, _NodeRow]) -> Rows:
    return {name: (row.op, row.work) for name, row in rows.items()}


def _family(row: _NodeRow) -> str:
    form = float_form(row.op)
    return "MatMul" if form == "Gemm" else form


def _has_changed(before: tuple[str, Work], after: tuple[str, Work]) -> bool:
    """Whether the work or the class differs. A class that a file leaves out is no other one."""
    return before[1] != after[1] or (before[0] != after[0] and bool(before[0] and after[0]))


def changes(first: Rows, second: Rows) -> Iterator[Change]:
    """What differs, the largest in MACs first. What vanished here and appeared there has moved."""
    rows = [
        Change(kind="changed", name=name, what=second[name][0], first=work, second=second[name][1])
        for name, (what, work) in first.items()
        if name in second and _has_changed((what, work), second[name])
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
