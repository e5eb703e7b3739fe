"""Define formulas over a few sizes: of Megatron-DeepSpeed, gpt-neox, EleutherAI's cookbook and
Chinchilla.

Megatron-DeepSpeed, megatron/utils.py: throughput_calculator. gpt-neox, megatron/logging.py:
get_actual_flops. cookbook, calc/calc_transformer_flops.py. Hoffmann et al., appendix F.
"""

from crossflops.ir.architecture import DecoderLayer, TokenSequence
from crossflops.rules.rule import with_formula
from crossflops.tools.formulas import differences as of
from crossflops.tools.formulas.formula import ArchitectureFormula, rule_amount

# One width for all feed-forward layers.


def _representative_ffn_layer(work: TokenSequence) -> DecoderLayer:
    """Return the layer whose feed-forward sizes Megatron-DeepSpeed's formula uses for all layers:
    the last one with experts, else the last one.
    """
    layers = work.architecture.layers
    return next((layer for layer in reversed(layers) if layer.ffn.experts), layers[-1])


def _representative_ffn_macs_per_token(work: TokenSequence) -> int:
    """Return the feed-forward MACs per token as if every layer had the sizes of
    `_representative_ffn_layer`: number of layers x matrices x hidden size x feed-forward width.
    """
    ffn = _representative_ffn_layer(work).ffn
    routed = ffn.width * (ffn.active if ffn.experts else 1)
    return len(work.architecture.layers) * ffn.matrix_count * ffn.hidden * routed


# Megatron-DeepSpeed, without recomputation.


@with_formula(
    "6 (L (2 + 2 // (H // KV)) h^2 + 2 L (h // H) H T + L glu h f k + V h) for each token"
)
def megatron_deepspeed_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by Megatron-DeepSpeed's formula, with one
    feed-forward width for all layers and an integer division for grouped keys.
    """
    model, tokens = work.architecture, work.tokens
    hidden = model.hidden
    projections = work.sum_attention(
        lambda layer: (2 + 2 // (layer.heads // layer.kv_heads)) * hidden**2
    )
    keys = work.sum_attention(lambda layer: 2 * (hidden // layer.heads) * layer.heads) * tokens
    return (
        6
        * (projections + keys + _representative_ffn_macs_per_token(work) + model.head_macs)
        * tokens
    )


@rule_amount(
    "divided_keys", "(2 // g - 2) h^2 T in each layer without latent projections, g = H // KV"
)
def extra_macs_of_integer_division(work: TokenSequence) -> int:
    """Return how many more projection MACs Megatron-DeepSpeed's formula has after its integer
    division 2 // (heads per key head) than before it; layers with latent projections are left out.
    """
    hidden = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: (
            0 if layer.is_latent else (2 // (layer.heads // layer.kv_heads) - 2) * hidden**2
        )
    )


@rule_amount("keys_of_queries", "2 h d (H - KV) T in each layer, before the division")
def extra_macs_before_integer_division(work: TokenSequence) -> int:
    """Return how many more projection MACs there are if every head has its own keys and values:
    the first step to Megatron-DeepSpeed's integer division.
    """
    return of.extra_macs_of_ungrouped_keys(work)


@rule_amount(
    "single_ffn",
    "(glu h f k L - feed-forward MACs) T: one width for all layers, and no shared experts",
)
def extra_macs_of_representative_ffn(work: TokenSequence) -> int:
    """Return the feed-forward MACs of Megatron-DeepSpeed's formula less those of the model.

    The formula takes the sizes of one layer for all layers and leaves out shared experts, so the
    difference may be negative.
    """
    return (_representative_ffn_macs_per_token(work) - work.architecture.ffn_macs) * work.tokens


MEGATRON_DEEPSPEED = (
    ArchitectureFormula(
        "megatron-deepspeed",
        "4efb479",
        megatron_deepspeed_training_flops,
        source="megatron/utils.py: throughput_calculator",
        prints="TFLOPs",
        per="sequence",
    )
    .adds(
        "formula.gqa-integer-division",
        extra_macs_before_integer_division,
        extra_macs_of_integer_division,
    )
    .adds(
        "formula.head-dim-assumed",
        of.extra_macs_of_square_projections,
        of.extra_attention_macs_of_divided_width,
    )
    .adds("formula.low-rank", of.extra_macs_of_latent_as_square)
    .adds("formula.projection-missing", of.minus_other_projection_macs)
    .adds("formula.ffn-width", extra_macs_of_representative_ffn)
    .adds("formula.router-missing", of.minus_router_macs)
)


# gpt-neox, without checkpoints: 24 c L h^2 (1 + T / 6 h + V / 16 L h), c = 3.


@with_formula("72 L h^2 + 12 L h T + 4.5 V h for each token")
def gpt_neox_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by gpt-neox's formula, which reads only the number
    of layers, the hidden size and the vocabulary.
    """
    model, tokens = work.architecture, work.tokens
    layers, hidden = len(model.layers), model.hidden
    return (72 * layers * hidden**2 + 12 * layers * hidden * tokens) * tokens + (
        9 * model.head_macs * tokens // 2
    )


