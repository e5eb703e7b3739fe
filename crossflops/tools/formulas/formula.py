"""Define a formula over an architecture as a tool: its number, and the rules that explain it."""

from collections.abc import Callable, Collection, Iterator
from typing import Literal

from crossflops.ir.architecture import AttentionSizes, FormulaTraits, TokenSequence
from crossflops.ir.training import Passes
from crossflops.rules.rule import Convention, Rules, Tool, with_formula

TRAINING, FORWARD = 6, 2  # FLOPs of a MAC: three passes, or one
_FLOPS_PER_MAC: dict[Passes, int] = {"training": TRAINING, "forward": FORWARD}

Amount = Callable[[TokenSequence], int]
Part = Literal[
    "encoder", "state space", "shared layer", "other matrix"
]  # of models, beyond decoders of attention


def rule_amount(rule_name: str, formula: str) -> Callable[[Amount], Amount]:
    """Return a decorator that declares a function as the amount of the rule `rule_name`.

    Args:
        rule_name: The last part of the rule's id, which is printed, so it never changes.
        formula: The text that pages print as the formula of the amount.
    """

    def set_rule_name_and_formula(amount: Amount) -> Amount:
        """Set the name of the rule and the printed formula, and return the function."""
        amount.rule_name = rule_name  # type: ignore[attr-defined]
        return with_formula(formula)(amount)

    return set_rule_name_and_formula


@rule_amount("encoder", "An encoder: the formula is about decoders alone")
def encoder_layer_count(work: TokenSequence) -> int:
    """Return the number of layers of an encoder before the decoder; 0 for a decoder alone."""
    return len(work.architecture.encoder)


@rule_amount(
    "state_space",
    "A layer with a state space or a convolution: the formula is about attention in each",
)
def state_space_count(work: TokenSequence) -> int:
    """Return the number of layers that have a state space."""
    return len(work.architecture.state_spaces)


@rule_amount(
    "shared_layer",
    "Layers that share weights: the formula is about weights that are used once",
)
def extra_shared_weight_count(work: TokenSequence) -> int:
    """Return the number of matrix elements that a token passes again in a later layer."""
    return work.architecture.extra_shared_weights


@rule_amount("other_matrix", "Matrices outside of attention, feed-forward parts and the output")
def other_matrix_elements(work: TokenSequence) -> int:
    """Return the number of elements of matrices that a formula over layers does not know."""
    return work.architecture.other_matrices


@rule_amount("idle_experts", "-3 h f (E - k) T where tokens run through all experts")
def minus_idle_expert_macs(work: TokenSequence) -> int:
    """Return minus the MACs of experts that were not chosen for a token and run all the same."""
    return -work.idle_expert_macs


@rule_amount("extra_attention", "-(work of an indexer or of a second pass) T^2 in each layer")
def minus_extra_attention_macs(work: TokenSequence) -> int:
    """Return minus the MACs of attention that no formula knows: those of an indexer that chooses
    keys, or of a second pass over them.
    """
    return -work.extra_attention_macs


_AMOUNTS_OF_PARTS: dict[Part, Amount] = {
    "encoder": encoder_layer_count,
    "state space": state_space_count,
    "shared layer": extra_shared_weight_count,
    "other matrix": other_matrix_elements,
}
ALL_PARTS: tuple[Part, ...] = tuple(_AMOUNTS_OF_PARTS)


class ArchitectureFormula:
    """A formula in one edition, and its rules, whose amounts are forward MACs of a sequence.

    A rule is booked with the FLOPs of a MAC in the passes that the formula is about. A formula is
    about decoders with attention in each layer, and rejects models with other parts, except for
    those that it `covers`.
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
        covers: Collection[Part] = (),
    ) -> None:
        self.factor = _FLOPS_PER_MAC[passes]
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
        for part, amount in _AMOUNTS_OF_PARTS.items():
            if part not in covers:
                self.fails(amount)
        # what a graph has, and no formula
        self.adds("formula.idle-experts", minus_idle_expert_macs)
        self.adds("formula.extra-attention", minus_extra_attention_macs)

    def adds(
        self, cause: str, *amounts: Amount, factor: int | None = None
    ) -> "ArchitectureFormula":
        """Add one rule per amount: it adds amount x `factor` FLOPs under `cause`. Return the
        formula.

        The default factor is the FLOPs of one MAC: 6 for training, 2 for a forward pass.
        """
        for amount in amounts:
            name = _rule_name(amount)
            self._rules.adds(cause=cause, factor=factor or self.factor, name=name)(amount)
        return self

    def fails(self, amount: Amount) -> "ArchitectureFormula":
        """Add a rule that rejects each architecture for which `amount` is not 0; return the
        formula.
        """
        name = _rule_name(amount)
        self._rules.fails(cause="formula.model-unsupported", name=name)(amount)
        return self

    @property
    def convention(self) -> Convention:
        """The convention of this formula, with its rules."""
        return self._tool.convention


def _rule_name(amount: Amount) -> str:
    """Return the rule name that `rule_amount` gave to a function, or the name of the function."""
    return str(getattr(amount, "rule_name", getattr(amount, "__name__", "")))


def attentions_without_window(work: TokenSequence) -> Iterator[AttentionSizes]:
    """Yield the attention sizes of each layer that has no window shorter than the sequence."""
    for attention in work.architecture.attentions:
        if not has_window_shorter_than(attention, work.tokens):
            yield attention


def attentions_with_window(work: TokenSequence) -> Iterator[AttentionSizes]:
    """Yield the attention sizes of each layer that has a window shorter than the sequence."""
    for attention in work.architecture.attentions:
        if has_window_shorter_than(attention, work.tokens):
            yield attention


def has_window_shorter_than(attention: AttentionSizes, tokens: int) -> bool:
    """Return whether the layer has an attention window shorter than `tokens`."""
    return attention.window is not None and attention.window < tokens
