"""Summarize a sweep: how often tools agree, and which causes separate them."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from crossflops.report.sweep import NATIVE, Sweep, SweepRow

_UNITS = "unit.mac-vs-flop"  # a factor between units, and no difference of what is counted
_NO_FAMILY = "others"


class CauseShare(msgspec.Struct, frozen=True, kw_only=True):
    """How much a cause accounts for in the numbers of a tool.

    The shares are of the exact count: the median and the largest among the `cases` in which the
    tool has this cause. `family` is "" for all families together.
    """

    family: str = ""
    tool: str
    cause: str
    cases: int
    median: float
    largest: float


class AgreementCount(NamedTuple):
    """The cases in which two tools give the same number, and those in which both give one."""

    same: int
    both: int


def agreement_of_tools(sweep: Sweep) -> dict[tuple[str, str], AgreementCount]:
    """Return {(tool, other tool): the cases in which both give the same number of MACs, and those
    in which both give one}, the native count among them.
    """
    tools = (NATIVE, *sweep.tools)
    by_case = _rows_by_case(sweep)
    return {
        (first, second): _count_agreement(by_case, first, second)
        for first in tools
        for second in tools
    }


def _rows_by_case(sweep: Sweep) -> list[dict[str, SweepRow]]:
    """Return the rows with a number of each case, by tool."""
    by_case: dict[bytes, dict[str, SweepRow]] = {}
    for row in sweep.rows:
        if row.total is not None:
            key = msgspec.json.encode(row.case, order="sorted")
            by_case.setdefault(key, {})[row.tool] = row
    return list(by_case.values())


def _count_agreement(
    by_case: Sequence[dict[str, SweepRow]], first: str, second: str
) -> AgreementCount:
    """Return the cases in which two tools agree, and those in which both have a number."""
    both = [(rows[first], rows[second]) for rows in by_case if first in rows and second in rows]
    return AgreementCount(sum(_is_same_number(left, right) for left, right in both), len(both))


def _is_same_number(first: SweepRow, second: SweepRow) -> bool:
    """Return whether two tools give the same number of MACs, or both are exact."""
    if first.is_exact and second.is_exact:
        return True
    assert first.total is not None
    assert second.total is not None
    return first.total * (second.per_mac or 1) == second.total * (first.per_mac or 1)


def cause_shares(sweep: Sweep, by_family: bool = False) -> list[CauseShare]:
    """Return how much each cause accounts for in the numbers of each tool, the largest first; with
    `by_family` for each family by itself.
    """
    shares: dict[tuple[str, str, str], list[float]] = {}
    for row in sweep.rows:
        for cause, amount in row.causes.items():
            if row.macs and cause != _UNITS:
                family = (row.family or _NO_FAMILY) if by_family else ""
                amounts = shares.setdefault((family, row.tool, cause), [])
                amounts.append(float(amount) / (row.macs * (row.per_mac or 1)))
    rows = [
        CauseShare(
            family=family,
            tool=tool,
            cause=cause,
            cases=len(amounts),
            median=median(amounts),
            largest=max(amounts, key=abs),
        )
        for (family, tool, cause), amounts in shares.items()
    ]
    return sorted(rows, key=lambda row: (row.family, row.tool, -abs(row.median) * row.cases))
