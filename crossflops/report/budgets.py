"""Budgets: a rule about a number of a report, whether it holds, and which modules made it grow.

A rule about work never holds beside nodes that nobody counted, unless a rule `uncounted <= N` of
the same budget allows them.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from crossflops.errors import CrossflopsError, InputError, nearest
from crossflops.ir.ledger import Memory
from crossflops.ir.profile import Amount
from crossflops.report.difference import KINDS, own_work
from crossflops.report.report import SCHEMA, Report

_RULE = re.compile(
    r"(?P<name>[\w@.-]+?)\s*(?P<sign><=|>=|==|<|>|:)\s*"
    r"(?P<relative>[+-]?)(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kMGTP%]?)"
)
_PREFIXES = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_EXAMPLE = "write for example macs <= 4.2G, params <= +1%, uncounted == 0, thop <= 4.1G"
NATIVE = (
    *("macs", "flops", "params", "bytes_read", "bytes_written", "memory_traffic"),
    *("peak_activation_memory", "model_bytes", "uncounted"),
)
RESIDUAL = "residual"
UNCOUNTED = "uncounted"
# Numbers that a node without a count does not change.
NO_WORK = frozenset({"params", "model_bytes", UNCOUNTED})
_MODULE_KINDS = (*KINDS, "bytes_read", "bytes_written", "memory_traffic")


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
    """One rule about one model.

    `change` is against the baseline, where that has the number. `grew` are the modules with more
    than in the baseline, counted in `grew_in`, which is not the rule's own number where modules do
    not have that. `uncounted` are nodes without a count which the budget does not allow: the rule
    does not hold beside them. `doubt` is "bound" or "estimate" where the value is no exact count.
    `error` says why the rule could not be held, and `hint` what to do; there is no value then.
    """

    target: str
    rule: str
    value: Amount | None
    limit: Amount | None
    holds: bool
    grew: tuple[Growth, ...] = ()
    grew_in: str = ""
    change: Amount | None = None
    uncounted: tuple[str, ...] = ()
    doubt: str = ""
    error: str = ""
    hint: str = ""


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

    @property
    def is_refused(self) -> bool:
        """Whether no rule could be held at all."""
        return bool(self.checks) and all(check.error for check in self.checks)


class CountedRequest(msgspec.Struct, frozen=True):
    """The request that a recorded count answered: inputs as counted, and all that was asked."""

    inputs: tuple[str, ...] = ()
    options: dict[str, str] = {}

    def __str__(self) -> str:
        asked = (f"{name} {text}" for name, text in self.options.items())
        return ", ".join((*self.inputs, *asked)) or "no input"


class RecordedCount(msgspec.Struct, frozen=True):
    """The part of a count that a baseline keeps: numbers, and the own work of modules by kind.

    `request` is None, and `uncounted` empty, in files that were written without them. `origin`
    is "pytest" for what a test wrote.
    """

    values: dict[str, Amount]
    modules: dict[str, dict[str, int]]
    request: CountedRequest | None = None
    uncounted: tuple[str, ...] = ()
    doubts: dict[str, str] = {}
    origin: str = ""


class Baseline(msgspec.Struct, frozen=True):
    """The committed file: the counts of every model when it was written."""

    models: dict[str, RecordedCount] = {}
    schema: str = SCHEMA


def record_count(report: Report, options: Mapping[str, Any], origin: str = "") -> RecordedCount:
    """Return the part of a report that a baseline keeps, with the request that it answers."""
    return RecordedCount(
        values=values(report),
        modules=_own_work_by_kind(report),
        request=_request(report, options),
        uncounted=tuple(f"{row.node} ({row.op})" for row in report.uncounted),
        doubts=_doubts(report),
        origin=origin,
    )


def _own_work_by_kind(report: Report) -> dict[str, dict[str, int]]:
    """Return the work of every module without what is beneath it, or of every node of a file."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    modules = own_work(report)
    has_modules = any(modules)
    for path, (_, work) in modules.items() if has_modules else ():
        rows[path].update({kind: getattr(work, kind) for kind in KINDS})
    for node in report.nodes:
        row = rows[node.path if has_modules else node.node]
        if not has_modules:
            row.update({"macs": node.macs, "flops": node.flops})
        row["bytes_read"] += node.bytes_read
        row["bytes_written"] += node.bytes_written
        row["memory_traffic"] += node.bytes_read + node.bytes_written
    return {path: dict(row) for path, row in rows.items() if any(row.values())}


def _request(report: Report, options: Mapping[str, Any]) -> CountedRequest:
    inputs = (
        f"{spec.name} {'x'.join(map(str, spec.shape)) or 'scalar'} {spec.dtype}"
        for spec in report.model.inputs
    )
    asked = {name: _spelled(value) for name, value in sorted(options.items()) if name != "inputs"}
    return CountedRequest(tuple(inputs), {name: text for name, text in asked.items() if text})


