"""Two tools set against each other: every reason why they differ."""

from crossflops.core.contrast import Contrast, Difference
from crossflops.render.page import Block, Column, Heading, Row, Table, Text
from crossflops.render.quantity import exact, number, signed
from crossflops.render.reasons import named, title


def contrast_blocks(found: Contrast) -> list[Block]:
    """A heading that says by how much, and a row for each cause."""
    sign = "-" if found.delta < 0 else "+"
    rest = f" {sign} {exact(abs(found.delta))}" if found.delta else ""
    blocks: list[Block] = [Heading(f"{found.second} = {found.first}{rest}"), _table(found)]
    if found.unit > 1:
        note = f"both count {found.unit} or more for a multiply-accumulate: so do these amounts"
        blocks.append(Text(note, "   ", "dim"))
    return blocks


def _table(found: Contrast) -> Table:
    rows = [_row(one) for one in found.differences]
    rows.append(
        Row(
            ("residual", signed(found.residual), *("" for _ in range(6))),
            "bad" if found.residual else "good",
        )
    )
    return Table(
        columns=(
            Column(head="cause"),
            Column(head="amount", right=True),
            Column(head=found.first, right=True, spare=2),
            Column(head=found.second, right=True, spare=1),
            Column(head="from", spare=3),
            Column(head="what", flows=True, spare=4),
            Column(head=f"where in {found.first}", flows=True, detail=True),
            Column(head=f"where in {found.second}", flows=True, detail=True),
        ),
        rows=tuple(rows),
    )


def _row(one: Difference) -> Row:
    calls = max(len(one.first_calls), len(one.second_calls))
    return Row(
        (
            one.cause,
            signed(one.amount),
            signed(one.first),
            signed(one.second),
            number(calls, "call") if calls else "",
            title(one.cause),
            named(one.first_calls),
            named(one.second_calls),
        )
    )
