"""Closed forms over a few sizes: Megatron-DeepSpeed, gpt-neox, EleutherAI's cookbook, Chinchilla.

Megatron-DeepSpeed, megatron/utils.py: throughput_calculator. gpt-neox, megatron/logging.py:
get_actual_flops. cookbook, calc/calc_transformer_flops.py. Hoffmann et al., appendix F.
"""

from crossflops.ir.architecture import DecoderLayer, TokenSequence
from crossflops.rules.rule import with_formula
from crossflops.tools.formulas import differences as of
from crossflops.tools.formulas.formula import ArchitectureFormula

# One width for all feed-forward layers.


def _single_ffn(work: TokenSequence) -> DecoderLayer:
    """Return the layer whose feed-forward sizes the formula uses for all layers."""
    layers = work.architecture.layers
    return next((layer for layer in reversed(layers) if layer.ffn.experts), layers[-1])


def _single_ffn_macs(work: TokenSequence) -> int:
    """Return the feed-forward MACs per token if all layers are equal: glu f k h per layer."""
    ffn = _single_ffn(work).ffn
    routed = ffn.width * (ffn.active if ffn.experts else 1)
    return len(work.architecture.layers) * ffn.matrices * ffn.hidden * routed


# Megatron-DeepSpeed, without recomputation.


