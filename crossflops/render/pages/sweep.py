"""Build the page of a sweep: a row for each model, how often the tools agree, and what parts them.

As HTML it is an atlas: its tables sort and search, and published figures are a picture.
"""

from collections.abc import Sequence
from fractions import Fraction

from crossflops.ir.profile import Amount
from crossflops.render.page import (
    Block,
    Column,
    Figure,
    Heading,
    Page,
    Row,
    Table,
    Text,
    Title,
    number_columns,
)
from crossflops.report.quantity import (
    count_with_noun,
    exact_amount,
    percent_change,
    percent_share,
)
from crossflops.report.sweep import NATIVE, Sweep, SweepRow, case_name
from crossflops.report.sweep_summary import CauseShare, agreement_of_tools, cause_shares

SWEEP_HEADS = (
    "target", "options", "family", "tool", "kind", "version", "unit", "total", "macs", "flops",
    "params", "uncounted", "per_mac", "is_exact", "residual", "causes", "shapes", "stage",
    "failure",
)  # fmt: skip


def sweep_cells(row: SweepRow) -> tuple[object, ...]:
    """Return the cells of a row, in the order of SWEEP_HEADS; "" where nothing is known."""
    causes = "; ".join(f"{cause} {amount}" for cause, amount in row.causes.items())
    cells = (
        row.case.target, row.case.options_text, row.family, row.tool, row.kind, row.version,
        row.unit, row.total, row.macs, row.flops, row.params, row.uncounted, row.per_mac,
        row.is_exact, row.residual, causes, "; ".join(row.shapes), row.stage, row.failure,
    )  # fmt: skip
    return tuple("" if cell is None else cell for cell in cells)


def sweep_page(sweep: Sweep) -> Page:
    """Return the page of a sweep: tools, models, failures, and changes if it was compared."""
    failed = sweep.failures
    blocks: list[Block] = [
        Title(
            (
                sweep.suite,
                count_with_noun(len(sweep.cases), "case"),
                count_with_noun(len(sweep.tools), "tool"),
            )
        )
    ]
    if sweep.tools:
        blocks += [Heading("tools: how often each equals the exact count"), _tool_table(sweep)]
    if len(sweep.tools) > 1:
        blocks += [
            Heading("agreement: how often two give the same number"),
            _agreement_table(sweep),
        ]
    blocks += _cause_blocks(sweep)
    if sweep.published:
        blocks += _blocks_of_published_figures(sweep)
    blocks += [Heading("models: exact counts, and the difference of each tool")]
    blocks += [_model_table(sweep)]
    if failed:
        blocks += [Heading("failures"), _failure_table(failed)]
    if sweep.compared_to:
        blocks += [Heading(f"changes since {sweep.compared_to}"), *_change_blocks(sweep)]
    if sweep.left_out:
        words = count_with_noun(sweep.left_out, "case")
        blocks.append(Text(f"{words} left out by --only and --limit.", " ", "dim"))
    return Page(tuple(blocks))


def _tool_table(sweep: Sweep) -> Table:
    """Return a table of the tools: how many models each counts, and how many exactly."""
    rows = []
    for tool in sweep.tools:
        own = [row for row in sweep.rows if row.tool == tool]
        counted = [row for row in own if row.total is not None]
        exact = sum(row.is_exact for row in counted)
        open_ = sum(row.residual != 0 for row in counted)  # None: there is no prediction
        rows.append(
            Row.from_cells(
                tool,
                ", ".join(dict.fromkeys(row.version for row in own if row.version)),
                str(len(counted)),
                str(len(own) - len(counted)),
                str(exact),
                percent_share(exact, len(counted)) if counted else "-",
                str(open_),
                tone="warn" if open_ else "",
            )
        )
    heads = number_columns("counted", "failed", "exact", "share", "not explained")
    return Table(
        columns=(Column(head="tool"), Column(head="version", spare=1), *heads), rows=tuple(rows)
    )


def _agreement_table(sweep: Sweep) -> Table:
    """Return a matrix of the tools: the share of cases in which both give the same number."""
    agreement = agreement_of_tools(sweep)
    names = (NATIVE, *sweep.tools)
    rows = tuple(
        Row.from_cells(first, *(percent_share(*agreement[first, second]) for second in names))
        for first in names
    )
    return Table(columns=(Column(), *number_columns(*names)), rows=rows, stub=1)


def _cause_blocks(sweep: Sweep) -> list[Block]:
    """Return tables of the causes of differences: of all models, and in files by family."""
    shares = cause_shares(sweep)
    if not shares:
        return []
    blocks: list[Block] = [
        Heading("causes, as a share of the exact count"),
        _cause_table(shares, False),
    ]
    families = dict.fromkeys(row.family for row in sweep.rows)
    if len(families) > 1:
        by_family = cause_shares(sweep, by_family=True)
        blocks += [Heading("causes by family"), _cause_table(by_family, True)]
    return blocks


