"""Tool against tool, and model against model: the values, and what follows from them."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.alignment import Alignment
from crossflops.ir.ledger import ModelInfo, Totals
from crossflops.ir.profile import Amount, Failure, Profile
from crossflops.ir.provenance import RequestRecord, named
from crossflops.ir.reconciliation import Explanation, ParamsReconciliation, Reconciliation
from crossflops.ir.trace import Setting

PER_MAC = "unit.mac-vs-flop"


class ToolDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that two tools have in different amounts: `amount = second - first`."""

    cause: str
    first: Amount
    second: Amount
    first_calls: tuple[str, ...]
    second_calls: tuple[str, ...]

    @property
    def amount(self) -> Amount:
        """What the cause adds on the way from the first tool to the second."""
        return self.second - self.first


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """From one tool's total to another's; what both have in the same amount is left out.

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
        """What no cause covers: what the second tool leaves unexplained more than the first."""
        return self.delta - (self.model or 0) - sum(cause.amount for cause in self.differences)


def contrast(first: Reconciliation, second: Reconciliation, models: bool = False) -> Contrast:
    """Set two tools' accounts against each other, the largest difference first.

    They are of one model, or with `models` of two: then what differs in these is apart.
    """
    unit = _unit(first, second)
    mine, other = _amounts(first, unit), _amounts(second, unit)
    calls, more = _calls(first.explanations), _calls(second.explanations)
    rows = (
        ToolDifference(
            cause=cause,
            first=mine.get(cause, 0),
            second=other.get(cause, 0),
            first_calls=calls.get(cause, ()),
            second_calls=more.get(cause, ()),
        )
        for cause in dict.fromkeys((*mine, *other))
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


def _unit(*accounts: Reconciliation) -> int:
    """The smaller count per MAC; 1 of an older report, which does not say what is in MACs."""
    units = [account.unit for account in accounts if isinstance(account.unit, int)]
    known = all(isinstance(row.macs, int) for account in accounts for row in account.explanations)
    return min(units) if known and len(units) == len(accounts) else 1


def _amounts(account: Reconciliation, unit: int) -> dict[str, Amount]:
    """Amount by cause, with what stands in MACs at `unit` for each.

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


def _calls(explanations: Iterable[Explanation]) -> dict[str, tuple[str, ...]]:
    calls: dict[str, tuple[str, ...]] = {}
    for reason in explanations:
        calls[reason.cause] = (*calls.get(reason.cause, ()), *reason.calls)
    return calls


# A second model beside the one of a report, and what is between the two.


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """The second model: its totals, what tools printed for it, and why all of it differs.

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
        """What tells the second model from others: see `provenance.named`."""
        return named(self.model.name, self.model.digest, self.request)


# Values that follow from others: they are written into JSON, and not read back.

Plain = dict[str, Any]


def derive(rows: Iterable[Plain], accounts: Iterable[Reconciliation]) -> None:
    """`delta` and `residual` of accounts of tools."""
    for row, account in zip(rows, accounts, strict=True):
        row["delta"] = account.delta
        row["residual"] = account.residual
        if isinstance(account.params, ParamsReconciliation):
            row["params"] |= {"delta": account.params.delta, "residual": account.params.residual}


def derive_contrast(plain: Plain, contrast: Contrast) -> None:
    """`delta` and `residual` of a contrast, and the amount of each difference."""
    plain |= {"delta": contrast.delta, "residual": contrast.residual}
    for row, difference in zip(plain["differences"], contrast.differences, strict=True):
        row["amount"] = difference.amount


def derive_against(plain: Plain, against: Against) -> None:
    """Those of all that stands between two models."""
    derive(plain["reconciliations"], against.reconciliations)
    for row, contrast in zip(plain["tools"], against.tools, strict=True):
        derive_contrast(row, contrast)
    aligned = against.alignment
    plain["alignment"] |= {
        "delta": msgspec.to_builtins(aligned.delta),
        "residual": msgspec.to_builtins(aligned.residual),
        "same": aligned.same,
    }
