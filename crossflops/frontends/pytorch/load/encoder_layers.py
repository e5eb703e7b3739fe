"""The layers of an encoder and of the decoder behind it, from their modules and parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from crossflops.errors import InputError
from crossflops.frontends.pytorch.load.attention_heads import (
    AttentionHeads,
    AttentionPosition,
    iterate_attention_heads,
)
from crossflops.frontends.pytorch.load.language_parameters import (
    LanguageParameter,
    elements_by_kind,
)
from crossflops.ir.architecture import (
    AttentionSizes,
    CrossAttention,
    DecoderLayer,
    FeedForward,
)

Layers = tuple[DecoderLayer, ...]


def read_encoder_decoder_layers(
    model: Any, parameters: Sequence[LanguageParameter]
) -> tuple[Layers, Layers]:
    """Return (layers of the encoder, layers of the decoder) of a model of transformers.

    Raises InputError for a layer that is not attention, with a feed-forward part of two or three
    matrices.
    """
    heads = dict(iterate_attention_heads(model))
    stacks: dict[bool, list[DecoderLayer]] = {True: [], False: []}
    for position, own in _parameters_by_layer(parameters).items():
        elements = elements_by_kind(own)
        cross = msgspec.structs.replace(position, is_cross=True)
        if position not in heads or elements.get("expert") or not elements.get("ffn"):
            stack = "encoder" if position.in_encoder else "decoder"
            raise InputError(
                "the published FLOP formulas for language models do not support "
                f"{model.config.model_type}: layer {position.layer} of its {stack} is not "
                "attention and one feed-forward part",
                "leave out --llm and --as, and count the model",
            )
        stacks[position.in_encoder].append(
            DecoderLayer(
                _self_attention(heads[position], elements["attention"]),
                _feed_forward(own),
                cross=_cross_attention(heads[cross], elements) if cross in heads else None,
            )
        )
    return tuple(stacks[True]), tuple(stacks[False])


def _parameters_by_layer(
    parameters: Sequence[LanguageParameter],
) -> Mapping[AttentionPosition, list[LanguageParameter]]:
    """Return the parameters of the layers of both stacks, by layer."""
    layers: dict[AttentionPosition, list[LanguageParameter]] = {}
    for parameter in parameters:
        if parameter.layer >= 0:
            position = AttentionPosition(parameter.in_encoder, parameter.layer)
            layers.setdefault(position, []).append(parameter)
    return layers


def _self_attention(heads: AttentionHeads, projections: int) -> AttentionSizes:
    """Return the sizes of attention within one stack."""
    return AttentionSizes(
        heads=heads.count,
        kv_heads=heads.count // heads.group,
        head_dim=heads.depth,
        value_dim=heads.depth,
        projections=projections,
    )


def _cross_attention(heads: AttentionHeads, elements: Mapping[str, int]) -> CrossAttention:
    """Return the sizes of attention from a decoder's layer to the encoder."""
    return CrossAttention(
        query_projections=elements["cross"],
        key_projections=elements["cross_keys"],
        macs_per_pair=heads.macs_per_pair,
    )


def _feed_forward(parameters: Sequence[LanguageParameter]) -> FeedForward:
    """Return the sizes of the feed-forward part of a layer, of which each matrix is a parameter:
    two of them, or three with a gate. The width of the model is that of the layer's norms.
    """
    matrices = [parameter for parameter in parameters if parameter.kind == "ffn"]
    hidden = next(parameter.numel for parameter in parameters if parameter.kind == "norm")
    gated = len(matrices) == 3
    width = sum(parameter.numel for parameter in matrices) // ((3 if gated else 2) * hidden)
    return FeedForward(hidden=hidden, width=width, gated=gated)