@rule_amount(
    "wide_ffn", "(8 h^2 L - feed-forward MACs) T: two matrices, four times as wide as the model"
)
def extra_macs_of_gpt_neox_ffn(work: TokenSequence) -> int:
    """Return how many more feed-forward MACs gpt-neox's formula counts because it assumes two
    matrices of hidden size x 4 hidden sizes in each layer.
    """
    model = work.architecture
    return (8 * len(model.layers) * model.hidden**2 - model.ffn_macs) * work.tokens


@rule_amount("head_of_three_quarters", "-1.5 V h T FLOPs: 4.5 for the 6 of a MAC, rounded down")
def minus_quarter_of_head_flops(work: TokenSequence) -> int:
    """Return minus the FLOPs that gpt-neox's formula loses at the output matrix: it counts 4.5
    FLOPs instead of 6 per MAC.
    """
    head = work.architecture.head_macs * work.tokens
    return 9 * head // 2 - 6 * head


GPT_NEOX = (
    ArchitectureFormula(
        "gpt-neox",
        "ea7aefd",
        gpt_neox_training_flops,
        source="megatron/logging.py: get_actual_flops",
        prints="FLOPs",
        per="sequence",
    )
    .adds("formula.gqa-ignored", of.extra_macs_of_ungrouped_keys)
    .adds(
        "formula.head-dim-assumed",
        of.extra_macs_of_square_projections,
        of.extra_attention_macs_of_hidden_width,
    )
    .adds("formula.low-rank", of.extra_macs_of_latent_as_square)
    .adds("formula.projection-missing", of.minus_other_projection_macs)
    .adds("formula.ffn-width", extra_macs_of_gpt_neox_ffn)
    .adds("formula.router-missing", of.minus_router_macs)
    .adds("formula.head-scaled", minus_quarter_of_head_flops, factor=1)
)


# cookbook, with its defaults: c = 4, since checkpoints are on, and feed-forward layers of 4 h.


def _square_projection_macs_per_token(work: TokenSequence) -> int:
    """Return the attention projection MACs per token, all layers together, if the total width of
    the heads is the hidden size h: 2 h^2 (1 + KV / H) per layer, with H heads and KV key heads.
    """
    hidden = work.architecture.hidden
    return work.sum_attention(
        lambda layer: 2 * hidden * hidden * (layer.heads + layer.kv_heads) // layer.heads
    )


def _cookbook_layer_macs_per_token(work: TokenSequence) -> int:
    """Return the forward MACs per token of all layers by the cookbook's formula, without the
    output matrix.
    """
    model, tokens = work.architecture, work.tokens
    keys = 2 * len(model.layers) * model.hidden * tokens
    wide = model.sum_layers(lambda layer: 4 * layer.ffn.matrix_count * model.hidden**2)
    return _square_projection_macs_per_token(work) + keys + wide


