"""Define the formulas of OLMo-core, trl and vLLM, which add up the layers of a model by its
config.

OLMo-core, nn/attention: num_flops_per_token. trl, trainer/utils.py: compute_flops_per_token. vLLM,
v1/metrics/perf.py, of the prefill of a prompt, a forward pass with the logits of one row.
"""

from crossflops.ir.architecture import TokenSequence
from crossflops.rules.rule import with_formula
from crossflops.tools.formulas import differences as of
from crossflops.tools.formulas.formula import Amount, ArchitectureFormula, rule_amount


def _plain_projection_macs(work: TokenSequence) -> int:
    """Return the MACs per token of the projections of queries, keys, values and outputs, as a
    formula computes them from the numbers of heads.
    """
    hidden = work.architecture.hidden
    return work.sum_attention(lambda layer: layer.plain_projections(hidden))


# OLMo-core.


def _olmo_matrix_elements_per_token(work: TokenSequence) -> int:
    """Return the number of parameters that OLMo-core counts as matrix elements: all matrices that
    a token passes, plus norms of heads, the last norm and the active biases.
    """
    model = work.architecture
    parameters = model.parameters
    active = parameters.biases - model.inactive_biases
    return model.linear_macs + parameters.head_norms + parameters.final_norm + active


@with_formula("6 (lin + norms of heads and the last + biases) + 12 H d pairs // T in each layer")
def olmo_core_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by OLMo-core's formula, with the exact query-key
    pairs of each layer, rounded down per token.
    """
    tokens = work.tokens
    keys = work.sum_attention(
        lambda layer: 6 * layer.macs_per_pair * layer.window_pairs(tokens) // tokens
    )
    return (6 * _olmo_matrix_elements_per_token(work) + keys) * tokens


@with_formula("6 (lin + norms of heads and the last + biases) + 12 H d min(T, W) in each layer")
def olmo_core_full_window_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by OLMo-core's older formula, where every token
    attends to all tokens, or to a whole window of tokens.
    """
    tokens = work.tokens
    keys = work.sum_attention(
        lambda layer: layer.macs_per_pair * min(tokens, layer.window or tokens)
    )
    return 6 * (_olmo_matrix_elements_per_token(work) + keys) * tokens


@rule_amount("remainder_of_tokens", "-(12 H d pairs mod T) in each layer")
def minus_flops_lost_by_rounding(work: TokenSequence) -> int:
    """Return minus the FLOPs that OLMo-core loses when it divides the attention FLOPs of each
    layer by the number of tokens and rounds down.
    """
    tokens = work.tokens
    return -work.sum_attention(
        lambda layer: 6 * layer.macs_per_pair * layer.window_pairs(tokens) % tokens
    )


@rule_amount("has_latent_attention", "Latent attention, which no model of this formula has")
def has_latent_attention(work: TokenSequence) -> int:
    """Return 1 if a layer has latent attention, which OLMo-core's formula does not support, else
    0.
    """
    return int(any(attention.is_latent for attention in work.architecture.attentions))


def _olmo_core_formula(edition: str, training_flops: Amount) -> ArchitectureFormula:
    """Return the formula of OLMo-core for training FLOPs per token in one edition, with the rules
    that all its editions share.
    """
    formula = ArchitectureFormula(
        "olmo-core",
        edition,
        training_flops,
        source="olmo_core/nn/attention: num_flops_per_token",
        prints="num_flops_per_token",
    )
    return (
        formula.adds("formula.norms-as-matmul", of.qk_and_final_norm_macs)
        .adds("formula.biases-as-matmul", of.active_bias_macs)
        .fails(has_latent_attention)
    )


OLMO_CORE = (
    _olmo_core_formula("3.0.0", olmo_core_training_flops)
    .adds("formula.causal-triangle", of.minus_macs_above_diagonal)
    .adds("formula.window-exact", of.minus_macs_outside_window)
    .adds("formula.rounded-down", minus_flops_lost_by_rounding, factor=1)
)
OLMO_CORE_SQUARE = _olmo_core_formula("fa6c501", olmo_core_full_window_training_flops).adds(
    "formula.window-rectangle", of.minus_macs_outside_window_rectangle
)


# trl. A config without one of the attributes that it reads raises AttributeError.

