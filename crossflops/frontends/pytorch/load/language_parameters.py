"""The parameters of a language model of transformers, by what they are for.

What a matrix is for follows from its name and the module that holds it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from crossflops.ir.architecture import ParameterTable

_LAYER = re.compile(r"\.(\d+)\.")
_ENCODER = re.compile(r"(^|\.)encoder\.")
_ROUTER = re.compile(r"(\.gate(\.wg)?|\.router|shared_expert_gate)\.weight$")
_SHARED = re.compile(r"shared_(expert|mlp)")
_ADAPTER = re.compile(r"adapter_list\.(\d+)\.")  # of Zamba2's shared layers
_PER_LAYER = re.compile(r"\.per_layer_\w+\.weight$")  # of Gemma 3n and 4
_INPUT_OF_SHARED_LAYER = re.compile(r"layers\.\d+\.linear\.weight$")
_POOLER = re.compile(r"(^|\.)pooler\.")
_RECEPTANCE = re.compile(r"\.feed_forward\.receptance\.weight$")  # of RWKV
_CROSS = re.compile(r"EncDecAttention|encoder_attn|cross_attn|crossattention")
_KEYS = re.compile(r"\.(k|v|key|value)(_proj)?\.weight$")
_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
_HEAD_NORM = re.compile(r"\.(q|k|query|key)_(layer)?norm\b")
_RANK_NORM = re.compile(r"\.(q|kv)_a_layernorm\b")
_MATRICES = (
    "other_matrix", "router", "shared", "expert", "attention", "cross", "cross_keys",
    "state_space", "ffn",
)  # fmt: skip


class LanguageParameter(msgspec.Struct, frozen=True):
    """A parameter: its name, its shape, its kind, and its layer (-1 for none).

    `in_encoder` says whether that is a layer of an encoder. A parameter is `repeated` if it was
    listed by another name before.
    """

    name: str
    shape: tuple[int, ...]
    numel: int
    kind: str
    layer: int
    in_encoder: bool
    repeated: bool


def iterate_parameters(model: Any) -> Iterator[LanguageParameter]:
    """Yield the parameters of a model by name; the table and the output matrix once, shared ones
    of layers for each layer.
    """
    table = model.get_input_embeddings().weight
    head = model.get_output_embeddings().weight
    owners = dict(model.named_modules(remove_duplicate=False))
    has_encoder = bool(getattr(model.config, "is_encoder_decoder", False))
    decoder = "" if has_encoder else decoder_path(model)
    state_spaces = state_space_modules(model)
    seen: set[int] = set()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if _is_adapter_of_other_layer(model.config, name):
            continue
        repeated = id(parameter) in seen
        seen.add(id(parameter))
        if parameter is table or parameter is head:
            if repeated:
                continue
            kind = "table" if parameter is table else "head"
        elif not name.startswith(decoder) or _is_unused_by_text(name, has_encoder):
            kind = _kind_of_other_part(owners[name.rpartition(".")[0]])
        elif any(name.startswith(f"{path}.") for path in state_spaces):
            kind = _state_space_kind(name, parameter, owners[name.rpartition(".")[0]])
        else:
            kind = _parameter_kind(name, parameter, owners)
        yield LanguageParameter(
            name=name,
            shape=tuple(parameter.shape),
            numel=parameter.numel(),
            kind=kind,
            layer=layer_of_name(name),
            in_encoder=has_encoder and is_in_encoder(name),
            repeated=repeated,
        )


def decoder_path(model: Any) -> str:
    """Return how names of parameters of the text decoder begin in a model that also reads images
    or sound; "" in a model for text alone.
    """
    config = model.config
    if not any(getattr(config, f"{part}_config", None) for part in ("vision", "audio")):
        return ""
    decoder = model.get_decoder()
    return next((f"{path}." for path, part in model.named_modules() if part is decoder), "")


def _kind_of_other_part(owner: Any) -> str:
    """Return the kind of a parameter that text does not pass, by the module that holds it: one for
    images or sound, for the encoder that a decoder alone does not have, or for classifiers.
    """
    import torch

    return "other_embedding" if isinstance(owner, torch.nn.Embedding) else "other"


def _is_unused_by_text(name: str, has_encoder: bool) -> bool:
    """Return whether no token passes a parameter of a language model: one of the attention of a
    decoder alone to an encoder, or of a pooler for classifiers.
    """
    return bool(_POOLER.search(name)) or (not has_encoder and is_cross_attention(name))


def _is_adapter_of_other_layer(config: Any, name: str) -> bool:
    """Return whether a parameter is an adapter of a shared layer that only another of the layers
    with these weights uses.
    """
    adapter = _ADAPTER.search(name)
    layers = getattr(config, "hybrid_layer_ids", ())
    return adapter is not None and layers[int(adapter[1])] != layer_of_name(name)


def layer_of_name(name: str) -> int:
    """Return the index of the layer that has a parameter or module, by its name; -1 for none."""
    layer = _LAYER.search(f"{name}.")
    return int(layer[1]) if layer else -1


def is_in_encoder(name: str) -> bool:
    """Return whether a parameter or module of an encoder-decoder is in its encoder."""
    return bool(_ENCODER.search(name))


def is_cross_attention(name: str) -> bool:
    """Return whether a parameter or module is in the attention of a decoder to its encoder."""
    return bool(_CROSS.search(name))


def state_space_modules(model: Any) -> Mapping[str, Any]:
    """Return the modules of a model that are state spaces, by their paths: those with a
    convolution and the logarithm of a decay or a gated recurrence, with a convolution behind a
    projection, or with a decay by time.
    """
    return {
        path: module
        for path, module in model.named_modules(remove_duplicate=False)
        if (hasattr(module, "A_log") and hasattr(module, "conv1d"))
        or (hasattr(module, "conv") and hasattr(module, "in_proj"))
        or (hasattr(module, "conv_1d") and hasattr(module, "rg_lru"))
        or hasattr(module, "time_decay")
    }


def _state_space_kind(name: str, parameter: Any, owner: Any) -> str:
    """Return the kind of a parameter of a state space: "norm", "convolution", "bias" for its
    vectors and decays, or "state_space" for its matrices.
    """
    if "norm" in type(owner).__name__.lower():
        return "norm"
    if name.endswith((".conv1d.weight", ".conv.weight", ".conv_1d.weight")):
        return "convolution"
    vector = parameter.dim() < 2 or name.endswith(("A_log", ".D", "bias")) or ".time_" in name
    return "bias" if vector else "state_space"


def _parameter_kind(name: str, parameter: Any, modules: Mapping[str, Any]) -> str:
    """Return the kind of a parameter, which its name and its modules decide: "norm", "bias",
    "ffn", ...
    """
    path = name.rpartition(".")[0]
    class_name = type(modules[path]).__name__
    if "norm" in class_name.lower():
        return "norm"
    if "embedding" in class_name.lower():
        return "position"
    if parameter.dim() < 2 or name.endswith("bias") or ".time_" in name:
        return "expert_bias" if ".experts." in name else "bias"
    if _RECEPTANCE.search(name):
        return "state_space"
    if _ROUTER.search(name):
        return "router"
    if _SHARED.search(name):
        return "shared"
    if ".experts." in name:
        return "expert"
    if is_cross_attention(name):
        return "cross_keys" if _KEYS.search(name) else "cross"
    if _ADAPTER.search(name) or _INPUT_OF_SHARED_LAYER.search(name):
        return "attention"
    if layer_of_name(name) < 0 or _PER_LAYER.search(name):
        return "other_matrix"
    holder = type(modules[path.rpartition(".")[0]]).__name__
    return "attention" if _ATTENTION.search(name) or _ATTENTION.search(holder) else "ffn"


def parameter_table(parameters: Sequence[LanguageParameter]) -> ParameterTable:
    """Return the numbers of parameter elements of a model by kind: input table, head, norms,
    biases, matrices; each storage once.
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
            if not parameter.repeated
            and (not kinds or parameter.kind in kinds)
            and (like is None or like.search(parameter.name))
            and (layer is None or parameter.layer == layer)
        )

    return ParameterTable(
        total=element_count() - element_count("other", "other_embedding"),
        table=element_count("table"),
        positions=element_count("position"),
        head=element_count("head"),
        norms=element_count("norm"),
        head_norms=element_count("norm", like=_HEAD_NORM),
        rank_norms=element_count("norm", like=_RANK_NORM),
        final_norm=element_count("norm", layer=-1),
        biases=element_count("bias", "expert_bias"),
        expert_biases=element_count("expert_bias"),
        matrices=element_count(*_MATRICES),
        convolutions=element_count("convolution"),
        other_parts=element_count("other", "other_embedding"),
        other_embeddings=element_count("other_embedding"),
    )


def matrix_elements_of_layers(parameters: Sequence[LanguageParameter]) -> int:
    """Return the number of matrix elements of all layers, shared ones for each layer that has
    them.
    """
    return sum(parameter.numel for parameter in parameters if parameter.kind in _MATRICES)


def elements_by_kind(parameters: Sequence[LanguageParameter]) -> Mapping[str, int]:
    """Return the number of elements of these parameters for each kind."""
    elements: dict[str, int] = {}
    for parameter in parameters:
        elements[parameter.kind] = elements.get(parameter.kind, 0) + parameter.numel
    return elements