@with_formula("4 (2 (2 + 2 r) L h^2 + 4 L T h + 8 m L h^2) + 4 h + 2 V h, r = KV / H, m matrices")
def cookbook_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by the cookbook's formula, with its default of
    recomputed layers.
    """
    model = work.architecture
    return (
        8 * _cookbook_layer_macs_per_token(work) + 4 * model.hidden + 2 * model.head_macs
    ) * work.tokens


@rule_amount(
    "cookbook_projections",
    "(2 h^2 (1 + KV / H) - projections) T in each layer without latent projections",
)
def extra_macs_of_cookbook_projections(work: TokenSequence) -> int:
    """Return how many more projection MACs the cookbook's formula counts because it assumes heads
    whose total width is the hidden size; layers with latent projections are left out.
    """
    latent = work.sum_attention(lambda layer: 4 * work.architecture.hidden**2 * layer.is_latent)
    exact = work.sum_attention(
        lambda layer: 0 if layer.is_latent else layer.plain_projections(work.architecture.hidden)
    )
    return (_square_projection_macs_per_token(work) - latent - exact) * work.tokens


@rule_amount("ffn_of_four_widths", "(4 m h^2 L - feed-forward MACs) T, m matrices of each layer")
def extra_macs_of_cookbook_ffn(work: TokenSequence) -> int:
    """Return how many more feed-forward MACs the cookbook's formula counts because it assumes a
    width of 4 hidden sizes in each layer.
    """
    model = work.architecture
    wide = model.sum_layers(lambda layer: 4 * layer.ffn.matrix_count * model.hidden**2)
    return (wide - model.ffn_macs) * work.tokens


@rule_amount("layers_once_more", "Count the forward MACs of the layers again")
def layer_recompute_macs(work: TokenSequence) -> int:
    """Return the forward MACs of all layers that the cookbook's formula counts a second time,
    because it assumes that they are recomputed.
    """
    return _cookbook_layer_macs_per_token(work) * work.tokens


@rule_amount("four_per_lookup", "h T, four FLOPs for each")
def embedding_elements_of_tokens(work: TokenSequence) -> int:
    """Return hidden size x tokens, the embedding elements that the cookbook's formula counts with
    4 FLOPs each.
    """
    return work.architecture.hidden * work.tokens


@rule_amount("has_experts", "A mixture of experts: the cookbook has another script for it")
def expert_count(work: TokenSequence) -> int:
    """Return the number of experts, which is not 0 for a model that the cookbook's formula
    rejects.
    """
    return work.architecture.max_experts


COOKBOOK = (
    ArchitectureFormula(
        "cookbook",
        "827ee3b",
        cookbook_training_flops,
        source="calc/calc_transformer_flops.py: calc_params",
        prints="FLOPs",
        per="sequence",
    )
    .adds(
        "formula.head-dim-assumed",
        extra_macs_of_cookbook_projections,
        of.extra_attention_macs_of_hidden_width,
    )
    .adds("formula.low-rank", of.extra_macs_of_latent_as_square)
    .adds("formula.projection-missing", of.minus_other_projection_macs)
    .adds("formula.ffn-width", extra_macs_of_cookbook_ffn)
    .adds("formula.recompute", layer_recompute_macs, factor=2)
    .adds("formula.head-forward-only", of.minus_head_macs, factor=4)
    .adds("formula.embedding-lookup", embedding_elements_of_tokens, factor=4)
    .fails(expert_count)
)


# Chinchilla, appendix F: forward, times three.


@with_formula("3 (4 V h + L (8 h H d + 4 T H d + 3 H T + 4 h f)) for each token")
def chinchilla_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by Chinchilla's formula: three times the forward
    pass, with the softmax and the embedding lookup.
    """
    model, tokens = work.architecture, work.tokens
    width = work.sum_attention(lambda layer: layer.heads * layer.value_dim)
    heads = work.sum_attention(lambda layer: layer.heads)
    dense = (
        4 * model.head_macs
        + 8 * model.hidden * width
        + 4 * _two_matrix_ffn_macs_per_token(work) // 2
    )
    return 3 * (dense + (4 * width + 3 * heads) * tokens) * tokens


def _two_matrix_ffn_macs_per_token(work: TokenSequence) -> int:
    """Return the feed-forward MACs per token if each layer has two matrices of hidden size x
    feed-forward width.
    """
    return work.architecture.sum_layers(
        lambda layer: 2 * layer.ffn.hidden * layer.ffn.active_width
    )


@rule_amount(
    "latent_as_heads",
    "(4 h H d - projections) T in each layer with latent projections, d the depth of values",
)
def extra_macs_of_latent_as_heads(work: TokenSequence) -> int:
    """Return how many more projection MACs Chinchilla's formula counts because it assumes four
    matrices of hidden size x (heads x head size) in a layer with latent projections.
    """
    hidden = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: (
            4 * hidden * layer.heads * layer.value_dim - layer.projections
            if layer.is_latent
            else 0
        )
    )


@rule_amount(
    "softmax_weights", "H T^2 in each layer, nine FLOPs for each: 3 in each of three passes"
)
def attention_score_count(work: TokenSequence) -> int:
    """Return the number of attention scores, heads x tokens^2 per layer, which Chinchilla's
    formula counts with 9 FLOPs each: 3 in each of three passes.
    """
    return work.sum_attention(lambda layer: layer.heads) * work.tokens**2


CHINCHILLA = (
    ArchitectureFormula(
        "chinchilla",
        "2022",
        chinchilla_training_flops,
        source="Hoffmann et al., Training Compute-Optimal LLMs, appendix F",
        prints="FLOPs",
    )
    .adds("formula.embedding-as-matmul", of.embedding_lookup_macs)
    .adds("formula.gqa-ignored", of.extra_macs_of_ungrouped_keys)
    .adds("formula.low-rank", extra_macs_of_latent_as_heads)
    .adds("formula.projection-missing", of.minus_other_projection_macs)
    .adds("formula.head-dim-assumed", of.extra_attention_macs_of_value_dim)
    .adds("formula.glu-as-two-matrices", of.minus_gate_macs)
    .adds("formula.router-missing", of.minus_router_macs)
    .adds("formula.softmax", attention_score_count, factor=9)
)

CONVENTIONS = tuple(
    formula.convention for formula in (MEGATRON_DEEPSPEED, GPT_NEOX, COOKBOOK, CHINCHILLA)
)
