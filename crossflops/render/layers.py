"""Two models layer by layer: the causes with their sums, and the layers that differ."""

from collections.abc import Iterable, Iterator

from crossflops.core.alignment import Alignment, LayerPair, Place, Shift
from crossflops.render.page import Block, Column, Heading, Row, Table, Text, Tone
from crossflops.render.places import pattern, starred
from crossflops.render.quantity import exact, number, signed
from crossflops.render.reasons import title

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
