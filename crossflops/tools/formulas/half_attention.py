"""Define the formulas of MaxText and verl: every matrix, half of all pairs of tokens, and windows.

MaxText, utils/maxtext_utils.py: calculate_tflops_training_per_device. verl, FlopsCounter of
utils/flops_counter.py, which counts a lookup as a product, and prints 0 for a model_type that it
does not know: here it has no number for one.
"""

from crossflops.ir.architecture import TokenSequence
from crossflops.rules.rule import with_formula
from crossflops.tools.formulas import differences as of
from crossflops.tools.formulas.formula import (
    ArchitectureFormula,
    has_window_shorter_than,
    rule_amount,
)


@with_formula("6 lin + 3 A T for each token; T W - W^2 / 2 pairs of a window")
def maxtext_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by MaxText's formula, which counts half of all pairs
    of tokens, and T W - W^2 / 2 pairs in a layer with a window W, for T tokens.
    """
    model, tokens = work.architecture, work.tokens
    twice = work.sum_attention(
        lambda layer: (
            layer.macs_per_pair
            * (
                2 * tokens * (layer.window or 0) - (layer.window or 0) ** 2
                if has_window_shorter_than(layer, tokens)
                else tokens**2
            )
        )
    )
    return 6 * model.linear_macs * tokens + 3 * twice


MAXTEXT = (
    ArchitectureFormula(
        "maxtext",
        "e591f30",
        maxtext_training_flops,
        source="MaxText/maxtext_utils.py: calculate_tflops_training_per_device",
        prints="TFLOPs",
        per="sequence",
    )
    .adds("formula.causal-half", of.all_pairs_macs_without_window, factor=-3)
    .adds("formula.window-smooth", of.twice_macs_outside_smooth_window, factor=-3)
)

# verl. Those of text alone that its table of functions names.
_KNOWN = (
    "llama", "mistral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "deepseek_v3", "gemma3_text",
    "gpt_oss", "seed_oss", "apertus",
)  # fmt: skip


@with_formula("6 (lin + V h) + 3 A T for each token; 3 A W of a window")
def verl_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by verl's formula, which counts half of all pairs of
    tokens, or of T x W pairs in a layer with a window W, and the embedding lookup as a product.
    """
    model, tokens = work.architecture, work.tokens
    keys = work.sum_attention(
        lambda layer: layer.macs_per_pair * min(tokens, layer.window or tokens)
    )
    return (6 * (model.linear_macs + model.head_macs) + 3 * keys) * tokens


@rule_amount(
    "half_windows", "+A T (2 T - W) of layers with a window W shorter than T, before halving"
)
def twice_macs_outside_half_rectangle(work: TokenSequence) -> int:
    """Return the MACs of T x (2 T - W) pairs of T tokens, in layers with a window W shorter than
    the sequence; the rule counts half of them.
    """
    return 2 * of.all_pairs_macs_with_window(work) - of.window_rectangle_macs(work)


@rule_amount(
    "unknown_model_type", "Its table of functions does not have this model_type, so it prints 0"
)
def is_unsupported_by_verl(work: TokenSequence) -> int:
    """Return 1 if verl's table of functions does not have the `model_type`, so that verl prints 0,
    else 0.
    """
    return int(work.architecture.model_type not in _KNOWN)


VERL = (
    ArchitectureFormula(
        "verl",
        "0.9.1",
        verl_training_flops,
        source="verl/utils/flops_counter.py: FlopsCounter",
        prints="FLOPs",
        per="sequence",
    )
    .adds("formula.embedding-as-matmul", of.embedding_lookup_macs)
    .adds("formula.causal-half", of.all_pairs_macs_without_window, factor=-3)
    .adds("formula.window-half-rectangle", twice_macs_outside_half_rectangle, factor=-3)
    .fails(is_unsupported_by_verl)
)

CONVENTIONS = (MAXTEXT.convention, VERL.convention)
