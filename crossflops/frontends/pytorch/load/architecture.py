"""The sizes of a language model of transformers, read from its config and its table of parameters.

No weight is read. What a matrix is for follows from its name and the module that holds it, sizes
of heads, windows and experts from the config. A model whose matrices are not all accounted for so
is refused, and not guessed at.
"""

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from crossflops.errors import InputError
from crossflops.frontends.pytorch.load.attention_heads import (
    AttentionHeads,
    AttentionPosition,
    iterate_attention_heads,
)
from crossflops.frontends.pytorch.load.encoder_layers import read_encoder_decoder_layers
from crossflops.frontends.pytorch.load.language_parameters import (
    LanguageParameter,
    decoder_path,
    elements_by_kind,
    iterate_parameters,
    layer_of_name,
    matrix_elements_of_layers,
    parameter_table,
    state_space_modules,
)
from crossflops.ir.architecture import (
    AttentionSizes,
    DecoderLayer,
    FeedForward,
    GatedDelta,
    LanguageArchitecture,
    StateSpace,
)

_HINT = "give a language model of transformers for text, such as hf:config.json"
_COUNT_HINT = "leave out --llm and --as, and count the model"
_FORMULAS = "the published FLOP formulas for language models"
_DELTA_CHUNK = 64  # chunk_size of torch_chunk_gated_delta_rule, which no config changes
# Gates of GPT-OSS are x sigmoid(1.702 x), clamped, whatever its config names.
_OWN_ACTIVATIONS = {"gpt_oss": "clamped_swish"}


def read_architecture(model: Any) -> LanguageArchitecture:
    """Return the sizes of a language model of transformers for text, by layer. Raises InputError
    for any other model.

    Of a model that also reads images or sound, these are the sizes of its text decoder.
    """
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "model_type"):
        raise InputError(
            f"{_FORMULAS} require the config of a model of transformers, but this model has no "
            "config",
            _HINT,
        )
    _require_output_matrix(model)
    try:
        return _read_text_architecture(model, config)
    except (AttributeError, TypeError, KeyError, StopIteration) as error:
        raise InputError(
            f"{_FORMULAS} do not support {config.model_type}: its config has other names than "
            f"those that are known ({str(error).splitlines()[0] if str(error) else 'experts'})",
            _COUNT_HINT,
        ) from error


def _read_text_architecture(model: Any, config: Any) -> LanguageArchitecture:
    """Return the sizes of a language model, whose matrices must all be described."""
    parameters = tuple(iterate_parameters(model))
    table = parameter_table(parameters)
    if getattr(config, "is_encoder_decoder", False):
        text = config
        encoder, layers = read_encoder_decoder_layers(model, parameters)
    else:
        text = config.get_text_config() if decoder_path(model) else config
        encoder, layers = (), tuple(_iterate_decoder_layers(model, text, parameters))
    vocabulary, hidden = model.get_output_embeddings().weight.shape
    architecture = LanguageArchitecture(
        model_type=config.model_type,
        hidden=hidden,
        vocabulary=vocabulary,
        tied=not table.head,
        activation=_OWN_ACTIVATIONS.get(config.model_type, _activation_name(text)),
        layers=layers,
        parameters=table,
        encoder=encoder,
        other_matrices=elements_by_kind(parameters).get("other_matrix", 0),
    )
    passed = matrix_elements_of_layers(parameters)
    read = (
        architecture.extra_shared_weights + table.matrices
    )  # elements of matrices, by the config
    if table.table != architecture.head_macs:
        raise InputError(
            f"{_FORMULAS} do not support {config.model_type}: its table of embeddings has "
            f"{table.table} elements, and its output matrix {architecture.head_macs}",
            _COUNT_HINT,
        )
    if read != passed:
        raise InputError(
            f"{_FORMULAS} do not support {config.model_type}: its matrices have {passed} "
            f"elements, but its config describes {read}",
            _COUNT_HINT,
        )
    return architecture


