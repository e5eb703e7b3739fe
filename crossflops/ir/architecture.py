"""The architecture of a language model: what formulas over a config and a parameter table read.

Amounts are forward MACs of one token unless said, and elements of parameters. T tokens of a
sequence attend to each other in T x T pairs, of which a graph with a mask computes all. The layers
of an encoder see the tokens of a source, those of a decoder see the target, and the encoder's
result by cross-attention.
"""

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from crossflops.ir.training import Passes


class AttentionSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The attention of one layer.

    `head_dim` is the depth of queries and keys, `value_dim` that of values. `projections` are the
    elements of its matrices, each of which a token passes once. Latent attention has the
    `query_rank` (0: none) and `key_rank` of its low-rank projections, and in `rotary_dim` the part
    of `head_dim` that is the same for all heads. A `window` keeps so many keys of each query.
    `extra_macs_per_pair` are those of work that no formula knows: an indexer that chooses keys, or
    a second pass over them.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    projections: int
    window: int | None = None
    query_rank: int = 0
    key_rank: int = 0
    rotary_dim: int = 0
    extra_macs_per_pair: int = 0

    @property
    def is_latent(self) -> bool:
        """Whether keys and values come from a low-rank projection."""
        return bool(self.key_rank)

    def plain_projections(self, hidden: int) -> int:
        """Return the elements of four matrices, for queries, keys, values and the output of a
        model of width `hidden`; of latent attention, those that it has.
        """
        if self.is_latent:
            return self.projections
        return hidden * (self.heads + self.kv_heads) * (self.head_dim + self.value_dim)

    @property
    def macs_per_pair(self) -> int:
        """The MACs of one query with one key, over all heads: heads x (head_dim + value_dim)."""
        return self.heads * (self.head_dim + self.value_dim)

    def window_pairs(self, tokens: int) -> int:
        """Return the number of (query, key) pairs of causal attention over this number of tokens,
        within the window.
        """
        width = min(self.window or tokens, tokens)
        return tokens * width - width * (width - 1) // 2


class CrossAttention(msgspec.Struct, frozen=True, kw_only=True):
    """The attention of a decoder's layer to the result of an encoder.

    A target token passes `query_projections`, a source token `key_projections`. `macs_per_pair`
    are the MACs of one target token with one source token.
    """

    query_projections: int
    key_projections: int
    macs_per_pair: int