_SPARSE = ("qwen2_moe", "qwen3_moe")  # those with a decoder_sparse_step
_WITHOUT_KEYS = (  # no num_key_value_heads
    "gpt2", "gpt_neo", "gpt_neox", "gpt_neox_japanese", "gptj", "openai-gpt", "opt", "falcon",
    "bloom", "biogpt", "codegen", "ctrl", "cpmant", "mpt", "persimmon", "xglm",
    "modernbert-decoder",
)  # fmt: skip


@with_formula("6 lin + 6 A T for each token, three matrices in each expert and feed-forward layer")
def trl_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by trl's formula, which assumes three matrices in
    each expert and each feed-forward layer.
    """
    model, tokens = work.architecture, work.tokens
    routed = model.sum_layers(
        lambda layer: (
            (3 * layer.ffn.active * layer.ffn.width + layer.ffn.experts) * layer.ffn.hidden
            if layer.ffn.experts
            else 3 * layer.ffn.hidden * layer.ffn.width
        )
    )
    return (
        6
        * (_plain_projection_macs(work) + routed + model.head_macs + model.macs_per_pair * tokens)
        * tokens
    )


@rule_amount("shared_experts_dropped", "-3 h f T of shared experts and of their gates")
def minus_shared_expert_macs(work: TokenSequence) -> int:
    """Return minus the MACs of the shared experts and of their gate, which trl's formula does not
    count.
    """
    return -work.tokens * work.architecture.sum_layers(
        lambda layer: (
            3 * layer.ffn.hidden * layer.ffn.shared_width
            + (layer.ffn.router - layer.ffn.hidden * layer.ffn.experts)
            if layer.ffn.experts
            else 0
        )
    )


@rule_amount(
    "attribute_missing",
    "A config without num_key_value_heads, or with experts but without decoder_sparse_step",
)
def lacks_config_attribute(work: TokenSequence) -> int:
    """Return 1 if the config lacks an attribute that trl's formula reads, so that trl fails, else
    0.
    """
    model = work.architecture
    return int(
        model.model_type in _WITHOUT_KEYS
        or has_latent_attention(work)
        or (model.max_experts > 0 and model.model_type not in _SPARSE)
    )


TRL = (
    ArchitectureFormula(
        "trl",
        "1.16.0",
        trl_training_flops,
        source="trl/trainer/utils.py: compute_flops_per_token",
        prints="flops_per_token",
    )
    .adds("formula.gate-assumed", of.extra_gate_macs)
    .adds("formula.projection-missing", of.minus_other_projection_macs)
    .adds("formula.shared-expert-missing", minus_shared_expert_macs)
    .fails(lacks_config_attribute)
)


# vLLM, the prefill of a prompt.


@with_formula("2 (lin - router - V h) T + 2 A T min(T, W) + 2 V h: the prefill of T tokens")
def vllm_forward_flops(work: TokenSequence) -> int:
    """Return the forward FLOPs of a prompt of T tokens by vLLM's formula, with the output matrix
    for one token only.
    """
    model, tokens = work.architecture, work.tokens
    ffn = model.sum_layers(lambda layer: 3 * layer.ffn.hidden * layer.ffn.active_width)
    keys = work.sum_attention(
        lambda layer: layer.macs_per_pair * min(tokens, layer.window or tokens)
    )
    return 2 * (_plain_projection_macs(work) + ffn + keys) * tokens + 2 * model.head_macs


VLLM = (
    ArchitectureFormula(
        "vllm",
        "0.33",
        vllm_forward_flops,
        source="vllm/v1/metrics/perf.py: ModelMetrics",
        prints="FLOPs",
        per="sequence",
        passes="forward",
    )
    .adds("formula.gate-assumed", of.extra_gate_macs)
    .adds("formula.projection-missing", of.minus_other_projection_macs)
    .adds("formula.router-missing", of.minus_router_macs)
    .adds("formula.head-last-token", of.minus_head_macs_before_last_token)
    .adds("formula.window-rectangle", of.minus_macs_outside_window_rectangle)
)

CONVENTIONS = tuple(formula.convention for formula in (OLMO_CORE, OLMO_CORE_SQUARE, TRL, VLLM))
