"""Define formulas over a few sizes: of Megatron-DeepSpeed, gpt-neox, EleutherAI's cookbook and
Chinchilla.

Megatron-DeepSpeed, megatron/utils.py: throughput_calculator. gpt-neox, megatron/logging.py:
get_actual_flops. cookbook, calc/calc_transformer_flops.py. Hoffmann et al., appendix F.
"""

from crossflops.ir.architecture import DecoderLayer, TokenSequence
from crossflops.rules.rule import with_formula
from crossflops.tools.formulas import differences as of
from crossflops.tools.formulas.formula import ArchitectureFormula

# One width for all feed-forward layers.


def _single_ffn(work: TokenSequence) -> DecoderLayer:
    """Return the layer whose feed-forward sizes Megatron-DeepSpeed's formula uses for all layers:
    the last one with experts, else the last one.
    """
    layers = work.architecture.layers
    return next((layer for layer in reversed(layers) if layer.ffn.experts), layers[-1])


def _single_ffn_macs(work: TokenSequence) -> int:
    """Return the feed-forward MACs per token as if every layer had the sizes of `_single_ffn`:
    number of layers x matrices x hidden size x feed-forward width.
    """
    ffn = _single_ffn(work).ffn
    routed = ffn.width * (ffn.active if ffn.experts else 1)
    return len(work.architecture.layers) * ffn.matrix_count * ffn.hidden * routed


# Megatron-DeepSpeed, without recomputation.


