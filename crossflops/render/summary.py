"""The page of a report without tools."""

from fractions import Fraction
from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from crossflops.core.folded import Folded
from crossflops.core.memory import Memory
from crossflops.core.report import ModuleRow, Report
from crossflops.render.formulas import formulas
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text
from crossflops.render.quantity import exact, number, share, short
from crossflops.render.title import title, values

Unit: TypeAlias = Literal["macs", "flops"]
NAMED = 12  # uncounted nodes that are named before the rest is only numbered

_MACS = "multiply-accumulates of contractions"
_FLOPS = "2 x MACs and one for each of the others"
_KINDS = ("adds", "muls", "divs", "compares", "specials")


def summary(report: Report, unit: Unit = "macs") -> Page:
    """The count: totals by kind, operators by `unit`, what was not counted, the convention."""
    blocks: list[Block] = [title(report), *values(report)]
    if not isinstance(report.module, ModuleRow):  # these are figures of the whole model
        blocks += [*formulas(report), _totals(report)]
    blocks.append(Heading("Operators"))
    blocks += [_operators(report, unit), *_branches(report), *_in_doubt(report)]
    blocks += uncounted(report)
    if report.folds:
        blocks += [Heading("By other conventions"), *_folded(report)]
    blocks += [_modules(report)] if report.modules else []
    return Page(tuple(blocks))


def uncounted(report: Report) -> list[Block]:
    """The nodes that have no cost, each with the reason; none, when all have one."""
    if not report.uncounted:
        return []
    rows = [Row((one.node, one.op, one.reason), "warn") for one in report.uncounted[:NAMED]]
    columns = (Column(head="node"), Column(head="operator"), Column(head="reason", flows=True))
    blocks: list[Block] = [
        Heading("Not counted, which is not zero"),
        Table(columns=columns, rows=tuple(rows)),
    ]
    rest = len(report.uncounted) - NAMED
    if rest > 0:
        blocks.append(Text(f"and {number(rest, 'node')} more, all named in the JSON report", " "))
    return blocks


def _branches(report: Report) -> list[Block]:
    """Which branch of every If is in the totals."""
    if not report.branches:
        return []
    columns = (Column(head="If"), Column(head="counted", flows=True))
    rows = tuple(Row((one.node, one.counted)) for one in report.branches[:NAMED])
    blocks: list[Block] = [Heading("Branches"), Table(columns=columns, rows=rows)]
    rest = len(report.branches) - NAMED
    if rest > 0:
        blocks.append(Text(f"and {number(rest, 'If')} more, all named in the JSON report", " "))
    return blocks


def _totals(report: Report) -> Table:
    totals = report.totals
    rows: list[tuple[str, int | Fraction, str]] = [
        ("MACs", totals.macs, _doubt(report, "macs") + _MACS)
    ]
    if totals.constant_macs:
        rows.append(("", totals.constant_macs, "of these depend on no input"))
    if totals.converter_macs:
        rows.append(("", totals.converter_macs, "besides, put in by the converter: not counted"))
    if len(report.macs_by_precision) > 1:
        rows += [("", macs, f"of these in {name}") for name, macs in _by_size(report)]
    rows += [(kind, getattr(totals, kind), "") for kind in _KINDS]
    rows += [
        ("FLOPs", totals.flops, _doubt(report, "flops") + _FLOPS),
        ("bytes read", totals.bytes_read, "every operator by itself, nothing fused"),
        ("bytes written", totals.bytes_written, ""),
        *_memory(report),
        ("parameters", totals.params, ""),
    ]
    if totals.active_params is not UNSET:
        rows.append(
            ("", totals.active_params, "of these at most are active: tokens choose experts")
        )
    return Table(
        columns=(
            Column(head="kind"),
            Column(head="count", right=True),
            Column(head="note", flows=True, spare=1),
        ),
        rows=tuple(Row((name, _figure(count), note)) for name, count, note in rows),
        bare=True,
    )


def _doubt(report: Report, unit: Unit) -> str:
    """What stands before a total that is not exact."""
    found = report.totals.exactness
    grade = "exact" if isinstance(found, UnsetType) else found.get(unit, "exact")
    return {"bound": "at most: ", "estimate": "about: "}.get(grade, "")


