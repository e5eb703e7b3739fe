"""Build the page of a difference between two models: totals, causes, modules, nodes."""

from crossflops.ir.reconciliation import CauseRow
from crossflops.render.page import (
    Block,
    Column,
    Heading,
    Page,
    Row,
    Table,
    Text,
    Title,
    number_columns,
)
from crossflops.report.difference import KINDS, Change, Difference
from crossflops.report.quantity import (
    amount_with_sign,
    count_with_noun,
    exact_amount,
    percent_change,
)

_SHOWN = 20
_GRADES = {"bound": "an upper bound", "estimate": "an estimate"}
_NAMES = {"macs": "MACs", "flops": "FLOPs", "params": "parameters"}


def difference_page(content: Difference) -> Page:
    """Return the page of `diff`: totals, causes, changed modules and nodes, verdict."""
    blocks: list[Block] = [
        Title((f"{content.first} -> {content.second}",)),
        _difference_totals_table(content),
    ]
    if isinstance(content.causes, tuple) and content.causes:
        blocks += [Heading("Causes"), _difference_cause_table(content.causes)]
    blocks += _change_blocks("Modules", content.modules)
    blocks += _change_blocks("Nodes", content.nodes)
    blocks += _nodes_without_count_blocks(content)
    if not content.modules and not content.nodes:
        counted = " that was counted" if content.uncounted or content.uncounted_before else ""
        text = f"Nothing{counted} was moved, added, removed or changed its work."
        blocks.append(Text(text, tone="" if counted else "good"))
    blocks += [
        Text(
            f"The {_NAMES.get(kind, kind)} of {content.second} are {_GRADES.get(grade, grade)}.",
            tone="warn",
        )
        for kind, grade in content.doubts.items()
    ]
    return Page((*blocks, *_growth_verdict(content)))


def _nodes_without_count_blocks(content: Difference) -> list[Block]:
    """Return a table of the second model's nodes without a count, new ones first."""
    if not content.uncounted and not content.uncounted_before:
        return []
    new = set(content.new_uncounted)
    came = [
        Row.from_cells("appeared", row.node, row.op, row.reason, tone="bad")
        for row in content.new_uncounted
    ]
    stayed = [
        Row.from_cells("as before", row.node, row.op, row.reason)
        for row in content.uncounted
        if row not in new
    ]
    gone = len(content.uncounted_before) - len(stayed)
    blocks: list[Block] = [
        Heading(f"Nodes without a count: {exact_amount(len(content.uncounted))}")
    ]
    columns = (
        Column(head="what happened"),
        Column(head="node", flows=True),
        Column(head="operator"),
        Column(head="reason", flows=True),
    )
    rows = (*came, *stayed)
    if rows:
        blocks.append(Table(columns=columns, rows=rows[:_SHOWN]))
        if left := rows[_SHOWN:]:
            blocks.append(
                Text(
                    f"and {count_with_noun(len(left), 'row')} more, listed in files (-o FILE)",
                    "   ",
                    "dim",
                )
            )
            blocks.append(Table(columns=columns, rows=left, detail=True))
    if gone > 0:
        blocks.append(
            Text(f"{count_with_noun(gone, 'uncounted node')} of {content.first} removed.")
        )
    return blocks


def _growth_verdict(content: Difference) -> list[Block]:
    """Return a sentence on whether a total grew by more than --max-increase; [] without it."""
    if content.max_increase is None:
        return []
    most = f"{100 * content.max_increase:g} %"
    if content.over:
        grown = ", ".join(_NAMES[kind] for kind in content.over)
        return [Text(f"{grown} grew by more than {most}.", tone="bad")]
    if content.new_uncounted:
        came = count_with_noun(len(content.new_uncounted), "node")
        text = f"Whether work grew by more than {most} is unknown: {came} without a count added."
        return [Text(text, tone="bad")]
    counted = " that was counted" if content.uncounted else ""
    return [Text(f"Nothing{counted} grew by more than {most}.", tone="good")]


def _difference_totals_table(content: Difference) -> Table:
    """Return a table of the totals of two models: both values, difference, percentage."""
    rows = []
    for kind in KINDS:
        before, after = getattr(content.first_work, kind), getattr(content.second_work, kind)
        cells = (
            exact_amount(before),
            exact_amount(after),
            amount_with_sign(after - before),
            percent_change(after, before),
        )
        rows.append(
            Row.from_cells(_NAMES[kind], *cells, tone="bad" if kind in content.over else "")
        )
    return Table(
        columns=(
            Column(head="total"),
            *number_columns("first", "second", "difference", "change"),
        ),
        rows=tuple(rows),
    )


def _difference_cause_table(causes: tuple[CauseRow, ...]) -> Table:
    """Return a table of the causes of a difference: MACs, FLOPs and parameters of each."""
    rows = (
        Row.from_cells(
            row.cause,
            amount_with_sign(row.macs),
            amount_with_sign(row.flops),
            amount_with_sign(row.params),
        )
        for row in causes
    )
    columns = (Column(head="cause"), *number_columns("MACs", "FLOPs", "parameters"))
    return Table(columns=columns, rows=tuple(rows))


def _change_blocks(head: str, rows: tuple[Change, ...]) -> list[Block]:
    """Return a heading and a table of changed modules or nodes, shortened if long; [] if none."""
    if not rows:
        return []
    shown = tuple(map(_change_row, rows))
    columns = (
        Column(head="what happened"),
        Column(head=head.lower()[:-1], flows=True),
        Column(head="class or operator"),
        *number_columns("MACs", "FLOPs", "parameters"),
    )
    blocks: list[Block] = [Heading(f"{head}: {exact_amount(len(rows))}")]
    blocks.append(Table(columns=columns, rows=shown[:_SHOWN]))
    if left := shown[_SHOWN:]:
        blocks.append(
            Text(
                f"and {count_with_noun(len(left), 'row')} more, listed in files (-o FILE)",
                "   ",
                "dim",
            )
        )
        blocks.append(Table(columns=columns, rows=left, detail=True))
    return blocks


def _change_row(row: Change) -> Row:
    """Return the row of a changed module or node: kind of change, name, amounts."""
    name = row.name or "(the model)"
    if row.kind == "moved":
        name = f"{row.before} -> {name}"
    delta = row.delta
    amounts = (
        amount_with_sign(delta.macs),
        amount_with_sign(delta.flops),
        amount_with_sign(delta.params),
    )
    return Row.from_cells(row.kind, name, row.what, *amounts)
