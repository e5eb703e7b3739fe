"""The passes of a language model of transformers with its cache, as `generate` runs them.

A pass is a module of its own: tensors go in, among them those of the cache, and tensors come out.
The cache between is transformers' own, made as `generate` makes it: from the config, one layer
object for each layer, of which some keep a window. Only the tensors of a step's cache are made up.
Source: transformers/generation/utils.py (`_prepare_cache_for_generation`, `_sample`),
cache_utils.py.
"""

import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from crossflops.errors import CrossflopsWarning, InputError, error_words
from crossflops.frontends.frontend import (
    NO_IMAGES,
    ONE_TOKEN,
    GenerationPasses,
    NewTokens,
    PromptImages,
    Source,
)
from crossflops.frontends.pytorch.load.fakes import weights_kind
from crossflops.ir.graph import TensorSpec

_GROWING = ("DynamicLayer", "DynamicSlidingWindowLayer")
_PER_LAYER = 2  # a tensor of keys and one of values
_SEQUENCE = -2  # the dimension of tokens in both
_LOGITS = "logits_to_keep"
_CHANNELS = 3
_WITHOUT_IMAGES = (
    "{} takes images, and the prompt is counted without any: --images N adds images to each prompt"
)
_IMAGES_HINT = (
    "count the vision encoder as a part of a pipeline.toml, and image tokens as tokens of --prompt"
)
_HINT = "leave out --prompt and --generate to count a single pass"


def _new_key_value_cache(model: Any) -> Any:
    """Return the empty cache that `generate` makes for this model.

    If that has too few layers, as for a T5 with more layers in its decoder than in its encoder, it
    is the one that the decoder makes for itself, from its own config.
    """
    from transformers import cache_utils

    config = model.config.get_text_config(decoder=True)
    cache = cache_utils.DynamicCache(config=config)
    if not model.config.is_encoder_decoder:
        return cache
    if len(cache.layers) < (_decoder_layer_count(model.config) or 0):
        config = model.get_decoder().config
        cache = cache_utils.DynamicCache(config=config)
    return cache_utils.EncoderDecoderCache(cache, cache_utils.DynamicCache(config=config))


def _warn_of_missing_cache_layers(model: Any) -> None:
    """Warn if `generate` makes a cache that has fewer layers than the decoder."""
    from transformers import cache_utils

    config = model.config.get_text_config(decoder=True)
    number, made = _decoder_layer_count(model.config), cache_utils.DynamicCache(config=config)
    if number is not None and len(made.layers) < number:
        warnings.warn(
            f"generate of transformers makes a cache of {len(made.layers)} layers for the "
            f"{number} layers in the decoder of {type(model).__name__}: it is counted with the "
            "cache that the decoder makes, which generate takes as past_key_values",
            CrossflopsWarning,
            stacklevel=2,
        )


def _decoder_cache_layers(cache: Any, config: Any) -> Iterator[Any]:
    """Yield the layers of a key-value cache that the decoder of this config has; of an
    encoder-decoder those of self-attention first.
    """
    number = _decoder_layer_count(config)
    for part in ("self_attention_cache", "cross_attention_cache"):
        yield from getattr(getattr(cache, part, None), "layers", ())[:number]
    if not hasattr(cache, "self_attention_cache"):
        yield from cache.layers


def _decoder_layer_count(config: Any) -> int | None:
    """Return the number of layers of the decoder in the config of an encoder-decoder; None if it
    does not say.

    Its cache is made from the number of layers of the encoder, which may be another one.
    """
    for name in ("num_decoder_layers", "decoder_layers"):
        if isinstance(number := getattr(config, name, None), int):
            return number
    return None


def _fill_cache_layer(layer: Any, keys: Any, values: Any, context: int) -> None:
    """Set the keys and values of a cache layer, as they are after `context` tokens."""
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values = keys, values
    if hasattr(layer, "cumulative_length"):
        layer.cumulative_length = context


class _Pass(nn.Module):
    """A model that is called as `generate` calls it."""

    def __init__(self, model: Any, logits: int) -> None:
        """Wrap a model, and ask for the logits of the last tokens alone if it supports that."""
        super().__init__()
        self.model = model
        taken = inspect.signature(model.forward).parameters
        self.options = {_LOGITS: logits} if _LOGITS in taken else {}

    def _call_model(self, cache: Any, **inputs: Any) -> Any:
        """Call the model with these inputs and a key-value cache; return its output."""
        return self.model(**inputs, past_key_values=cache, use_cache=True, **self.options)


