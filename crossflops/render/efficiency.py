"""The page of `efficiency`: what a speed asks of a device, from which count and against what."""

from collections.abc import Callable, Iterable

from crossflops.core.efficiency import Efficiency, EfficiencyReport
from crossflops.render.comparison import comparison
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title
from crossflops.render.quantity import exact, short

Cell = Callable[[Efficiency], str]


def efficiency_page(noun: EfficiencyReport) -> Page:
    """The reconciliation where there is one, the rates, what they assume, and what is doubtful.

    What all rows have in common stands above them, once.
    """
    rows = noun.efficiency
    blocks: list[Block] = [*_opening(noun), _common(rows)]
    if len(rows) > 1:
        blocks.append(_varying(rows))
    blocks += [Text(text, " ! ", "warn") for text in _unique(row.warnings for row in rows)]
    blocks.append(Heading("Assumed"))
    blocks += [Text(text, " - ") for text in _unique(row.assumptions for row in rows)]
    return Page(tuple(blocks))


def _opening(noun: EfficiencyReport) -> list[Block]:
    first, report = noun.efficiency[0], noun.report
    kind = "inference" if first.multiplier == 1 else "training"
    speed = f"{_number(first.examples_per_second)} examples/s"
    run = (kind, first.precision, speed) if first.precision else (kind, speed)
    if report is not None and report.profiles:
        return [*comparison(report).blocks, Heading(f"Required rate: {', '.join(run)}")]
    return [Title(("MACs as given" if report is None else report.model.name, *run))]


def _common(rows: tuple[Efficiency, ...]) -> Table:
    """What all rows agree on, with where it is from."""
    lines: list[tuple[str, Cell, Cell]] = [
        ("model", _macs, _origin),
        ("rule", _rule, lambda row: ""),
        ("work", _work, lambda row: "for one example"),
        ("required", _rate, lambda row: f"at {_number(row.examples_per_second)} examples/s"),
    ]
    if rows[0].peak is not None:
        lines.append(("peak", _peak, _against))
        lines += [("share", _share, lambda row: "required / peak")] if len(rows) == 1 else []
    return Table(
        columns=(Column(head=""), Column(head="value"), Column(head="from", flows=True)),
        rows=tuple(
            Row((label, value(rows[0]), source(rows[0])))
            for label, value, source in lines
            if _same(rows, value) and _same(rows, source)
        ),
        bare=True,
    )


def _varying(rows: tuple[Efficiency, ...]) -> Table:
    """What differs between the rows, and the share in any case."""
    columns: list[tuple[Column, Cell]] = [
        (Column(head="by"), lambda row: row.numerator),
        (Column(head="MACs", right=True), lambda row: exact(row.macs)),
        (Column(head="required", right=True), _rate),
        (Column(head="device"), lambda row: row.device or "-"),
        (Column(head="peak", right=True), _peak),
    ]
    shown = [(column, cell) for column, cell in columns if not _same(rows, cell)]
    if any(row.ratio is not None for row in rows):
        shown.append((Column(head="share", right=True), _share))
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
    return f"{row.numerator}, for one example"


def _rule(row: Efficiency) -> str:
    return f"2 FLOPs per MAC x {row.multiplier}"


def _work(row: Efficiency) -> str:
    return short(row.work, "FLOPs")


def _rate(row: Efficiency) -> str:
    return short(row.rate, "FLOP/s")


def _peak(row: Efficiency) -> str:
    return "-" if row.peak is None else short(row.peak, "FLOP/s")


def _against(row: Efficiency) -> str:
    return f"{row.device}, dense {row.precision}" if row.device else "given"


def _share(row: Efficiency) -> str:
    """The ratio in percent: one decimal, below one percent two significant digits."""
    if row.ratio is None:
        return "-"
    percent = 100 * row.ratio
    return f"{percent:.1f} %" if percent >= 1 else f"{percent:.2g} %"


def _number(value: float) -> str:
    return exact(int(value)) if value.is_integer() else f"{value:,}".replace(",", " ")


def _same(rows: tuple[Efficiency, ...], cell: Cell) -> bool:
    return len({cell(row) for row in rows}) == 1


def _unique(texts: Iterable[tuple[str, ...]]) -> list[str]:
    return list(dict.fromkeys(text for group in texts for text in group))
