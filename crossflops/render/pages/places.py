"""Build the table of modules on which tools differ most, and parts for tables of causes."""

from collections.abc import Iterable
from fractions import Fraction
from math import isfinite
from re import split, sub
from typing import NamedTuple

import msgspec

from crossflops.causes import find_cause
from crossflops.errors import UnknownNameError
from crossflops.ir.reconciliation import Explanation, PathRow, Reconciliation
from crossflops.render.page import (
    Block,
    Column,
    Heading,
    Row,
    Table,
    Text,
    Tone,
    number_columns,
)
from crossflops.report.quantity import (
    amount_with_sign,
    count_with_noun,
    exact_amount,
    short_amount,
)
from crossflops.report.report import Report

TOP = 5
SAME = "="
MODEL = "(the model itself)"
MacsByModule = dict[str, Fraction]


class ComparisonView(msgspec.Struct, frozen=True):
    """A report of a comparison, and how many modules its table of differences shows (`top`)."""

    report: Report
    top: int


class ToolDifferenceColumns(NamedTuple):
    """Columns of a table, one for all tools with the same differences from the native MACs."""

    differences: list[MacsByModule]
    heads: list[str]
    notes: list[str]


class ModuleDifferences(msgspec.Struct, frozen=True):
    """Native MACs by module path, and by tool the difference to them; both without submodules."""

    native: dict[str, int]
    tools: dict[str, MacsByModule]

    @property
    def largest_by_module(self) -> dict[str, Fraction]:
        """By module path, the largest difference in MACs between two tools, or to native."""
        spread = {}
        for path in self.native:
            values = [Fraction(0), *(gaps.get(path, Fraction(0)) for gaps in self.tools.values())]
            spread[path] = max(values) - min(values)
        return spread


def module_differences(report: Report) -> ModuleDifferences:
    """Return by module path the native MACs, and each tool's difference, without submodules."""
    accounts = [
        account
        for account in report.reconciliations or ()
        if isinstance(account.unit, int) and account.unit and account.by_path
    ]
    native: dict[str, int] = {}
    for account in accounts:
        native |= {row.path: row.ours for row in account.by_path}
    parents = {path: _nearest_known_ancestor(path, native) for path in native}
    return ModuleDifferences(
        native={path: int(n) for path, n in _amounts_without_children(native, parents).items()},
        tools={
            account.tool: _amounts_without_children(
                _tool_differences_from_native(account), parents
            )
            for account in accounts
        },
    )


def largest_disagreement_blocks(report: Report, top: int = TOP) -> list[Block]:
    """Return the table of the modules on which tools differ most; [] if there is none.

    Modules whose paths differ in numbers alone, and that are counted alike, are one row.
    """
    differences = module_differences(report)
    groups = _similar_module_groups(differences)
    shown = groups[:top]
    if not shown or len(differences.tools) < 2:
        return []
    columns = _tool_difference_columns(differences, [paths[0] for paths in shown])
    rows = tuple(
        Row.from_cells(
            common_path_pattern(paths),
            exact_amount(len(paths)),
            short_amount(differences.native[paths[0]]),
            *(
                _difference_mark_text(gaps.get(paths[0], Fraction(0)))
                for gaps in columns.differences
            ),
        )
        for paths in shown
    )
    table = Table(
        columns=(
            Column(head="module", flows=True),
            *number_columns("times", "native"),
            *(Column(head=head, right=True) for head in columns.heads),
        ),
        rows=rows,
        stub=3,
    )
    rest = sum(map(len, groups[top:]))
    notes = [*columns.notes]
    notes += [f"and {count_with_noun(rest, 'module')} more with a difference"] if rest else []
    head = "Where tools disagree most: MACs of one such module, next to native"
    return [Heading(head), table, *(Text(note, "   ", "dim") for note in notes)]


def _similar_module_groups(differences: ModuleDifferences) -> list[list[str]]:
    """Return groups of similar module paths with equal differences, largest difference first."""
    spread = differences.largest_by_module
    kinds: dict[tuple[object, ...], list[str]] = {}
    for path in (path for path in differences.native if spread[path]):
        values = (
            differences.native[path],
            *(gaps.get(path) for gaps in differences.tools.values()),
        )
        kinds.setdefault((numbers_to_stars(path), *values), []).append(path)
    return sorted(kinds.values(), key=lambda paths: -spread[paths[0]] * len(paths))


def numbers_to_stars(path: str) -> str:
    """Return a module path with each number replaced by "*"."""
    return sub(r"\d+", "*", path)