def _require_output_matrix(model: Any) -> None:
    """Raise InputError unless the model has an output matrix over a vocabulary."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is not None:
        return
    name = _language_class_name(model.config)
    if name and not model.config.architectures:
        raise InputError(
            f"{_FORMULAS} do not support {type(model).__name__}: it has no output matrix over a "
            'vocabulary, because the config has no "architectures", and transformers then builds '
            "the class without it",
            f'add "architectures": ["{name}"] to the config',
        )
    raise InputError(
        f"{_FORMULAS} do not support {type(model).__name__}: it has no output matrix over a "
        "vocabulary",
        f'write "architectures": ["{name}"] in the config' if name else _HINT,
    )


def _language_class_name(config: Any) -> str:
    """Return the name of the language model class that transformers has for the type of a config:
    a causal one, or that of an encoder-decoder; "" for a type without one.
    """
    import transformers

    mappings = (
        transformers.MODEL_FOR_CAUSAL_LM_MAPPING,
        transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    )
    if getattr(config, "is_encoder_decoder", False):
        mappings = mappings[::-1]
    kinds = (mapping.get(type(config), None) for mapping in mappings)
    return next((kind.__name__ for kind in kinds if kind is not None), "")


def _activation_name(config: Any) -> str:
    """Return the name of the activation function in the config of a model; "" if none is named."""
    for name in (
        "hidden_act",
        "hidden_activation",
        "activation_function",
        "activation",
        "mlp_hidden_act",
    ):
        if isinstance(value := getattr(config, name, None), str):
            return value
    return ""


def _iterate_decoder_layers(
    model: Any, config: Any, parameters: Sequence[LanguageParameter]
) -> Iterator[DecoderLayer]:
    """Yield the layers of a decoder. Raises InputError for a layer without attention, unless the
    model has state spaces.
    """
    spaces = _layer_state_spaces(model, config, parameters)
    heads = dict(iterate_attention_heads(model))
    extra, all_experts = _extra_macs_per_pair(model), _layers_that_run_all_experts(model)
    for index in range(_decoder_layer_count(config)):
        own = [parameter for parameter in parameters if parameter.layer == index]
        elements, sizes = elements_by_kind(own), _config_of_layer(config, index)
        if not spaces and not elements.get("attention"):
            raise InputError(
                f"{_FORMULAS} do not support {config.model_type}: its layer {index} has no "
                "attention",
                _COUNT_HINT,
            )
        position = AttentionPosition(in_encoder=False, layer=index)
        attention = (
            _layer_attention(sizes, elements["attention"], heads.get(position), index)
            if elements.get("attention")
            else None
        )
        if attention and index in extra:
            added = extra[index] or attention.macs_per_pair
            attention = msgspec.structs.replace(attention, extra_macs_per_pair=added)
        ffn = _layer_ffn(sizes, elements, own)
        if index in all_experts:
            ffn = msgspec.structs.replace(ffn, runs_all=True)
        yield DecoderLayer(attention, ffn, spaces.get(index))


def _decoder_layer_count(config: Any) -> int:
    """Return the number of layers of a decoder; of the config of an encoder-decoder whose decoder
    is used alone, those of the decoder.
    """
    return getattr(config, "decoder_layers", None) or int(config.num_hidden_layers)


def _extra_macs_per_pair(model: Any) -> Mapping[int, int]:
    """Return the MACs of a pair of tokens by layer that are not those of its attention: of an
    indexer, which weighs the score of each of its heads; 0 for a second pass of the same size.
    """
    extra = {}
    for path, module in model.named_modules():
        if type(module).__name__.endswith("Indexer") and hasattr(module, "weights_proj"):
            extra[layer_of_name(path)] = module.n_heads * (module.head_dim + 1)
        elif hasattr(module, "lambda_q1"):  # DiffLlama
            extra[layer_of_name(path)] = 0
    return extra


def _layers_that_run_all_experts(model: Any) -> Collection[int]:
    """Return the layers whose experts are not told which of them a token chose, so that all of
    them run.
    """
    return {
        layer_of_name(path)
        for path, module in model.named_modules()
        if path.endswith(".experts")
        and any(True for _ in module.parameters(recurse=False))
        and len(inspect.signature(type(module).forward).parameters) == 2
    }


def _config_of_layer(config: Any, index: int) -> Any:
    """Return the config of a layer: that of the model, unless sizes differ between its layers.

    Those of an encoder-decoder are the layers of its encoder, of which there may be fewer.
    """
    layers = getattr(config, "per_layer_config", None)
    return config if layers is None or index >= config.num_hidden_layers else layers[index]


def _layer_state_spaces(
    model: Any, config: Any, parameters: Sequence[LanguageParameter]
) -> Mapping[int, StateSpace | GatedDelta]:
    """Return the state spaces and delta rules of a model by layer. Raises InputError for one of
    another kind.
    """
    spaces = {}
    for path, module in state_space_modules(model).items():
        layer = layer_of_name(path)
        own = [parameter for parameter in parameters if parameter.layer == layer]
        space = _read_state_space(module, elements_by_kind(own)["state_space"])
        if space is None:
            raise InputError(
                f"{_FORMULAS} do not support {config.model_type}: its {type(module).__name__} is "
                "neither attention, nor a delta rule, nor a state space of Mamba",
                _COUNT_HINT,
            )
        spaces[layer] = space
    return spaces


def _read_state_space(module: Any, projections: int) -> StateSpace | GatedDelta | None:
    """Return the sizes of a state space of Mamba or Mamba-2, of a gated delta rule, of a short
    convolution (also one behind which a recurrence has no products, as in RecurrentGemma) or of
    RWKV, from the attributes of its module; None for another one.
    """
    if hasattr(module, "time_decay"):
        return StateSpace(
            projections=projections, channels=0, kernel=1, heads=0, head_dim=0, state=0
        )
    names = ("conv1d", "conv", "conv_1d")
    name = next(name for name in names if hasattr(module, name))
    channels, depth_of_filter, kernel = getattr(module, name).weight.shape
    if depth_of_filter > 1:
        return None
    if name != "conv1d":
        return StateSpace(
            projections=projections, channels=channels, kernel=kernel, heads=0, head_dim=0, state=0
        )
    if hasattr(module, "chunk_size") and hasattr(module, "n_groups"):
        heads, depth = module.num_heads, module.head_dim
        groups, chunk = module.n_groups, module.chunk_size
    elif hasattr(module, "x_proj") or hasattr(module, "x_proj_weight"):
        heads, depth, groups, chunk = 1, channels, 1, 0
    elif hasattr(module, "head_k_dim") and hasattr(module, "head_v_dim"):
        return GatedDelta(
            projections=projections,
            channels=channels,
            kernel=kernel,
            heads=module.num_v_heads,
            key_dim=module.head_k_dim,
            value_dim=module.head_v_dim,
            chunk=_DELTA_CHUNK,
        )
    else:
        return None
    return StateSpace(
        projections=projections,
        channels=channels,
        kernel=kernel,
        heads=heads,
        head_dim=depth,
        state=module.ssm_state_size,
        groups=groups,
        chunk=chunk,
    )


def _layer_attention(
    config: Any, projections: int, own: AttentionHeads | None, layer: int
) -> AttentionSizes:
    """Return the attention sizes of a layer, from its config, the elements of its projections, and
    the heads of its module, if it names them.
    """
    heads: int = own.count if own else config.num_attention_heads
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
    depth = own.depth if own else getattr(config, "head_dim", None) or config.hidden_size // heads
    return AttentionSizes(
        heads=heads,
        kv_heads=heads // own.group if own and own.group > 1 else _key_head_count(config),
        head_dim=depth,
        value_dim=depth,
        projections=projections,
        window=_visible_key_count(config, layer),
    )


def _key_head_count(config: Any) -> int:
    """Return the number of key and value heads of an attention layer, from the config of the
    model.
    """
    heads: int = getattr(config, "decoder_attention_heads", None) or config.num_attention_heads
    if hasattr(config, "multi_query"):  # Falcon, GPTBigCode
        if getattr(config, "new_decoder_architecture", False):
            return int(config.num_kv_heads)
        return 1 if config.multi_query else heads
    return getattr(config, "num_key_value_heads", None) or heads


def _visible_key_count(config: Any, layer: int) -> int | None:
    """Return how many keys a query of a layer can see; None if it can see all."""
    names = ("sliding_window", "attention_window_size")
    window: int | None = next(
        (size for name in names if (size := getattr(config, name, None)) is not None), None
    )
    if window is None or getattr(config, "use_sliding_window", True) is False:
        return None
    kinds = getattr(config, "layer_types", None)
    return window if kinds is None or kinds[layer] == "sliding_attention" else None


def _layer_ffn(
    config: Any, elements: Mapping[str, int], own: Sequence[LanguageParameter]
) -> FeedForward:
    """Return the sizes of the feed-forward part of a layer, from its config, the elements of its
    parameters by kind, and the parameters.
    """
    hidden = config.hidden_size
    dense = elements.get("ffn", 0) + elements.get("shared", 0)
    if not elements.get("expert"):
        width = _dense_width(config, dense, own) if dense else 0
        return FeedForward(hidden=hidden, width=width, gated=dense == 3 * hidden * width)
    experts = next(
        int(number)
        for name in ("num_local_experts", "num_experts", "n_routed_experts")
        if (number := getattr(config, name, None))
    )
    width = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    gated = elements["expert"] == 3 * hidden * width * experts
    shared = dense // ((3 if gated else 2) * hidden)
    return FeedForward(
        hidden=hidden,
        width=width,
        gated=gated,
        experts=experts,
        active=config.num_experts_per_tok,
        shared_width=shared,
        router=elements.get("router", 0),
    )


def _dense_width(config: Any, elements: int, own: Sequence[LanguageParameter]) -> int:
    """Return the inner width of a feed-forward part with two or three matrices of so many elements
    together: that of the config, or a side of one of the matrices if it fits.
    """
    sides = (
        side
        for parameter in own
        if parameter.kind in ("ffn", "shared")
        for side in parameter.shape
    )
    usual = _ffn_width(config)
    for width in (usual, *sides):
        if elements in (2 * config.hidden_size * width, 3 * config.hidden_size * width):
            return width
    return usual


def _ffn_width(config: Any) -> int:
    """Return the inner width of a feed-forward layer, from the config of the model."""
    for name in ("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner"):
        if isinstance(width := getattr(config, name, None), int):
            return width
    return 4 * int(config.hidden_size)