def _spelled(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={value[name]}" for name in sorted(value))
    return "" if value is None else str(value)


def _doubts(report: Report) -> dict[str, str]:
    """Return the grade of every number that is no exact count."""
    known = report.totals.exactness or {}
    grades = {name: grade for name, grade in known.items() if grade != "exact"}
    weakest = grades.get("flops", "")
    folded = {fold.tool: weakest for fold in report.folds if weakest}
    return {**folded, **grades}


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
    if isinstance(report.memory, Memory):
        numbers["peak_activation_memory"] = report.memory.peak_activation_bytes
        numbers["model_bytes"] = report.memory.param_bytes
    if report.residuals:
        numbers[RESIDUAL] = sum(abs(residual) for residual in report.residuals.values())
    return numbers


def hold_rules(
    target: str, rules: Sequence[BudgetRule], now: RecordedCount, before: RecordedCount | None
) -> tuple[Check, ...]:
    """Hold the rules of one budget, each of which may have an error of its own."""
    allowed = any(
        rule.name == UNCOUNTED and not _refusal(rule, now, before) and _holds(rule, now, before)
        for rule in rules
    )
    return tuple(_hold_rule(target, rule, now, before, allowed) for rule in rules)


def failed_checks(
    target: str, rules: Sequence[BudgetRule], error: CrossflopsError
) -> tuple[Check, ...]:
    """Return a row for each rule about a model that could not be counted."""
    return tuple(_error_row(target, rule, error.message, error.hint) for rule in rules)


def _hold_rule(
    target: str,
    rule: BudgetRule,
    now: RecordedCount,
    before: RecordedCount | None,
    allowed: bool,
) -> Check:
    if refusal := _refusal(rule, now, before):
        return _error_row(target, rule, *refusal)
    value = now.values[rule.name]
    fits = before is not None and _fits(now, before)
    old = before.values.get(rule.name) if before is not None and fits else None
    limit = rule.limit(old)
    unseen = () if allowed or rule.name in NO_WORK else now.uncounted
    grew, kind = _grew(rule.name, now, before) if before is not None and fits else ((), "")
    return Check(
        target=target,
        rule=rule.text,
        value=value,
        limit=limit,
        holds=rule.holds(value, limit) and not unseen,
        grew=grew,
        grew_in=kind,
        change=None if old is None else value - old,
        uncounted=unseen,
        doubt=now.doubts.get(rule.name, ""),
    )


def _error_row(target: str, rule: BudgetRule, message: str, hint: str) -> Check:
    return Check(
        target=target, rule=rule.text, value=None, limit=None, holds=False,
        error=message, hint=hint,
    )  # fmt: skip


def _refusal(
    rule: BudgetRule, now: RecordedCount, before: RecordedCount | None
) -> tuple[str, str] | None:
    """Return why a rule cannot be held, and what to do; None where it can."""
    if rule.name not in now.values:
        known = (*now.values, *(name for name in NATIVE if name not in now.values))
        there = f"it has {', '.join((*NATIVE, RESIDUAL))}, and the ids of conventions"
        return (
            f"{rule.text!r} names {rule.name}, which no count has",
            nearest(rule.name, known, there),
        )
    if not rule.relative:
        return None
    if before is None or rule.name not in before.values:
        return (
            f"{rule.text!r} needs a baseline, and there is none",
            "`crossflops check --update` writes one",
        )
    if not _fits(now, before):
        return (
            f"the baseline is of another request: {before.request}; this one is {now.request}",
            "ask for the same, or write the baseline anew by `crossflops check --update`",
        )
    return None


def _fits(now: RecordedCount, before: RecordedCount) -> bool:
    """Whether both answer one request; files without requests are taken to."""
    return before.request is None or now.request is None or before.request == now.request


def _holds(rule: BudgetRule, now: RecordedCount, before: RecordedCount | None) -> bool:
    value = now.values[rule.name]
    return rule.holds(value, rule.limit(before.values.get(rule.name) if before else None))


def _grew(name: str, now: RecordedCount, before: RecordedCount) -> tuple[tuple[Growth, ...], str]:
    """Return the modules that have more of a number than before, the largest first, and its name.

    Of a number that modules do not have, or that the baseline does not have of them, it is MACs.
    """
    recorded = {kind for work in before.modules.values() for kind in work}
    kind = name if name in _MODULE_KINDS and (name in recorded or not recorded) else "macs"
    rows = (
        Growth(path, work.get(kind, 0) - before.modules.get(path, {}).get(kind, 0))
        for path, work in now.modules.items()
    )
    return tuple(sorted((row for row in rows if row.by > 0), key=lambda row: -row.by)), kind
