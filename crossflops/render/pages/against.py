"""The page of two models: what makes one another model, and what tools count otherwise."""

from collections.abc import Iterable, Iterator

from crossflops.ir.alignment import Alignment, LayerPair, Place, Shift
from crossflops.ir.profile import Failure, Profile
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Tone
from crossflops.render.pages.comparison import comparison, failed
from crossflops.render.pages.places import TOP, pattern, starred, title
from crossflops.render.pages.summary import Unit, uncounted
from crossflops.render.pages.summary import inputs as described
from crossflops.render.pages.summary import title as model_title
from crossflops.render.quantity import change, exact, number, short, signed
from crossflops.report.comparison import Against, Contrast, Difference
from crossflops.report.report import Report

# Two models layer by layer: the causes with their sums, and the layers that differ.

ALONE = "-"
COLUMNS = (
    "first", "second", "first_what", "second_what", "cause", "note", "macs", "flops", "params",
)  # fmt: skip


def cause_table(found: Alignment) -> Table:
    """A row for each cause, and what is left, which is nothing."""
    rows = [
        Row(
            (
                one.cause,
                signed(one.macs),
                signed(one.flops),
                signed(one.params),
                exact(one.layers),
                title(one.cause),
            )
        )
        for one in found.causes
    ]
    left = found.residual
    tone: Tone = "bad" if left.macs or left.flops or left.params else "good"
    amounts = signed(left.macs), signed(left.flops), signed(left.params)
    rows.append(Row(("residual", *amounts, "", ""), tone))
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


def differing(found: Alignment, names: tuple[str, str], top: int) -> list[Block]:
    """The layers that differ: in short those that differ alike together, in files one by one."""
    rows = [row for row in found.layers if row.shifts]
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
    head = f"Layers that differ: {exact(len(rows))} of {exact(len(found.layers))}"
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
        for one in row.shifts:
            kinds.setdefault((*paths, one.cause, one.note), []).append((row, one))

    def size(group: list[tuple[LayerPair, Shift]]) -> tuple[int, int, int]:
        found = _sum(one for _, one in group)
        return -abs(found.macs), -abs(found.flops), -abs(found.params)

    return sorted(kinds.values(), key=size)


def _sum(shifts: Iterable[Shift]) -> Shift:
    """All of one cause as one."""
    found = list(shifts)
    return Shift(
        cause=found[0].cause,
        macs=sum(one.macs for one in found),
        flops=sum(one.flops for one in found),
        params=sum(one.params for one in found),
        note=found[0].note,
    )


def _row(group: list[tuple[LayerPair, Shift]]) -> Row:
    whole = _sum(one for _, one in group)
    first = starred([_named(row.first) for row, _ in group])
    second = starred([_named(row.second) for row, _ in group])
    return Row((first, second, exact(len(group)), _why(whole), *_amounts(whole)))


def _named(place: Place | None) -> str:
    if place is None:
        return ALONE
    return place.path or (place.nodes[0] if place.nodes else place.what)


def _why(one: Shift) -> str:
    return f"{one.cause}: {one.note}" if one.note else one.cause


def _amounts(one: Shift) -> tuple[str, str, str]:
    return signed(one.macs), signed(one.flops), signed(one.params)