def _cause_table(shares: Sequence[CauseShare], has_families: bool) -> Table:
    """Return a table of causes by tool: how many models have one, its median and its largest
    share.
    """
    rows = tuple(
        Row.from_cells(
            *((row.family,) if has_families else ()),
            row.tool,
            row.cause,
            str(row.cases),
            percent_change(1 + Fraction(row.median), 1),
            percent_change(1 + Fraction(row.largest), 1),
        )
        for row in shares
    )
    families = (Column(head="family"),) if has_families else ()
    columns = (*families, Column(head="tool"), Column(head="cause"))
    return Table(
        columns=(*columns, *number_columns("models", "median", "largest")),
        rows=rows,
        detail=has_families,
    )


def _blocks_of_published_figures(sweep: Sweep) -> list[Block]:
    """Return the published figures beside the exact counts, as a picture and as a table."""
    rows = tuple(
        Row.from_cells(
            point.target,
            point.unit,
            point.text,
            exact_amount(point.exact),
            percent_change(point.published, point.exact),
        )
        for point in sweep.published
    )
    columns = (
        Column(head="model"), Column(head="unit"),
        *number_columns("published", "exact", "difference"),
    )  # fmt: skip
    return [
        Heading("published figures"),
        Figure("published", sweep.published),
        Table(columns=columns, rows=rows),
    ]


def _model_table(sweep: Sweep) -> Table:
    """Return a table of the models: exact counts, and how far each tool is from them; in files
    with the family, by which a reader searches.
    """
    by_case: dict[str, dict[str, SweepRow]] = {}
    for row in sweep.rows:
        by_case.setdefault(case_name(row.case), {})[row.tool] = row
    has_options = any(row.case.options_text for row in sweep.rows)
    has_families = any(row.family for row in sweep.rows)
    rows = []
    for rows_by_tool in by_case.values():
        any_row = next(iter(rows_by_tool.values()))
        rows.append(
            Row.from_cells(
                any_row.case.target,
                *((any_row.case.options_text,) if has_options else ()),
                *((any_row.family,) if has_families else ()),
                *(_amount_text(amount) for amount in _native_amounts(rows_by_tool.get(NATIVE))),
                *(_difference_text(rows_by_tool.get(tool)) for tool in sweep.tools),
            )
        )
    options = (Column(head="options", flows=True),) if has_options else ()
    families = (Column(head="family", detail=True),) if has_families else ()
    heads = number_columns("parameters", "MACs", "FLOPs", *sweep.tools)
    return Table(
        columns=(Column(head="model"), *options, *families, *heads),
        rows=tuple(rows),
        stub=1 + has_options,
    )


def _native_amounts(row: SweepRow | None) -> Sequence[Amount | None]:
    """Return parameters, MACs and FLOPs of a native row."""
    return (row.params, row.macs, row.flops) if row is not None else (None, None, None)


def _amount_text(amount: Amount | None) -> str:
    """Return an amount as text, "-" for None."""
    return "-" if amount is None else exact_amount(amount)


def _difference_text(row: SweepRow | None) -> str:
    """Return the difference of a row from the exact count in percent: "-" without a row, "failed"
    without a number.
    """
    if row is None:
        return "-"
    if row.total is None:
        return "failed"
    return "0" if row.is_exact else percent_change(row.total, (row.macs or 0) * (row.per_mac or 1))


def _failure_table(failures: Sequence[SweepRow]) -> Table:
    """Return a table of the rows without a number, with the reasons."""
    return Table(
        columns=(
            Column(head="model"),
            Column(head="tool"),
            Column(head="at"),
            Column(head="why", flows=True),
        ),
        rows=tuple(
            Row.from_cells(case_name(row.case), row.tool, row.stage, row.failure, tone="warn")
            for row in failures
        ),
    )


def _change_blocks(sweep: Sweep) -> list[Block]:
    """Return a sentence and a table on what differs from the other store."""
    if not sweep.changes:
        return [Text("No number differs.", " ", "good")]
    rows = tuple(
        Row.from_cells(
            case_name(change.case),
            change.tool,
            _outcome_text(change.before),
            _outcome_text(change.after),
            change.reason,
        )
        for change in sweep.changes
    )
    columns = (
        Column(head="model"), Column(head="tool"), Column(head="before", flows=True),
        Column(head="after", flows=True), Column(head="versions", flows=True, spare=1),
    )  # fmt: skip
    return [Table(columns=columns, rows=rows)]


def _outcome_text(outcome: Amount | str) -> str:
    """Return a number or a reason as text, "-" where there is no row."""
    return (outcome or "-") if isinstance(outcome, str) else exact_amount(outcome)
