"""Differences between formulas and the graph: forward MACs of a sequence of T tokens.

The graph has lin + A T for each token: lin elements of all matrices that a token passes, and
A = sum of H (dqk + dv) over L layers. h is the width of the model, V its vocabulary, W a window.
"""

from crossflops.ir.architecture import AttentionSizes, TokenSequence
from crossflops.tools.formulas.formula import cut_attentions, other_attentions

# Tables, the head, and parameters that are no matrices.


def embedding_table(work: TokenSequence) -> int:
    """V h T: a lookup taken for a product, where the table is not the output matrix."""
    model = work.architecture
    return 0 if model.tied else model.head * work.tokens


def embedding_always(work: TokenSequence) -> int:
    """V h T: a lookup taken for a product, whether or not the table is the output matrix."""
    return work.architecture.head * work.tokens


def position_table(work: TokenSequence) -> int:
    """T times the elements of other embeddings, as those of positions."""
    return work.architecture.parameters.positions * work.tokens


def head_dropped(work: TokenSequence) -> int:
    """-V h T."""
    return -work.architecture.head * work.tokens


def tied_head_dropped(work: TokenSequence) -> int:
    """-V h T where the output matrix is the table, with which it is left out."""
    model = work.architecture
    return -model.head * work.tokens if model.tied else 0


def head_of_other_rows(work: TokenSequence) -> int:
    """-V h (T - 1): the output matrix is for the last token alone."""
    return -work.architecture.head * (work.tokens - 1)


def norm_parameters(work: TokenSequence) -> int:
    """T times the parameters of norms."""
    return work.architecture.parameters.norms * work.tokens


def rank_norm_parameters(work: TokenSequence) -> int:
    """T times the parameters of norms in latent projections."""
    return work.architecture.parameters.rank_norms * work.tokens


def head_and_final_norms(work: TokenSequence) -> int:
    """T times the parameters of norms of queries, of keys, and behind the last layer."""
    parameters = work.architecture.parameters
    return (parameters.head_norms + parameters.final_norm) * work.tokens


def bias_parameters(work: TokenSequence) -> int:
    """T times all biases and attention sinks."""
    return work.architecture.parameters.biases * work.tokens


def active_biases(work: TokenSequence) -> int:
    """T times the biases and attention sinks that a token passes."""
    model = work.architecture
    return (model.parameters.biases - model.inactive_biases) * work.tokens


# Experts.


def inactive_experts(work: TokenSequence) -> int:
    """T times the elements of matrices of experts that a token does not pass."""
    return work.architecture.inactive * work.tokens


def router_dropped(work: TokenSequence) -> int:
    """-h E T in each layer with experts."""
    return -work.architecture.router * work.tokens


# Attention: pairs of a query and a key.


def attention_dropped(work: TokenSequence) -> int:
    """-A T^2."""
    return -work.architecture.macs_per_pair * work.tokens**2


def attention_square(work: TokenSequence) -> int:
    """+A T^2, to be halved."""
    return work.architecture.macs_per_pair * work.tokens**2


def other_attention_square(work: TokenSequence) -> int:
    """+A T^2 of layers without a window shorter than T, to be halved."""
    return work.sum_attention(_square(work.tokens), other_attentions(work))


def cut_attention_square(work: TokenSequence) -> int:
    """+A T^2 of layers with a window shorter than T, to be halved."""
    return work.sum_attention(_square(work.tokens), cut_attentions(work))


def above_diagonal(work: TokenSequence) -> int:
    """-A T (T - 1) / 2 of layers without a window shorter than T."""
    tokens = work.tokens
    skipped = tokens * (tokens - 1) // 2
    return -work.sum_attention(lambda layer: layer.macs_per_pair, other_attentions(work)) * skipped


def outside_window(work: TokenSequence) -> int:
    """-A (T^2 - T W + W (W - 1) / 2) of layers with a window W shorter than T."""
    tokens = work.tokens
    return -work.sum_attention(
        lambda layer: layer.macs_per_pair * (tokens**2 - layer.window_pairs(tokens)),
        cut_attentions(work),
    )