class Prefill(_Pass):
    """The pass over a prompt, which returns the logits, then the keys and values of each layer."""

    def forward(self, input_ids: Any, decoder_input_ids: Any = None) -> Any:
        """Run the model over a prompt with an empty cache; return logits, (keys, values) by layer,
        and encoder output if any.
        """
        decoder = {} if decoder_input_ids is None else {"decoder_input_ids": decoder_input_ids}
        cache = _new_key_value_cache(self.model)
        out = self._call_model(cache, input_ids=input_ids, **decoder)
        encoder_output = getattr(out, "encoder_last_hidden_state", None)
        pairs = [
            (layer.keys, layer.values) for layer in _decoder_cache_layers(cache, self.model.config)
        ]
        return (
            (out.logits, pairs) if encoder_output is None else (out.logits, pairs, encoder_output)
        )


class PrefillWithImages(_Pass):
    """The pass over a prompt that begins with images, each of which has so many tokens."""

    def __init__(self, model: Any, logits: int, image_id: int, tokens: int) -> None:
        """Wrap a model; `image_id` is the id of the `tokens` tokens of all images in a prompt."""
        super().__init__(model, logits)
        self.image_id, self.tokens = image_id, tokens

    def forward(self, input_ids: Any, pixel_values: Any) -> Any:
        """Run the model over images and text with an empty cache; return logits and (keys, values)
        by layer.
        """
        shape = (input_ids.shape[0], self.tokens)
        image_ids = torch.full(
            shape, self.image_id, dtype=input_ids.dtype, device=input_ids.device
        )
        cache = _new_key_value_cache(self.model)
        out = self._call_model(
            cache, input_ids=torch.cat([image_ids, input_ids], 1), pixel_values=pixel_values
        )
        layers = _decoder_cache_layers(cache, self.model.config)
        return out.logits, [(layer.keys, layer.values) for layer in layers]


