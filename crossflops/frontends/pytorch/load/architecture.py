"""The sizes of a language model of transformers, read from its config and its table of parameters.

No weight is read. What a matrix is for follows from its name and the module that holds it, sizes
of heads, windows and experts from the config. A model whose matrices are not all accounted for so
is refused, and not guessed at.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from crossflops.errors import InputError
from crossflops.ir.architecture import (
    AttentionSizes,
    DecoderLayer,
    FeedForward,
    LanguageArchitecture,
    ParameterTable,
)

_HINT = "give a decoder-only language model of transformers, such as hf:config.json"
_FORMULAS = "the published FLOP formulas for language models"
_LAYER = re.compile(r"\.(\d+)\.")
_ROUTER = re.compile(r"(\.gate|\.router|shared_expert_gate)\.weight$")
_SHARED = "shared_expert"
_ATTENTION = re.compile(r"attn|attention")
_HEAD_NORM = re.compile(r"\.(q|k|query|key)_(layer)?norm\b")
_RANK_NORM = re.compile(r"\.(q|kv)_a_layernorm\b")
# Gates of GPT-OSS are x sigmoid(1.702 x), clamped, whatever its config names.
_OWN_ACTIVATIONS = {"gpt_oss": "clamped_swish"}


class _Parameter(msgspec.Struct, frozen=True):
    """A parameter: its name, its number of elements, its kind, and its layer (-1 for none)."""

    name: str
    numel: int
    kind: str
    layer: int


def read_architecture(model: Any) -> LanguageArchitecture:
    """Return the sizes of a causal language model of transformers, by layer. Raises InputError for
    any other model.
    """
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "model_type"):
        raise InputError(
            f"{_FORMULAS} require the config of a model of transformers, but this model has no "
            "config",
            _HINT,
        )
    _require_text_decoder(model, config)
    parameters = tuple(_iterate_parameters(model))
    table = _parameter_table(model, parameters)
    tied = not table.head
    hidden, vocabulary = config.hidden_size, _vocabulary_size(model)
    layers = tuple(
        DecoderLayer(
            _layer_attention(config, parameters, index), _layer_ffn(config, parameters, index)
        )
        for index in range(config.num_hidden_layers)
    )
    architecture = LanguageArchitecture(
        model_type=config.model_type,
        hidden=hidden,
        vocabulary=vocabulary,
        tied=tied,
        activation=_OWN_ACTIVATIONS.get(config.model_type, _activation_name(config)),
        layers=layers,
        parameters=table,
    )
    read = (
        architecture.linear_macs - architecture.head_macs + architecture.inactive_weights
    )  # elements of the matrices
    if read != table.matrices or table.table != architecture.head_macs:
        raise InputError(
            f"{_FORMULAS} do not support {config.model_type}: its matrices have {table.matrices} "
            f"elements, but its config describes {read}",
            "leave out --llm and --as, and count the model",
        )
    return architecture


def _require_text_decoder(model: Any, config: Any) -> None:
    """Raise InputError unless the model is a decoder of text alone with an output matrix."""
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(
            f"{_FORMULAS} do not support {config.model_type}: it has an encoder and a decoder",
            _HINT,
        )
    if getattr(config, "vision_config", None) or getattr(config, "audio_config", None):
        raise InputError(
            f"{_FORMULAS} do not support {config.model_type}: it reads more than text", _HINT
        )
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None:
        raise InputError(
            f"{_FORMULAS} do not support {type(model).__name__}: it has no output matrix over a "
            "vocabulary",
            _HINT,
        )
    if not hasattr(config, "num_attention_heads"):
        raise InputError(
            f"{_FORMULAS} do not support {config.model_type}: its config has no attention heads",
            _HINT,
        )


def _vocabulary_size(model: Any) -> int:
    """Return the number of tokens in a language model's vocabulary, from its output matrix."""
    size: int = model.get_output_embeddings().weight.shape[0]
    return size


def _activation_name(config: Any) -> str:
    """Return the name of the activation function in the config of a model; "" if none is named."""
    for name in ("hidden_act", "hidden_activation", "activation_function", "activation"):
        if isinstance(value := getattr(config, name, None), str):
            return value
    return ""


def _iterate_parameters(model: Any) -> Iterator[_Parameter]:
    """Yield name, number of elements, kind and layer of each parameter of a model, shared ones
    once.
    """
    table = model.get_input_embeddings().weight
    head = model.get_output_embeddings().weight
    owners = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        owner = owners[name.rpartition(".")[0]]
        layer = _LAYER.search(name)
        index = int(layer[1]) if layer else -1
        if parameter is table:
            kind = "table"
        elif parameter is head:
            kind = "head"
        else:
            kind = _parameter_kind(name, parameter, owner)
        yield _Parameter(name, parameter.numel(), kind, index)


def _parameter_kind(name: str, parameter: Any, owner: Any) -> str:
    """Return the kind of a parameter, which its name and its module decide: "norm", "bias", "ffn",
    ...
    """
    class_name = type(owner).__name__
    if "norm" in class_name.lower():
        return "norm"
    if "embedding" in class_name.lower():
        return "position"
    if parameter.dim() < 2 or name.endswith("bias"):
        return "expert_bias" if ".experts." in name else "bias"
    if _ROUTER.search(name):
        return "router"
    if _SHARED in name:
        return "shared"
    if ".experts." in name:
        return "expert"
    return "attention" if _ATTENTION.search(name) else "ffn"


