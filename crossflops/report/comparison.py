"""Compare two tools or two models: their totals, and the causes of the difference.

What follows is also which number to publish: where each tool stands towards it. `standing`
computes the values. `report.consensus` makes the words of them, as JSON holds sentences that
people cite.
"""

from collections.abc import Iterable
from fractions import Fraction
from math import isfinite
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.ledger import ModelInfo, Totals
from crossflops.ir.profile import Amount, Failure, Profile
from crossflops.ir.provenance import RequestRecord, report_title
from crossflops.ir.reconciliation import (
    Alignment,
    Explanation,
    ParamsReconciliation,
    Reconciliation,
)
from crossflops.ir.trace import Setting

PER_MAC = "unit.mac-vs-flop"


class ToolDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that has different amounts in two tools: `amount` is second - first."""

    cause: str
    first: Amount
    second: Amount
    first_calls: tuple[str, ...]
    second_calls: tuple[str, ...]

    @property
    def amount(self) -> Amount:
        """The amount of the second tool minus that of the first."""
        return self.second - self.first


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of the difference between two tools' totals; causes with equal amounts in
    both are left out.

    Where the totals are those of two models, `model` is what the second model has more of MACs,
    at `unit` for each, and the differences are those of counting.

    Work that is seen by one of them only is given at `unit` per multiply-accumulate, the smaller
    of what the two count for one. So the unit is a difference only where theirs are not the same.
    """

    first: str
    second: str
    first_total: Amount
    second_total: Amount
    unit: int
    differences: tuple[ToolDifference, ...]
    model: int | UnsetType = UNSET

    @property
    def delta(self) -> Amount:
        """The second total minus the first."""
        return self.second_total - self.first_total

    @property
    def residual(self) -> Amount:
        """The part of the difference between the totals that no cause explains."""
        return self.delta - (self.model or 0) - sum(cause.amount for cause in self.differences)


def contrast_accounts(
    first: Reconciliation, second: Reconciliation, models: bool = False
) -> Contrast:
    """Return the difference between two tools' totals, cause by cause, the largest first.

    They are of one model, or with `models` of two: then what differs in these is apart.
    """
    unit = _smallest_unit_per_mac(first, second)
    own, other = _amounts_by_cause(first, unit), _amounts_by_cause(second, unit)
    calls, more = _calls_by_cause(first.explanations), _calls_by_cause(second.explanations)
    rows = (
        ToolDifference(
            cause=cause,
            first=own.get(cause, 0),
            second=other.get(cause, 0),
            first_calls=calls.get(cause, ()),
            second_calls=more.get(cause, ()),
        )
        for cause in dict.fromkeys((*own, *other))
    )
    return Contrast(
        first=first.tool,
        second=second.tool,
        first_total=first.theirs,
        second_total=second.theirs,
        unit=unit,
        differences=tuple(
            sorted((row for row in rows if row.amount), key=lambda row: -abs(row.amount))
        ),
        model=unit * (second.ours - first.ours) if models else UNSET,
    )


def _smallest_unit_per_mac(*accounts: Reconciliation) -> int:
    """Return the smallest FLOPs or MACs that one of the tools counts per MAC; 1 if it is not known
    for all of them.
    """
    units = [account.unit for account in accounts if isinstance(account.unit, int)]
    known = all(isinstance(row.macs, int) for account in accounts for row in account.explanations)
    return min(units) if known and len(units) == len(accounts) else 1


def _amounts_by_cause(account: Reconciliation, unit: int) -> dict[str, Amount]:
    """Return {cause: amount} of a tool's difference from the native count, where each MAC counts
    as `unit`.

    The step of the unit gives (u - 1) for each MAC that the tool sees; (u - unit) are left of it.
    The difference, also on the native MACs, is the same for both tools and cancels.
    """
    scale = unit - 1
    amounts: dict[str, Amount] = {}
    reached = account.ours
    for reason in account.explanations:
        macs = reason.macs if isinstance(reason.macs, int) else 0
        reached += macs
        amounts[reason.cause] = amounts.get(reason.cause, 0) + reason.amount + scale * macs
    if scale:
        amounts[PER_MAC] = amounts.get(PER_MAC, 0) - scale * reached
    return amounts


def _calls_by_cause(explanations: Iterable[Explanation]) -> dict[str, tuple[str, ...]]:
    """Return {cause: keys of its calls}, joined over all explanations."""
    calls: dict[str, tuple[str, ...]] = {}
    for reason in explanations:
        calls[reason.cause] = (*calls.get(reason.cause, ()), *reason.calls)
    return calls