class DecodingStep(_Pass):
    """The pass over new tokens; `context` is the number of decoder tokens before them."""

    def __init__(self, model: Any, context: int, logits: int) -> None:
        """Wrap a model for a pass after `context` tokens."""
        super().__init__(model, logits)
        self.context = context

    def forward(self, input_ids: Any, past: Any, encoder_output: Any = None) -> Any:
        """Run the model over new tokens with `past` as its cache; return logits and (keys, values)
        by layer.
        """
        cache = _new_key_value_cache(self.model)
        layers = list(_decoder_cache_layers(cache, self.model.config))
        for layer, (keys, values) in zip(layers, past, strict=True):
            _fill_cache_layer(layer, keys, values, self.context)
        if encoder_output is None:
            out = self._call_model(cache, input_ids=input_ids)
            return out.logits, [(layer.keys, layer.values) for layer in layers]
        from transformers.modeling_outputs import BaseModelOutput

        cache.is_updated = dict.fromkeys(range(len(cache)), True)
        outputs = BaseModelOutput(last_hidden_state=encoder_output)
        out = self._call_model(cache, decoder_input_ids=input_ids, encoder_outputs=outputs)
        own = layers[: len(layers) // 2]  # the others are as they came
        return out.logits, [(layer.keys, layer.values) for layer in own]


class TransformersPasses(GenerationPasses):
    """The prefill and decoding passes of one model of transformers."""

    def __init__(self, model: Any, images: PromptImages = NO_IMAGES) -> None:
        """Record the model, and the images in each prompt. Raises InputError where it does not
        generate with such a cache, or does not take such images.
        """
        _require_cached_text_generation(model)
        self._model, self._images = model, images
        self._side = images.side or _image_side_pixels(model)
        self.image_tokens = images.number * self._tokens_per_image() if images.number else 0
        if not images.number and "pixel_values" in _forward_parameters(model):
            warnings.warn(
                _WITHOUT_IMAGES.format(type(model).__name__), CrossflopsWarning, stacklevel=2
            )
        self.is_encoder_decoder = bool(model.config.is_encoder_decoder)
        if self.is_encoder_decoder:
            _warn_of_missing_cache_layers(model)
        layers = list(_decoder_cache_layers(_new_key_value_cache(model), model.config))
        self.windows = tuple(
            sorted({layer.sliding_window for layer in layers if layer.is_sliding})
        )

    def prefill(self, batch: int, prompt: int, logits: int = 1) -> Source:
        """Return a source that runs the model over `batch` prompts of `prompt` tokens each."""
        if self.image_tokens:
            return self._prefill_with_images(batch, prompt - self.image_tokens, logits)
        inputs = {"input_ids": self._zero_token_ids(batch, prompt)}
        if self.is_encoder_decoder:
            inputs["decoder_input_ids"] = self._zero_token_ids(batch, 1)
        return _evaluation_source(Prefill(self._model, logits), inputs)

    def step(
        self,
        prompt: int,
        context: int,
        cache_specs: Sequence[TensorSpec],
        new: NewTokens = ONE_TOKEN,
    ) -> Source:
        """Return a source that runs the model over new tokens of each request, up to the
        `context`-th, with its key-value cache.
        """
        layers = list(_decoder_cache_layers(_new_key_value_cache(self._model), self._model.config))
        before = context - new.number
        own = len(layers) // 2 if self.is_encoder_decoder else len(layers)
        full = _PER_LAYER * len(layers)
        if len(cache_specs) != full + self.is_encoder_decoder:
            raise InputError(
                f"--prompt does not support the cache of {type(self._model).__name__}: it has "
                f"{len(cache_specs)} tensors, but its config describes {full}",
                _HINT,
            )
        past = [
            tuple(
                self._zeros_like_weights(shape, spec.dtype)
                for shape, spec in zip(
                    _cache_shapes_after(layer, pair, before if index < own else prompt),
                    pair,
                    strict=True,
                )
            )
            for index, (layer, *pair) in enumerate(
                zip(
                    layers,
                    cache_specs[:full:_PER_LAYER],
                    cache_specs[1:full:_PER_LAYER],
                    strict=True,
                )
            )
        ]
        batch = (cache_specs[0].shape or (1,))[0]
        inputs: dict[str, Any] = {
            "input_ids": self._zero_token_ids(batch, new.number),
            "past": past,
        }
        if self.is_encoder_decoder:
            shape = cache_specs[-1].shape or ()
            inputs["encoder_output"] = self._zeros_like_weights(
                (shape[0], prompt, *shape[2:]), cache_specs[-1].dtype
            )
        return _evaluation_source(DecodingStep(self._model, before, new.logits), inputs)

    def _prefill_with_images(self, batch: int, text: int, logits: int) -> Source:
        """Return a source that runs the model over the images of `batch` prompts, each with so
        many `text` tokens.
        """
        inputs = {
            "input_ids": self._zero_token_ids(batch, text),
            "pixel_values": self._zero_images(batch * self._images.number),
        }
        image_id = _image_marker_token_id(self._model.config)
        assert image_id is not None  # else it has no tokens of an image
        return _evaluation_source(
            PrefillWithImages(self._model, logits, image_id, self.image_tokens), inputs
        )

    def _zero_images(self, number: int) -> Any:
        """Return images, all zero, a tensor [number, channels, side, side]."""
        channels = getattr(self._model.config.vision_config, "num_channels", _CHANNELS)
        dtype = str(next(self._model.parameters()).dtype).removeprefix("torch.")
        return self._zeros_like_weights((number, channels, self._side, self._side), dtype)

    def _tokens_per_image(self) -> int:
        """Return the number of tokens that the model makes of one image; it encodes one."""
        name = type(self._model).__name__
        if not self._side:
            raise InputError(
                f"--images does not support {name}: its config has no vision_config with an "
                "image_size",
                _IMAGES_HINT,
            )
        needed = _mandatory_image_inputs(self._model)
        if needed or _image_marker_token_id(self._model.config) is None:
            reason = f"its images need {needed[0]}" if needed else "its images have no token id"
            raise InputError(f"--images does not support {name}: {reason}", _IMAGES_HINT)
        pixels = self._zero_images(1)
        try:
            with torch.no_grad():
                features = self._model.get_image_features(pixel_values=pixels)
        except (RuntimeError, ValueError, TypeError) as error:
            raise InputError(
                f"{name} does not take an image of {self._side} x {self._side} pixels: "
                f"{error_words(error)}",
                "give another --image-size, or leave it out for that of the config",
            ) from error
        features = getattr(features, "pooler_output", features)
        parts = features if isinstance(features, list | tuple) else [features]
        return sum(part.numel() // part.shape[-1] for part in parts)

    def _zero_token_ids(self, batch: int, length: int) -> Any:
        """Return token ids, all zero, a tensor [batch, length]."""
        return self._zeros_like_weights((batch, length), "int64")

    def _zeros_like_weights(self, shape: Sequence[int], dtype: str) -> Any:
        """Return a tensor of zeros on the device of the weights, without values if the weights
        have none.
        """
        weight = next(self._model.parameters())
        try:
            with getattr(weight, "fake_mode", None) or torch.device(weight.device):
                return torch.zeros(tuple(shape), dtype=getattr(torch, dtype))
        except (RuntimeError, TypeError, OverflowError) as error:  # no memory, or no 64-bit size
            raise InputError(
                f"a pass takes a tensor of {' x '.join(map(str, shape))} elements, which cannot "
                f"be made: {error_words(error)}",
                "give a smaller --prompt, --generate or --batch",
            ) from error


def _evaluation_source(model: nn.Module, inputs: dict[str, Any]) -> Source:
    """Return a source with the model in evaluation mode and these keyword inputs."""
    model = model.eval()
    return Source(model, (), inputs, weights=weights_kind(model, (), inputs))


def _cache_shapes_after(
    layer: Any, pair: Sequence[TensorSpec], context: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the shapes of the keys and of the values that a cache layer keeps after `context`
    tokens.

    Its own code decides, on tensors without values.
    """
    with torch.device("meta"):
        full = [
            torch.empty(
                [*(spec.shape or ())[:_SEQUENCE], context, (spec.shape or ())[-1]],
                dtype=getattr(torch, spec.dtype),
            )
            for spec in pair
        ]
        layer.update(*full)
    return layer.keys.shape, layer.values.shape


def _forward_parameters(model: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a model's forward pass by name."""
    return inspect.signature(model.forward).parameters


def _image_side_pixels(model: Any) -> int:
    """Return the side in pixels of an image, as the config of a model has it; 0 if it has none."""
    side = getattr(getattr(model.config, "vision_config", None), "image_size", 0)
    return int(side[0]) if isinstance(side, list | tuple) else int(side or 0)


def _image_marker_token_id(config: Any) -> int | None:
    """Return the id of the token that marks a part of an image; None if there is none."""
    for name in ("image_token_id", "image_token_index"):
        if isinstance(number := getattr(config, name, None), int):
            return number
    return None


def _mandatory_image_inputs(model: Any) -> list[str]:
    """Return the inputs that a model needs for an image in addition to its pixels."""
    if "pixel_values" not in _forward_parameters(model) or not hasattr(
        model, "get_image_features"
    ):
        return ["an interface without pixel_values"]
    extra = ("image_grid_thw", "image_sizes", "pixel_attention_mask", "spatial_shapes")
    own = {**_forward_parameters(model), **inspect.signature(model.get_image_features).parameters}
    return [
        name
        for name in extra
        if name in own
        and (name == "image_grid_thw" or own[name].default is inspect.Parameter.empty)
    ]


def _require_cached_text_generation(model: Any) -> None:
    """Raise InputError unless the model generates text with a cache of keys and values."""
    name = type(model).__name__
    generates = getattr(model, "can_generate", None)
    if generates is None or not generates():
        raise InputError(
            f"--prompt requires a model of transformers that can generate text; {name} cannot",
            "give a causal language model, such as hf:config.json"
            if generates is None
            else 'set "architectures" in config.json to a class that can, such as '
            '["LlamaForCausalLM"]',
        )
    if model.main_input_name != "input_ids":
        raise InputError(
            f"--prompt requires a model whose input is text; the input of {name} is "
            f"{model.main_input_name}",
            _HINT,
        )
    if "past_key_values" not in _forward_parameters(model):
        raise InputError(
            "--prompt requires a language model with a key and value cache; "
            f"{name} does not have one",
            _HINT,
        )
    layers = list(_decoder_cache_layers(_new_key_value_cache(model), model.config))
    decoder = _decoder_layer_count(model.config) if model.config.is_encoder_decoder else None
    if decoder is not None and len(layers) < 2 * decoder:
        raise InputError(
            f"--prompt does not support {name}: its decoder has {decoder} layers, and "
            f"transformers makes a cache for the {len(layers) // 2} layers of its encoder",
            _HINT,
        )
    others = sorted({type(layer).__name__ for layer in layers} - {*_GROWING})
    if others:
        raise InputError(
            f"--prompt does not support the cache layers of {name}: {others[0]}", _HINT
        )
