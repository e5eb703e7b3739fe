"""The totals as polynomials in dimensions that vary, and where these hold."""

from crossflops.core.formulas import Dimension, Formulas, written
from crossflops.core.report import Report
from crossflops.render.page import Block, Column, Heading, Row, Table, Text
from crossflops.render.quantity import number

_KINDS = (
    ("MACs", "macs"),
    ("FLOPs", "flops"),
    ("bytes read", "bytes_read"),
    ("bytes written", "bytes_written"),
    ("parameters", "params"),
)


def formulas(report: Report) -> list[Block]:
    """The polynomials, or why there are none; and at which sizes the tables stand."""
    found = report.formulas
    if not isinstance(found, Formulas):
        return []
    names = " and ".join(one.name for one in found.dimensions)
    blocks: list[Block] = [Heading(f"As polynomials in {names}")]
    rows = [
        Row((head, written(formula)))
        for head, kind in _KINDS
        if (formula := getattr(found, kind)) is not None
    ]
    if rows:
        columns = (Column(head="kind"), Column(head="polynomial", flows=True))
        blocks.append(Table(columns=columns, rows=tuple(rows), bare=True))
    blocks += [_where(one) for one in found.dimensions]
    if report.uncounted:
        what = f"{number(len(report.uncounted), 'uncounted node')}, named below, not in them"
        blocks.append(Text(what, " ", "warn"))
    sizes = ", ".join(f"{name}={size}" for name, size in found.at.items())
    what = "equal to the count at" if rows else "counted at"
    return [
        *blocks,
        Text(f"{what} {number(found.points, 'point')}; what follows is the count at {sizes}", " "),
        Heading("Totals"),
    ]


def _where(one: Dimension) -> Text:
    """Where the formulas hold in one dimension, and why not elsewhere."""
    checked = f"checked from {one.smallest} to {one.largest}"
    where = f"node {one.node!r}: " if one.node else ""
    if one.multiple_of == 1 and one.node:
        what = f"{one.name}: {checked}; far beyond, node {one.node!r} costs something else"
        return Text(what, " ", "warn")
    if one.multiple_of == 1:
        return Text(f"{one.name}: every size, {checked}", " ", "dim")
    if one.multiple_of is None:
        return Text(f"no polynomial in {one.name}: {where}{one.reason}", " ", "warn")
    return Text(
        f"no polynomial in {one.name}: {where}{one.reason}; "
        f"on multiples of {one.multiple_of} these hold, {checked}",
        " ",
        "warn",
    )
