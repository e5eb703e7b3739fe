"""Return differences between formulas and the graph, each as forward MACs of a sequence of T
tokens.

The graph has lin + A T for each token: lin elements of all matrices that a token passes, and
A = sum of H (dqk + dv) over L layers. h is the width of the model, V its vocabulary, W a window.
"""

from crossflops.ir.architecture import AttentionSizes, TokenSequence
from crossflops.rules.rule import with_formula
from crossflops.tools.formulas.formula import cut_attentions, other_attentions

# Tables, the head, and parameters that are no matrices.


@with_formula("V h T if the table is not the output matrix: a lookup counted as a product")
def embedding_table(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the embedding lookup as a matrix product:
    vocabulary x hidden size x tokens, or 0 if the output matrix is the embedding table.
    """
    model = work.architecture
    return 0 if model.tied else model.head_macs * work.tokens


@with_formula("V h T in each case: a lookup counted as a product")
def embedding_always(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the embedding lookup as a matrix product:
    vocabulary x hidden size x tokens, also if the output matrix is the embedding table.
    """
    return work.architecture.head_macs * work.tokens


@with_formula("T times the elements of other embeddings, such as those of positions")
def position_table(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts other embeddings, such as those of
    positions, as matrices: their elements x tokens.
    """
    return work.architecture.parameters.positions * work.tokens


@with_formula("-V h T")
def head_dropped(work: TokenSequence) -> int:
    """Return minus the MACs of the output matrix, for a formula that does not count it."""
    return -work.architecture.head_macs * work.tokens


@with_formula("-V h T if the output matrix is the table, because the formula leaves out the table")
def tied_head_dropped(work: TokenSequence) -> int:
    """Return minus the MACs of an output matrix that is also the embedding table, for a formula
    that leaves out this table; 0 if they are two matrices.
    """
    model = work.architecture
    return -model.head_macs * work.tokens if model.tied else 0


@with_formula("-V h (T - 1): the output matrix is used only for the last token")
def head_of_other_rows(work: TokenSequence) -> int:
    """Return minus the MACs of the output matrix for all tokens except the last one."""
    return -work.architecture.head_macs * (work.tokens - 1)


@with_formula("T times the parameters of norms")
def norm_parameters(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the parameters of all norms as matrix
    elements: their number x tokens.
    """
    return work.architecture.parameters.norms * work.tokens


@with_formula("T times the parameters of norms in latent projections")
def rank_norm_parameters(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the parameters of norms in latent
    projections as matrix elements: their number x tokens.
    """
    return work.architecture.parameters.rank_norms * work.tokens


@with_formula("T times the parameters of norms of queries, of keys, and after the last layer")
def head_and_final_norms(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the norms of queries and keys, and the norm
    after the last layer, as matrix elements: their number x tokens.
    """
    parameters = work.architecture.parameters
    return (parameters.head_norms + parameters.final_norm) * work.tokens


@with_formula("T times all biases and attention sinks")
def bias_parameters(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts all biases and attention sinks as matrix
    elements: their number x tokens.
    """
    return work.architecture.parameters.biases * work.tokens


@with_formula("T times the biases and attention sinks that a token uses")
def active_biases(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts the biases and attention sinks that a token
    passes as matrix elements: their number x tokens.
    """
    model = work.architecture
    return (model.parameters.biases - model.inactive_biases) * work.tokens


# Experts.


@with_formula("T times the elements of matrices of experts that a token does not use")
def inactive_experts(work: TokenSequence) -> int:
    """Return the MACs that a formula adds if it counts also the experts that a token does not
    pass: their matrix elements x tokens.
    """
    return work.architecture.inactive_weights * work.tokens


@with_formula("-h E T in each layer with experts")
def router_dropped(work: TokenSequence) -> int:
    """Return minus the MACs of the routers of experts, for a formula that does not count them."""
    return -work.architecture.router_macs * work.tokens


# Attention: pairs of a query and a key.


@with_formula("-A T^2")
def attention_dropped(work: TokenSequence) -> int:
    """Return minus the MACs of attention over all pairs of tokens, for a formula that does not
    count it.
    """
    return -work.architecture.macs_per_pair * work.tokens**2


@with_formula("+A T^2, before halving")
def attention_square(work: TokenSequence) -> int:
    """Return the MACs of attention over all pairs of tokens, of which the rule counts
    half.
    """
    return work.architecture.macs_per_pair * work.tokens**2


@with_formula("+A T^2 of layers without a window shorter than T, before halving")
def other_attention_square(work: TokenSequence) -> int:
    """Return the MACs of attention over all pairs of tokens, in layers without a window shorter
    than the sequence; the rule counts half of them.
    """
    return work.sum_attention(_square(work.tokens), other_attentions(work))


@with_formula("+A T^2 of layers with a window shorter than T, before halving")
def cut_attention_square(work: TokenSequence) -> int:
    """Return the MACs of attention over all pairs of tokens, in layers with a window shorter than
    the sequence; the rule counts half of them.
    """
    return work.sum_attention(_square(work.tokens), cut_attentions(work))


@with_formula("-A T (T - 1) / 2 of layers without a window shorter than T")
def above_diagonal(work: TokenSequence) -> int:
    """Return minus the MACs of the pairs above the diagonal (later keys) in layers without a
    window shorter than the sequence.
    """
    tokens = work.tokens
    skipped = tokens * (tokens - 1) // 2
    return -work.sum_attention(lambda layer: layer.macs_per_pair, other_attentions(work)) * skipped


@with_formula("-A (T^2 - T W + W (W - 1) / 2) of layers with a window W shorter than T")
def outside_window(work: TokenSequence) -> int:
    """Return minus the MACs of the pairs of tokens outside a causal window, in layers with a
    window W shorter than the sequence.
    """
    tokens = work.tokens
    return -work.sum_attention(
        lambda layer: layer.macs_per_pair * (tokens**2 - layer.window_pairs(tokens)),
        cut_attentions(work),
    )


@with_formula("-A T (T - W) of layers with a window W shorter than T")
def outside_rectangle(work: TokenSequence) -> int:
    """Return minus the MACs of T x (T - W) pairs of T tokens, in layers with a window W shorter
    than the sequence.
    """
    tokens = work.tokens
    return -work.sum_attention(
        lambda layer: layer.macs_per_pair * tokens * (tokens - (layer.window or tokens)),
        cut_attentions(work),
    )


@with_formula("+A T W of layers with a window W shorter than T, before halving")
def rectangle(work: TokenSequence) -> int:
    """Return the MACs of T x W pairs of T tokens, in layers with a window W shorter than the
    sequence; the rule counts half of them.
    """
    tokens = work.tokens
    return work.sum_attention(
        lambda layer: layer.macs_per_pair * tokens * (layer.window or tokens),
        cut_attentions(work),
    )


@with_formula("+A (T^2 - T W + W^2 / 2) of layers with a window W shorter than T, twice")
def window_square(work: TokenSequence) -> int:
    """Return twice the MACs of T^2 - T W + W^2 / 2 pairs of T tokens, in layers with a window W
    shorter than the sequence; the rule halves the number.
    """
    tokens = work.tokens
    return work.sum_attention(
        lambda layer: (
            layer.macs_per_pair
            * (2 * tokens**2 - 2 * tokens * (layer.window or 0) + (layer.window or 0) ** 2)
        ),
        cut_attentions(work),
    )


def _square(tokens: int):  # type: ignore[no-untyped-def]
    """Return a function from a layer to the MACs of its attention over `tokens` x `tokens`
    pairs.
    """

    def square(layer: AttentionSizes) -> int:
        """Return the attention MACs of a layer if each of `tokens` tokens attends to all of
        them.
        """
        return layer.macs_per_pair * tokens**2

    return square


# Heads of another width, and grouped keys.


@with_formula("(2 L h - A) T^2: h is used instead of H d, the width of all heads of a layer")
def heads_of_width(work: TokenSequence) -> int:
    """Return how many more attention MACs a formula counts if it uses the hidden size as the total
    width of the heads of a layer.
    """
    model = work.architecture
    return (2 * len(model.layers) * model.hidden - model.macs_per_pair) * work.tokens**2


@with_formula("(2 L H (h // H) - A) T^2: h // H is used as the depth of a head")
def heads_by_division(work: TokenSequence) -> int:
    """Return how many more attention MACs a formula counts if it uses hidden size // heads as the
    size of a head.
    """
    model = work.architecture
    width = work.sum_attention(lambda layer: layer.heads * (model.hidden // layer.heads))
    return (2 * width - model.macs_per_pair) * work.tokens**2


@with_formula("(2 L H dv - A) T^2: one depth is used for queries and for values")
def heads_of_value_depth(work: TokenSequence) -> int:
    """Return how many more attention MACs a formula counts if it uses the head size of values for
    queries as well.
    """
    model = work.architecture
    width = work.sum_attention(lambda layer: layer.heads * layer.value_dim)
    return (2 * width - model.macs_per_pair) * work.tokens**2


@with_formula("-L H dv T^2: one of the two products of attention is left out")
def second_attention_product(work: TokenSequence) -> int:
    """Return minus the MACs of the second attention product, for a formula that counts only one of
    the two.
    """
    return -work.sum_attention(lambda layer: layer.heads * layer.value_dim) * work.tokens**2


@with_formula("2 h d (H - KV) T in each layer: keys and values for each head")
def ungrouped_keys(work: TokenSequence) -> int:
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


@with_formula(
    "4 h (h - H d) T in each layer without latent projections: h is used as the width of all heads"
)
def square_projections(work: TokenSequence) -> int:
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


@with_formula("(4 h^2 - projections) T in each layer with latent projections")
def latent_as_square(work: TokenSequence) -> int:
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


@with_formula("-h f T of each gated layer, f the width that a token uses")
def gates_dropped(work: TokenSequence) -> int:
    """Return minus the MACs of the gate matrices of feed-forward layers, for a formula that does
    not count them.
    """
    return -work.tokens * work.architecture.sum_layers(
        lambda layer: layer.ffn.hidden * layer.ffn.active_width if layer.ffn.gated else 0
    )


@with_formula("-h f T of each gated layer whose gate is not SiLU")
def other_gates_dropped(work: TokenSequence) -> int:
    """Return minus the MACs of the gate matrices of feed-forward layers, or 0 if their activation
    is SiLU.
    """
    return 0 if is_swiglu(work) else gates_dropped(work)


@with_formula("h f T of each layer without a gate")
def gates_added(work: TokenSequence) -> int:
    """Return the MACs of a gate matrix in each feed-forward layer without one, for a formula that
    assumes it.
    """
    return work.tokens * work.architecture.sum_layers(
        lambda layer: 0 if layer.ffn.gated else layer.ffn.hidden * layer.ffn.active_width
    )