# A second model beside the one of a report, and what is between the two.


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """The second model: its totals, the tools' numbers for it, and the reasons of all differences.

    `alignment` goes from the first model to the second, layer by layer. `tools` are contrasts
    whose first number is for the first model and whose second for the second: of one tool, or of
    two where each can take one of the models alone.
    """

    model: ModelInfo
    totals: Totals
    alignment: Alignment
    setting: Setting | UnsetType = UNSET
    profiles: tuple[Profile | Failure, ...] = ()
    reconciliations: tuple[Reconciliation, ...] = ()
    tools: tuple[Contrast, ...] = ()
    request: RequestRecord | UnsetType = UNSET
    made_with: dict[str, str] | UnsetType = UNSET

    @property
    def name(self) -> str:
        """The name of the second model in titles, with its digest or target."""
        return report_title(self.model.name, self.model.digest, self.request)


# Values that follow from others: they are written into JSON, and not read back.

Plain = dict[str, Any]


def add_account_differences(rows: Iterable[Plain], accounts: Iterable[Reconciliation]) -> None:
    """Add the difference from the native count and the residual of each tool to its JSON row."""
    for row, account in zip(rows, accounts, strict=True):
        row["delta"] = account.delta
        row["residual"] = account.residual
        if isinstance(account.params, ParamsReconciliation):
            row["params"] |= {"delta": account.params.delta, "residual": account.params.residual}


def add_contrast_differences(plain: Plain, contrast: Contrast) -> None:
    """Add the difference, the residual, and the amount of each cause to the JSON of a contrast."""
    plain |= {"delta": contrast.delta, "residual": contrast.residual}
    for row, difference in zip(plain["differences"], contrast.differences, strict=True):
        row["amount"] = difference.amount


def add_model_differences(plain: Plain, against: Against) -> None:
    """Add the differences and the residuals between two models to their JSON."""
    add_account_differences(plain["reconciliations"], against.reconciliations)
    for row, contrast in zip(plain["tools"], against.tools, strict=True):
        add_contrast_differences(row, contrast)
    aligned = against.alignment
    plain["alignment"] |= {
        "delta": msgspec.to_builtins(aligned.delta),
        "residual": msgspec.to_builtins(aligned.residual),
        "same": aligned.same,
    }


Stand: TypeAlias = Literal["agrees", "agrees after", "differs", "unexplained", "failed"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a tool, and the reason in one line.

    It "agrees" when its total is the number at what it counts for a MAC, "agrees after" when it is
    once its operations outside of contractions are taken away, and "differs" where it counts
    other MACs.
    """

    tool: str
    version: str
    stand: Stand
    why: str


class Consensus(msgspec.Struct, frozen=True, kw_only=True):
    """The native MACs as one sentence to cite, and a reason in one line.

    `flops` is 2 x MACs. With `caveats` that no sentence may leave out the number is not `citable`
    without them.
    """

    macs: int
    flops: int
    citable: bool
    sentence: str
    reason: str
    caveats: tuple[str, ...]
    verdicts: tuple[Verdict, ...]


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The difference between a tool and the native MACs, apart from the tool's unit.

    `unit` is what the tool counts for a MAC, None where that is not known. `as_macs` is the total
    divided by it, None without a unit or for a total that is not finite. `causes` are the
    explanations other than the unit.
    """

    tool: str
    version: str
    stand: Stand
    failure: Failure | None = None
    residual: Amount = 0
    unit: int | None = None
    as_macs: Fraction | None = None
    causes: tuple[Explanation, ...] = ()


def tool_positions(
    answers: Iterable[Profile | Failure], accounts: Iterable[Reconciliation]
) -> tuple[Position, ...]:
    """Return for each tool how its total relates to the native MACs, or its failure, in the order
    of `answers`.
    """
    by_tool = {account.tool: account for account in accounts}
    return tuple(
        Position(tool=answer.tool, version="", stand="failed", failure=answer)
        if isinstance(answer, Failure)
        else _tool_position(answer, by_tool[answer.tool])
        for answer in answers
    )


def _tool_position(answer: Profile, account: Reconciliation) -> Position:
    """Return how the total of a tool relates to the native MACs: agreement, residual and causes
    other than the unit.
    """
    unit = account.unit if isinstance(account.unit, int) else None
    causes = tuple(row for row in account.explanations if row.cause != PER_MAC and row.amount)
    return Position(
        tool=answer.tool,
        version=answer.version,
        stand=_agreement_with_native(account.residual, unit, causes),
        residual=account.residual,
        unit=unit,
        as_macs=Fraction(account.theirs) / unit if unit and isfinite(account.theirs) else None,
        causes=causes,
    )


def _agreement_with_native(
    residual: Amount, unit: int | None, causes: tuple[Explanation, ...]
) -> Stand:
    """Return "agrees", "agrees after" (without operations outside of contractions), "differs" or
    "unexplained" for a tool's total.
    """
    if residual:
        return "unexplained"
    if unit == 0:
        return "differs"
    if not causes:
        return "agrees"
    # work in MACs, or of a report that does not say what is in MACs, is not merely on top
    on_top = all(isinstance(row.macs, int) and not row.macs for row in causes)
    return "agrees after" if on_top else "differs"