def outside_rectangle(work: TokenSequence) -> int:
    """-A T (T - W) of layers with a window W shorter than T."""
    tokens = work.tokens
    return -work.sum_attention(
        lambda layer: layer.macs_per_pair * tokens * (tokens - (layer.window or tokens)),
        cut_attentions(work),
    )


def rectangle(work: TokenSequence) -> int:
    """+A T W of layers with a window W shorter than T, to be halved."""
    tokens = work.tokens
    return work.sum_attention(
        lambda layer: layer.macs_per_pair * tokens * (layer.window or tokens),
        cut_attentions(work),
    )


def window_square(work: TokenSequence) -> int:
    """+A (T^2 - T W + W^2 / 2) of layers with a window W shorter than T, twice."""
    tokens = work.tokens
    return work.sum_attention(
        lambda layer: (
            layer.macs_per_pair
            * (2 * tokens**2 - 2 * tokens * (layer.window or 0) + (layer.window or 0) ** 2)
        ),
        cut_attentions(work),
    )


def _square(tokens: int):  # type: ignore[no-untyped-def]
    """Return a function that gives a layer's attention MACs for `tokens` x `tokens` pairs."""

    def square(layer: AttentionSizes) -> int:
        """Return the attention MACs of a layer if each token attends to every token."""
        return layer.macs_per_pair * tokens**2

    return square


# Heads of another width, and grouped keys.


def heads_of_width(work: TokenSequence) -> int:
    """(2 L h - A) T^2: h for the heads of a layer, H d."""
    model = work.architecture
    return (2 * len(model.layers) * model.hidden - model.macs_per_pair) * work.tokens**2


def heads_by_division(work: TokenSequence) -> int:
    """(2 L H (h // H) - A) T^2: h // H for the depth of a head."""
    model = work.architecture
    width = work.sum_attention(lambda layer: layer.heads * (model.hidden // layer.heads))
    return (2 * width - model.macs_per_pair) * work.tokens**2


def heads_of_value_depth(work: TokenSequence) -> int:
    """(2 L H dv - A) T^2: one depth for queries and for values."""
    model = work.architecture
    width = work.sum_attention(lambda layer: layer.heads * layer.value_dim)
    return (2 * width - model.macs_per_pair) * work.tokens**2


def second_attention_product(work: TokenSequence) -> int:
    """-L H dv T^2: of two products of attention one."""
    return -work.sum_attention(lambda layer: layer.heads * layer.value_dim) * work.tokens**2


def ungrouped_keys(work: TokenSequence) -> int:
    """2 h d (H - KV) T in each layer: keys and values for every head."""
    hidden = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: (
            0
            if layer.is_latent
            else hidden * (layer.head_dim + layer.value_dim) * (layer.heads - layer.kv_heads)
        )
    )


def square_projections(work: TokenSequence) -> int:
    """4 h (h - H d) T in each layer without latent projections: h for the heads of a layer."""
    hidden = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: (
            0
            if layer.is_latent
            else 4 * hidden * hidden
            - 2 * hidden * layer.heads * (layer.head_dim + layer.value_dim)
        )
    )


def latent_as_square(work: TokenSequence) -> int:
    """(4 h^2 - projections) T in each layer with latent projections."""
    hidden = work.architecture.hidden
    return work.tokens * work.sum_attention(
        lambda layer: 4 * hidden * hidden - layer.projections if layer.is_latent else 0
    )


# Feed-forward layers.


def is_swiglu(work: TokenSequence) -> bool:
    """Return whether the gate of feed-forward layers is SiLU."""
    return work.architecture.activation in ("silu", "swish")


def gates_dropped(work: TokenSequence) -> int:
    """-h f T of each gated layer, f the width that a token passes."""
    return -work.tokens * work.architecture.sum_layers(
        lambda layer: layer.ffn.hidden * layer.ffn.active_width if layer.ffn.gated else 0
    )


def other_gates_dropped(work: TokenSequence) -> int:
    """-h f T of each gated layer whose gate is not SiLU."""
    return 0 if is_swiglu(work) else gates_dropped(work)


def gates_added(work: TokenSequence) -> int:
    """h f T of each layer without a gate."""
    return work.tokens * work.architecture.sum_layers(
        lambda layer: 0 if layer.ffn.gated else layer.ffn.hidden * layer.ffn.active_width
    )