def _all(rows: list[LayerPair], names: tuple[str, str]) -> Table:
    columns = (
        Column(head=names[0]),
        Column(head="what"),
        Column(head=names[1]),
        Column(head="what"),
        Column(head="why"),
        *(Column(head=head, right=True) for head in ("MACs", "FLOPs", "parameters")),
    )
    lines = tuple(
        Row(
            (
                *(_both(row) if not place else ("", "", "", "")),
                _why(one),
                *_amounts(one),
            )
        )
        for row in rows
        for place, one in enumerate(row.shifts)
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


def layer_lines(found: Alignment) -> Iterator[tuple[str | int, ...]]:
    """A line for each cause of each layer, and one for each layer that is the same: `COLUMNS`."""
    for row in found.layers:
        first, what, second, other = _both(row)
        for one in row.shifts or (Shift(cause=""),):
            told = one.cause, one.note, one.macs, one.flops, one.params
            yield (first, second, what, other, *told)


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
        blocks += [cause_table(other.alignment), *differing(other.alignment, names, top)]
    blocks += _tools(other.tools, names)
    for found in other.tools:
        blocks += _account(found, other, names) if found.delta or found.differences else []
    blocks += [*failed(_failures(report, other)), *uncounted(report)]
    if missing := other.alignment.uncounted[1]:
        text = f"{number(missing, 'node')} of {names[1]} not counted, and in no amount here"
        blocks.append(Text(text, " ", "warn"))
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
        short(totals.params) + (" parameter" if totals.params == 1 else " parameters"),
        *described(other.model.inputs),
        short(totals.macs, "MACs"),
        f"{short(totals.flops, 'FLOPs')} (native)",
    ]
    return " · ".join(parts)


def _difference(report: Report, other: Against, names: Names) -> str:
    delta = other.totals.macs - report.macs
    if not delta:
        return f"{names[1]} = {names[0]} in MACs"
    sign = "-" if delta < 0 else "+"
    ratio = change(other.totals.macs, report.macs)
    return f"{names[1]} = {names[0]} {sign} {exact(abs(delta))} MACs ({ratio})"


def _verdict(other: Against) -> list[Block]:
    aligned = other.alignment
    layers = number(len(aligned.layers), "layer")
    if aligned.same:
        return [Text(f"the same model: {layers}, one by one", " ", "good")]
    if {one.cause for one in aligned.causes} <= {"model.representation"}:
        text = "the same model, a part of which is written down in other nodes"
        return [Text(text, " ", "good")]
    return []


def _failures(report: Report, other: Against) -> tuple[Failure, ...]:
    """The tools that answered for neither model."""
    profiles = (*(report.profiles or ()), *other.profiles)
    answered = {one.tool for one in profiles if isinstance(one, Profile)}
    found = {one.tool: one for one in profiles if isinstance(one, Failure)}
    return tuple(one for tool, one in found.items() if tool not in answered)


def _tools(found: tuple[Contrast, ...], names: Names) -> list[Block]:
    if not found:
        return []
    columns = (
        Column(head="tool"),
        Column(head=names[0], right=True, spare=1),
        Column(head=names[1], right=True, spare=1),
        Column(head="difference", right=True),
        Column(head="a different model", right=True),
        Column(head="a different count", right=True),
    )
    rows = tuple(
        Row(
            (
                _label(one),
                exact(one.first_total),
                exact(one.second_total),
                signed(one.delta),
                signed(one.model or 0),
                signed(one.delta - (one.model or 0)),
            ),
            "bad" if one.residual else "",
        )
        for one in found
    )
    return [Heading("What tools print for both"), Table(columns=columns, rows=rows)]


def _label(found: Contrast) -> str:
    return found.first if found.first == found.second else f"{found.first} -> {found.second}"


def _account(found: Contrast, other: Against, names: Names) -> list[Block]:
    """From the number for the first model to the one for the second."""
    sign = "-" if found.delta < 0 else "+"
    rest = f" {sign} {exact(abs(found.delta))}" if found.delta else ""
    rows = [
        Row(
            (
                one.cause,
                signed(one.macs * found.unit),
                "",
                "",
                "a different model",
                title(one.cause),
            )
        )
        for one in other.alignment.causes
        if one.macs * found.unit
    ]
    rows += [_counted(one) for one in found.differences]
    tone: Tone = "bad" if found.residual else "good"
    rows.append(Row(("residual", signed(found.residual), "", "", "", ""), tone))
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
    head = f"{found.second} on {names[1]} = {found.first} on {names[0]}{rest}"
    return [Heading(head), table]


def _counted(one: Difference) -> Row:
    return Row(
        (
            one.cause,
            signed(one.amount),
            signed(one.first),
            signed(one.second),
            "a different count",
            title(one.cause),
        )
    )
