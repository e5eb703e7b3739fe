"""Check budgets: rules about the numbers of a report, whether they hold, and which modules grew.

A rule about work never holds beside nodes that nobody counted, unless a rule `uncounted <= N` of
the same budget allows them.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

import msgspec
from msgspec.structs import replace

from crossflops.errors import CrossflopsError, InputError, nearest_name_hint
from crossflops.ir.profile import Amount
from crossflops.report.recorded import (
    FILE_BYTES,
    LATENCY,
    MODEL_BYTES,
    NATIVE,
    NODES,
    PEAK,
    RESIDUAL,
    UNCOUNTED,
    RecordedCount,
    module_numbers,
    module_paths,
    names_matching,
    operator_numbers,
)

_RULE = re.compile(
    r"(?P<name>[\w@.-]+?)\s*(?P<sign><=|>=|==|<|>|:)\s*"
    r"(?P<relative>[+-]?)(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kMGTP%]?)",
    re.ASCII,
)
# What is near to a rule, to say what is wrong with it.
_ALIKE = re.compile(
    r"[\w@.-]+?\s*(?P<sign>[<>=!:≤≥]+)\s*[+-]?\d[\d.,_]*\s*(?P<unit>\S*)", re.ASCII
)
_UPPER = ("<=", "<", "==")
_SIGNS = ("<=", ">=", "==", "<", ">", ":")
_PREFIXES = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_SHOWN = 5  # names of parts in a hint
_EXAMPLE = "write, for example, macs <= 4.2G, params <= +1%, uncounted == 0, thop <= 4.1G"
# Numbers that a node without a count does not change.
NO_WORK = frozenset({"params", MODEL_BYTES, UNCOUNTED, FILE_BYTES, LATENCY, NODES})
# What says where a number grew of which modules have no share, the nearest to it first.
_SPLIT_AS = {FILE_BYTES: (MODEL_BYTES, "params"), MODEL_BYTES: ("params",)}


class BudgetRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule `name sign number`: a fixed limit, or if `relative` an allowed change from the
    baseline.

    `line` is where the configuration has it, 0 where none does.
    """

    text: str
    name: str
    sign: str
    number: Fraction
    relative: bool
    line: int = 0

    @classmethod
    def from_text(cls, text: str) -> "BudgetRule":
        """Return the rule that a text such as "macs <= 1G" or "flops <= +2%" states; raise
        InputError for another text.

        >>> BudgetRule.from_text("macs <= 4.2G").number, BudgetRule.from_text("params: +1%").number
        (Fraction(4200000000, 1), Fraction(1, 100))
        """
        match = _RULE.fullmatch(text.strip())
        if match is None:
            raise InputError(
                f"the budget {text!r} is not a valid rule{_rule_text_mistake(text)}", _EXAMPLE
            )
        relative = match["unit"] == "%"
        if bool(match["relative"]) != relative:
            raise InputError(f"the limit in the budget {text!r} must be a number or +N%", _EXAMPLE)
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
        """Return the limit of the rule: its number, or for a relative rule the baseline plus the
        allowed change.

        Raises InputError for a relative rule without a baseline.
        """
        exact = self.number
        if self.relative:
            if baseline is None:
                raise InputError(
                    f"the budget {self.text!r} needs a baseline, but no baseline exists",
                    "write a baseline with `crossflops check --update`",
                )
            exact = Fraction(baseline) * (1 + self.number)
            if isinstance(baseline, float):
                return _round_float_noise(float(exact))
            return math.floor(exact) if self.sign in ("<=", ">") else math.ceil(exact)
        return exact.numerator if exact.denominator == 1 else float(exact)

    def holds(self, value: Amount, limit: Amount) -> bool:
        """Return whether the value keeps the rule, whose limit is `limit`."""
        return {
            "<=": value <= limit,
            ">=": value >= limit,
            "<": value < limit,
            ">": value > limit,
            "==": value == limit,
        }[self.sign]