class StateSpace(msgspec.Struct, frozen=True, kw_only=True):
    """The state space of one layer, as transformers runs it in PyTorch.

    `projections` are the elements of its matrices, each of which a token passes once. A causal
    convolution of `kernel` steps runs over `channels`, each for itself. The scan has `heads` of
    `head_dim` values, each with a `state`; `groups` of heads share inputs and outputs of the
    state. Mamba-2 scans in chunks of `chunk` tokens, the last one padded; with 0, as in Mamba, it
    takes one token after the other. A short convolution alone, as in LFM2, has no heads.
    """

    projections: int
    channels: int
    kernel: int
    heads: int
    head_dim: int
    state: int
    groups: int = 1
    chunk: int = 0

    @property
    def inner_width(self) -> int:
        """The number of values of all heads."""
        return self.heads * self.head_dim

    @property
    def convolution_weights(self) -> int:
        """The elements of the convolution: channels x kernel."""
        return self.channels * self.kernel

    def convolution_macs(self, tokens: int) -> int:
        """Return the MACs of the convolution over this number of tokens.

        It pads kernel - 1 steps on both sides; the steps after the last token are computed, and
        dropped.
        """
        return self.convolution_weights * (tokens + self.kernel - 1)

    def scan_macs(self, tokens: int) -> int:
        """Return the MACs of the scan over this number of tokens.

        One token after the other: the product of each state with the output vector C. In chunks:
        scores of all pairs of a chunk and their product with values; the state of each chunk;
        its sum over earlier chunks; and its product with C.
        """
        states = self.inner_width * self.state
        if not self.chunk:
            return tokens * states
        chunks = -(-tokens // self.chunk)
        padded = chunks * self.chunk
        pairs = self.chunk * self.heads * (self.state + self.head_dim)
        return padded * (pairs + 2 * states) + (chunks + 1) ** 2 * states


class GatedDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The gated delta rule of one layer, a linear attention, as transformers runs it in
    PyTorch.

    `projections` are the elements of its matrices, each of which a token passes once. A causal
    convolution of `kernel` steps runs over `channels`, each for itself. `heads` have keys of
    `key_dim` and values of `value_dim`; tokens go in chunks of `chunk`, the last one padded.
    """

    projections: int
    channels: int
    kernel: int
    heads: int
    key_dim: int
    value_dim: int
    chunk: int

    @property
    def convolution_weights(self) -> int:
        """The elements of the convolution: channels x kernel."""
        return self.channels * self.kernel

    def convolution_macs(self, tokens: int) -> int:
        """Return the MACs of the convolution over this number of tokens, with kernel - 1 steps
        after the last one.
        """
        return self.convolution_weights * (tokens + self.kernel - 1)

    def scan_macs(self, tokens: int) -> int:
        """Return the MACs of the rule over this number of tokens.

        For all pairs of a chunk: keys with keys and with queries, and scores with new values; the
        triangular system between them is solved, not multiplied. With the state: keys, queries,
        and its update, which the last chunk does not need.
        """
        padded = -(-tokens // self.chunk) * self.chunk
        pairs = padded * self.chunk * (2 * self.key_dim + self.value_dim)
        states = (3 * padded - self.chunk) * self.key_dim * self.value_dim
        return self.heads * (pairs + states)


class FeedForward(msgspec.Struct, frozen=True, kw_only=True):
    """The feed-forward part of one layer: two matrices, or three where it is `gated`.

    With `experts` a token passes `active` of them, each of the `width`, and shared ones of
    `shared_width` together. `router` are the elements of what chooses experts. With `runs_all` the
    graph multiplies each token by all experts, with zeros for those that were not chosen.
    """

    hidden: int
    width: int
    gated: bool
    experts: int = 0
    active: int = 0
    shared_width: int = 0
    router: int = 0
    runs_all: bool = False

    @property
    def matrix_count(self) -> int:
        """The number of weight matrices of one feed-forward layer: 3 if gated, otherwise 2."""
        return 3 if self.gated else 2

    @property
    def active_width(self) -> int:
        """The inner width that one token uses, summed over its active and shared experts."""
        return (self.width * self.active if self.experts else self.width) + self.shared_width

    @property
    def macs(self) -> int:
        """The forward MACs of one token, without those of the router."""
        return self.matrix_count * self.hidden * self.active_width

    @property
    def inactive_weights(self) -> int:
        """The number of weights of the experts that one token does not use."""
        return (self.experts - self.active) * self.matrix_count * self.hidden * self.width

    @property
    def idle_macs(self) -> int:
        """The forward MACs of one token in experts that were not chosen for it; 0 where these do
        not run.
        """
        return self.inactive_weights if self.runs_all else 0


class DecoderLayer(msgspec.Struct, frozen=True):
    """One block: attention or a state space (also a delta rule) or both, and a feed-forward part,
    of width 0 if it has none. A decoder behind an encoder attends to the encoder's result by
    `cross`.
    """

    attention: AttentionSizes | None
    ffn: FeedForward
    state_space: StateSpace | GatedDelta | None = None
    cross: CrossAttention | None = None

    @property
    def token_macs(self) -> int:
        """The forward MACs of one token in all matrices that it passes, those of keys of an
        encoder excluded.
        """
        parts = (
            self.attention.projections if self.attention else 0,
            self.state_space.projections if self.state_space else 0,
            self.cross.query_projections if self.cross else 0,
        )
        return sum(parts) + self.ffn.macs + self.ffn.router


class ParameterTable(msgspec.Struct, frozen=True, kw_only=True):
    """Elements of the parameters by kind, each storage once.

    `table` is the input embedding, `positions` are other embeddings, `head` is the output matrix
    where it is no other name of the table. `norms` are all parameters of norms, of which
    `head_norms` belong to queries and keys, `rank_norms` to latent projections and `final_norm`
    stands behind the last layer. `biases` are biases and attention sinks, of which
    `expert_biases` belong to experts; the vectors of state spaces are among them. `matrices` are
    those of the layers, `convolutions` those of state spaces. `other_parts` are not in `total`:
    the parameters for images and sound, which text does not pass, of which `other_embeddings` are
    embeddings.
    """

    total: int
    table: int
    positions: int
    head: int
    norms: int
    head_norms: int
    rank_norms: int
    final_norm: int
    biases: int
    expert_biases: int
    matrices: int
    convolutions: int = 0
    other_parts: int = 0
    other_embeddings: int = 0


class LanguageArchitecture(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder of tokens. `activation` is that of its feed-forward layers, as configs name it.

    `layers` are those of the decoder, `encoder` those of an encoder before it, if it has one.
    `other_matrices` are the elements of matrices that each token passes once, outside of
    attention, feed-forward parts and the output.
    """

    model_type: str
    hidden: int
    vocabulary: int
    tied: bool
    activation: str
    layers: tuple[DecoderLayer, ...]
    parameters: ParameterTable
    encoder: tuple[DecoderLayer, ...] = ()
    other_matrices: int = 0

    def sum_layers(self, amount: Callable[[DecoderLayer], int]) -> int:
        """Return the sum of `amount(layer)` over all layers of the model."""
        return sum(map(amount, self.layers))

    @property
    def projection_macs(self) -> int:
        """The forward MACs of one token in the projections around attention, over all layers."""
        return sum(attention.projections for attention in self.attentions)

    @property
    def attentions(self) -> tuple[AttentionSizes, ...]:
        """The self-attentions of the layers that have one, without those of an encoder."""
        return tuple(layer.attention for layer in self.layers if layer.attention)

    @property
    def state_spaces(self) -> tuple[StateSpace | GatedDelta, ...]:
        """The state spaces and delta rules of the layers that have one."""
        return tuple(layer.state_space for layer in self.layers if layer.state_space)

    @property
    def state_space_projection_macs(self) -> int:
        """The forward MACs of one token in the projections around state spaces."""
        return sum(space.projections for space in self.state_spaces)

    @property
    def ffn_macs(self) -> int:
        """The forward MACs of one token in all feed-forward layers, with the experts that it uses,
        without routers.
        """
        return self.sum_layers(lambda layer: layer.ffn.macs)

    @property
    def router_macs(self) -> int:
        """The forward MACs of one token in the routers, which choose its experts, over
        all layers.
        """
        return self.sum_layers(lambda layer: layer.ffn.router)

    @property
    def inactive_weights(self) -> int:
        """The number of weights, over all layers, of the experts that one token does not use."""
        return sum(layer.ffn.inactive_weights for layer in (*self.layers, *self.encoder))

    @property
    def extra_shared_weights(self) -> int:
        """The number of matrix elements that a token passes again in a later layer, which shares
        its weights with an earlier one.
        """
        passed = self.linear_macs - self.head_macs + self.source_macs + self.inactive_weights
        return passed - self.parameters.matrices

    @property
    def inactive_biases(self) -> int:
        """The number of bias elements of the experts that one token does not use."""
        active = next((layer.ffn for layer in self.layers if layer.ffn.experts), None)
        if active is None:
            return 0
        biases = self.parameters.expert_biases
        return biases - biases * active.active // active.experts

    @property
    def head_macs(self) -> int:
        """The forward MACs of one token in the output matrix: vocabulary x hidden."""
        return self.vocabulary * self.hidden

    @property
    def linear_macs(self) -> int:
        """The forward MACs of one token in all matrix products of the decoder, attention scores
        and keys of an encoder excluded.
        """
        layers = self.sum_layers(lambda layer: layer.token_macs)
        return layers + self.other_matrices + self.head_macs

    @property
    def source_macs(self) -> int:
        """The forward MACs of one source token: the matrices of the encoder, and those of the
        decoder that make keys and values of the encoder's result. 0 without an encoder.
        """
        keys = self.sum_layers(lambda layer: layer.cross.key_projections if layer.cross else 0)
        return sum(layer.token_macs for layer in self.encoder) + keys

    @property
    def macs_per_pair(self) -> int:
        """The MACs of one query with one key, over all heads and layers."""
        return sum(attention.macs_per_pair for attention in self.attentions)

    @property
    def window_attentions(self) -> tuple[AttentionSizes, ...]:
        """The attentions of the layers that limit attention to a window."""
        return tuple(attention for attention in self.attentions if attention.window)

    @property
    def max_experts(self) -> int:
        """The largest number of experts of a layer; 0 if no layer has experts."""
        return max((layer.ffn.experts for layer in self.layers), default=0)


class TokenSequence(msgspec.Struct, frozen=True):
    """A sequence of so many tokens through a model: the call that a rule of a formula is about.

    `tokens` are those of `input_ids`. An encoder reads them, and the decoder behind it has
    `target_tokens`; without an encoder these are the same.
    """

    architecture: LanguageArchitecture
    tokens: int
    target_tokens: int | None = None

    @property
    def decoder_tokens(self) -> int:
        """The number of tokens that the decoder sees."""
        return self.tokens if self.target_tokens is None else self.target_tokens

    @property
    def macs(self) -> int:
        """The forward MACs of the sequence, with attention over all pairs of tokens, masked ones
        included.
        """
        model = self.architecture
        return (
            model.linear_macs * self.decoder_tokens
            + model.source_macs * self.tokens
            + self.attention_macs
            + self.convolution_macs
            + self.scan_macs
            + self.idle_expert_macs
            + self.extra_attention_macs
        )

    @property
    def idle_expert_macs(self) -> int:
        """The forward MACs of tokens in experts that were not chosen for them, where these run."""
        idle = self.architecture.sum_layers(lambda layer: layer.ffn.idle_macs)
        return idle * self.decoder_tokens

    @property
    def extra_attention_macs(self) -> int:
        """The forward MACs of indexers and second passes over all pairs of tokens."""
        extra = self.sum_attention(lambda layer: layer.extra_macs_per_pair)
        return extra * self.decoder_tokens**2

    @property
    def attention_macs(self) -> int:
        """The forward MACs of attention over all pairs of tokens: of the decoder, of the encoder,
        and of the decoder with the encoder.
        """
        model, target = self.architecture, self.decoder_tokens
        encoder = sum(layer.attention.macs_per_pair for layer in model.encoder if layer.attention)
        cross = model.sum_layers(lambda layer: layer.cross.macs_per_pair if layer.cross else 0)
        return (
            model.macs_per_pair * target**2
            + encoder * self.tokens**2
            + cross * target * self.tokens
        )

    @property
    def convolution_macs(self) -> int:
        """The forward MACs of the convolutions of state spaces."""
        return sum(space.convolution_macs(self.tokens) for space in self.architecture.state_spaces)

    @property
    def scan_macs(self) -> int:
        """The forward MACs of the scans of state spaces."""
        return sum(space.scan_macs(self.tokens) for space in self.architecture.state_spaces)

    def sum_attention(
        self,
        amount: Callable[[AttentionSizes], int],
        among: Iterable[AttentionSizes] | None = None,
    ) -> int:
        """Return the sum of `amount(attention)` over the self-attentions of all layers, or over
        those in `among`.
        """
        return sum(map(amount, self.architecture.attentions if among is None else among))


class FormulaTraits(msgspec.Struct, frozen=True, kw_only=True):
    """A formula over an architecture, and what it is about.

    `number` gives the FLOPs of a sequence as the source computes them; the formula is written
    `per` token or sequence, for the forward pass or for `training`, three such passes.
    """

    number: Callable[[TokenSequence], int]
    per: Literal["token", "sequence"]
    passes: Passes
