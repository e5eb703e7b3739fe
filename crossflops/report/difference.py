"""Compare two reports for a reviewer: which modules and nodes changed, moved, were added or
removed.

Derived from the rows of both and from nothing else, so that saved reports do as well as models.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.reconciliation import CauseRow, Work
from crossflops.operators.float_forms import float_operator_name
from crossflops.operators.original_names import name_before_fusion_and_quantization
from crossflops.report.report import Report, UncountedRow

Kind: TypeAlias = Literal["changed", "moved", "appeared", "vanished"]
Rows: TypeAlias = Mapping[str, tuple[str, Work]]  # by path or key: a class or operator, its work


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A changed module, without nested ones, or a changed node.

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
        """The work of the second model minus that of the first."""
        return self.second - self.first


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The way from the first model to the second. `causes` are there for models, not for files.

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
        """Whether no total grew by more than --max-increase, and no node without a count was
        added.
        """
        return not self.over and (self.max_increase is None or not self.new_uncounted)


KINDS = ("macs", "flops", "params")


def report_difference(
    first: Report, second: Report, names: tuple[str, str], max_increase: Fraction | None = None
) -> Difference:
    """Return the differences between two reports: totals, modules and nodes;
    `max_increase` is the allowed growth of a total, 0.1 for 10 %.
    """
    before, after = report_total_work(first), report_total_work(second)
    over: tuple[str, ...] = ()
    old, new = _comparable_placements(first, second)
    if max_increase is not None:
        pairs = ((kind, getattr(before, kind), getattr(after, kind)) for kind in KINDS)
        over = tuple(kind for kind, was, is_ in pairs if is_ > was * (1 + max_increase))
    return Difference(
        first=names[0],
        second=names[1],
        first_work=before,
        second_work=after,
        modules=tuple(row_changes(old.modules, new.modules)),
        nodes=tuple(row_changes(*_comparable_rows(old.rows, new.rows))),
        max_increase=None if max_increase is None else float(max_increase),
        over=over,
        uncounted_before=first.uncounted,
        uncounted=second.uncounted,
        new_uncounted=_new_uncounted(first, second),
        doubts=_inexact_grade_by_total(second),
    )


def _new_uncounted(first: Report, second: Report) -> tuple[UncountedRow, ...]:
    """Return the uncounted nodes of the second report that the first report does not have.

    Those of one operator, reason and shapes of inputs are alike: nobody knows what others cost.
    Rows of older reports have no shapes, and are alike without them.
    """
    has_shapes = any(row.inputs for row in first.uncounted) and any(
        row.inputs for row in second.uncounted
    )

    def operator_reason_and_shapes(row: UncountedRow) -> tuple[str, str, tuple[str, ...]]:
        """Return what two uncounted nodes have in common if they are the same: (operator, reason,
        shapes).
        """
        return row.op, row.reason, row.inputs if has_shapes else ()

    left = Counter(map(operator_reason_and_shapes, first.uncounted))
    came = []
    for row in second.uncounted:
        if left[operator_reason_and_shapes(row)]:
            left[operator_reason_and_shapes(row)] -= 1
        else:
            came.append(row)
    return tuple(came)


def _inexact_grade_by_total(report: Report) -> dict[str, str]:
    """Return {total: "estimate" or "bound"} for the totals that are not exact, such as "flops"."""
    grades = report.totals.exactness or {}
    return {name: grade for name, grade in grades.items() if grade != "exact"}


def report_total_work(report: Report) -> Work:
    """Return the total MACs, FLOPs and parameters of the report."""
    return Work(macs=report.macs, flops=report.flops, params=report.params)


def work_without_submodules(report: Report) -> dict[str, tuple[str, Work]]:
    """Return {module path: (class, MACs, FLOPs and parameters without its submodules)}; the path
    of the model is "".
    """
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


def _work_nodes_by_name(rows: Iterable[_NodeRow]) -> dict[str, _NodeRow]:
    """Return the nodes with work by a unique name: the second Relu of a module is "path/Relu#2".

    Exporters number nodes through the whole model, so that a layer more would rename all behind
    it. Where no module is known, a node has its name, without what was appended to it. An
    operator on small integers is called as that on floats.
    """
    indices: Counter[str] = Counter()
    named: dict[str, _NodeRow] = {}
    for row in rows:
        location = f"{row.path}/{float_operator_name(row.op)}" if row.path else row.node
        indices[location] += 1
        named[f"{location}#{indices[location]}" if indices[location] > 1 else location] = row
    return {name: row for name, row in named.items() if row.work != Work()}


def _comparable_rows(first: list[_NodeRow], second: list[_NodeRow]) -> tuple[Rows, Rows]:
    """Return {node name: (operator, work)} of both models, in which nodes that are the same have
    the same name.

    That is first a node of the same module, own name and MACs, and then one of the same place.
    Beside those of one name it is a node of one name of its own, whose module a quantizer left
    out, and a linear layer of one module that is Gemm in one and MatMul in the other.
    """
    before, after = _work_nodes_by_name(first), _work_nodes_by_name(second)
    after = _rename_same_nodes(after, before)
    left = {name: row for name, row in before.items() if name not in after}
    by_node = {(row.node, _operator_family_of_row(row)): name for name, row in left.items()}
    by_place = {
        (row.path, _operator_family_of_row(row)): name for name, row in left.items() if row.path
    }
    renamed = {}
    for name, row in after.items():
        keys = (
            by_node.get((row.node, _operator_family_of_row(row))),
            by_place.get((row.path, _operator_family_of_row(row))),
        )
        known = next((key for key in keys if key in left), None) if name not in before else None
        if known is not None:
            del left[known]
        renamed[known or name] = row
    return _to_plain_rows(before), _to_plain_rows(renamed)


def _rename_same_nodes(
    rows: Mapping[str, _NodeRow], others: Mapping[str, _NodeRow]
) -> dict[str, _NodeRow]:
    """Return the nodes of `rows` by name; a node that is also in `others` gets the name that it
    has there.

    A name that is free by that goes to the row from which it was taken.
    """
    names = {_node_identity(row): name for name, row in others.items()}
    times = Counter(map(_node_identity, (*rows.values(), *others.values())))
    called: dict[str, str] = {}
    for name, row in rows.items():
        known = names.get(_node_identity(row))
        if (
            known is not None
            and times[_node_identity(row)] == 2
            and others[known].path == row.path
        ):
            called[name] = known
    taken = set(called.values())
    free = iter(name for name in called if name not in taken)
    return {
        called.get(name) or (name if name not in taken else next(free)): row
        for name, row in rows.items()
    }


class _Placement(NamedTuple):
    """The nodes and the modules of a model."""

    rows: list[_NodeRow]
    modules: dict[str, tuple[str, Work]]


def _comparable_placements(first: Report, second: Report) -> tuple[_Placement, _Placement]:
    """Return the nodes and modules of both reports; a node that the other report has in a
    submodule is moved into that submodule.

    An optimizer drops an exporter's notes, and leaves most names of nodes: a node of the same
    name, operator and MACs is the same node, if the known module is within the one that it was
    left in.
    """
    before, after = [
        _Placement(_node_rows_of_report(report), work_without_submodules(report))
        for report in (first, second)
    ]
    for placed, other in ((before, after), (after, before)):
        known, own = _unique_nodes_by_identity(other.rows), _unique_nodes_by_identity(placed.rows)
        moved: dict[str, None] = {}
        for at, row in enumerate(placed.rows):
            twin = known.get(_node_identity(row)) if own.get(_node_identity(row)) is row else None
            if twin is not None and _is_within(twin.path, row.path):
                placed.rows[at] = row._replace(path=twin.path)
                _move_work(row.work, row.path, twin.path, placed, other)
                moved[twin.path] = None
        if moved:
            placed.modules[""] = (other.modules[""][0], placed.modules[""][1])
        _move_parameters(moved, placed, other)
    return before, after


def _node_rows_of_report(report: Report) -> list[_NodeRow]:
    """Return a row for each node of a report: its original name, module path, operator, MACs and
    FLOPs.
    """
    return [
        _NodeRow(
            name_before_fusion_and_quantization(row.node),
            row.path,
            row.op,
            Work(macs=row.macs, flops=row.flops),
        )
        for row in report.nodes
    ]


def _node_identity(row: _NodeRow) -> tuple[str, str, int]:
    """Return (node name, operator family, MACs), which is equal for the same node in two
    reports.
    """
    return row.node, _operator_family_of_row(row), int(row.work.macs)


def _unique_nodes_by_identity(rows: list[_NodeRow]) -> dict[tuple[str, str, int], _NodeRow]:
    """Return {identity: node} for the nodes whose identity (name, family, MACs) no other node
    has.
    """
    times = Counter(map(_node_identity, rows))
    return {key: row for row in rows if times[key := _node_identity(row)] == 1}


def _is_within(path: str, outer: str) -> bool:
    """Return whether `path` is a submodule of the module `outer`, at any depth."""
    return path != outer and (not outer or path.startswith(f"{outer}."))


def _move_work(work: Work, start: str, end: str, placed: _Placement, other: _Placement) -> None:
    """Move the work from the module `start` to its submodule `end` in `placed`; missing submodules
    are added from `other`.
    """
    modules = placed.modules
    for path in (end, *_ancestor_paths(end)):
        if path not in modules and path in other.modules:
            modules[path] = (other.modules[path][0], Work())
    for path, amount in ((start, Work() - work), (end, work)):
        name, known = modules.get(path, ("", Work()))
        modules[path] = (name, known + amount)


def _ancestor_paths(path: str) -> Iterator[str]:
    """Yield the paths of the ancestors of a module, the innermost first, without the root."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _move_parameters(moved: Iterable[str], placed: _Placement, other: _Placement) -> None:
    """Move parameters from parent modules to the submodules that nodes were moved to (`moved`), up
    to the number that the other report has there.

    A report does not say which node uses which parameters.
    """

    def excess_parameters_of_path(path: str) -> int:
        """Return how many more parameters the module has here than in the other report."""
        known = other.modules.get(path, ("", Work()))[1]
        return int(placed.modules[path][1].params - known.params)

    for end in moved:
        for start in (*_ancestor_paths(end), ""):
            amount = min(
                -excess_parameters_of_path(end),
                excess_parameters_of_path(start) if start in placed.modules else 0,
            )
            if amount > 0:
                _move_work(Work(params=amount), start, end, placed, other)


