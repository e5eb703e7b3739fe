"""The page of a difference between two models: totals, causes, modules, nodes."""

from crossflops.ir.reconciliation import CauseRow
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title, right
from crossflops.render.quantity import change, exact, number, signed
from crossflops.report.difference import KINDS, Change, Difference

_SHOWN = 20
_NAMES = {"macs": "MACs", "flops": "FLOPs", "params": "parameters"}


def difference_page(noun: Difference) -> Page:
    """What a reviewer asks, the largest first."""
    blocks: list[Block] = [Title((f"{noun.first} -> {noun.second}",)), _totals(noun)]
    if isinstance(noun.causes, tuple) and noun.causes:
        blocks += [Heading("Causes"), _causes(noun.causes)]
    blocks += _changes("Modules", noun.modules)
    blocks += _changes("Nodes", noun.nodes)
    if not noun.modules and not noun.nodes:
        blocks.append(Text("Nothing moved, appeared, vanished or changed its work.", tone="good"))
    if noun.max_increase is not None:
        most = f"{100 * noun.max_increase:g} %"
        grown = ", ".join(_NAMES[kind] for kind in noun.over)
        blocks.append(
            Text(f"{grown} grew by more than {most}.", tone="bad")
            if noun.over
            else Text(f"Nothing grew by more than {most}.", tone="good")
        )
    return Page(tuple(blocks))


def _totals(noun: Difference) -> Table:
    rows = []
    for kind in KINDS:
        before, after = getattr(noun.first_work, kind), getattr(noun.second_work, kind)
        cells = exact(before), exact(after), signed(after - before), change(after, before)
        rows.append(Row.of(_NAMES[kind], *cells, tone="bad" if kind in noun.over else ""))
    return Table(
        columns=(Column(head="total"), *right("first", "second", "difference", "change")),
        rows=tuple(rows),
    )


def _causes(causes: tuple[CauseRow, ...]) -> Table:
    rows = (
        Row.of(row.cause, signed(row.macs), signed(row.flops), signed(row.params))
        for row in causes
    )
    columns = (Column(head="cause"), *right("MACs", "FLOPs", "parameters"))
    return Table(columns=columns, rows=tuple(rows))


def _changes(head: str, rows: tuple[Change, ...]) -> list[Block]:
    if not rows:
        return []
    shown = tuple(map(_row, rows))
    columns = (
        Column(head="what happened"),
        Column(head=head.lower()[:-1], flows=True),
        Column(head="class or operator"),
        *right("MACs", "FLOPs", "parameters"),
    )
    blocks: list[Block] = [Heading(f"{head}: {exact(len(rows))}")]
    blocks.append(Table(columns=columns, rows=shown[:_SHOWN]))
    if left := shown[_SHOWN:]:
        blocks.append(Text(f"and {number(len(left), 'row')} more, which files have", "   ", "dim"))
        blocks.append(Table(columns=columns, rows=left, detail=True))
    return blocks


def _row(row: Change) -> Row:
    name = row.name or "(the model)"
    if row.kind == "moved":
        name = f"{row.before} -> {name}"
    delta = row.delta
    amounts = signed(delta.macs), signed(delta.flops), signed(delta.params)
    return Row.of(row.kind, name, row.what, *amounts)
