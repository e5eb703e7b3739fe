"""Budgets: a rule about a number of a report, whether it holds, and which modules made it grow."""

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from crossflops.errors import InputError
from crossflops.ir.profile import Amount
from crossflops.ir.reconciliation import Work
from crossflops.report.difference import KINDS, own_work
from crossflops.report.report import SCHEMA, Report

_RULE = re.compile(
    r"(?P<name>[\w@.-]+?)\s*(?P<sign><=|>=|==|<|>|:)\s*"
    r"(?P<relative>[+-]?)(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kMGTP%]?)"
)
_PREFIXES = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_EXAMPLE = "write for example macs <= 4.2G, params <= +1%, uncounted == 0, thop <= 4.1G"
NATIVE = ("macs", "flops", "params", "bytes_read", "bytes_written", "memory_traffic", "uncounted")
RESIDUAL = "residual"


class BudgetRule(msgspec.Struct, frozen=True, kw_only=True):
    """`name sign number`: an absolute number, or where `relative` a share over the baseline."""

    text: str
    name: str
    sign: str
    number: Fraction
    relative: bool

    @classmethod
    def of(cls, text: str) -> "BudgetRule":
        """The rule that is written so. Raises InputError.

        >>> Rule.of("macs <= 4.2G").number, Rule.of("params: +1%").number
        (Fraction(4200000000, 1), Fraction(1, 100))
        """
        match = _RULE.fullmatch(text.strip())
        if match is None:
            raise InputError(f"the budget {text!r} is no rule", _EXAMPLE)
        relative = match["unit"] == "%"
        if bool(match["relative"]) != relative:
            raise InputError(f"the budget {text!r} is neither a number nor +N%", _EXAMPLE)
        number = Fraction(match["number"])
        number = number / 100 if relative else number * 1000 ** _PREFIXES[match["unit"]]
        return cls(
            text=text,
            name=match["name"],
            sign=match["sign"].replace(":", "<="),
            number=-number if match["relative"] == "-" else number,
            relative=relative,
        )

    def limit(self, baseline: Amount | None) -> int | float:
        """The number that the value is held against: whole, as counts are.

        Raises InputError for a relative rule without a baseline.
        """
        exact = self.number
        if self.relative:
            if baseline is None:
                raise InputError(
                    f"{self.text!r} needs a baseline, and there is none",
                    "`crossflops check --update` writes one",
                )
            exact = Fraction(baseline) * (1 + self.number)
            return math.floor(exact) if self.sign in ("<=", ">") else math.ceil(exact)
        return exact.numerator if exact.denominator == 1 else float(exact)

    def holds(self, value: Amount, limit: Amount) -> bool:
        """Whether the value is as the rule says."""
        return {
            "<=": value <= limit,
            ">=": value >= limit,
            "<": value < limit,
            ">": value > limit,
            "==": value == limit,
        }[self.sign]


class Growth(msgspec.Struct, frozen=True):
    """A module that has more than in the baseline, without what is beneath it, and by how much."""

    path: str
    by: int


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One rule about one model. `change` is against the baseline, where that has the number."""

    target: str
    rule: str
    value: Amount
    limit: Amount
    holds: bool
    grew: tuple[Growth, ...] = ()
    change: Amount | None = None


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """All rules; `baseline` is the file that they are held against, "" where there is none.

    `unbudgeted` are targets about which there is no rule.
    """

    checks: tuple[Check, ...]
    baseline: str = ""
    unbudgeted: tuple[str, ...] = ()

    @property
    def hold(self) -> bool:
        """Whether every rule holds."""
        return all(check.holds for check in self.checks)


class RecordedCount(msgspec.Struct, frozen=True):
    """What a baseline keeps of a model: its numbers, and the own work of its modules."""

    values: dict[str, Amount]
    modules: dict[str, Work]


class Baseline(msgspec.Struct, frozen=True):
    """The committed file: what every model came to when it was written."""

    models: dict[str, RecordedCount] = {}
    schema: str = SCHEMA


def recorded(report: Report, values: Mapping[str, Amount]) -> RecordedCount:
    """A report as the baseline keeps it; modules without work of their own are left out.

    A file without modules keeps its nodes in their place.
    """
    rows = {path: work for path, (_, work) in own_work(report).items()}
    if not any(rows):
        rows = {row.node: Work(macs=row.macs, flops=row.flops) for row in report.nodes}
    return RecordedCount(
        dict(values), {path: work for path, work in rows.items() if work != Work()}
    )


def values(report: Report) -> dict[str, Amount]:
    """The numbers that a rule may name: native ones, conventions, and the sum of residuals."""
    totals = report.totals
    native: dict[str, Any] = {
        name: getattr(totals, name) for name in (*KINDS, "bytes_read", "bytes_written")
    }
    numbers = {
        **native,
        "memory_traffic": totals.bytes_read + totals.bytes_written,
        "uncounted": len(report.uncounted),
        **{fold.tool: fold.total for fold in report.folds},
        **{f"{fold.tool}@{fold.edition}": fold.total for fold in report.folds},
    }
    if report.residuals:
        numbers[RESIDUAL] = sum(abs(residual) for residual in report.residuals.values())
    return numbers


def checked(
    target: str, rule: BudgetRule, now: RecordedCount, before: RecordedCount | None
) -> Check:
    """Whether a rule holds. Raises InputError where a rule names a number that there is not."""
    if rule.name not in now.values:
        raise InputError(
            f"{rule.text!r} names {rule.name}, which {target} does not have",
            f"there are {', '.join((*NATIVE, RESIDUAL))}, and the ids of conventions",
        )
    value = now.values[rule.name]
    old = before.values.get(rule.name) if before else None
    limit = rule.limit(old)
    return Check(
        target=target,
        rule=rule.text,
        value=value,
        limit=limit,
        holds=rule.holds(value, limit),
        grew=_grew(rule.name, now, before),
        change=None if old is None else value - old,
    )


def _grew(name: str, now: RecordedCount, before: RecordedCount | None) -> tuple[Growth, ...]:
    """The modules that have more of a number than before, the largest first.

    Of a number that modules do not have, it is MACs.
    """
    if before is None:
        return ()
    kind = name if name in KINDS else "macs"
    rows = (
        Growth(path, getattr(work, kind) - getattr(before.modules.get(path, Work()), kind))
        for path, work in now.modules.items()
    )
    return tuple(sorted((row for row in rows if row.by > 0), key=lambda row: -row.by))