@with_formula(
    "6 (L (2 + 2 // (H // KV)) h^2 + 2 L (h // H) H T + L glu h f k + V h) for each token"
)
def megatron_deepspeed(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by Megatron-DeepSpeed's formula, with one
    feed-forward width for all layers and an integer division for grouped keys.
    """
    model, tokens = work.architecture, work.tokens
    hidden = model.hidden
    projections = work.sum_attention(
        lambda layer: (2 + 2 // (layer.heads // layer.kv_heads)) * hidden**2
    )
    keys = work.sum_attention(lambda layer: 2 * (hidden // layer.heads) * layer.heads) * tokens
    return 6 * (projections + keys + _single_ffn_macs(work) + model.head_macs) * tokens


@with_formula("(2 // g - 2) h^2 T in each layer without latent projections, g = H // KV")
def divided_keys(work: TokenSequence) -> int:
    """Return how many more projection MACs Megatron-DeepSpeed's formula has after its integer
    division 2 // (heads per key head) than before it; layers with latent projections are left out.
    """
    hidden = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: (
            0 if layer.is_latent else (2 // (layer.heads // layer.kv_heads) - 2) * hidden**2
        )
    )


@with_formula("2 h d (H - KV) T in each layer, before the division")
def keys_of_queries(work: TokenSequence) -> int:
    """Return how many more projection MACs there are if every head has its own keys and values:
    the first step to Megatron-DeepSpeed's integer division.
    """
    return of.ungrouped_keys(work)


@with_formula(
    "(glu h f k L - feed-forward MACs) T: one width for all layers, and no shared experts"
)
def single_ffn(work: TokenSequence) -> int:
    """Return the feed-forward MACs of Megatron-DeepSpeed's formula less those of the model.

    The formula takes the sizes of one layer for all layers and leaves out shared experts, so the
    difference may be negative.
    """
    return (_single_ffn_macs(work) - work.architecture.ffn_macs) * work.tokens


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


@with_formula("72 L h^2 + 12 L h T + 4.5 V h for each token")
def gpt_neox(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by gpt-neox's formula, which reads only the number
    of layers, the hidden size and the vocabulary.
    """
    model, tokens = work.architecture, work.tokens
    layers, hidden = len(model.layers), model.hidden
    return (72 * layers * hidden**2 + 12 * layers * hidden * tokens) * tokens + (
        9 * model.head_macs * tokens // 2
    )


@with_formula("(8 h^2 L - feed-forward MACs) T: two matrices, four times as wide as the model")
def wide_ffn(work: TokenSequence) -> int:
    """Return how many more feed-forward MACs gpt-neox's formula counts because it assumes two
    matrices of hidden size x 4 hidden sizes in each layer.
    """
    model = work.architecture
    return (8 * len(model.layers) * model.hidden**2 - model.ffn_macs) * work.tokens


@with_formula("-1.5 V h T FLOPs: 4.5 for the 6 of a MAC, rounded down")
def head_of_three_quarters(work: TokenSequence) -> int:
    """Return minus the FLOPs that gpt-neox's formula loses at the output matrix: it counts 4.5
    FLOPs instead of 6 per MAC.
    """
    head = work.architecture.head_macs * work.tokens
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
    """Return the attention projection MACs per token, all layers together, if the total width of
    the heads is the hidden size h: 2 h^2 (1 + KV / H) per layer, with H heads and KV key heads.
    """
    hidden = work.architecture.hidden
    return work.sum_attention(
        lambda layer: 2 * hidden * hidden * (layer.heads + layer.kv_heads) // layer.heads
    )


def _cookbook_macs(work: TokenSequence) -> int:
    """Return the forward MACs per token of all layers by the cookbook's formula, without the
    output matrix.
    """
    model, tokens = work.architecture, work.tokens
    keys = 2 * len(model.layers) * model.hidden * tokens
    wide = model.sum_layers(lambda layer: 4 * layer.ffn.matrix_count * model.hidden**2)
    return _square_projections(work) + keys + wide


@with_formula("4 (2 (2 + 2 r) L h^2 + 4 L T h + 8 m L h^2) + 4 h + 2 V h, r = KV / H, m matrices")
def cookbook(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by the cookbook's formula, with its default of
    recomputed layers.
    """
    model = work.architecture
    return (8 * _cookbook_macs(work) + 4 * model.hidden + 2 * model.head_macs) * work.tokens


@with_formula("(2 h^2 (1 + KV / H) - projections) T in each layer without latent projections")
def cookbook_projections(work: TokenSequence) -> int:
    """Return how many more projection MACs the cookbook's formula counts because it assumes heads
    whose total width is the hidden size; layers with latent projections are left out.
    """
    latent = work.sum_attention(lambda layer: 4 * work.architecture.hidden**2 * layer.is_latent)
    exact = work.sum_attention(lambda layer: 0 if layer.is_latent else layer.projections)
    return (_square_projections(work) - latent - exact) * work.tokens


@with_formula("(4 m h^2 L - feed-forward MACs) T, m matrices of each layer")
def ffn_of_four_widths(work: TokenSequence) -> int:
    """Return how many more feed-forward MACs the cookbook's formula counts because it assumes a
    width of 4 hidden sizes in each layer.
    """
    model = work.architecture
    wide = model.sum_layers(lambda layer: 4 * layer.ffn.matrix_count * model.hidden**2)
    return (wide - model.ffn_macs) * work.tokens


@with_formula("Count the forward MACs of the layers again")
def layers_once_more(work: TokenSequence) -> int:
    """Return the forward MACs of all layers that the cookbook's formula counts a second time,
    because it assumes that they are recomputed.
    """
    return _cookbook_macs(work) * work.tokens


@with_formula("h T, four FLOPs for each")
def four_per_lookup(work: TokenSequence) -> int:
    """Return hidden size x tokens, the embedding elements that the cookbook's formula counts with
    4 FLOPs each.
    """
    return work.architecture.hidden * work.tokens


@with_formula("A mixture of experts: the cookbook has another script for it")
def has_experts(work: TokenSequence) -> int:
    """Return the number of experts, which is not 0 for a model that the cookbook's formula
    rejects.
    """
    return work.architecture.max_experts


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


@with_formula("3 (4 V h + L (8 h H d + 4 T H d + 3 H T + 4 h f)) for each token")
def chinchilla(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by Chinchilla's formula: three times the forward
    pass, with the softmax and the embedding lookup.
    """
    model, tokens = work.architecture, work.tokens
    width = work.sum_attention(lambda layer: layer.heads * layer.value_dim)
    heads = work.sum_attention(lambda layer: layer.heads)
    dense = 4 * model.head_macs + 8 * model.hidden * width + 4 * _two_matrices(work) // 2
    return 3 * (dense + (4 * width + 3 * heads) * tokens) * tokens


def _two_matrices(work: TokenSequence) -> int:
    """Return the feed-forward MACs per token if each layer has two matrices of hidden size x
    feed-forward width.
    """
    return work.architecture.sum_layers(
        lambda layer: 2 * layer.ffn.hidden * layer.ffn.active_width
    )


@with_formula(
    "(4 h H d - projections) T in each layer with latent projections, d the depth of values"
)
def latent_as_heads(work: TokenSequence) -> int:
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


@with_formula("H T^2 in each layer, nine FLOPs for each: 3 in each of three passes")
def softmax_weights(work: TokenSequence) -> int:
    """Return the number of attention scores, heads x tokens^2 per layer, which Chinchilla's
    formula counts with 9 FLOPs each: 3 in each of three passes.
    """
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
