"""Two numbers for one model, and every reason why they differ."""

import msgspec

from crossflops.core.profile import Amount


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A cause, the signed amount it contributes, the calls it comes from, and a source."""

    cause: str
    amount: int
    calls: tuple[str, ...]
    reference: str = ""


class PathRow(msgspec.Struct, frozen=True, kw_only=True):
    """One module: our MACs, what the convention predicted, what the tool printed (if it did)."""

    path: str
    ours: int
    predicted: int
    theirs: Amount | None = None


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """From our MACs to the tool's total. `predicted` was fixed before the tool ran.

    Explanations and residual add up to the difference: `delta == sum(amounts) + residual`.
    """

    tool: str
    edition: str
    ours: int
    theirs: Amount
    predicted: int
    explanations: tuple[Explanation, ...]
    by_path: tuple[PathRow, ...] = ()

    @property
    def delta(self) -> Amount:
        """Theirs minus ours."""
        return self.theirs - self.ours

    @property
    def residual(self) -> Amount:
        """What no explanation covers."""
        return self.delta - sum(explanation.amount for explanation in self.explanations)
