"""Build the page of an audited table: conventions of columns, contradictions, open rows."""

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
from crossflops.report.audit import Audit, AuditRow
from crossflops.report.quantity import count_with_noun, exact_amount, percent_share

_CONVENTIONS = 6  # of a column
_REST = {"contradicted": "bad", "open": "warn"}


def audit_page(audit: Audit) -> Page:
    """Return the page of an audit: rows by status, conventions, and each row that is not exact."""
    exact, contradicted = audit.count_status("exact"), audit.count_status("contradicted")
    counted = audit.figures_counted
    blocks: list[Block] = [
        Title((audit.table, count_with_noun(len(audit.rows), "figure"))),
        Text(
            f"{exact} reproduced by the convention of their column, {contradicted} by another "
            f"one, {audit.count_status('open')} open. Of the {counted} figures whose model was "
            f"counted, {percent_share(exact + contradicted, counted)} are reproduced to the last "
            "printed digit.",
            " ",
        ),
        Heading("conventions, by the figures that each reproduces"),
        _convention_table(audit),
    ]
    if audit.contradictions:
        blocks.append(Heading("contradictions"))
        blocks += [Text(sentence, " - ", "bad") for sentence in audit.contradictions]
    rest = [row for row in audit.rows if row.status in _REST]
    if rest:
        blocks += [
            Heading("figures of other conventions, and open figures"),
            _audit_row_table(rest),
        ]
    blocks += [Text(f"Columns without figures: {', '.join(audit.ignored)}.", " ", "dim")] * bool(
        audit.ignored
    )
    if audit.left_out:
        words = count_with_noun(audit.left_out, "figure")
        blocks.append(Text(f"{words} left out by --only and --limit.", " ", "dim"))
    return Page(tuple(blocks))


def _convention_table(audit: Audit) -> Table:
    """Return a table of the conventions that fit each column, and the figures they reproduce."""
    rows = [
        Row.from_cells(
            column if not index else "",
            name,
            exact_amount(number),
            percent_share(number, sum(row.column == column for row in audit.rows)),
        )
        for column, conventions in audit.conventions.items()
        for index, (name, number) in enumerate(list(conventions.items())[:_CONVENTIONS])
    ]
    columns = (
        Column(head="column"),
        Column(head="convention"),
        *number_columns("figures", "share"),
    )
    return Table(columns=columns, rows=tuple(rows))


def _audit_row_table(rows: list[AuditRow]) -> Table:
    """Return a table of these rows: published figure, printed number, status and reason."""
    return Table(
        columns=(
            Column(head="model"),
            Column(head="column"),
            Column(head="published", right=True),
            Column(head="prints", right=True),
            Column(head="status"),
            Column(head="by, or why not", flows=True),
            Column(head="line", right=True, detail=True),
        ),
        rows=tuple(
            Row.from_cells(
                row.model,
                row.column,
                row.published,
                "-" if row.prints is None else exact_amount(row.prints),
                row.status,
                row.reproduced_by or row.reason,
                str(row.line),
                tone="" if row.status == "contradicted" else "warn",
            )
            for row in rows
        ),
    )