def _parameter_table(model: Any, parameters: tuple[_Parameter, ...]) -> ParameterTable:
    """Return the numbers of parameter elements of a model by kind: input table, head, norms,
    biases, matrices.
    """

    def element_count(
        *kinds: str, like: re.Pattern[str] | None = None, layer: int | None = None
    ) -> int:
        """Return the number of elements of the parameters of these kinds, name pattern and layer;
        all if not given.
        """
        return sum(
            parameter.numel
            for parameter in parameters
            if (not kinds or parameter.kind in kinds)
            and (like is None or like.search(parameter.name))
            and (layer is None or parameter.layer == layer)
        )

    return ParameterTable(
        total=element_count(),
        table=element_count("table"),
        positions=element_count("position"),
        head=element_count("head"),
        norms=element_count("norm"),
        head_norms=element_count("norm", like=_HEAD_NORM),
        rank_norms=element_count("norm", like=_RANK_NORM),
        final_norm=element_count("norm", layer=-1),
        biases=element_count("bias", "expert_bias"),
        expert_biases=element_count("expert_bias"),
        matrices=element_count("router", "shared", "expert", "attention", "ffn"),
    )


def _elements_by_kind(parameters: tuple[_Parameter, ...], layer: int) -> Mapping[str, int]:
    """Return for each kind of parameter the number of elements that the parameters of a layer
    have.
    """
    elements: dict[str, int] = {}
    for parameter in parameters:
        if parameter.layer == layer:
            elements[parameter.kind] = elements.get(parameter.kind, 0) + parameter.numel
    return elements


def _layer_attention(
    config: Any, parameters: tuple[_Parameter, ...], layer: int
) -> AttentionSizes:
    """Return the attention sizes of a layer, from its config and its parameters. Raises InputError
    if it has no attention.
    """
    heads: int = config.num_attention_heads
    projections = _elements_by_kind(parameters, layer).get("attention", 0)
    if not projections:
        raise InputError(
            f"{_FORMULAS} do not support {config.model_type}: its layer {layer} has no attention",
            "leave out --llm and --as, and count the model",
        )
    latent = getattr(config, "kv_lora_rank", None)
    if latent:
        return AttentionSizes(
            heads=heads,
            kv_heads=heads,
            head_dim=config.qk_nope_head_dim + config.qk_rope_head_dim,
            value_dim=config.v_head_dim,
            projections=projections,
            query_rank=config.q_lora_rank or 0,
            key_rank=latent,
            rotary_dim=config.qk_rope_head_dim,
        )
    depth = getattr(config, "head_dim", None) or config.hidden_size // heads
    return AttentionSizes(
        heads=heads,
        kv_heads=_key_head_count(config),
        head_dim=depth,
        value_dim=depth,
        projections=projections,
        window=_visible_key_count(config, layer),
    )


def _key_head_count(config: Any) -> int:
    """Return the number of key and value heads of an attention layer, from the config of the
    model.
    """
    heads: int = config.num_attention_heads
    if hasattr(config, "multi_query"):  # Falcon
        if config.new_decoder_architecture:
            return int(config.num_kv_heads)
        return 1 if config.multi_query else heads
    return getattr(config, "num_key_value_heads", None) or heads


def _visible_key_count(config: Any, layer: int) -> int | None:
    """Return how many keys a query of a layer can see; None if it can see all."""
    window: int | None = getattr(config, "sliding_window", None)
    if window is None or getattr(config, "use_sliding_window", True) is False:
        return None
    kinds = getattr(config, "layer_types", None)
    return window if kinds is None or kinds[layer] == "sliding_attention" else None


def _layer_ffn(config: Any, parameters: tuple[_Parameter, ...], layer: int) -> FeedForward:
    """Return the sizes of the feed-forward part of a layer, from its config and its parameters."""
    elements, hidden = _elements_by_kind(parameters, layer), config.hidden_size
    if not elements.get("expert"):
        width = _ffn_width(config)
        return FeedForward(
            hidden=hidden, width=width, gated=elements.get("ffn", 0) == 3 * hidden * width
        )
    experts = next(
        int(number)
        for name in ("num_local_experts", "num_experts", "n_routed_experts")
        if (number := getattr(config, name, None))
    )
    width = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    gated = elements["expert"] == 3 * hidden * width * experts
    shared = elements.get("shared", 0) // ((3 if gated else 2) * hidden)
    return FeedForward(
        hidden=hidden,
        width=width,
        gated=gated,
        experts=experts,
        active=config.num_experts_per_tok,
        shared_width=shared,
        router=elements.get("router", 0),
    )


def _ffn_width(config: Any) -> int:
    """Return the inner width of a feed-forward layer, from the config of the model."""
    for name in ("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner"):
        if isinstance(width := getattr(config, name, None), int):
            return width
    return 4 * int(config.hidden_size)
