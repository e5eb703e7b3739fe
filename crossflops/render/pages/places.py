"""Where tools disagree most: modules, calls and causes in few words."""

from collections.abc import Iterable
from fractions import Fraction
from math import isfinite
from re import split, sub

import msgspec

from crossflops.causes import cause
from crossflops.errors import UnknownNameError
from crossflops.ir.reconciliation import Explanation, PathRow, Reconciliation
from crossflops.render.page import Block, Column, Heading, Row, Table, Text, Tone
from crossflops.render.quantity import exact, number, short, signed
from crossflops.report.report import Report

TOP = 5
SAME = "="
MODEL = "(the model itself)"
Own = dict[str, Fraction]


class Compared(msgspec.Struct, frozen=True):
    """A report of a comparison, with as many modules as are to be shown where tools disagree."""

    report: Report
    top: int


class Places(msgspec.Struct, frozen=True):
    """Native MACs by path, and how far each tool is from them, both without what is beneath."""

    native: dict[str, int]
    tools: dict[str, Own]

    @property
    def spread(self) -> dict[str, Fraction]:
        """How far the numbers for a path lie apart, the native one among them."""
        found = {}
        for path in self.native:
            values = [Fraction(0), *(own.get(path, Fraction(0)) for own in self.tools.values())]
            found[path] = max(values) - min(values)
        return found


def places(report: Report) -> Places:
    """What every tool that counts MACs makes of every module by itself."""
    found = [one for one in report.reconciliations or () if isinstance(one.unit, int) and one.unit]
    native: dict[str, int] = {}
    for one in found:
        native |= {row.path: row.ours for row in one.by_path}
    parents = {path: _parent(path, native) for path in native}
    return Places(
        native={path: int(n) for path, n in _own(native, parents).items()},
        tools={one.tool: _own(_distances(one), parents) for one in found},
    )


def disagreement(report: Report, top: int = TOP) -> list[Block]:
    """The table of the modules where the tools lie furthest apart; nothing where they do not.

    Modules whose paths differ in numbers alone, and that are counted alike, are one row.
    """
    found = places(report)
    groups = _groups(found)
    shown = groups[:top]
    if not shown or len(found.tools) < 2:
        return []
    columns, heads, notes = _columns(found, [paths[0] for paths in shown])
    rows = tuple(
        Row(
            (
                starred(paths),
                exact(len(paths)),
                short(found.native[paths[0]]),
                *(_written(own.get(paths[0], Fraction(0))) for own in columns),
            )
        )
        for paths in shown
    )
    table = Table(
        columns=(
            Column(head="module", flows=True),
            Column(head="times", right=True),
            Column(head="native", right=True),
            *(Column(head=head, right=True) for head in heads),
        ),
        rows=rows,
        stub=3,
    )
    rest = sum(map(len, groups[top:]))
    notes += [f"and {number(rest, 'module')} more with a difference"] if rest else []
    head = "Where they disagree most: MACs of one such module, beside native"
    return [Heading(head), table, *(Text(note, "   ", "dim") for note in notes)]


def _groups(found: Places) -> list[list[str]]:
    """The paths with a difference, those of one kind together, the largest first."""
    spread = found.spread
    kinds: dict[tuple[object, ...], list[str]] = {}
    for path in (path for path in found.native if spread[path]):
        values = (found.native[path], *(own.get(path) for own in found.tools.values()))
        kinds.setdefault((pattern(path), *values), []).append(path)
    return sorted(kinds.values(), key=lambda paths: -spread[paths[0]] * len(paths))


def pattern(path: str) -> str:
    """The path with a star for every number."""
    return sub(r"\d+", "*", path)


def starred(paths: list[str]) -> str:
    """The path, with a star for each number that is not the same in all of them."""
    parts = zip(*(split(r"(\d+)", path) for path in paths), strict=True)
    return "".join(found[0] if len(set(found)) == 1 else "*" for found in parts) or MODEL


def _columns(found: Places, shown: list[str]) -> tuple[list[Own], list[str], list[str]]:
    """Columns and their heads, tools that show the same in one, and what they stand for."""
    same: dict[tuple[Fraction, ...], list[str]] = {}
    for tool, own in found.tools.items():
        same.setdefault(tuple(own.get(path, Fraction(0)) for path in shown), []).append(tool)
    alike = [tool for values, tools in same.items() if not any(values) for tool in tools]
    other = [tools for values, tools in same.items() if any(values)]
    heads = [one[0] if len(one) == 1 else f"{one[0]} +{len(one) - 1}" for one in other]
    notes = [
        f"{head}: also {', '.join(one[1:])}"
        for head, one in zip(heads, other, strict=True)
        if len(one) > 1
    ]
    notes += [f"{SAME} in all of these: {', '.join(alike)}"] if alike else []
    return [found.tools[tools[0]] for tools in other], heads, notes


def _distances(found: Reconciliation) -> Own:
    return {row.path: _macs(row, found) - row.ours for row in found.by_path}


def _macs(row: PathRow, found: Reconciliation) -> Fraction:
    """What the tool counts there, as MACs: what it printed, or else what was predicted."""
    theirs = row.predicted if row.theirs is None or not isfinite(row.theirs) else row.theirs
    return Fraction(theirs) / (found.unit or 1)


def _parent(path: str, known: Iterable[str]) -> str | None:
    """The innermost known module around this one."""
    while path:
        path = path.rpartition(".")[0]
        if path in known:
            return path
    return None


def _own(whole: "dict[str, int] | Own", parents: dict[str, str | None]) -> Own:
    """What is left of every path without the ones beneath it."""
    own = {path: Fraction(amount) for path, amount in whole.items()}
    for path, amount in whole.items():
        parent = parents[path]
        if parent is not None:
            own[parent] = own.get(parent, Fraction(0)) - amount
    return own


def _written(amount: Fraction) -> str:
    if not amount:
        return SAME
    return f"{'+' if amount > 0 else '-'}{short(abs(amount))}"


# Causes and calls in few words.

NAMED = 1  # calls that are named before the rest is only numbered


def title(id: str) -> str:
    """What a cause is; nothing for one that another release knew."""
    try:
        return cause(id).title
    except UnknownNameError:
        return ""


def named(calls: tuple[str, ...]) -> str:
    """The first call, and how many more there are."""
    rest = len(calls) - NAMED
    return ", ".join([*calls[:NAMED], *([f"and {rest} more"] if rest > 0 else [])])


def explanations(found: Reconciliation) -> Table:
    """Every step from the native count, and what is left."""
    tone: Tone = "bad" if found.residual else "good"
    rows = [_explanation(one) for one in found.explanations]
    rows.append(Row(("residual", signed(found.residual), "", "", "", ""), tone))
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


def _explanation(one: Explanation) -> Row:
    calls = number(len(one.calls), "call") if one.calls else ""
    return Row(
        (one.cause, signed(one.amount), calls, title(one.cause), named(one.calls), one.reference)
    )
