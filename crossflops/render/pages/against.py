"""The page of two models: what makes one another model, and what tools count otherwise."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET

from crossflops.ir.profile import Failure, Profile
from crossflops.ir.reconciliation import Alignment, LayerPair, Place, Shift
from crossflops.render.page import (
    Block,
    Column,
    Figure,
    Heading,
    Page,
    Row,
    Table,
    Text,
    Tone,
    left,
    right,
)
from crossflops.render.pages.comparison import comparison, failed
from crossflops.render.pages.places import TOP, pattern, starred, title
from crossflops.render.pages.summary import Unit, inside, uncounted
from crossflops.render.pages.summary import inputs as described
from crossflops.render.pages.summary import title as model_title
from crossflops.report.comparison import Against, Contrast, ToolDifference
from crossflops.report.quantity import about, added, change, exact, number, short, signed
from crossflops.report.report import Report

# Two models layer by layer: the causes with their sums, and the layers that differ.

ALONE = "-"
COLUMNS = (
    "first", "second", "first_what", "second_what", "cause", "note", "macs", "flops", "params",
)  # fmt: skip


def cause_table(alignment: Alignment) -> Table:
    """A row for each cause, and what is left, which is nothing."""
    rows = [
        Row.of(
            cause.cause,
            signed(cause.macs),
            signed(cause.flops),
            signed(cause.params),
            exact(cause.layers),
            title(cause.cause),
        )
        for cause in alignment.causes
    ]
    left = alignment.residual
    tone: Tone = "bad" if left.macs or left.flops or left.params else "good"
    amounts = signed(left.macs), signed(left.flops), signed(left.params)
    rows.append(Row.of("residual", *amounts, "", "", tone=tone))
    return Table(
        columns=(
            Column(head="cause"),
            Column(head="MACs", right=True),
            Column(head="FLOPs", right=True, spare=1),
            Column(head="parameters", right=True, spare=2),
            Column(head="layers", right=True, spare=3),
            Column(head="what", flows=True, spare=4),
        ),
        rows=tuple(rows),
    )


def differing(alignment: Alignment, names: tuple[str, str], top: int) -> list[Block]:
    """The layers that differ: in short those that differ alike together, in files one by one."""
    rows = [row for row in alignment.layers if row.shifts]
    if not rows:
        return []
    groups = _groups(rows)
    columns = (
        Column(head=names[0], flows=True),
        Column(head=names[1], flows=True),
        Column(head="layers", right=True, spare=1),
        Column(head="why", flows=True),
        Column(head="MACs", right=True),
        Column(head="FLOPs", right=True, spare=2),
        Column(head="parameters", right=True, spare=3),
    )
    head = f"Layers that differ: {exact(len(rows))} of {exact(len(alignment.layers))}"
    blocks: list[Block] = [Heading(head)]
    if top:
        blocks.append(Table(columns=columns, rows=tuple(map(_row, groups[:top]))))
    if left := len(groups) - top:
        blocks += [Text(f"and {number(left, 'row')} more", "   ", "dim")] if left > 0 else []
    return [*blocks, _all(rows, names)]


def _groups(rows: list[LayerPair]) -> list[list[tuple[LayerPair, Shift]]]:
    """The shifts of layers whose paths differ in numbers alone together, the largest first."""
    kinds: dict[tuple[str, ...], list[tuple[LayerPair, Shift]]] = {}
    for row in rows:
        paths = tuple(pattern(_named(place)) for place in (row.first, row.second))
        for shift in row.shifts:
            kinds.setdefault((*paths, shift.cause, shift.note), []).append((row, shift))

    def size(group: list[tuple[LayerPair, Shift]]) -> tuple[int, int, int]:
        total = _sum(shift for _, shift in group)
        return -abs(total.macs), -abs(total.flops), -abs(total.params)

    return sorted(kinds.values(), key=size)


def _sum(shifts: Iterable[Shift]) -> Shift:
    """All of one cause as one."""
    summands = list(shifts)
    return Shift(
        cause=summands[0].cause,
        macs=sum(shift.macs for shift in summands),
        flops=sum(shift.flops for shift in summands),
        params=sum(shift.params for shift in summands),
        note=summands[0].note,
    )


def _row(group: list[tuple[LayerPair, Shift]]) -> Row:
    total = _sum(shift for _, shift in group)
    first = starred([_named(row.first) for row, _ in group])
    second = starred([_named(row.second) for row, _ in group])
    return Row.of(first, second, exact(len(group)), _why(total), *_amounts(total))


def _named(place: Place | None) -> str:
    if place is None:
        return ALONE
    return place.path or (place.nodes[0] if place.nodes else place.what)


def _why(shift: Shift) -> str:
    return f"{shift.cause}: {shift.note}" if shift.note else shift.cause


def _amounts(shift: Shift) -> tuple[str, str, str]:
    return signed(shift.macs), signed(shift.flops), signed(shift.params)


def _all(rows: list[LayerPair], names: tuple[str, str]) -> Table:
    columns = (
        *left(names[0], "what", names[1], "what", "why"),
        *(Column(head=head, right=True) for head in ("MACs", "FLOPs", "parameters")),
    )
    lines = tuple(
        Row.of(*(_both(row) if not place else ("", "", "", "")), _why(shift), *_amounts(shift))
        for row in rows
        for place, shift in enumerate(row.shifts)
    )
    return Table(columns=columns, rows=lines, detail=True)


def _both(row: LayerPair) -> tuple[str, str, str, str]:
    first, second = row.first, row.second
    return (
        _named(first),
        first.what if first else "",
        _named(second),
        second.what if second else "",
    )


def layer_lines(alignment: Alignment) -> Iterator[tuple[str | int, ...]]:
    """A line for each cause of each layer, and one for each layer that is the same: `COLUMNS`."""
    for row in alignment.layers:
        first, first_what, second, other = _both(row)
        for shift in row.shifts or (Shift(cause=""),):
            amounts = shift.cause, shift.note, shift.macs, shift.flops, shift.params
            yield (first, second, first_what, other, *amounts)


Names = tuple[str, str]


def compared_page(report: Report, unit: Unit = "macs", top: int = TOP) -> Page:
    """The page of a comparison: of a model with its tools, or of two models."""
    if isinstance(report.against, Against):
        return _page(report, report.against, top)
    return comparison(report, unit, top)


def _page(report: Report, other: Against, top: int) -> Page:
    names = _names(report, other)
    blocks: list[Block] = [model_title(report), Text(_second(other), " against ")]
    blocks += [Heading(_difference(report, other, names)), *_verdict(other)]
    if not other.alignment.same:
        blocks += [
            Figure("waterfall", other.alignment),
            cause_table(other.alignment),
            *differing(other.alignment, names, top),
        ]
    blocks += _tools(other.tools, names)
    for contrast in other.tools:
        if contrast.delta or contrast.differences:
            blocks += _account(contrast, other, names)
    blocks += [*failed(_failures(report, other)), *uncounted(report)]
    if missing := other.alignment.uncounted[1]:
        text = f"{number(missing, 'node')} of {names[1]} not counted, and in no amount here"
        blocks.append(Text(text, " ", "warn"))
    blocks += inside(report, of=f", {names[0]}")
    if report.against_nodes:
        rows = {"nodes": report.against_nodes, "modules": report.against_modules or ()}
        second = msgspec.structs.replace(report, **rows, training=UNSET)
        blocks += inside(second, of=f", {names[1]}")
    return Page(tuple(blocks))


def _names(report: Report, other: Against) -> Names:
    """What the models are called in tables: the last word of their names, where these differ."""
    names = report.name, other.name
    short = _last(names[0]), _last(names[1])
    if short[0].casefold() != short[1].casefold():
        return short
    return names if names[0] != names[1] else (f"{names[0]} (first)", f"{names[1]} (second)")


def _last(name: str) -> str:
    """The last word of a name.

    >>> _last("torchvision.models:resnet50"), _last("a/model.onnx"), _last("ResNet")
    ('resnet50', 'model.onnx', 'ResNet')
    """
    return name.rpartition(":")[2].rpartition("/")[2]


def _second(other: Against) -> str:
    totals = other.totals
    parts = [
        other.name,
        about(totals.params, "parameter"),
        *described(other.model.inputs),
        short(totals.macs, "MACs"),
        f"{short(totals.flops, 'FLOPs')} (native)",
    ]
    return " · ".join(parts)


def _difference(report: Report, other: Against, names: Names) -> str:
    delta = other.totals.macs - report.macs
    if not delta:
        return f"{names[1]} = {names[0]} in MACs"
    ratio = change(other.totals.macs, report.macs)
    return f"{names[1]} = {names[0]}{added(delta)} MACs ({ratio})"


def _verdict(other: Against) -> list[Block]:
    aligned = other.alignment
    layers = number(len(aligned.layers), "layer")
    if aligned.same:
        return [Text(f"the same model: {layers}, one by one", " ", "good")]
    if {cause.cause for cause in aligned.causes} <= {"model.representation"}:
        text = "the same model, a part of which is written down in other nodes"
        return [Text(text, " ", "good")]
    return []


def _failures(report: Report, other: Against) -> tuple[Failure, ...]:
    """The tools that answered for neither model."""
    profiles = (*(report.profiles or ()), *other.profiles)
    answered = {answer.tool for answer in profiles if isinstance(answer, Profile)}
    failures = {answer.tool: answer for answer in profiles if isinstance(answer, Failure)}
    return tuple(failure for tool, failure in failures.items() if tool not in answered)


def _tools(contrasts: tuple[Contrast, ...], names: Names) -> list[Block]:
    if not contrasts:
        return []
    columns = (
        Column(head="tool"),
        Column(head=names[0], right=True, spare=1),
        Column(head=names[1], right=True, spare=1),
        *right("difference", "a different model", "a different count"),
    )
    rows = tuple(
        Row.of(
            _label(contrast),
            exact(contrast.first_total),
            exact(contrast.second_total),
            signed(contrast.delta),
            signed(contrast.model or 0),
            signed(contrast.delta - (contrast.model or 0)),
            tone="bad" if contrast.residual else "",
        )
        for contrast in contrasts
    )
    return [Heading("What tools print for both"), Table(columns=columns, rows=rows)]


def _label(contrast: Contrast) -> str:
    first, second = contrast.first, contrast.second
    return first if first == second else f"{first} -> {second}"


def _account(contrast: Contrast, other: Against, names: Names) -> list[Block]:
    """From the number for the first model to the one for the second."""
    rows = [
        Row.of(
            cause.cause,
            signed(cause.macs * contrast.unit),
            "",
            "",
            "a different model",
            title(cause.cause),
        )
        for cause in other.alignment.causes
        if cause.macs * contrast.unit
    ]
    rows += [_counted(cause) for cause in contrast.differences]
    tone: Tone = "bad" if contrast.residual else "good"
    rows.append(Row.of("residual", signed(contrast.residual), "", "", "", "", tone=tone))
    table = Table(
        columns=(
            Column(head="cause"),
            Column(head="amount", right=True),
            Column(head=names[0], right=True, spare=3),
            Column(head=names[1], right=True, spare=2),
            Column(head="of"),
            Column(head="what", flows=True, spare=4),
        ),
        rows=tuple(rows),
    )
    head = (
        f"{contrast.second} on {names[1]} = {contrast.first} on {names[0]}{added(contrast.delta)}"
    )
    return [Heading(head), table]


def _counted(cause: ToolDifference) -> Row:
    return Row.of(
        cause.cause,
        signed(cause.amount),
        signed(cause.first),
        signed(cause.second),
        "a different count",
        title(cause.cause),
    )
