"""Results of formulas over the architecture of a language model, beside the native count."""

from fractions import Fraction

import msgspec

from crossflops.ir.reconciliation import Explanation
from crossflops.ir.training import Passes


class FormulaAccount(msgspec.Struct, frozen=True, kw_only=True):
    """From the native FLOPs of a step to what a formula gives for it, cause by cause.

    All amounts are FLOPs of all sequences together: `ours` of a forward pass, or of training,
    three such passes, as the formula is about. It is written `per` token or sequence, and nothing
    was run. `obstacle` says why it has no number for this model: then `theirs` is `ours`, and
    nothing is explained.
    """

    tool: str
    edition: str
    printed_as: str
    passes: Passes
    per: str
    ours: int
    theirs: int
    explanations: tuple[Explanation, ...] = ()
    reference: str = ""
    obstacle: str = ""

    @property
    def delta(self) -> int:
        """The formula's FLOPs minus the native count."""
        return self.theirs - self.ours

    @property
    def residual(self) -> int:
        """The part of `delta`, in FLOPs, that no explanation covers."""
        return self.delta - sum(int(row.amount) for row in self.explanations)


class FormulaReport(msgspec.Struct, frozen=True, kw_only=True):
    """Results of formulas for a model, on `sequences` of so many `tokens`; of an encoder-decoder
    these are the tokens of the encoder, and the decoder has `target_tokens`.

    `closed_form_macs` are the forward MACs of all sequences from the config, attention square;
    `native_macs` are those of the graph.
    """

    model_type: str
    tokens: int
    sequences: int
    native_macs: int
    closed_form_macs: int
    accounts: tuple[FormulaAccount, ...]
    target_tokens: int | None = None

    @property
    def formulas_by_obstacle(self) -> dict[str, list[str]]:
        """The formulas without a number, as tool@edition, by the reason why they have none."""
        formulas: dict[str, list[str]] = {}
        for account in self.accounts:
            if account.obstacle:
                name = f"{account.tool}@{account.edition}"
                formulas.setdefault(account.obstacle, []).append(name)
        return formulas

    def per_token(self, amount: int) -> int | float:
        """Return an amount of all sequences divided by the number of their tokens; an int if it
        divides exactly.
        """
        share = Fraction(amount, self.tokens * self.sequences)
        return share.numerator if share.denominator == 1 else float(share)
