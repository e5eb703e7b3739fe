"""Define a formula over an architecture as a tool: its number, and the rules that explain it."""

from collections.abc import Callable, Iterator
from typing import Literal

from crossflops.ir.architecture import AttentionSizes, FormulaTraits, TokenSequence
from crossflops.ir.training import Passes
from crossflops.rules.rule import Convention, Rules, Tool

TRAINING, FORWARD = 6, 2  # FLOPs of a MAC: three passes, or one
_PASSES: dict[Passes, int] = {"training": TRAINING, "forward": FORWARD}

Amount = Callable[[TokenSequence], int]


class ArchitectureFormula:
    """A formula in one edition, and its rules, whose amounts are forward MACs of a sequence.

    A rule is booked with the FLOPs of a MAC in the passes that the formula is about.
    """

    def __init__(
        self,
        tool: str,
        edition: str,
        number: Amount,
        *,
        source: str,
        prints: str,
        per: Literal["token", "sequence"] = "token",
        passes: Passes = "training",
    ) -> None:
        self.factor = _PASSES[passes]
        self._tool = Tool(
            tool,
            edition=edition,
            prints=prints,
            per_mac=self.factor,
            level="architecture",
            unseen="formula.model-unsupported",
            source=source,
            formula=FormulaTraits(number=number, per=per, passes=passes),
        )
        self._rules: Rules = self._tool.rules("architecture", source=source)

    def adds(
        self, cause: str, *amounts: Amount, factor: int | None = None
    ) -> "ArchitectureFormula":
        """Add one rule per amount: it adds amount x `factor` FLOPs under `cause`. Return the
        formula.

        The default factor is the FLOPs of one MAC: 6 for training, 2 for a forward pass.
        """
        for amount in amounts:
            self._rules.adds(cause=cause, factor=factor or self.factor)(amount)
        return self

    def fails(self, amount: Amount) -> "ArchitectureFormula":
        """Add a rule that rejects each architecture for which `amount` is not 0; return the
        formula.
        """
        self._rules.fails(cause="formula.model-unsupported")(amount)
        return self

    @property
    def convention(self) -> Convention:
        """The convention of this formula, with its rules."""
        return self._tool.convention


def other_attentions(work: TokenSequence) -> Iterator[AttentionSizes]:
    """Yield the attention sizes of each layer that has no window shorter than the sequence."""
    for layer in work.architecture.layers:
        if not is_cut(layer.attention, work.tokens):
            yield layer.attention


def cut_attentions(work: TokenSequence) -> Iterator[AttentionSizes]:
    """Yield the attention sizes of each layer that has a window shorter than the sequence."""
    for layer in work.architecture.layers:
        if is_cut(layer.attention, work.tokens):
            yield layer.attention


def is_cut(attention: AttentionSizes, tokens: int) -> bool:
    """Return whether the layer has an attention window shorter than `tokens`."""
    return attention.window is not None and attention.window < tokens