def _rule_text_mistake(text: str) -> str:
    """Return what is wrong in a text that resembles a rule, as the rest of a message that begins
    with ":"; "" if unknown.
    """
    match = _ALIKE.fullmatch(text.strip())
    if match is None:
        return ""
    if match["sign"] not in _SIGNS:
        return f": unknown operator {match['sign']}, use one of {', '.join(_SIGNS[:-1])}"
    if unit := match["unit"]:
        return (
            f": unknown unit {unit} (k, M, G, T, P are powers of 1000; times are in milliseconds)"
        )
    return ": a number may have digits and one decimal point"


class PartRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules about each module, or each operator, whose name matches a pattern."""

    kind: Literal["module", "operator"]
    pattern: str
    rules: tuple[BudgetRule, ...]


class Growth(msgspec.Struct, frozen=True):
    """A part that grew over the baseline, without nested parts, and by how much."""

    path: str
    by: Amount


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One rule about one model, or about the `part` of it: "module head", "operator Conv".

    `change` is against the baseline, where that has the number. `grew` are the parts with more
    than in the baseline, counted in `grew_in`, which is "" where the number has no parts.
    `uncounted` are nodes without a count which the budget does not allow: the rule does not hold
    beside them. `doubt` is "bound" or "estimate" where the value is no exact count. `error` says
    why the rule could not be held, and `hint` what to do; there is no value then. `file` and
    `line` are where the configuration has the rule. `moved_from` is the name under which the
    model was counted before, and `is_new` says that it was not there.
    """

    target: str
    rule: str
    part: str = ""
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
    file: str = ""
    line: int = 0
    moved_from: str = ""
    is_new: bool = False


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """The count that growth is measured from, of a baseline or of a revision.

    `record` is None where there is none: then the model `is_new`, or `message` and `hint` say why
    a rule about growth cannot be held. `name` and `remedy` are for a count of another request.
    """

    record: RecordedCount | None = None
    is_new: bool = False
    moved_from: str = ""
    message: str = "needs a baseline, but no baseline exists"
    hint: str = "`crossflops check --update` writes one"
    name: str = "baseline"
    remedy: str = (
        "use the same options, or write the baseline again with `crossflops check --update`"
    )


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """All rules; `baseline` is their reference file, "" without one.

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
        """Whether there are rules and none of them could be checked."""
        return bool(self.checks) and all(check.error for check in self.checks)


def check_rules(
    target: str,
    rules: Sequence[BudgetRule],
    parts: Sequence[PartRules],
    now: RecordedCount,
    before: Earlier,
) -> tuple[Check, ...]:
    """Return the outcome of each rule for one model: whether its numbers `now` keep the rule,
    compared with `before`.
    """
    allowed = _allow_uncounted(rules, now, before)
    rows = [_check_rule(target, rule, now, before, allowed) for rule in rules]
    for part in parts:
        rows += _check_part_rules(target, part, now, before, allowed)
    return tuple(rows)


def failure_checks(
    target: str,
    rules: Sequence[BudgetRule],
    parts: Sequence[PartRules],
    error: CrossflopsError,
) -> tuple[Check, ...]:
    """Return a failed check for each rule, with this error, for a model that could not be
    counted.
    """
    rows = [_check_with_error(target, rule, error.message, error.hint) for rule in rules]
    for part in parts:
        named = f"{part.kind} {part.pattern}"
        for rule in part.rules:
            rows.append(
                replace(_check_with_error(target, rule, error.message, error.hint), part=named)
            )
    return tuple(rows)


def _check_part_rules(
    target: str, part: PartRules, now: RecordedCount, before: Earlier, allowed: bool
) -> list[Check]:
    """Return the outcome of each rule for each module or operator that the pattern of `part`
    matches; failed checks if it matches none.
    """
    known = module_paths(now) if part.kind == "module" else list(now.operators)
    names = names_matching(part.pattern, known)
    if not names and part.kind == "operator" and _is_operator(part.pattern):
        names = [part.pattern]
    if not names:
        hint = nearest_name_hint(part.pattern, known, _hint_of_names(known, part.kind))
        message = f"no {part.kind} of the model matches {part.pattern!r}"
        rows = [_check_with_error(target, rule, message, hint) for rule in part.rules]
        return [replace(row, part=f"{part.kind} {part.pattern}") for row in rows]
    rows = []
    for name in names:
        own, own_record = _part_numbers(part.kind, name, now), None
        if before.record is not None and _has_part_numbers(part.kind, before.record):
            own_record = _part_numbers(part.kind, name, before.record)
        own_before = replace(before, record=own_record)
        may_be_uncounted = allowed or _allow_uncounted(part.rules, own, own_before)
        for rule in part.rules:
            row = _check_rule(target, rule, own, own_before, may_be_uncounted)
            if part.kind == "operator":
                grew = (Growth(name, row.change),) if row.change and row.change > 0 else ()
                row = replace(row, grew=grew, grew_in=rule.name)
            rows.append(replace(row, part=f"{part.kind} {name}"))
    return rows


def _is_operator(name: str) -> bool:
    """Return whether crossflops has a cost rule for this operator."""
    from crossflops.operators import all_operator_rules

    return any(name in (op.type, str(op)) for op in all_operator_rules())


def _hint_of_names(names: Sequence[str], kind: str) -> str:
    """Return a hint such as "known: a, b ..." with the first names, or "known: no KIND" without
    any.
    """
    shown = ", ".join(names[:_SHOWN])
    return f"known: {shown or f'no {kind}'}" + (" ..." if len(names) > _SHOWN else "")


def _part_numbers(kind: str, name: str, record: RecordedCount) -> RecordedCount:
    """Return the recorded numbers of one module or one operator; `kind` says which of the two
    `name` is.
    """
    return module_numbers(record, name) if kind == "module" else operator_numbers(record, name)


def _has_part_numbers(kind: str, record: RecordedCount) -> bool:
    """Return whether the record has numbers of its modules, or for another kind of its
    operators.
    """
    return bool(record.modules if kind == "module" else record.operators)


def _allow_uncounted(rules: Sequence[BudgetRule], now: RecordedCount, before: Earlier) -> bool:
    """Return whether one of the rules, such as "uncounted <= 3", allows the number of uncounted
    nodes.
    """
    return any(
        rule.name == UNCOUNTED
        and rule.sign in _UPPER
        and not _reason_not_checkable(rule, now, before)
        and _is_within_budget(rule, now, before)
        for rule in rules
    )


def _check_rule(
    target: str,
    rule: BudgetRule,
    now: RecordedCount,
    before: Earlier,
    allowed: bool,
) -> Check:
    """Return the outcome of one rule: value, limit, whether it holds, and which parts grew since
    `before`.
    """
    if refusal := _reason_not_checkable(rule, now, before):
        return _check_with_error(target, rule, *refusal)
    value = now.values[rule.name]
    record = (
        before.record
        if before.record is not None and _has_same_request(now, before.record)
        else None
    )
    old = None if record is None else record.values.get(rule.name)
    limit = None if _has_no_baseline_to_grow_from(rule, before) else rule.limit(old)
    unseen = () if allowed or rule.name in NO_WORK else now.uncounted
    grew, kind = _parts_that_grew(rule.name, now, record) if record is not None else ((), "")
    return Check(
        target=target,
        rule=rule.text,
        value=value,
        limit=limit,
        holds=(limit is None or rule.holds(value, limit)) and not unseen,
        grew=grew,
        grew_in=kind,
        change=None if old is None else _round_float_noise(value - old),
        uncounted=unseen,
        doubt=now.doubts.get(rule.name, ""),
        line=rule.line,
        moved_from=before.moved_from,
        is_new=before.is_new,
    )


def _has_no_baseline_to_grow_from(rule: BudgetRule, before: Earlier) -> bool:
    """Return whether the rule limits growth and the model is new, so that there is nothing to
    compare with.
    """
    return rule.relative and before.is_new


def _round_float_noise(number: Amount) -> Amount:
    """Return a float rounded to four significant digits, an integer unchanged."""
    return float(f"{number:.4g}") if isinstance(number, float) else number


def _check_with_error(target: str, rule: BudgetRule, message: str, hint: str) -> Check:
    """Return a failed check without a value, for a rule that could not be checked because of this
    error.
    """
    return Check(
        target=target, rule=rule.text, value=None, limit=None, holds=False,
        error=message, hint=hint, line=rule.line,
    )  # fmt: skip


def _reason_not_checkable(
    rule: BudgetRule, now: RecordedCount, before: Earlier
) -> tuple[str, str] | None:
    """Return (message, hint) with the reason why a rule cannot be checked, or None if it can."""
    if now.missing and rule.name in now.missing:
        return now.missing[rule.name]
    if rule.name not in now.values:
        known = (*now.values, *(name for name in NATIVE if name not in now.values))
        there = f"known: {', '.join((*NATIVE, RESIDUAL))}, and the ids of conventions"
        return (
            f"{rule.text!r} names {rule.name}, which is unknown",
            nearest_name_hint(rule.name, known, there),
        )
    if not rule.relative or _has_no_baseline_to_grow_from(rule, before):
        return None
    if before.record is None or rule.name not in before.record.values:
        return f"{rule.text!r} {before.message}", before.hint
    if not _has_same_request(now, before.record):
        asked = f"{before.record.request}; this one is {now.request}"
        return f"the {before.name} was counted with other options: {asked}", before.remedy
    return None


def _has_same_request(now: RecordedCount, before: RecordedCount) -> bool:
    """Return whether both counts have the same inputs and options; True if one does not say."""
    return before.request is None or now.request is None or before.request == now.request


def _is_within_budget(rule: BudgetRule, now: RecordedCount, before: Earlier) -> bool:
    """Return whether the number `now` keeps the rule, compared with `before`."""
    value = now.values[rule.name]
    if _has_no_baseline_to_grow_from(rule, before):
        return True
    old = before.record.values.get(rule.name) if before.record else None
    return rule.holds(value, rule.limit(old))


def _parts_that_grew(
    name: str, now: RecordedCount, before: RecordedCount
) -> tuple[tuple[Growth, ...], str]:
    """Return (parts in which a number grew, kind of number): the number itself, one that stands
    for it, or "" if no part has either.

    That is a part of it, or the number of parameters, where modules do not have the number itself,
    and "" where nothing that modules have is a part of it.
    """
    if name == UNCOUNTED:
        left = Counter(now.uncounted) - Counter(before.uncounted)
        return tuple(Growth(node, 1) for node in left.elements()), name
    if name == PEAK:
        by = now.values[name] - before.values.get(name, now.values[name])
        return tuple(Growth(node, by) for node in now.shares.get(name, {}) if by > 0), name
    if name == RESIDUAL:
        return _larger_parts(now.shares.get(name, {}), before.shares.get(name, {})), name
    old = {kind for row in before.modules.values() for kind in row}
    new = {kind for row in now.modules.values() for kind in row}
    for kind in (name, *_SPLIT_AS.get(name, ())):
        if kind in new and (kind in old or not old):
            numbers = (
                {path: row.get(kind, 0) for path, row in record.modules.items()}
                for record in (now, before)
            )
            return _larger_parts(*numbers), kind
    return (), ""


def _larger_parts(now: Mapping[str, Amount], before: Mapping[str, Amount]) -> tuple[Growth, ...]:
    """Return the parts whose amount grew, each with the difference, the largest first."""
    rows = (Growth(path, value - before.get(path, 0)) for path, value in now.items())
    return tuple(sorted((row for row in rows if row.by > 0), key=lambda row: -row.by))
