"""Define the formulas of Megatron-LM, Megatron-Bridge and NeMo: sums over layers, and half of all
pairs of tokens.

Megatron-LM, megatron/training/training.py: num_floating_point_operations. Megatron-Bridge has a
copy, utils/flop_utils.py, which from 0.5.0 on counts any gate, and windows pair by pair (pull
requests 3029 and 3947); NeMo has a function for each family, utils/flops_formulas.py.
"""

from crossflops.ir.architecture import AttentionSizes, StateSpace, TokenSequence
from crossflops.rules.rule import with_formula
from crossflops.tools.formulas import differences as of
from crossflops.tools.formulas.formula import (
    ArchitectureFormula,
    Part,
    attentions_with_window,
    rule_amount,
)

_COVERED: tuple[Part, ...] = ("state space",)
_DIVISIBLE = 128  # make_vocab_size_divisible_by, without tensor parallelism


def _head_macs_per_token_with_padding(work: TokenSequence) -> int:
    """Return the MACs per token of the output matrix, with its rows padded to a multiple of
    128.
    """
    model = work.architecture
    return -(-model.vocabulary // _DIVISIBLE) * _DIVISIBLE * model.hidden


@rule_amount("vocabulary_padding", "h (V' - V) T, V' the next multiple of 128")
def extra_macs_of_vocabulary_padding(work: TokenSequence) -> int:
    """Return the MACs that Megatron's formulas add because they pad the rows of the output matrix
    to a multiple of 128.
    """
    return (_head_macs_per_token_with_padding(work) - work.architecture.head_macs) * work.tokens


def _ffn_macs_per_token(work: TokenSequence, gates: bool) -> int:
    """Return the feed-forward MACs per token of all layers; the gate matrix of a gated layer is
    included only if `gates` is true.
    """
    return work.architecture.sum_layers(
        lambda layer: (
            (3 if gates and layer.ffn.gated else 2) * layer.ffn.hidden * layer.ffn.active_width
        )
    )


def _matrix_macs_per_token(work: TokenSequence, gates: bool) -> int:
    """Return the MACs per token that Megatron's formulas count for matrices: all without the
    router, plus the parameters of latent norms; gate matrices only if `gates` is true.
    """
    model = work.architecture
    ranks = model.parameters.rank_norms
    return (
        model.projection_macs
        + ranks
        + _ffn_macs_per_token(work, gates)
        + _head_macs_per_token_with_padding(work)
    )


# Hybrid layers: a state space of Mamba-2, whose inner width is twice that of the model.


def _mamba_layers(work: TokenSequence) -> tuple[StateSpace, ...]:
    """Return the state spaces of a model, without delta rules."""
    spaces = work.architecture.state_spaces
    return tuple(space for space in spaces if isinstance(space, StateSpace))


def _mamba_projection_macs_per_token(work: TokenSequence) -> int:
    """Return the MACs per token of the projections of all state spaces by Megatron's formulas,
    which take twice the hidden size as the inner width: h (3 D + 2 G N + H) each, D = 2 h.
    """
    hidden = work.architecture.hidden
    return sum(
        hidden * (6 * hidden + 2 * space.groups * space.state + space.heads)
        for space in _mamba_layers(work)
    )


def _mamba_scan_flops_per_token(work: TokenSequence) -> int:
    """Return the training FLOPs per token of all scans by Megatron's formulas: 3 x 7 D N each,
    D = 2 h and N the size of a state.
    """
    hidden = work.architecture.hidden
    return sum(3 * 7 * 2 * hidden * space.state for space in _mamba_layers(work))


@rule_amount(
    "mamba_projections", "(h (3 D + 2 G N + H) - projections) T of each state space, D = 2 h"
)
def extra_mamba_projection_macs(work: TokenSequence) -> int:
    """Return how many more MACs Megatron's formulas count for the projections of state spaces,
    because they take twice the hidden size as the inner width.
    """
    exact = work.architecture.state_space_projection_macs
    return (_mamba_projection_macs_per_token(work) - exact) * work.tokens


@rule_amount("mamba_scan", "21 D N T - 6 scan of each state space, D = 2 h")
def extra_mamba_scan_flops(work: TokenSequence) -> int:
    """Return how many more training FLOPs Megatron's formulas count for the scans of state spaces
    than the scan in chunks has.
    """
    return _mamba_scan_flops_per_token(work) * work.tokens - 6 * work.scan_macs


@rule_amount(
    "other_state_space",
    "A delta rule, a state space of Mamba, or one next to attention in a layer: its hybrid layers "
    "are attention or Mamba-2",
)
def has_other_state_space(work: TokenSequence) -> int:
    """Return 1 if a layer has a state space other than those of Megatron's hybrid models, else
    0.
    """
    own = [
        layer.state_space
        for layer in work.architecture.layers
        if isinstance(layer.state_space, StateSpace)
        and layer.state_space.chunk
        and not layer.attention
    ]
    return int(len(own) < len(work.architecture.state_spaces))


def _hybrid_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence in the state spaces of a hybrid model by Megatron's
    formulas; 0 for a model without them.
    """
    per_token = 6 * _mamba_projection_macs_per_token(work) + _mamba_scan_flops_per_token(work)
    return per_token * work.tokens


@with_formula(
    "6 (lin - router) + 3 A T for each token; a gate is a third matrix if it is SiLU; "
    "6 h (3 D + 2 G N + H) + 21 D N of a state space, D = 2 h"
)
def megatron_lm_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by Megatron-LM's formula, which counts half of all
    pairs of tokens, and a gate matrix only if the activation is SiLU.
    """
    tokens = work.tokens
    dense = _matrix_macs_per_token(work, gates=of.is_swiglu(work))
    attention = 3 * work.architecture.macs_per_pair * tokens**2
    return 6 * dense * tokens + attention + _hybrid_training_flops(work)


def _attentions_counted_with_window(work: TokenSequence) -> tuple[AttentionSizes, ...]:
    """Return the attention sizes of the layers that Megatron-Bridge counts with a window: the
    layers that have one, or all layers if its config cannot say which.
    """
    model = work.architecture
    skips = model.model_type in ("gpt_oss", "gemma2")  # those with a window_attn_skip_freq
    return (
        tuple(attentions_with_window(work))
        if skips or not tuple(attentions_with_window(work))
        else model.attentions
    )


def _smallest_window_tokens(work: TokenSequence) -> int:
    """Return the smallest window of all layers in tokens, or 0 if no layer has a window shorter
    than the sequence.
    """
    return min((layer.window or work.tokens for layer in attentions_with_window(work)), default=0)


@with_formula("6 (lin - router) + 3 A T for each token; exact pairs of windows")
def megatron_bridge_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by Megatron-Bridge's formula, which counts the exact
    pairs of a window, and half of all pairs of tokens in other layers.
    """
    tokens = work.tokens
    windowed = _attentions_counted_with_window(work)
    width = _smallest_window_tokens(work)
    pairs = tokens * width - width * (width - 1) // 2
    within = work.sum_attention(lambda layer: layer.macs_per_pair, windowed)
    others = work.architecture.macs_per_pair - within
    dense = _matrix_macs_per_token(work, gates=True) * tokens
    attention = 6 * within * pairs + 3 * others * tokens**2
    return 6 * dense + attention + _hybrid_training_flops(work)


@rule_amount(
    "half_of_other_layers",
    "+A T^2 of layers that are counted as layers without a window, before halving",
)
def all_pairs_macs_counted_without_window(work: TokenSequence) -> int:
    """Return the MACs of attention over all pairs of tokens, in layers that Megatron-Bridge counts
    without a window; the rule counts half of them.
    """
    within = work.sum_attention(
        lambda layer: layer.macs_per_pair, _attentions_counted_with_window(work)
    )
    return (work.architecture.macs_per_pair - within) * work.tokens**2


@rule_amount(
    "window_of_all_layers",
    "-A (T^2 - T W + W (W - 1) / 2) of layers without a window that are counted with W",
)
def minus_macs_of_assumed_windows(work: TokenSequence) -> int:
    """Return minus the MACs that Megatron-Bridge's formula loses because it applies the window
    also to layers without one.
    """
    tokens, width = work.tokens, _smallest_window_tokens(work)
    within = work.sum_attention(
        lambda layer: layer.macs_per_pair, _attentions_counted_with_window(work)
    )
    cut = work.sum_attention(lambda layer: layer.macs_per_pair, attentions_with_window(work))
    return (cut - within) * (tokens**2 - tokens * width + width * (width - 1) // 2)


def _add_megatron_rules(formula: ArchitectureFormula) -> ArchitectureFormula:
    """Add the rules that all Megatron formulas share, for latent norms, the router, the padded
    vocabulary and hybrid layers; return the formula.
    """
    return (
        formula.adds("formula.norms-as-matmul", of.latent_norm_parameter_macs)
        .adds("formula.router-missing", of.minus_router_macs)
        .adds("formula.vocab-padded", extra_macs_of_vocabulary_padding)
        .adds("formula.state-space-width", extra_mamba_projection_macs)
        .adds("formula.convolution-missing", of.minus_convolution_macs)
        .adds("formula.scan-estimated", extra_mamba_scan_flops, factor=1)
        .fails(has_other_state_space)
    )


def _megatron_lm_formula(tool: str, edition: str, source: str) -> ArchitectureFormula:
    """Return Megatron-LM's formula, which counts half of all pairs of tokens, under the given tool
    name, edition and source.
    """
    formula = ArchitectureFormula(
        tool,
        edition,
        megatron_lm_training_flops,
        source=source,
        prints="FLOPs",
        per="sequence",
        covers=_COVERED,
    )
    return (
        _add_megatron_rules(formula)
        .adds("formula.glu-as-two-matrices", of.minus_gate_macs_unless_swiglu)
        .adds("formula.causal-half", of.all_pairs_attention_macs, factor=-3)
    )


_LM = "megatron/training/training.py: num_floating_point_operations"
_BRIDGE = "megatron/bridge/training/utils/flop_utils.py: num_floating_point_operations"
MEGATRON_LM = _megatron_lm_formula("megatron-lm", "d98e8a6", _LM)
BRIDGE_OLD = _megatron_lm_formula("megatron-bridge", "0.4.2", _BRIDGE)
BRIDGE = (
    _add_megatron_rules(
        ArchitectureFormula(
            "megatron-bridge",
            "0.5.0",
            megatron_bridge_training_flops,
            source=_BRIDGE,
            prints="FLOPs",
            per="sequence",
            covers=_COVERED,
        )
    )
    .adds("formula.causal-half", all_pairs_macs_counted_without_window, factor=-3)
    .adds("formula.window-exact", of.minus_macs_outside_window)
    .adds("formula.window-all-layers", minus_macs_of_assumed_windows)
)


# NeMo 2.5, one function for each family.

_LLAMA = ("llama", "mixtral", "deepseek_v3")
_QWEN = ("qwen3", "qwen3_moe")
_HYBRID = "nemotron_h"


def _has_heads_of_hidden_width(work: TokenSequence) -> bool:
    """Return whether NeMo's function for the model takes the hidden size for the total width of
    the heads: those of Qwen3 and Nemotron-H do.
    """
    return work.architecture.model_type in (*_QWEN, _HYBRID)


def _nemo_ffn_macs_per_token(work: TokenSequence) -> int:
    """Return the feed-forward MACs per token by NeMo's formula: three matrices in each layer of
    Nemotron-H, which has two.
    """
    model = work.architecture
    if model.model_type != _HYBRID:
        return model.ffn_macs
    return model.sum_layers(lambda layer: 3 * layer.ffn.hidden * layer.ffn.active_width)


@with_formula(
    "6 (lin - router) + 3 A T for each token; GPT-OSS with exact pairs, Qwen3 and Nemotron-H with "
    "h instead of H d; Nemotron-H with three matrices in a feed-forward layer, and 6 D N of a scan"
)
def nemo_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by NeMo's formula for the model family: exact pairs
    of tokens for GPT-OSS, half of all pairs for others; heads of total width h (hidden size) for
    Qwen3 and Nemotron-H.
    """
    model, tokens = work.architecture, work.tokens
    dense = _nemo_ffn_macs_per_token(work) + model.head_macs
    if _has_heads_of_hidden_width(work):
        width = model.hidden
        projections = work.sum_attention(
            lambda layer: 2 * width * width * (layer.heads + layer.kv_heads) // layer.heads
        )
        core = len(model.attentions) * 2 * width
        dense += model.state_space_projection_macs + _state_elements(work)
        return 6 * (dense + projections) * tokens + 3 * core * tokens**2
    dense += model.projection_macs
    if model.model_type == "gpt_oss":
        pairs = work.sum_attention(lambda layer: layer.macs_per_pair * layer.window_pairs(tokens))
        return 6 * (dense * tokens + pairs)
    return 6 * dense * tokens + 3 * model.macs_per_pair * tokens**2


def _state_elements(work: TokenSequence) -> int:
    """Return the elements of the states of all state spaces of Mamba: D N each."""
    return sum(space.inner_width * space.state for space in _mamba_layers(work))


@rule_amount("scan_of_states", "(D N T - scan) of each state space, D the width of all its heads")
def extra_macs_of_state_elements(work: TokenSequence) -> int:
    """Return how many more MACs NeMo's formula counts for scans, one for each element of a state
    and token, than the scan in chunks has.
    """
    return _state_elements(work) * work.tokens - work.scan_macs


@rule_amount("gates_of_nemotron_h", "h f T of each layer of Nemotron-H, which has no gate")
def extra_gate_macs_of_nemotron_h(work: TokenSequence) -> int:
    """Return the MACs of a gate matrix in each feed-forward layer of Nemotron-H; 0 for other
    models.
    """
    return (_nemo_ffn_macs_per_token(work) - work.architecture.ffn_macs) * work.tokens


@rule_amount("half_but_of_oss", "+A T^2, before halving, except for GPT-OSS")
def all_pairs_macs_unless_gpt_oss(work: TokenSequence) -> int:
    """Return the MACs of attention over all pairs of tokens, or 0 for GPT-OSS; the rule
    counts half of them.
    """
    return 0 if work.architecture.model_type == "gpt_oss" else of.all_pairs_attention_macs(work)


@rule_amount(
    "triangle_of_oss", "-A T (T - 1) / 2 of layers of GPT-OSS without a window shorter than T"
)
def minus_gpt_oss_macs_above_diagonal(work: TokenSequence) -> int:
    """Return minus the MACs of the pairs above the diagonal in layers of GPT-OSS without a window
    shorter than the sequence; 0 for other models.
    """
    return of.minus_macs_above_diagonal(work) if work.architecture.model_type == "gpt_oss" else 0


@rule_amount(
    "window_of_oss",
    "-A (T^2 - T W + W (W - 1) / 2) of layers of GPT-OSS with a window W shorter than T",
)
def minus_gpt_oss_macs_outside_window(work: TokenSequence) -> int:
    """Return minus the MACs of the pairs outside the window in layers of GPT-OSS with a window
    shorter than the sequence; 0 for other models.
    """
    return of.minus_macs_outside_window(work) if work.architecture.model_type == "gpt_oss" else 0


@rule_amount(
    "half_heads_of_qwen",
    "(2 h - A) T^2 in each layer of Qwen3 and Nemotron-H, before halving: h is used instead of "
    "H d, the width of all heads",
)
def extra_qwen_attention_macs(work: TokenSequence) -> int:
    """Return how many MACs of attention NeMo's formula counts too many (negative: too few) for
    Qwen3 and Nemotron-H, because it uses the hidden size as the total width of the heads; 0 for
    other models. Without a causal mask: the rule halves the number.
    """
    if not _has_heads_of_hidden_width(work):
        return 0
    width = 2 * work.architecture.hidden
    return work.tokens**2 * work.sum_attention(lambda layer: width - layer.macs_per_pair)


@rule_amount(
    "projections_of_qwen",
    "(2 h^2 (1 + KV / H) - projections) T in each layer of Qwen3 and Nemotron-H",
)
def extra_qwen_projection_macs(work: TokenSequence) -> int:
    """Return how many more projection MACs NeMo's formula counts for Qwen3 and Nemotron-H because
    it uses the hidden size as the total width of the heads; 0 for other models.
    """
    if not _has_heads_of_hidden_width(work):
        return 0
    width = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: (
            2 * width * width * (layer.heads + layer.kv_heads) // layer.heads - layer.projections
        )
    )