def _to_plain_rows(rows: Mapping[str, _NodeRow]) -> Rows:
    """Return {node name: (operator, work)}."""
    return {name: (row.op, row.work) for name, row in rows.items()}


_FAMILIES = {"Gemm": "MatMul", "FusedMatMul": "MatMul", "FusedGemm": "MatMul"}
_FAMILIES |= dict.fromkeys(("FusedConv", "NhwcConv", "NhwcFusedConv"), "Conv")


def _operator_family_of_row(row: _NodeRow) -> str:
    """Return the operator family of a node, which is the same for variants such as Gemm and
    MatMul, float or quantized.
    """
    form = float_operator_name(row.op).rpartition(".")[2]
    return _FAMILIES.get(form, form)


def _has_changed(before: tuple[str, Work], after: tuple[str, Work]) -> bool:
    """Return whether two (class, work) pairs of a module differ; an unknown class equals any
    class.
    """
    return before[1] != after[1] or (before[0] != after[0] and bool(before[0] and after[0]))


def row_changes(first: Rows, second: Rows) -> Iterator[Change]:
    """Yield the rows that changed, moved, appeared or vanished, the one with the largest change in
    MACs first.
    """
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

    def change_sort_key(change: Change) -> tuple[int, int, int]:
        """Return a sort key that puts the change with most MACs, FLOPs, parameters first."""
        delta = change.delta
        return -abs(delta.macs), -abs(delta.flops), -abs(delta.params)

    yield from sorted(rows, key=change_sort_key)
