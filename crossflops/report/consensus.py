"""Which number to publish for a model: where each tool stands towards it, as values and in words.

`standing` computes the values. The words (`Consensus`) are made of them in `render`, since JSON
holds sentences that people cite.
"""

from collections.abc import Iterable
from fractions import Fraction
from math import isfinite
from typing import Literal, TypeAlias

import msgspec

from crossflops.ir.profile import Amount, Failure, Profile
from crossflops.ir.reconciliation import Explanation, Reconciliation
from crossflops.report.comparison import PER_MAC

Stand: TypeAlias = Literal["agrees", "agrees after", "differs", "unexplained", "failed"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Where a tool stands, and why in one line.

    It "agrees" when its total is the number at what it counts for a MAC, "agrees after" when it is
    once its operations outside of contractions are taken away, and "differs" where it counts
    other MACs.
    """

    tool: str
    version: str
    stand: Stand
    why: str


class Consensus(msgspec.Struct, frozen=True, kw_only=True):
    """The native MACs as one sentence that can be cited, and a reason in one line.

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
    """What lies between a tool and the native MACs, apart from the tool's unit.

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


def positions(
    answers: Iterable[Profile | Failure], accounts: Iterable[Reconciliation]
) -> tuple[Position, ...]:
    """Where every tool stands, in the order of the answers. Raises KeyError without an account."""
    by_tool = {account.tool: account for account in accounts}
    return tuple(
        Position(tool=answer.tool, version="", stand="failed", failure=answer)
        if isinstance(answer, Failure)
        else _position(answer, by_tool[answer.tool])
        for answer in answers
    )


def _position(answer: Profile, account: Reconciliation) -> Position:
    unit = account.unit if isinstance(account.unit, int) else None
    causes = tuple(row for row in account.explanations if row.cause != PER_MAC and row.amount)
    return Position(
        tool=answer.tool,
        version=answer.version,
        stand=_stand(account.residual, unit, causes),
        residual=account.residual,
        unit=unit,
        as_macs=Fraction(account.theirs) / unit if unit and isfinite(account.theirs) else None,
        causes=causes,
    )


def _stand(residual: Amount, unit: int | None, causes: tuple[Explanation, ...]) -> Stand:
    if residual:
        return "unexplained"
    if unit == 0:
        return "differs"
    if not causes:
        return "agrees"
    # work in MACs, or of a report that does not say what is in MACs, is not merely on top
    on_top = all(isinstance(row.macs, int) and not row.macs for row in causes)
    return "agrees after" if on_top else "differs"