def common_path_pattern(paths: list[str]) -> str:
    """Return one path for several similar ones, with "*" for the numbers that differ."""
    parts = zip(*(split(r"(\d+)", path) for path in paths), strict=True)
    return "".join(words[0] if len(set(words)) == 1 else "*" for words in parts) or MODEL


def _tool_difference_columns(
    differences: ModuleDifferences, shown: list[str]
) -> ToolDifferenceColumns:
    """Return one column of differences for all tools with equal ones, their heads, and notes."""
    same: dict[tuple[Fraction, ...], list[str]] = {}
    for tool, gaps in differences.tools.items():
        same.setdefault(tuple(gaps.get(path, Fraction(0)) for path in shown), []).append(tool)
    similar = [tool for values, tools in same.items() if not any(values) for tool in tools]
    other = [tools for values, tools in same.items() if any(values)]
    heads = [
        similar[0] if len(similar) == 1 else f"{similar[0]} +{len(similar) - 1}"
        for similar in other
    ]
    notes = [
        f"{head}: also {', '.join(similar[1:])}"
        for head, similar in zip(heads, other, strict=True)
        if len(similar) > 1
    ]
    notes += [f"{SAME} in all of these: {', '.join(similar)}"] if similar else []
    shared = [differences.tools[tools[0]] for tools in other]
    return ToolDifferenceColumns(shared, heads, notes)


def _tool_differences_from_native(account: Reconciliation) -> MacsByModule:
    """Return by module path a tool's MACs minus the native MACs."""
    return {row.path: _tool_macs_at_path(row, account) - row.ours for row in account.by_path}


def _tool_macs_at_path(row: PathRow, account: Reconciliation) -> Fraction:
    """Return a tool's number for a module in MACs: as printed, or predicted if not printed."""
    other = row.predicted if row.theirs is None or not isfinite(row.theirs) else row.theirs
    return Fraction(other) / (account.unit or 1)


def _nearest_known_ancestor(path: str, known: Iterable[str]) -> str | None:
    """Return the nearest enclosing module of `path` among the known paths, or None."""
    while path:
        path = path.rpartition(".")[0]
        if path in known:
            return path
    return None


def _amounts_without_children(
    counts: "dict[str, int] | MacsByModule", parents: dict[str, str | None]
) -> MacsByModule:
    """Return by module path its amount minus the amounts of its children."""
    rest = {path: Fraction(amount) for path, amount in counts.items()}
    for path, amount in counts.items():
        parent = parents[path]
        if parent is not None:
            rest[parent] = rest.get(parent, Fraction(0)) - amount
    return rest


def _difference_mark_text(amount: Fraction) -> str:
    """Return an amount of MACs as text with its sign, or the mark for no difference."""
    if not amount:
        return SAME
    return f"{'+' if amount > 0 else '-'}{short_amount(abs(amount))}"


# Causes and calls in few words.

NAMED = 1  # calls that are named before the rest is only numbered


def cause_title(id: str) -> str:
    """Return the title of a cause by its id, or "" if the cause is unknown."""
    try:
        return find_cause(id).title
    except UnknownNameError:
        return ""


def first_calls_text(calls: tuple[str, ...]) -> str:
    """Return a text with the names of the first calls, and how many more there are."""
    rest = len(calls) - NAMED
    return ", ".join([*calls[:NAMED], *([f"and {rest} more"] if rest > 0 else [])])


def explanation_table(account: Reconciliation) -> Table:
    """Return a table of the causes from the native count to a tool's number, and the residual."""
    tone: Tone = "bad" if account.residual else "good"
    rows = [_explanation_row(reason) for reason in account.explanations]
    rows.append(
        Row.from_cells("residual", amount_with_sign(account.residual), "", "", "", "", tone=tone)
    )
    return Table(
        columns=(
            Column(head="cause"),
            Column(head="amount", right=True),
            Column(head="from"),
            Column(head="what", flows=True),
            Column(head="where", flows=True, detail=True),
            Column(head="source", flows=True, detail=True),
        ),
        rows=tuple(rows),
        bare=True,
    )


def _explanation_row(reason: Explanation) -> Row:
    """Return the row of a cause: amount, number of calls, title, first calls, source."""
    calls = count_with_noun(len(reason.calls), "call") if reason.calls else ""
    return Row.from_cells(
        reason.cause,
        amount_with_sign(reason.amount),
        calls,
        cause_title(reason.cause),
        first_calls_text(reason.calls),
        reason.reference,
    )
