"""Return differences between formulas and the graph, each as forward MACs of a sequence of T
tokens.

The graph has lin + A T for each token: lin elements of all matrices that a token passes, and
A = sum of H (dqk + dv) over L layers. h is the width of the model, V its vocabulary, W a window.
"""

from collections.abc import Callable

from crossflops.ir.architecture import AttentionSizes, TokenSequence
from crossflops.rules.rule import with_formula
from crossflops.tools.formulas.formula import (
    attentions_with_window,
    attentions_without_window,
    rule_amount,
)

# Tables, the head, and parameters that are no matrices.


@rule_amount(
    "embedding_table", "V h T if the table is not the output matrix: a lookup counted as a product"
)
def embedding_lookup_macs_if_untied(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the embedding lookup as a matrix product:
    vocabulary x hidden size x tokens, or 0 if the output matrix is the embedding table.
    """
    model = work.architecture
    return 0 if model.tied else model.head_macs * work.tokens


@rule_amount("embedding_always", "V h T in each case: a lookup counted as a product")
def embedding_lookup_macs(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the embedding lookup as a matrix product:
    vocabulary x hidden size x tokens, also if the output matrix is the embedding table.
    """
    return work.architecture.head_macs * work.tokens


@rule_amount(
    "position_table", "T times the elements of other embeddings, such as those of positions"
)
def position_table_macs(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts other embeddings, such as those of
    positions, as matrices: their elements x tokens.
    """
    return work.architecture.parameters.positions * work.tokens


@rule_amount("head_dropped", "-V h T")
def minus_head_macs(work: TokenSequence) -> int:
    """Return minus the MACs of the output matrix, for a formula that does not count it."""
    return -work.architecture.head_macs * work.tokens


@rule_amount(
    "tied_head_dropped",
    "-V h T if the output matrix is the table, because the formula leaves out the table",
)
def minus_tied_head_macs(work: TokenSequence) -> int:
    """Return minus the MACs of an output matrix that is also the embedding table, for a formula
    that leaves out this table; 0 if they are two matrices.
    """
    model = work.architecture
    return -model.head_macs * work.tokens if model.tied else 0


@rule_amount(
    "head_of_other_rows", "-V h (T - 1): the output matrix is used only for the last token"
)
def minus_head_macs_before_last_token(work: TokenSequence) -> int:
    """Return minus the MACs of the output matrix for all tokens except the last one."""
    return -work.architecture.head_macs * (work.tokens - 1)


@rule_amount("norm_parameters", "T times the parameters of norms")
def norm_parameter_macs(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the parameters of all norms as matrix
    elements: their number x tokens.
    """
    return work.architecture.parameters.norms * work.tokens


@rule_amount("rank_norm_parameters", "T times the parameters of norms in latent projections")
def latent_norm_parameter_macs(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the parameters of norms in latent
    projections as matrix elements: their number x tokens.
    """
    return work.architecture.parameters.rank_norms * work.tokens


@rule_amount(
    "head_and_final_norms",
    "T times the parameters of norms of queries, of keys, and after the last layer",
)
def qk_and_final_norm_macs(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the norms of queries and keys, and the norm
    after the last layer, as matrix elements: their number x tokens.
    """
    parameters = work.architecture.parameters
    return (parameters.head_norms + parameters.final_norm) * work.tokens


@rule_amount("bias_parameters", "T times all biases and attention sinks")
def bias_parameter_macs(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts all biases and attention sinks as matrix
    elements: their number x tokens.
    """
    return work.architecture.parameters.biases * work.tokens


@rule_amount("active_biases", "T times the biases and attention sinks that a token uses")
def active_bias_macs(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the biases and attention sinks that a token
    passes as matrix elements: their number x tokens.
    """
    model = work.architecture
    return (model.parameters.biases - model.inactive_biases) * work.tokens


# Experts.


@rule_amount(
    "inactive_experts", "T times the elements of matrices of experts that a token does not use"
)
def inactive_expert_macs(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts also the experts that a token does not
    pass: their matrix elements x tokens.
    """
    return work.architecture.inactive_weights * work.tokens


@rule_amount("router_dropped", "-h E T in each layer with experts")
def minus_router_macs(work: TokenSequence) -> int:
    """Return minus the MACs of the routers of experts, for a formula that does not count them."""
    return -work.architecture.router_macs * work.tokens


# Other parts than decoders with attention.


@rule_amount("tokens_of_other_stack", "(T - T') (lin + V h), T' the tokens of the decoder")
def decoder_macs_of_source_tokens(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it multiplies the matrices of a decoder by the tokens
    that the encoder before it reads; negative if the decoder has more tokens.
    """
    return (work.tokens - work.decoder_tokens) * work.architecture.linear_macs


@rule_amount("other_modality", "T times the parameters of parts for images or sound")
def other_part_macs(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the parameters of parts for images or sound
    as matrix elements that text passes: their number x tokens.
    """
    return work.architecture.parameters.other_parts * work.tokens


@rule_amount(
    "other_modality_without_embeddings",
    "T times the parameters of parts for images or sound, without embeddings",
)
def other_part_macs_without_embeddings(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the parameters of parts for images or
    sound, except embeddings, as matrix elements that text passes: their number x tokens.
    """
    parameters = work.architecture.parameters
    return (parameters.other_parts - parameters.other_embeddings) * work.tokens


@rule_amount("scan_dropped", "-scan of each state space")
def minus_scan_macs(work: TokenSequence) -> int:
    """Return minus the MACs of the scans of state spaces, for a formula that does not count
    them.
    """
    return -work.scan_macs


@rule_amount("convolution_dropped", "-channels x kernel (T + kernel - 1) of each state space")
def minus_convolution_macs(work: TokenSequence) -> int:
    """Return minus the MACs of the convolutions of state spaces, for a formula that does not count
    them.
    """
    return -work.convolution_macs


@rule_amount("convolution_ends", "-channels x kernel (kernel - 1) of each state space")
def minus_macs_of_convolution_ends(work: TokenSequence) -> int:
    """Return minus the MACs of convolutions after the last token, for a formula that counts their
    parameters once for each token.
    """
    return work.architecture.parameters.convolutions * work.tokens - work.convolution_macs


@rule_amount("layers_once", "-T times the matrix elements that a token passes again")
def minus_repeated_layer_macs(work: TokenSequence) -> int:
    """Return minus the MACs of layers that share the weights of earlier layers, for a formula that
    counts each parameter once.
    """
    return -work.architecture.extra_shared_weights * work.tokens


# Attention: pairs of a query and a key.


@rule_amount("attention_dropped", "-A T^2, also of an encoder and of attention to it")
def minus_attention_macs(work: TokenSequence) -> int:
    """Return minus the MACs of attention over all pairs of tokens, for a formula that does not
    count it.
    """
    return -work.attention_macs


@rule_amount("attention_square", "+A T^2, before halving")
def all_pairs_attention_macs(work: TokenSequence) -> int:
    """Return the MACs of attention over all pairs of tokens, of which the rule counts
    half.
    """
    return work.architecture.macs_per_pair * work.tokens**2


@rule_amount(
    "other_attention_square", "+A T^2 of layers without a window shorter than T, before halving"
)
def all_pairs_macs_without_window(work: TokenSequence) -> int:
    """Return the MACs of attention over all pairs of tokens, in layers without a window shorter
    than the sequence; the rule counts half of them.
    """
    return work.sum_attention(
        _all_pairs_macs_of_layer(work.tokens), attentions_without_window(work)
    )


@with_formula("+A T^2 of layers with a window shorter than T, before halving")
def all_pairs_macs_with_window(work: TokenSequence) -> int:
    """Return the MACs of attention over all pairs of tokens, in layers with a window shorter than
    the sequence; the rule counts half of them.
    """
    return work.sum_attention(_all_pairs_macs_of_layer(work.tokens), attentions_with_window(work))


@rule_amount("above_diagonal", "-A T (T - 1) / 2 of layers without a window shorter than T")
def minus_macs_above_diagonal(work: TokenSequence) -> int:
    """Return minus the MACs of the pairs above the diagonal (later keys) in layers without a
    window shorter than the sequence.
    """
    tokens = work.tokens
    skipped = tokens * (tokens - 1) // 2
    return (
        -work.sum_attention(lambda layer: layer.macs_per_pair, attentions_without_window(work))
        * skipped
    )


@rule_amount(
    "outside_window", "-A (T^2 - T W + W (W - 1) / 2) of layers with a window W shorter than T"
)
def minus_macs_outside_window(work: TokenSequence) -> int:
    """Return minus the MACs of the pairs of tokens outside a causal window, in layers with a
    window W shorter than the sequence.
    """
    tokens = work.tokens
    return -work.sum_attention(
        lambda layer: layer.macs_per_pair * (tokens**2 - layer.window_pairs(tokens)),
        attentions_with_window(work),
    )


@rule_amount("outside_rectangle", "-A T (T - W) of layers with a window W shorter than T")
def minus_macs_outside_window_rectangle(work: TokenSequence) -> int:
    """Return minus the MACs of T x (T - W) pairs of T tokens, in layers with a window W shorter
    than the sequence.
    """
    tokens = work.tokens
    return -work.sum_attention(
        lambda layer: layer.macs_per_pair * tokens * (tokens - (layer.window or tokens)),
        attentions_with_window(work),
    )


@with_formula("+A T W of layers with a window W shorter than T, before halving")
def window_rectangle_macs(work: TokenSequence) -> int:
    """Return the MACs of T x W pairs of T tokens, in layers with a window W shorter than the
    sequence; the rule counts half of them.
    """
    tokens = work.tokens
    return work.sum_attention(
        lambda layer: layer.macs_per_pair * tokens * (layer.window or tokens),
        attentions_with_window(work),
    )


@rule_amount(
    "window_square", "+A (T^2 - T W + W^2 / 2) of layers with a window W shorter than T, twice"
)
def twice_macs_outside_smooth_window(work: TokenSequence) -> int:
    """Return twice the MACs of T^2 - T W + W^2 / 2 pairs of T tokens, in layers with a window W
    shorter than the sequence; the rule halves the number.
    """
    tokens = work.tokens
    return work.sum_attention(
        lambda layer: (
            layer.macs_per_pair
            * (2 * tokens**2 - 2 * tokens * (layer.window or 0) + (layer.window or 0) ** 2)
        ),
        attentions_with_window(work),
    )


def _all_pairs_macs_of_layer(tokens: int) -> Callable[[AttentionSizes], int]:
    """Return a function from a layer to the MACs of its attention over `tokens` x `tokens`
    pairs.
    """

    def macs_of_all_token_pairs(layer: AttentionSizes) -> int:
        """Return the attention MACs of a layer if each of `tokens` tokens attends to all of
        them.
        """
        return layer.macs_per_pair * tokens**2

    return macs_of_all_token_pairs


# Heads of another width, and grouped keys.


@rule_amount(
    "heads_of_width",
    "(2 L h - A) T^2: h is used instead of H d, the width of all heads of a layer",
)
def extra_attention_macs_of_hidden_width(work: TokenSequence) -> int:
    """Return how many more attention MACs a formula counts if it uses the hidden size as the total
    width of the heads of a layer.
    """
    model = work.architecture
    return (2 * len(model.layers) * model.hidden - model.macs_per_pair) * work.tokens**2


@rule_amount(
    "heads_by_division", "(2 L H (h // H) - A) T^2: h // H is used as the depth of a head"
)
def extra_attention_macs_of_divided_width(work: TokenSequence) -> int:
    """Return how many more attention MACs a formula counts if it uses hidden size // heads as the
    size of a head.
    """
    model = work.architecture
    width = work.sum_attention(lambda layer: layer.heads * (model.hidden // layer.heads))
    return (2 * width - model.macs_per_pair) * work.tokens**2


@rule_amount(
    "heads_of_value_depth", "(2 L H dv - A) T^2: one depth is used for queries and for values"
)
def extra_attention_macs_of_value_dim(work: TokenSequence) -> int:
    """Return how many more attention MACs a formula counts if it uses the head size of values for
    queries as well.
    """
    model = work.architecture
    width = work.sum_attention(lambda layer: layer.heads * layer.value_dim)
    return (2 * width - model.macs_per_pair) * work.tokens**2


@rule_amount(
    "second_attention_product", "-L H dv T^2: one of the two products of attention is left out"
)
def minus_second_attention_product_macs(work: TokenSequence) -> int:
    """Return minus the MACs of the second attention product, for a formula that counts only one of
    the two.
    """
    return -work.sum_attention(lambda layer: layer.heads * layer.value_dim) * work.tokens**2


@rule_amount("ungrouped_keys", "2 h d (H - KV) T in each layer: keys and values for each head")
def extra_macs_of_ungrouped_keys(work: TokenSequence) -> int:
    """Return how many more projection MACs a formula counts if every head has its own keys and
    values.
    """
    hidden = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: (
            0
            if layer.is_latent
            else hidden * (layer.head_dim + layer.value_dim) * (layer.heads - layer.kv_heads)
        )
    )


@rule_amount(
    "square_projections",
    "4 h (h - H d) T in each layer without latent projections: "
    "h is used as the width of all heads",
)
def extra_macs_of_square_projections(work: TokenSequence) -> int:
    """Return how many more projection MACs a formula counts if it uses the hidden size as the
    total width of the heads; layers with latent projections are left out.
    """
    hidden = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: (
            0
            if layer.is_latent
            else 4 * hidden * hidden
            - 2 * hidden * layer.heads * (layer.head_dim + layer.value_dim)
        )
    )


@rule_amount(
    "other_projections",
    "-(projections - h (H + KV) (dqk + dv)) T in each layer: matrices such as those of gates",
)
def minus_other_projection_macs(work: TokenSequence) -> int:
    """Return minus the MACs of attention projections other than those of queries, keys, values and
    the output; layers with latent projections are left out.
    """
    hidden = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: layer.plain_projections(hidden) - layer.projections
    )


@rule_amount("latent_as_square", "(4 h^2 - projections) T in each layer with latent projections")
def extra_macs_of_latent_as_square(work: TokenSequence) -> int:
    """Return how many more projection MACs a formula counts if each layer with latent projections
    had four square matrices of the hidden size.
    """
    hidden = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: 4 * hidden * hidden - layer.projections if layer.is_latent else 0
    )


# Feed-forward layers.


def is_swiglu(work: TokenSequence) -> bool:
    """Return whether the activation of the feed-forward layers is SiLU."""
    return work.architecture.activation in ("silu", "swish")


@rule_amount("gates_dropped", "-h f T of each gated layer, f the width that a token uses")
def minus_gate_macs(work: TokenSequence) -> int:
    """Return minus the MACs of the gate matrices of feed-forward layers, for a formula that does
    not count them.
    """
    return -work.tokens * work.architecture.sum_layers(
        lambda layer: layer.ffn.hidden * layer.ffn.active_width if layer.ffn.gated else 0
    )


@rule_amount("other_gates_dropped", "-h f T of each gated layer whose gate is not SiLU")
def minus_gate_macs_unless_swiglu(work: TokenSequence) -> int:
    """Return minus the MACs of the gate matrices of feed-forward layers, or 0 if their activation
    is SiLU.
    """
    return 0 if is_swiglu(work) else minus_gate_macs(work)


@rule_amount("gates_added", "h f T of each layer without a gate")
def extra_gate_macs(work: TokenSequence) -> int:
    """Return the MACs of a gate matrix in each feed-forward layer without one, for a formula that
    assumes it.
    """
    return work.tokens * work.architecture.sum_layers(
        lambda layer: 0 if layer.ffn.gated else layer.ffn.hidden * layer.ffn.active_width
    )