def megatron_deepspeed(work: TokenSequence) -> int:
    """6 (L (2 + 2 // (H // KV)) h^2 + 2 L (h // H) H T + L glu h f k + V h) for each token."""
    model, tokens = work.architecture, work.tokens
    hidden = model.hidden
    projections = work.sum_attention(
        lambda layer: (2 + 2 // (layer.heads // layer.kv_heads)) * hidden**2
    )
    keys = work.sum_attention(lambda layer: 2 * (hidden // layer.heads) * layer.heads) * tokens
    return 6 * (projections + keys + _single_ffn_macs(work) + model.head) * tokens


def divided_keys(work: TokenSequence) -> int:
    """(2 // g - 2) h^2 T in each layer without latent projections, g = H // KV."""
    hidden = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: (
            0 if layer.is_latent else (2 // (layer.heads // layer.kv_heads) - 2) * hidden**2
        )
    )


def keys_of_queries(work: TokenSequence) -> int:
    """2 h d (H - KV) T in each layer, before the division."""
    return of.ungrouped_keys(work)


def single_ffn(work: TokenSequence) -> int:
    """(glu h f k L - feed-forward MACs) T: one width for all layers, and no shared experts."""
    return (_single_ffn_macs(work) - work.architecture.ffn) * work.tokens


MEGATRON_DEEPSPEED = (
    ArchitectureFormula(
        "megatron-deepspeed",
        "4efb479",
        megatron_deepspeed,
        source="megatron/utils.py: throughput_calculator",
        prints="TFLOPs",
        per="sequence",
    )
    .adds("formula.gqa-integer-division", keys_of_queries, divided_keys)
    .adds("formula.head-dim-assumed", of.square_projections, of.heads_by_division)
    .adds("formula.low-rank", of.latent_as_square)
    .adds("formula.ffn-width", single_ffn)
    .adds("formula.router-missing", of.router_dropped)
)


# gpt-neox, without checkpoints: 24 c L h^2 (1 + T / 6 h + V / 16 L h), c = 3.


def gpt_neox(work: TokenSequence) -> int:
    """72 L h^2 + 12 L h T + 4.5 V h for each token."""
    model, tokens = work.architecture, work.tokens
    layers, hidden = len(model.layers), model.hidden
    return (72 * layers * hidden**2 + 12 * layers * hidden * tokens) * tokens + (
        9 * model.head * tokens // 2
    )


def wide_ffn(work: TokenSequence) -> int:
    """(8 h^2 L - feed-forward MACs) T: two matrices, four times as wide as the model."""
    model = work.architecture
    return (8 * len(model.layers) * model.hidden**2 - model.ffn) * work.tokens


def head_of_three_quarters(work: TokenSequence) -> int:
    """-1.5 V h T FLOPs: 4.5 for the 6 of a MAC, rounded down."""
    head = work.architecture.head * work.tokens
    return 9 * head // 2 - 6 * head


GPT_NEOX = (
    ArchitectureFormula(
        "gpt-neox",
        "ea7aefd",
        gpt_neox,
        source="megatron/logging.py: get_actual_flops",
        prints="FLOPs",
        per="sequence",
    )
    .adds("formula.gqa-ignored", of.ungrouped_keys)
    .adds("formula.head-dim-assumed", of.square_projections, of.heads_of_width)
    .adds("formula.low-rank", of.latent_as_square)
    .adds("formula.ffn-width", wide_ffn)
    .adds("formula.router-missing", of.router_dropped)
    .adds("formula.head-scaled", head_of_three_quarters, factor=1)
)


# cookbook, with its defaults: c = 4, since checkpoints are on, and feed-forward layers of 4 h.


def _square_projections(work: TokenSequence) -> int:
    """Return the projection MACs per token with square matrices: 2 h^2 (1 + KV / H) per layer."""
    hidden = work.architecture.hidden
    return work.sum_attention(
        lambda layer: 2 * hidden * hidden * (layer.heads + layer.kv_heads) // layer.heads
    )


def _cookbook_macs(work: TokenSequence) -> int:
    """Return the forward MACs of the layers as the cookbook formula counts them."""
    model, tokens = work.architecture, work.tokens
    keys = 2 * len(model.layers) * model.hidden * tokens
    wide = model.sum_layers(lambda layer: 4 * layer.ffn.matrices * model.hidden**2)
    return _square_projections(work) + keys + wide


def cookbook(work: TokenSequence) -> int:
    """4 (2 (2 + 2 r) L h^2 + 4 L T h + 8 m L h^2) + 4 h + 2 V h, r = KV / H, m matrices."""
    model = work.architecture
    return (8 * _cookbook_macs(work) + 4 * model.hidden + 2 * model.head) * work.tokens


def cookbook_projections(work: TokenSequence) -> int:
    """(2 h^2 (1 + KV / H) - projections) T in each layer without latent projections."""
    latent = work.sum_attention(lambda layer: 4 * work.architecture.hidden**2 * layer.is_latent)
    exact = work.sum_attention(lambda layer: 0 if layer.is_latent else layer.projections)
    return (_square_projections(work) - latent - exact) * work.tokens


def ffn_of_four_widths(work: TokenSequence) -> int:
    """(4 m h^2 L - feed-forward MACs) T, m matrices of each layer."""
    model = work.architecture
    wide = model.sum_layers(lambda layer: 4 * layer.ffn.matrices * model.hidden**2)
    return (wide - model.ffn) * work.tokens


def layers_once_more(work: TokenSequence) -> int:
    """Count the forward MACs of the layers, as they are here, once more."""
    return _cookbook_macs(work) * work.tokens


def four_per_lookup(work: TokenSequence) -> int:
    """h T, four FLOPs for each."""
    return work.architecture.hidden * work.tokens


@with_formula("A mixture of experts, for which the cookbook has another script")
def has_experts(work: TokenSequence) -> int:
    """Return 1 for a mixture of experts, which the formula rejects."""
    return work.architecture.experts


COOKBOOK = (
    ArchitectureFormula(
        "cookbook",
        "827ee3b",
        cookbook,
        source="calc/calc_transformer_flops.py: calc_params",
        prints="FLOPs",
        per="sequence",
    )
    .adds("formula.head-dim-assumed", cookbook_projections, of.heads_of_width)
    .adds("formula.low-rank", of.latent_as_square)
    .adds("formula.ffn-width", ffn_of_four_widths)
    .adds("formula.recompute", layers_once_more, factor=2)
    .adds("formula.head-forward-only", of.head_dropped, factor=4)
    .adds("formula.embedding-lookup", four_per_lookup, factor=4)
    .fails(has_experts)
)


# Chinchilla, appendix F: forward, times three.


def chinchilla(work: TokenSequence) -> int:
    """3 (4 V h + L (8 h H d + 4 T H d + 3 H T + 4 h f)) for each token."""
    model, tokens = work.architecture, work.tokens
    width = work.sum_attention(lambda layer: layer.heads * layer.value_dim)
    heads = work.sum_attention(lambda layer: layer.heads)
    dense = 4 * model.head + 8 * model.hidden * width + 4 * _two_matrices(work) // 2
    return 3 * (dense + (4 * width + 3 * heads) * tokens) * tokens


def _two_matrices(work: TokenSequence) -> int:
    """Return the feed-forward MACs per token of two matrices: 2 h f per layer, f the width."""
    return work.architecture.sum_layers(
        lambda layer: 2 * layer.ffn.hidden * layer.ffn.active_width
    )


def latent_as_heads(work: TokenSequence) -> int:
    """(4 h H d - projections) T in each layer with latent projections, d the depth of values."""
    hidden = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: (
            4 * hidden * layer.heads * layer.value_dim - layer.projections
            if layer.is_latent
            else 0
        )
    )


def softmax_weights(work: TokenSequence) -> int:
    """H T^2 in each layer, nine FLOPs for each: 3 in each of three passes."""
    return work.sum_attention(lambda layer: layer.heads) * work.tokens**2


CHINCHILLA = (
    ArchitectureFormula(
        "chinchilla",
        "2022",
        chinchilla,
        source="Hoffmann et al., Training Compute-Optimal LLMs, appendix F",
        prints="FLOPs",
    )
    .adds("formula.embedding-as-matmul", of.embedding_always)
    .adds("formula.gqa-ignored", of.ungrouped_keys)
    .adds("formula.low-rank", latent_as_heads)
    .adds("formula.head-dim-assumed", of.heads_of_value_depth)
    .adds("formula.glu-as-two-matrices", of.gates_dropped)
    .adds("formula.router-missing", of.router_dropped)
    .adds("formula.softmax", softmax_weights, factor=9)
)

CONVENTIONS = tuple(
    formula.convention for formula in (MEGATRON_DEEPSPEED, GPT_NEOX, COOKBOOK, CHINCHILLA)
)