@rule_amount("other_family", "A family of models for which NeMo's functions are not modelled here")
def is_unsupported_by_nemo(work: TokenSequence) -> int:
    """Return 1 if the convention has no NeMo function for the `model_type`, else 0."""
    return int(work.architecture.model_type not in (*_LLAMA, *_QWEN, "gpt_oss", _HYBRID))


@rule_amount(
    "other_hybrid",
    "Experts of Nemotron-H, or a state space of another model: its hybrid layers are attention, "
    "Mamba-2 or dense",
)
def has_other_hybrid_layer(work: TokenSequence) -> int:
    """Return 1 if a model has a state space that is not one of Nemotron-H, or Nemotron-H experts,
    for which NeMo's functions have no term; else 0.
    """
    model = work.architecture
    if model.model_type != _HYBRID:
        return int(bool(model.state_spaces))
    return int(bool(model.max_experts) or has_other_state_space(work))


NEMO = (
    ArchitectureFormula(
        "nemo",
        "2.5.0",
        nemo_training_flops,
        source="nemo/utils/flops_formulas.py",
        prints="FLOPs",
        per="sequence",
        covers=_COVERED,
    )
    .adds("formula.router-missing", of.minus_router_macs)
    .adds("formula.causal-half", all_pairs_macs_unless_gpt_oss, factor=-3)
    .adds("formula.head-dim-assumed", extra_qwen_attention_macs, factor=3)
    .adds("formula.head-dim-assumed", extra_qwen_projection_macs)
    .adds("formula.causal-triangle", minus_gpt_oss_macs_above_diagonal)
    .adds("formula.window-exact", minus_gpt_oss_macs_outside_window)
    .adds("formula.gate-assumed", extra_gate_macs_of_nemotron_h)
    .adds("formula.convolution-missing", of.minus_convolution_macs)
    .adds("formula.scan-estimated", extra_macs_of_state_elements)
    .fails(is_unsupported_by_nemo)
    .fails(has_other_hybrid_layer)
)

CONVENTIONS = tuple(formula.convention for formula in (MEGATRON_LM, BRIDGE, BRIDGE_OLD, NEMO))
