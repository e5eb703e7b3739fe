"""Two models layer by layer: the causes with their sums, and the layers that differ."""

from collections.abc import Iterator

from crossflops.core.alignment import Alignment, LayerPair, Place, Shift
from crossflops.render.page import Block, Column, Heading, Row, Table, Text
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
    tone = "bad" if left.macs or left.flops or left.params else "good"
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
    shown = groups[:top]
    columns = (
        Column(head=names[0], flows=True),
        Column(head=names[1], flows=True),
        Column(head="times", right=True, spare=1),
        Column(head="why", flows=True),
        Column(head="MACs", right=True),
        Column(head="FLOPs", right=True, spare=2),
        Column(head="parameters", right=True, spare=3),
    )
    lines = [Row(cells) for group in shown for cells in _cells(group)]
    left = sum(map(len, groups[top:]))
    head = f"Layers that differ: {exact(len(rows))} of {exact(len(found.layers))}"
    blocks: list[Block] = [Heading(f"{head}, with what one of them adds")]
    if lines:
        blocks.append(Table(columns=columns, rows=tuple(lines)))
    if left:
        blocks.append(Text(f"and {number(left, 'layer')} more", "   ", "dim"))
    return [*blocks, _all(rows, names)]


def _groups(rows: list[LayerPair]) -> list[list[LayerPair]]:
    """Layers whose paths differ in numbers alone and that differ alike, the largest first."""
    kinds: dict[tuple[object, ...], list[LayerPair]] = {}
    for row in rows:
        paths = tuple(pattern(_named(place)) for place in (row.first, row.second))
        amounts = tuple((one.cause, one.macs, one.flops, one.params) for one in row.shifts)
        kinds.setdefault((*paths, amounts), []).append(row)

    def size(group: list[LayerPair]) -> tuple[int, int, int]:
        shifts = [one for row in group for one in row.shifts]
        return (
            -sum(abs(one.macs) for one in shifts),
            -sum(abs(one.flops) for one in shifts),
            -sum(abs(one.params) for one in shifts),
        )

    return sorted(kinds.values(), key=size)


def _named(place: Place | None) -> str:
    if place is None:
        return ALONE
    return place.path or (place.nodes[0] if place.nodes else place.what)


def _cells(group: list[LayerPair]) -> Iterator[tuple[str, ...]]:
    """A line for each cause of layers that differ alike; the first says which layers they are."""
    first = starred([_named(row.first) for row in group])
    second = starred([_named(row.second) for row in group])
    head = first, second, exact(len(group))
    for place, one in enumerate(group[0].shifts):
        notes = {row.shifts[place].note for row in group}
        note = one.note if len(notes) == 1 else ""
        yield (*(head if not place else ("", "", "")), _why(one, note), *_amounts(one))


def _why(one: Shift, note: str) -> str:
    return f"{one.cause}: {note}" if note else one.cause


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
                _why(one, one.note),
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
