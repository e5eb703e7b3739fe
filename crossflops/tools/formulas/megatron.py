"""Megatron-LM, Megatron-Bridge and NeMo: sums over layers, half of the square of attention.

Megatron-LM, megatron/training/training.py: num_floating_point_operations. Megatron-Bridge has a
copy, utils/flop_utils.py, which from 0.5.0 on counts any gate, and windows pair by pair (pull
requests 3029 and 3947); NeMo has a function for each family, utils/flops_formulas.py.
"""

from crossflops.ir.architecture import AttentionSizes, TokenSequence
from crossflops.rules.rule import with_formula
from crossflops.tools.formulas import differences as of
from crossflops.tools.formulas.formula import ArchitectureFormula, cut_attentions

_DIVISIBLE = 128  # make_vocab_size_divisible_by, without tensor parallelism


def _head_with_padding(work: TokenSequence) -> int:
    """Return the MACs per token of an output matrix padded to a multiple of 128 rows."""
    model = work.architecture
    return -(-model.vocabulary // _DIVISIBLE) * _DIVISIBLE * model.hidden


def vocabulary_padding(work: TokenSequence) -> int:
    """h (V' - V) T, V' the next multiple of 128."""
    return (_head_with_padding(work) - work.architecture.head) * work.tokens


def _ffn_macs_per_token(work: TokenSequence, gates: bool) -> int:
    """Return the feed-forward MACs per token, with the third matrix of a gate or without it."""
    return work.architecture.sum_layers(
        lambda layer: (
            (3 if gates and layer.ffn.gated else 2) * layer.ffn.hidden * layer.ffn.active_width
        )
    )


def _dense_macs(work: TokenSequence, gates: bool) -> int:
    """Return the MACs per token of all matrices without the router, and of latent norms."""
    model = work.architecture
    ranks = model.parameters.rank_norms
    return model.projections + ranks + _ffn_macs_per_token(work, gates) + _head_with_padding(work)


def megatron_lm(work: TokenSequence) -> int:
    """6 (lin - router) + 3 A T for each token; a gate is a third matrix if it is SiLU."""
    tokens = work.tokens
    dense = _dense_macs(work, gates=of.is_swiglu(work))
    return 6 * dense * tokens + 3 * work.architecture.macs_per_pair * tokens**2


def _bridge_windows(work: TokenSequence) -> tuple[AttentionSizes, ...]:
    """Return the attention sizes of the layers that Bridge counts as windowed."""
    model = work.architecture
    skips = model.model_type in ("gpt_oss", "gemma2")  # those with a window_attn_skip_freq
    return (
        tuple(cut_attentions(work))
        if skips or not tuple(cut_attentions(work))
        else tuple(layer.attention for layer in model.layers)
    )


def _model_window(work: TokenSequence) -> int:
    """Return the smallest attention window of the layers in tokens, or 0 without such layers."""
    return min((layer.window or work.tokens for layer in cut_attentions(work)), default=0)


def megatron_bridge(work: TokenSequence) -> int:
    """6 (lin - router) + 3 A T for each token; exact pairs of windows."""
    tokens = work.tokens
    windowed = _bridge_windows(work)
    width = _model_window(work)
    pairs = tokens * width - width * (width - 1) // 2
    within = work.sum_attention(lambda layer: layer.macs_per_pair, windowed)
    others = work.architecture.macs_per_pair - within
    dense = _dense_macs(work, gates=True) * tokens
    return 6 * (dense + within * pairs) + 3 * others * tokens**2


def half_of_other_layers(work: TokenSequence) -> int:
    """+A T^2 of layers that are taken for layers without a window, to be halved."""
    within = work.sum_attention(lambda layer: layer.macs_per_pair, _bridge_windows(work))
    return (work.architecture.macs_per_pair - within) * work.tokens**2


def window_of_all_layers(work: TokenSequence) -> int:
    """-A (T^2 - T W + W (W - 1) / 2) of layers without a window, where it is taken for theirs."""
    tokens, width = work.tokens, _model_window(work)
    within = work.sum_attention(lambda layer: layer.macs_per_pair, _bridge_windows(work))
    cut = work.sum_attention(lambda layer: layer.macs_per_pair, cut_attentions(work))
    return (cut - within) * (tokens**2 - tokens * width + width * (width - 1) // 2)


def _add_megatron_rules(formula: ArchitectureFormula) -> ArchitectureFormula:
    """Add the differences that the Megatron formulas share: norms, router, padded vocabulary."""
    return (
        formula.adds("formula.norms-as-matmul", of.rank_norm_parameters)
        .adds("formula.router-missing", of.router_dropped)
        .adds("formula.vocab-padded", vocabulary_padding)
    )


def _half_formula(tool: str, edition: str, source: str) -> ArchitectureFormula:
    """Return the Megatron convention that halves attention for causal masks."""
    formula = ArchitectureFormula(
        tool, edition, megatron_lm, source=source, prints="FLOPs", per="sequence"
    )
    return (
        _add_megatron_rules(formula)
        .adds("formula.glu-as-two-matrices", of.other_gates_dropped)
        .adds("formula.causal-half", of.attention_square, factor=-3)
    )


_LM = "megatron/training/training.py: num_floating_point_operations"
_BRIDGE = "megatron/bridge/training/utils/flop_utils.py: num_floating_point_operations"
MEGATRON_LM = _half_formula("megatron-lm", "d98e8a6", _LM)
BRIDGE_OLD = _half_formula("megatron-bridge", "0.4.2", _BRIDGE)
BRIDGE = (
    _add_megatron_rules(
        ArchitectureFormula(
            "megatron-bridge",
            "0.5.0",
            megatron_bridge,
            source=_BRIDGE,
            prints="FLOPs",
            per="sequence",
        )
    )
    .adds("formula.causal-half", half_of_other_layers, factor=-3)
    .adds("formula.window-exact", of.outside_window)
    .adds("formula.window-all-layers", window_of_all_layers)
)


# NeMo 2.5, one function for each family.

_LLAMA = ("llama", "mixtral", "deepseek_v3")
_QWEN = ("qwen3", "qwen3_moe")


def _is_qwen(work: TokenSequence) -> bool:
    """Return whether the architecture is a Qwen model."""
    return work.architecture.model_type in _QWEN


def nemo(work: TokenSequence) -> int:
    """6 (lin - router) + 3 A T for each token; GPT-OSS by exact pairs, Qwen3 with h for H d."""
    model, tokens = work.architecture, work.tokens
    dense = model.ffn + model.head
    if model.model_type in _QWEN:
        width = model.hidden
        projections = work.sum_attention(
            lambda layer: 2 * width * width * (layer.heads + layer.kv_heads) // layer.heads
        )
        core = len(model.layers) * 2 * width
        return 6 * (dense + projections) * tokens + 3 * core * tokens**2
    dense += model.projections
    if model.model_type == "gpt_oss":
        pairs = work.sum_attention(lambda layer: layer.macs_per_pair * layer.window_pairs(tokens))
        return 6 * (dense * tokens + pairs)
    return 6 * dense * tokens + 3 * model.macs_per_pair * tokens**2


def half_but_of_oss(work: TokenSequence) -> int:
    """+A T^2, to be halved, but of GPT-OSS."""
    return 0 if work.architecture.model_type == "gpt_oss" else of.attention_square(work)


def triangle_of_oss(work: TokenSequence) -> int:
    """-A T (T - 1) / 2 of layers of GPT-OSS without a window shorter than T."""
    return of.above_diagonal(work) if work.architecture.model_type == "gpt_oss" else 0


def window_of_oss(work: TokenSequence) -> int:
    """-A (T^2 - T W + W (W - 1) / 2) of layers of GPT-OSS with a window W shorter than T."""
    return of.outside_window(work) if work.architecture.model_type == "gpt_oss" else 0


def half_heads_of_qwen(work: TokenSequence) -> int:
    """(2 L h - A) T^2 of Qwen3, to be halved: h for the heads of a layer, H d."""
    return of.heads_of_width(work) if _is_qwen(work) else 0


def projections_of_qwen(work: TokenSequence) -> int:
    """(2 h^2 (1 + KV / H) - projections) T in each layer of Qwen3."""
    if not _is_qwen(work):
        return 0
    width = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: (
            2 * width * width * (layer.heads + layer.kv_heads) // layer.heads - layer.projections
        )
    )


@with_formula("A family for which no function of NeMo is read here")
def other_family(work: TokenSequence) -> int:
    """Return 1 for a family that the formula rejects."""
    return int(work.architecture.model_type not in (*_LLAMA, *_QWEN, "gpt_oss"))


NEMO = (
    ArchitectureFormula(
        "nemo",
        "2.5.0",
        nemo,
        source="nemo/utils/flops_formulas.py",
        prints="FLOPs",
        per="sequence",
    )
    .adds("formula.router-missing", of.router_dropped)
    .adds("formula.causal-half", half_but_of_oss, factor=-3)
    .adds("formula.head-dim-assumed", half_heads_of_qwen, factor=3)
    .adds("formula.head-dim-assumed", projections_of_qwen)
    .adds("formula.causal-triangle", triangle_of_oss)
    .adds("formula.window-exact", window_of_oss)
    .fails(other_family)
)

CONVENTIONS = tuple(formula.convention for formula in (MEGATRON_LM, BRIDGE, BRIDGE_OLD, NEMO))
