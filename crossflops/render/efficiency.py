"""The page of `efficiency`: what a speed asks of a device, from which count and against what."""

from collections.abc import Iterable

from msgspec import UNSET

from crossflops.core.efficiency import Efficiency, EfficiencyReport, rooflines
from crossflops.render.comparison import comparison
from crossflops.render.efficiency_parts import (
    Cell,
    Line,
    before,
    behind,
    more,
    number,
    percent,
    speed,
)
from crossflops.render.efficiency_tables import tables
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title
from crossflops.render.quantity import exact, short
from crossflops.render.reasons import explanations
from crossflops.render.roofline import roofline_blocks


def efficiency_page(noun: EfficiencyReport) -> Page:
    """The reconciliation where there is one, the rates, what they assume, and what is doubtful.

    What all rows have in common stands above them, once.
    """
    rows = noun.efficiency
    blocks: list[Block] = [*_opening(noun), _common(rows)]
    if len(rows) > 1 or rows[0].line is not UNSET:
        blocks.append(_varying(rows))
    blocks += tables(rows)
    blocks += _explained(noun)
    blocks += roofline_blocks(rooflines(noun))
    blocks += [Text(text, " ! ", "warn") for text in _unique(row.warnings for row in rows)]
    blocks.append(Heading("Assumed"))
    blocks += [Text(text, " - ") for text in _unique(row.assumptions for row in rows)]
    return Page(tuple(blocks))


def _opening(noun: EfficiencyReport) -> list[Block]:
    first, report = noun.efficiency[0], noun.report
    kind = "inference" if first.multiplier == 1 else "training"
    run = [one for one in (kind, *_shared(noun.efficiency)) if one]
    if report is not None and report.profiles:
        return [*comparison(report).blocks, Heading(f"Required rate: {', '.join(run)}")]
    named = "MACs as given" if first.unit == "example" else "by its sizes"
    return [Title((named if report is None else report.name, *run))]


def _explained(noun: EfficiencyReport) -> list[Block]:
    """Why the MACs of a convention are not the native ones, and what these come to."""
    report, first = noun.report, noun.efficiency[0]
    if report is None or report.profiles or not report.reconciliations or report.as_ is None:
        return []
    (found,) = report.reconciliations
    sign = "-" if found.delta < 0 else "+"
    rest = f" {sign} {exact(abs(found.delta))}" if found.delta else ""
    unit = "" if found.unit in (1, UNSET) else f", {found.unit} per MAC"
    said = f"native: {exact(found.ours)} MACs a pass"
    alone = len(noun.efficiency) == 1
    if alone and first.ratio is not None and first.rate is not None and found.theirs:
        times = found.ours * (found.unit or 1) / found.theirs
        said += f", {short(first.rate * times, 'FLOP/s')}, share {percent(first.ratio * times)}"
    return [
        Heading(f"{first.numerator} = native{rest}{unit}"),
        explanations(found),
        Text(said, " "),
    ]


def _shared(rows: tuple[Efficiency, ...]) -> tuple[str, ...]:
    """The precision and the speed, or how many runs of a table there are."""
    if rows[0].line is not UNSET:
        runs = len({row.line for row in rows})
        return (f"{runs} {'run' if runs == 1 else 'runs'}",)
    return rows[0].precision, speed(rows[0]) if rows[0].rate is not None else ""


def _common(rows: tuple[Efficiency, ...]) -> Table:
    """What all rows agree on, with where it is from."""
    first = rows[0]
    lines: list[Line] = [
        Line("model", _macs, _origin),
        Line("rule", _rule, lambda row: ""),
        Line("work", _work, lambda row: f"for one {row.unit}"),
        *before(first, alone=len(rows) == 1),
    ]
    if first.rate is not None:
        lines.append(Line("required", _rate, _at))
    if first.peak is not None:
        lines.append(Line("peak", _peak, _against))
    if first.ratio is not None and len(rows) == 1:
        lines.append(Line("share", _share, lambda row: "required / peak"))
    lines += behind(first, alone=len(rows) == 1)
    return Table(
        columns=(Column(head=""), Column(head="value"), Column(head="from", flows=True)),
        rows=tuple(
            Row((line.label, line.value(first), line.source(first)))
            for line in lines
            if _same(rows, line.value) and _same(rows, line.source)
        ),
        bare=True,
    )


def _varying(rows: tuple[Efficiency, ...]) -> Table:
    """What differs between the rows, and the share in any case."""
    table = rows[0].line is not UNSET  # whose columns are all shown
    columns: list[tuple[Column, Cell, bool]] = [
        (Column(head="line", right=True, spare=9), lambda row: str(row.line or ""), table),
        (Column(head="by"), lambda row: row.numerator, False),
        (Column(head="MACs", right=True), lambda row: exact(row.macs), False),
        (Column(head="device"), lambda row: row.device or "-", table),
        (Column(head="precision"), lambda row: row.precision or "-", table),
        (Column(head="batch", right=True), lambda row: exact(row.batch or 0), table),
        (Column(head=f"{rows[0].unit}s/s", right=True), _speed, table),
        (Column(head="required", right=True), _rate, table),
        (Column(head="peak", right=True), _peak, table),
    ]
    shown = [(column, cell) for column, cell, always in columns if always or not _same(rows, cell)]
    if any(row.ratio is not None for row in rows):
        shown.append((Column(head="share", right=True), _share))
    shown += [(Column(head=head, right=True), cell) for head, cell in more(rows)]
    return Table(
        columns=tuple(column for column, _ in shown),
        rows=tuple(
            Row(tuple(cell(row) for _, cell in shown), "bad" if (row.ratio or 0) > 1 else "")
            for row in rows
        ),
    )


def _macs(row: Efficiency) -> str:
    return f"{exact(row.macs)} MACs"


def _origin(row: Efficiency) -> str:
    return f"{row.numerator}, for one {row.unit}"


def _rule(row: Efficiency) -> str:
    return f"2 FLOPs per MAC x {row.multiplier:.4g}"


def _work(row: Efficiency) -> str:
    return short(row.work, "FLOPs")


def _rate(row: Efficiency) -> str:
    return "-" if row.rate is None else short(row.rate, "FLOP/s")


def _speed(row: Efficiency) -> str:
    return "-" if row.examples_per_second is None else number(row.examples_per_second)


def _at(row: Efficiency) -> str:
    each = "" if row.world is UNSET else " on each device"
    return f"at {speed(row)}{each}"


def _peak(row: Efficiency) -> str:
    return "-" if row.peak is None else short(row.peak, "FLOP/s")


def _against(row: Efficiency) -> str:
    mean = "harmonic mean of " if row.precisions is not UNSET else ""
    return f"{row.device}, dense {mean}{row.precision}" if row.device else f"{mean}given"


def _share(row: Efficiency) -> str:
    return percent(row.ratio)


def _same(rows: tuple[Efficiency, ...], cell: Cell) -> bool:
    return len({cell(row) for row in rows}) == 1


def _unique(texts: Iterable[tuple[str, ...]]) -> list[str]:
    return list(dict.fromkeys(text for group in texts for text in group))
