"""The architecture of a language model: what formulas over a config and a parameter table read.

Amounts are forward MACs of one token unless said, and elements of parameters. T tokens of a
sequence attend to each other in T x T pairs, of which a graph with a mask computes all.
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

    @property
    def is_latent(self) -> bool:
        """Whether keys and values come from a low-rank projection."""
        return bool(self.key_rank)

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


class FeedForward(msgspec.Struct, frozen=True, kw_only=True):
    """The feed-forward part of one layer: two matrices, or three where it is `gated`.

    With `experts` a token passes `active` of them, each of the `width`, and shared ones of
    `shared_width` together. `router` are the elements of what chooses experts.
    """

    hidden: int
    width: int
    gated: bool
    experts: int = 0
    active: int = 0
    shared_width: int = 0
    router: int = 0

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


class DecoderLayer(msgspec.Struct, frozen=True):
    """One block."""

    attention: AttentionSizes
    ffn: FeedForward


class ParameterTable(msgspec.Struct, frozen=True, kw_only=True):
    """Elements of the parameters by kind, each storage once.

    `table` is the input embedding, `positions` are other embeddings, `head` is the output matrix
    where it is no other name of the table. `norms` are all parameters of norms, of which
    `head_norms` belong to queries and keys, `rank_norms` to latent projections and `final_norm`
    stands behind the last layer. `biases` are biases and attention sinks, of which
    `expert_biases` belong to experts. `matrices` are those of the layers.
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


class LanguageArchitecture(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder of tokens. `activation` is that of its feed-forward layers, as configs name it."""

    model_type: str
    hidden: int
    vocabulary: int
    tied: bool
    activation: str
    layers: tuple[DecoderLayer, ...]
    parameters: ParameterTable

    def sum_layers(self, amount: Callable[[DecoderLayer], int]) -> int:
        """Return the sum of `amount(layer)` over all layers of the model."""
        return sum(map(amount, self.layers))

    @property
    def projection_macs(self) -> int:
        """The forward MACs of one token in the projections around attention, over all layers."""
        return self.sum_layers(lambda layer: layer.attention.projections)

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
        return self.sum_layers(lambda layer: layer.ffn.inactive_weights)

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
        """The forward MACs of one token in all matrix products, attention scores excluded."""
        return self.projection_macs + self.ffn_macs + self.router_macs + self.head_macs

    @property
    def macs_per_pair(self) -> int:
        """The MACs of one query with one key, over all heads and layers."""
        return self.sum_layers(lambda layer: layer.attention.macs_per_pair)

    @property
    def window_attentions(self) -> tuple[AttentionSizes, ...]:
        """The attentions of the layers that limit attention to a window."""
        attentions = (layer.attention for layer in self.layers)
        return tuple(attention for attention in attentions if attention.window)

    @property
    def max_experts(self) -> int:
        """The largest number of experts of a layer; 0 if no layer has experts."""
        return max((layer.ffn.experts for layer in self.layers), default=0)


class TokenSequence(msgspec.Struct, frozen=True):
    """A sequence of so many tokens through a model: the call that a rule of a formula is about."""

    architecture: LanguageArchitecture
    tokens: int

    @property
    def macs(self) -> int:
        """The forward MACs of the sequence, with attention over all tokens x tokens pairs, masked
        ones included.
        """
        model = self.architecture
        return self.tokens * (model.linear_macs + model.macs_per_pair * self.tokens)

    def sum_attention(
        self,
        amount: Callable[[AttentionSizes], int],
        among: Iterable[AttentionSizes] | None = None,
    ) -> int:
        """Return the sum of `amount(attention)` over the attentions of all layers, or over those
        in `among`.
        """
        every = (layer.attention for layer in self.architecture.layers)
        return sum(map(amount, every if among is None else among))


class FormulaTraits(msgspec.Struct, frozen=True, kw_only=True):
    """A formula over an architecture, and what it is about.

    `number` gives the FLOPs of a sequence as the source computes them; the formula is written
    `per` token or sequence, for the forward pass or for `training`, three such passes.
    """

    number: Callable[[TokenSequence], int]
    per: Literal["token", "sequence"]
    passes: Passes