def _in_doubt(report: Report) -> list[Block]:
    """The nodes whose work depends on data, or is not fixed, each with what is counted of it."""
    found = [one for one in report.nodes if one.exactness != "exact" and one.flops]
    if not found:
        return []
    words = {"bound": "at most", "estimate": "about"}
    columns = (
        *(Column(head="node", flows=True), Column(head="operator"), Column(head="")),
        *(Column(head="MACs", right=True), Column(head="FLOPs", right=True)),
    )
    rows = tuple(
        Row((one.node, one.op, words.get(one.exactness, ""), exact(one.macs), exact(one.flops)))
        for one in found[:NAMED]
    )
    blocks: list[Block] = [Heading("Bounds and estimates"), Table(columns=columns, rows=rows)]
    rest = len(found) - NAMED
    if rest > 0:
        blocks.append(Text(f"and {number(rest, 'node')} more, all named in the JSON report", " "))
    return blocks


def _figure(count: int | Fraction) -> str:
    return exact(count) if isinstance(count, int) else short(count)


def _memory(report: Report) -> list[tuple[str, int | Fraction, str]]:
    """Memory figures, each with what it means; none in a report that was made without them."""
    memory = report.memory
    if not isinstance(memory, Memory):
        return []
    moved, peak = memory.access_bytes, memory.peak_activation_bytes
    at = f"alive at {memory.peak_node}" if memory.peak_node else "the inputs"
    left = f"; {number(memory.unsized, 'tensor')} of unknown size not in it"
    rows: list[tuple[str, int | Fraction, str]] = [
        ("bytes moved", moved, f"read and written, {exact(memory.access_elements)} elements"),
        ("peak bytes", peak, f"{at}, parameters apart{left if memory.unsized else ''}"),
        ("model bytes", memory.param_bytes, "the parameters as they are stored"),
    ]
    if moved:
        ratio = Fraction(memory.intensity.flops, memory.intensity.bytes)
        rows.insert(1, ("FLOPs per byte", ratio, "arithmetic intensity of what is moved"))
    return rows


def _by_size(report: Report) -> list[tuple[str, int]]:
    return sorted(report.macs_by_precision.items(), key=lambda item: (-item[1], item[0]))


def _operators(report: Report, unit: Unit) -> Table:
    scope = report.module if isinstance(report.module, ModuleRow) else report.totals
    whole = scope.flops if unit == "flops" else scope.macs
    rows = sorted(report.by_op, key=lambda one: (-getattr(one, unit), -one.flops, one.op))
    return Table(
        columns=(
            Column(head="operator"),
            Column(head="nodes", right=True),
            Column(head="MACs", right=True),
            Column(head="FLOPs", right=True),
            Column(head="of FLOPs" if unit == "flops" else "of MACs", right=True, spare=1),
        ),
        rows=tuple(
            Row(
                (
                    one.op,
                    exact(one.count),
                    exact(one.macs),
                    exact(one.flops),
                    share(getattr(one, unit), whole),
                )
            )
            for one in rows
        ),
    )


def _folded(report: Report) -> list[Block]:
    rows = tuple(
        Row((f"{one.tool}@{one.edition}", exact(one.total), short(one.total)))
        for one in report.folds
    )
    columns = (
        Column(head="convention"),
        Column(head="total", right=True),
        Column(head="about", right=True),
    )
    return [Table(columns=columns, rows=rows, bare=True), *doubts(report.folds)]


def doubts(folds: tuple[Folded, ...]) -> list[Block]:
    """What the figures of conventions rest on, and what they leave out."""
    blocks: list[Block] = []
    for one in folds:
        if one.assumed:
            what = "the tool could not have run this, or its calls were read off the graph"
            blocks.append(Text(f"{one.tool} is assumed: {what}", " ", "warn"))
        if one.uncounted:
            names = ", ".join(one.uncounted[:3]) + (" ..." if len(one.uncounted) > 3 else "")
            left = number(len(one.uncounted), "node")
            blocks.append(Text(f"{one.tool} says nothing of {left}: {names}", " ", "warn"))
    return blocks


def _modules(report: Report) -> Table:
    return Table(
        columns=(
            Column(head="module", flows=True),
            Column(head="class"),
            Column(head="MACs", right=True),
            Column(head="FLOPs", right=True),
            Column(head="parameters", right=True),
        ),
        rows=tuple(
            Row(
                (
                    one.path or "(the model)",
                    one.class_,
                    exact(one.macs),
                    exact(one.flops),
                    exact(one.params),
                )
            )
            for one in report.modules
        ),
        detail=True,
    )
