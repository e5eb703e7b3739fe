"""MaxText and verl: every matrix, half of the square of attention, and windows of their own.

MaxText, utils/maxtext_utils.py: calculate_tflops_training_per_device. verl, FlopsCounter of
utils/flops_counter.py, which takes a lookup for a product, and gives 0 for a model_type that it
does not know.
"""

from crossflops.ir.architecture import TokenSequence
from crossflops.tools.formulas import differences as of
from crossflops.tools.formulas.formula import ArchitectureFormula, is_cut


def maxtext(work: TokenSequence) -> int:
    """6 lin + 3 A T for each token; T W - W^2 / 2 pairs of a window."""
    model, tokens = work.architecture, work.tokens
    twice = work.sum_attention(
        lambda layer: (
            layer.macs_per_pair
            * (
                2 * tokens * (layer.window or 0) - (layer.window or 0) ** 2
                if is_cut(layer, tokens)
                else tokens**2
            )
        )
    )
    return 6 * model.linear * tokens + 3 * twice


MAXTEXT = (
    ArchitectureFormula(
        "maxtext",
        "e591f30",
        maxtext,
        source="MaxText/maxtext_utils.py: calculate_tflops_training_per_device",
        prints="TFLOPs",
        per="sequence",
    )
    .adds("formula.causal-half", of.other_attention_square, factor=-3)
    .adds("formula.window-smooth", of.window_square, factor=-3)
)

# verl. Those of text alone that its table of functions names.
_KNOWN = (
    "llama", "mistral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "deepseek_v3", "gemma3_text",
    "gpt_oss", "seed_oss", "apertus",
)  # fmt: skip


def _is_unknown(work: TokenSequence) -> bool:
    return work.architecture.model_type not in _KNOWN


def verl(work: TokenSequence) -> int:
    """6 (lin + V h) + 3 A T for each token; 3 A W of a window; 0 of an unknown model_type."""
    model, tokens = work.architecture, work.tokens
    if _is_unknown(work):
        return 0
    keys = work.sum_attention(
        lambda layer: layer.macs_per_pair * min(tokens, layer.window or tokens)
    )
    return (6 * (model.linear + model.head) + 3 * keys) * tokens


def embedding_of_known(work: TokenSequence) -> int:
    """V h T: a lookup taken for a product, whether or not the table is the output matrix."""
    return 0 if _is_unknown(work) else of.embedding_always(work)


def half_of_known(work: TokenSequence) -> int:
    """+A T^2 of layers without a window shorter than T, to be halved."""
    return 0 if _is_unknown(work) else of.other_attention_square(work)


def half_windows_of_known(work: TokenSequence) -> int:
    """+A T (2 T - W) of layers with a window W shorter than T, to be halved."""
    if _is_unknown(work):
        return 0
    return 2 * of.cut_attention_square(work) - of.rectangle(work)


def everything_unknown(work: TokenSequence) -> int:
    """-(lin + A T) T of a model_type that is not in its table."""
    return -work.macs if _is_unknown(work) else 0


VERL = (
    ArchitectureFormula(
        "verl",
        "0.9.1",
        verl,
        source="verl/utils/flops_counter.py: FlopsCounter",
        prints="FLOPs",
        per="sequence",
    )
    .adds("formula.embedding-as-matmul", embedding_of_known)
    .adds("formula.causal-half", half_of_known, factor=-3)
    .adds("formula.window-half-rectangle", half_windows_of_known, factor=-3)
    .adds("formula.model-unsupported", everything_unknown)
)

CONVENTIONS = (MAXTEXT.convention, VERL.convention)
