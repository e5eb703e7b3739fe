"""The attentions of a model of transformers: where they are, and their heads."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from crossflops.frontends.pytorch.load.language_parameters import (
    decoder_path,
    is_cross_attention,
    is_in_encoder,
    layer_of_name,
)

_HEADS = ("num_heads", "n_heads", "num_attention_heads")
_DEPTHS = ("head_dim", "key_value_proj_dim")


class AttentionHeads(msgspec.Struct, frozen=True):
    """The heads of one attention: their number and depth, and how many share keys and values."""

    count: int
    depth: int
    group: int

    @property
    def macs_per_pair(self) -> int:
        """The MACs of one query with one key, over all heads."""
        return 2 * self.count * self.depth


class AttentionPosition(msgspec.Struct, frozen=True):
    """Where an attention is: its stack, its layer, and whether it attends to the encoder."""

    in_encoder: bool
    layer: int
    is_cross: bool = False


def iterate_attention_heads(model: Any) -> Iterator[tuple[AttentionPosition, AttentionHeads]]:
    """Yield each attention of a model that has projections: its position, and its heads.

    Sizes are those of the module, or of its own config.
    """
    has_encoder = bool(getattr(model.config, "is_encoder_decoder", False))
    decoder = "" if has_encoder else decoder_path(model)
    for path, module in model.named_modules(remove_duplicate=False):
        is_attention = "attention" in type(module).__name__.lower() and path.startswith(decoder)
        if layer_of_name(path) < 0 or not is_attention or not list(module.children()):
            continue
        count, depth = (_first_size(module, names) for names in (_HEADS, _DEPTHS))
        if count and depth:
            in_encoder = has_encoder and is_in_encoder(path)
            yield (
                AttentionPosition(in_encoder, layer_of_name(path), is_cross_attention(path)),
                AttentionHeads(count, depth, getattr(module, "num_key_value_groups", 1)),
            )


def _first_size(module: Any, names: Sequence[str]) -> int:
    """Return the first integer attribute of a module, or of its config, with one of these names;
    0 if it has none.
    """
    for name in names:
        if isinstance(size := getattr(module, name, None), int):
            return size
    config = getattr(module, "config", None)
    layer = getattr(module, "layer_idx", None)
    layers = getattr(config, "per_layer_config", None)
    own = config if layers is None or layer is None else layers[layer]
    return next((size for name in names if isinstance(size := getattr(own, name, None), int)), 0)
