"""Tables of a document: their heads, cells and levels; and those of the modules and the nodes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from crossflops.ir.training import Training
from crossflops.render.page import Table
from crossflops.render.quantity import exact
from crossflops.render.terminal import inert
from crossflops.report.efficiency import EfficiencyReport, rooflines
from crossflops.report.report import ModuleRow, NodeRow, Report
from crossflops.report.tables import around

_LONG = 12  # rows from which on a table has a field to search
_SHOWN = 2  # levels of the tree that are open at first
_STEP = (
    ("gradients of inputs", "backward_input_macs"),
    ("gradients of weights", "backward_weight_macs"),
    ("computed again", "recomputed_macs"),
)


class Head(NamedTuple):
    """The head of a column, which holds numbers (`right`), such that add up (`metric`), or lines
    of words (`flows`).
    """

    text: str
    right: bool = False
    metric: bool = False
    flows: bool = False

    @property
    def kind(self) -> str:
        """The class of its cells in the style sheet."""
        return "n" if self.right else "w" if self.flows else ""


class ShownRow(NamedTuple):
    """A row; in a tree `level` says how deep it lies, from 1 on."""

    cells: tuple[str, ...]
    tone: str = ""
    level: int = 0
    parent: bool = False


class Grid(NamedTuple):
    """A table as the templates take it. `shown` levels of a tree are open."""

    label: str
    heads: tuple[Head, ...]
    rows: tuple[ShownRow, ...]
    bare: bool = False
    search: bool = False
    sort: bool = False
    shown: int = _SHOWN


def table(block: Table, label: str) -> Grid:
    """A table of a page with all its columns, those of detail and without a head among them."""
    rows = tuple(
        ShownRow(tuple(inert(cell) for cell in row.cells), row.tone or "") for row in block.rows
    )
    heads = tuple(Head(column.head, column.right, flows=column.flows) for column in block.columns)
    bare = not any(head.text for head in heads)
    long = len(rows) >= _LONG
    return Grid(
        label,
        heads,
        rows,
        bare=bare,
        search=long and not block.bare,
        sort=not block.bare and len(rows) > 1,
    )


def seconds_of(noun: EfficiencyReport) -> dict[str, float]:
    """The shortest time of every node, by the first roofline; nothing without one."""
    roofs = rooflines(noun)
    return {bound.node: bound.seconds for bound in roofs[0].nodes} if roofs else {}


def _heads(report: Report, seconds: dict[str, float]) -> tuple[Head, ...]:
    """Of the counts, which are the same for modules and nodes."""
    heads = [Head(name, True, True) for name in ("MACs", "FLOPs", "memory traffic")]
    heads += [Head(name, True, True) for name, _ in _STEP] if report.training else []
    heads += [Head("shortest time (µs)", True, True)] if seconds else []
    return tuple(heads)


class _CallCounts(NamedTuple):
    macs: int
    flops: int
    moved: int
    step: tuple[int, ...]
    seconds: float

    def cells(self, timed: bool) -> tuple[str, ...]:
        counts = map(exact, (self.macs, self.flops, self.moved, *self.step))
        return (*counts, *((f"{self.seconds * 1e6:.4g}",) if timed else ()))


def _counts(node: NodeRow, report: Report, seconds: dict[str, float]) -> _CallCounts:
    step = node.training if isinstance(node.training, Training) else None
    parts = tuple(getattr(step, name) if step else 0 for _, name in _STEP)
    return _CallCounts(
        node.macs,
        node.flops,
        node.bytes_read + node.bytes_written,
        parts if report.training else (),
        seconds.get(node.node, 0.0),
    )


def _sum(counts: Iterable[_CallCounts], width: int) -> _CallCounts:
    summands = list(counts)
    return _CallCounts(
        sum(each.macs for each in summands),
        sum(each.flops for each in summands),
        sum(each.moved for each in summands),
        tuple(sum(each.step[place] for each in summands) for place in range(width)),
        sum(each.seconds for each in summands),
    )


# The tree: modules each with all beneath it, or the operators where there are no modules.


def modules(report: Report, seconds: dict[str, float]) -> Grid:
    """A row for each module, parents first; of a file without modules one for each operator."""
    counts = [(node, _counts(node, report, seconds)) for node in report.nodes]
    heads = _heads(report, seconds)
    paths = _paths(report)
    if len(paths) < 2:
        rows = _operators(report, counts, bool(seconds))
        return Grid("Operators, by what they cost", (Head("operator"), *heads), rows)
    by_path: dict[str, list[_CallCounts]] = {path: [] for path in paths}
    for node, each in counts:
        for path in around(node.path):
            if path in by_path:
                by_path[path].append(each)
    known = {row.path: row for row in report.modules}
    width = len(_STEP) if report.training else 0
    rows = tuple(
        _module(path, known.get(path), paths, _sum(by_path[path], width).cells(bool(seconds)))
        for path in paths
    )
    columns = (Head("module"), Head("class"), *heads, Head("parameters", True))
    return Grid("Modules, each with all beneath it", columns, rows)


def _module(
    path: str, row: ModuleRow | None, paths: dict[str, str], counts: tuple[str, ...]
) -> ShownRow:
    level, above = 1, path
    while above:
        above = paths[above]
        level += 1
    parent = path in set(paths.values()) if path else True
    class_, params = (row.class_, exact(row.params)) if row else ("", "")
    return ShownRow(
        (inert(path) or "(the model)", inert(class_), *counts, params), "", level, parent
    )


def _paths(report: Report) -> dict[str, str]:
    """Every path with that of the nearest module around it, parents before what is in them."""
    known = {row.path for row in report.modules if row.path or len(report.modules) > 1}
    if not known:
        return {}
    known.add("")
    parents: dict[str, str] = {}
    for row in report.modules:
        outer = (path for path in around(row.path.rpartition(".")[0]) if path in known)
        if row.path:
            parents[row.path] = next(outer, "")
    children: dict[str, list[str]] = {}
    for path, parent in parents.items():
        children.setdefault(parent, []).append(path)
    order, todo = [], [""]
    while todo:
        path = todo.pop()
        order.append(path)
        todo.extend(reversed(children.get(path, [])))
    return {path: parents.get(path, "") for path in order}


def _operators(
    report: Report, counts: Sequence[tuple[NodeRow, _CallCounts]], timed: bool
) -> tuple[ShownRow, ...]:
    width = len(_STEP) if report.training else 0
    by_op: dict[str, list[_CallCounts]] = {}
    for node, each in counts:
        by_op.setdefault(node.op, []).append(each)
    sums = {op: _sum(each, width) for op, each in by_op.items()}
    order = sorted(sums, key=lambda op: (-sums[op].flops, op))
    whole = _sum((each for _, each in counts), width).cells(timed)
    rows = [ShownRow((inert(op), *sums[op].cells(timed)), "", 2) for op in order]
    return (ShownRow(("(the model)", *whole), "", 1, True), *rows) if rows else ()


# Every node.


def nodes(report: Report, seconds: dict[str, float]) -> Grid:
    """A row for each counted node, in the order of the graph."""
    heads = (
        Head("node"),
        Head("operator"),
        Head("module"),
        *_heads(report, seconds),
        Head("precision"),
        Head("how sure"),
    )
    rows = tuple(
        ShownRow(
            (
                inert(node.node),
                inert(node.op),
                inert(node.path),
                *_counts(node, report, seconds).cells(bool(seconds)),
                node.precision,
                node.exactness,
            )
        )
        for node in report.nodes
    )
    return Grid("Every node", heads, rows, search=True, sort=True)
