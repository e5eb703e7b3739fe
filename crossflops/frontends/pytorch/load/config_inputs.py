"""The usual inputs of a model of transformers, from its config and the signature of its forward.

A model of images and text gets one image: as many tokens stand for it in the text as its features
have rows, since the model refuses others. Where no image can be made for it, it is counted on
text alone, and that is said.
"""

import inspect
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import msgspec

from crossflops.errors import InputError
from crossflops.frontends.named import image_input_spec
from crossflops.frontends.pytorch.load.weight_types import USUAL, with_float_dtype
from crossflops.ir.graph import TensorSpec

_TOKENS = 128
_MERGING = "merge_kernel_size"  # of Kimi's vision: patches along each side that become a token
_DETAILS = "high_res_pixel_values"
_SECOND = 16_000  # samples of audio
_FRAMES = 3000  # of a spectrogram, 30 s as Whisper hears them
_SIDE = 224
_WITHOUT_IMAGE = (
    "is counted on text alone: crossflops cannot make an image input for it ({}); --input "
    "gives all inputs"
)
_WITHOUT_SOUND = (
    "is counted on text alone: crossflops cannot turn a sound into its text tokens; --input "
    "gives all inputs"
)
_IMAGE_WITHOUT_SOUND = (
    "is counted on an image and text: crossflops cannot turn a sound into its text tokens; "
    "--input gives all inputs"
)
_WITHOUT_VALUES = (
    "is counted on text alone: it reads the sizes of images from values, and a model of 10^9 "
    "parameters has none"
)


class UsualInputs(msgspec.Struct, frozen=True):
    """The specs of inputs, the values of those that need values, and notes for the report."""

    specs: tuple[TensorSpec, ...]
    values: Mapping[str, Any] = {}
    notes: tuple[str, ...] = ()


def inputs_from_config(
    model: Any, config: Any, sizes: Mapping[str, int], dtype: str
) -> UsualInputs:
    """Return the usual inputs of a model of transformers with floats of `dtype`, the values that
    it reads, and notes.
    """
    if _image_token_id(config) is None:
        _reject_unnamed_image_token(model, config)
        specs = with_float_dtype(tuple(_config_input_specs(model, config, sizes)), dtype)
        return UsualInputs(
            specs,
            notes=(_WITHOUT_SOUND,) if _lacks_expected_sound_input(model, config, specs) else (),
        )
    try:
        usual = _image_and_text_inputs(model, config, sizes, dtype)
        notes = (
            (_IMAGE_WITHOUT_SOUND,)
            if _lacks_expected_sound_input(model, config, usual.specs)
            else ()
        )
        return msgspec.structs.replace(usual, notes=notes)
    except InputError:
        raise
    except Exception as error:  # whatever a model makes of an image that it does not know
        if model.main_input_name == "pixel_values":  # it has no place for images in its text
            return UsualInputs(
                with_float_dtype(tuple(_config_input_specs(model, config, sizes)), dtype)
            )
        text = tuple(
            spec
            for spec in _config_input_specs(model, config, sizes)
            if spec.name != "pixel_values"
        )
        reads = "image_grid_thw" in inspect.signature(model.forward).parameters
        has_none = reads and next(model.parameters()).is_meta
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        note = _WITHOUT_VALUES if has_none else _WITHOUT_IMAGE.format(reason)
        return UsualInputs(with_float_dtype(text, dtype), notes=(note,))


def _lacks_expected_sound_input(model: Any, config: Any, specs: tuple[TensorSpec, ...]) -> bool:
    """Return True if the text of a model may have sound tokens, but none of its inputs `specs` is
    a sound.
    """
    named = hasattr(config, "audio_token_id") or hasattr(config, "audio_token_index")
    sounds = {"input_features", "input_values"} & set(inspect.signature(model.forward).parameters)
    return named and bool(sounds) and not sounds & {spec.name for spec in specs}


def _config_input_specs(model: Any, config: Any, sizes: Mapping[str, int]) -> Iterator[TensorSpec]:
    """Yield the specs of a model's inputs for which a shape is enough, without values."""
    main, batch = model.main_input_name, sizes.get("batch", 1)
    length = _config_text_length(config, sizes)
    taken = inspect.signature(model.forward).parameters
    if main in ("input_values", "input_features"):
        shape = _sound_shape(config) if main == "input_values" else _spectrogram_shape(config)
        yield TensorSpec(main, "float32", (batch, *shape), "input")
    requires_text = "input_ids" in taken and taken["input_ids"].default is inspect.Parameter.empty
    has_text = requires_text or (_has_vision_and_text(config) and "input_ids" in taken)
    if main == "input_ids" or (main == "pixel_values" and has_text):
        yield TensorSpec("input_ids", "int64", (batch, length), "input")
    sees = getattr(config, "vision_config", None) is not None
    sees = sees or ("pixel_values" in taken and hasattr(config, "image_size"))
    if main == "pixel_values" or sees:
        yield _config_image_spec(config, sizes)
    if not getattr(config, "is_encoder_decoder", False):
        return
    if "decoder_input_values" in taken and "decoder_input_ids" not in taken:
        yield from _speech_decoder_inputs(config, batch, length)
    elif "decoder_input_ids" in taken:  # the decoder of a detector such as DETR reads no tokens
        yield TensorSpec("decoder_input_ids", "int64", (batch, length), "input")


def _speech_decoder_inputs(config: Any, batch: int, length: int) -> Iterator[TensorSpec]:
    """Yield the specs of a speech decoder's inputs: the spectrogram so far, and the embedding of
    the speaker.
    """
    shape = (batch, length, config.num_mel_bins)
    yield TensorSpec("decoder_input_values", "float32", shape, "input")
    if voice := getattr(config, "speaker_embedding_dim", None):
        yield TensorSpec("speaker_embeddings", "float32", (batch, voice), "input")


def _has_vision_and_text(config: Any) -> bool:
    """Return True if the config has a part for images and a part for text."""
    return all(hasattr(config, part) for part in ("vision_config", "text_config"))


def _sound_shape(config: Any) -> tuple[int, ...]:
    """Return the shape of `input_values`: the samples of a second, in channels for a codec, or
    the spectrogram (frames, features) of a model that cuts it into patches.
    """
    if isinstance(getattr(config, "time_stride", None), int):  # of patches
        return config.max_length, config.num_mel_bins
    channels = getattr(config, "audio_channels", None)
    if channels is None and hasattr(config, "codebook_size"):
        channels = 1  # a codec whose config does not name them
    return (_SECOND,) if channels is None else (channels, _SECOND)


def _spectrogram_shape(config: Any) -> tuple[int, int]:
    """Return the shape of a sound's spectrogram: (frames, features), for Whisper (features,
    frames).
    """
    for name in ("input_feat_per_channel", "feature_projection_input_dim"):
        if isinstance(width := getattr(config, name, None), int):
            return _FRAMES, width
    return getattr(config, "num_mel_bins", 80), _FRAMES


def _config_text_length(config: Any, sizes: Mapping[str, int]) -> int:
    """Return the number of tokens of a text input: `seq` of the sizes, else 128 or the most that
    the config allows.
    """
    text = getattr(config, "text_config", None) or config
    most = getattr(text, "max_position_embeddings", None) or 0
    return sizes.get("seq", min(_TOKENS, most) if most > 0 else _TOKENS)  # XLNet has -1: no limit


def _config_image_spec(config: Any, sizes: Mapping[str, int]) -> TensorSpec:
    """Return the spec of an image input, or of the frames of a clip, in the size that the config
    names.
    """
    seen = getattr(config, "vision_config", None) or config
    side = getattr(seen, "image_size", None) or _SIDE
    height, width = side if isinstance(side, list | tuple) else (side, side)
    spec = image_input_spec("pixel_values", getattr(seen, "num_channels", 3), height, width, sizes)
    frames = getattr(config, "num_frames", None)
    if not isinstance(frames, int) or spec.shape is None:
        return spec
    return msgspec.structs.replace(spec, shape=(spec.shape[0], frames, *spec.shape[1:]))


# A model of images and text.


def _image_token_id(config: Any) -> int | None:
    """Return the id of the token that is an image in the text, from the config; None if it names
    none.
    """
    for name in ("image_token_id", "image_token_index", "im_token_id"):
        token = getattr(config, name, None)
        if isinstance(token, int) and getattr(config, "vision_config", None) is not None:
            return token
    return None


def _reject_unnamed_image_token(model: Any, config: Any) -> None:
    """Raise InputError if a model finds images in the text by a token that its config does not
    name.
    """
    name = "image_token_index"
    if getattr(config, name, name) is None and hasattr(model, "get_placeholder_mask"):
        raise InputError(
            f"the config names no image token: {name} is missing",
            f"give a number below vocab_size: --arg {name}=NUMBER",
        )


def _image_and_text_inputs(
    model: Any, config: Any, sizes: Mapping[str, int], dtype: str
) -> UsualInputs:
    """Return the inputs of one image in each example, and of a text with as many image tokens as
    it needs.
    """
    token, batch = _image_token_id(config), sizes.get("batch", 1)
    details: tuple[TensorSpec, ...] = ()
    taken = inspect.signature(model.forward).parameters
    grid = _image_patch_grid(config, sizes) if "image_grid_thw" in taken else None
    if grid is not None and next(model.parameters()).is_meta:
        raise ValueError(
            "the model reads the image grid, but tensors on this device have no values"
        )
    if grid is None:
        (pixels,) = with_float_dtype((_config_image_spec(config, sizes),), dtype)
        details = (
            with_float_dtype(tuple(_high_resolution_image_spec(config, sizes)), dtype)
            if _DETAILS in taken
            else ()
        )
        rows = _image_feature_count(model, (pixels, *details)) // batch
    else:
        pixels, rows = _patch_spec_and_token_count(config, grid, batch, dtype)
    if not rows:
        raise InputError(
            "an image of this size is too small: it becomes no tokens",
            "give a larger --image-size",
        )
    if "seq" in sizes and sizes["seq"] <= rows:
        raise InputError(
            f"--seq must be more than the {rows} tokens of an image, got {sizes['seq']}",
            f"give --seq {rows + 1} or more",
        )
    length = sizes.get("seq", rows + _config_text_length(config, {}))
    filler = int(token == 0)
    values: dict[str, Any] = {"input_ids": [[token] * rows + [filler] * (length - rows)] * batch}
    if grid is not None:
        values["image_grid_thw"] = [list(grid)] * batch
    if "mm_token_type_ids" in taken:
        values["mm_token_type_ids"] = [[1] * rows + [0] * (length - rows)] * batch
    full = (
        TensorSpec(name, "int64", _shape_of_nested_list(value), "input")
        for name, value in values.items()
    )
    ids, *others = full
    return UsualInputs((ids, pixels, *details, *others), values)


def _shape_of_nested_list(rows: Any) -> tuple[int, ...]:
    """Return (rows, columns) of a nested list of rows."""
    return (len(rows), len(rows[0]))


def _high_resolution_image_spec(config: Any, sizes: Mapping[str, int]) -> Iterator[TensorSpec]:
    """Yield the spec of the image for a model's second vision part, which has a higher
    resolution.
    """
    seen = config.high_res_vision_config
    yield image_input_spec(_DETAILS, seen.num_channels, seen.image_size, seen.image_size, sizes)


def _image_feature_count(model: Any, images: tuple[TensorSpec, ...]) -> int:
    """Return the number of rows of image features that the model computes, by a run of its vision
    part.
    """
    import torch

    device = next(model.parameters()).device
    provided = {
        spec.name: torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
        for spec in images
    }
    holder = model if hasattr(model, "get_image_features") else model.base_model
    with torch.no_grad():
        features = holder.get_image_features(**provided)
    if hasattr(features, "last_hidden_state"):  # pooled and projected in most models
        pooled = getattr(features, "pooler_output", None)
        features = features.last_hidden_state if pooled is None else pooled
    pieces = features if isinstance(features, list | tuple) else [features]
    return sum(prod(piece.shape[:-1]) for piece in pieces)


def _image_patch_grid(config: Any, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    """Return (frames, patches in a column, patches in a row) of an image."""
    seen = config.vision_config
    merged = seen.patch_size * _patches_merged_per_side(seen)
    side = sizes.get("image_size", _SIDE) // merged * merged // seen.patch_size
    if not side:
        raise InputError(
            f"an image needs at least {merged} pixels per side",
            f"give --image-size {merged} or more",
        )
    return 1, side, side


def _patch_spec_and_token_count(
    config: Any, grid: tuple[int, int, int], batch: int, dtype: str
) -> tuple[TensorSpec, int]:
    """Return the spec of the patches of all images in the batch, and the number of text tokens for
    each image.

    Each patch is a row of numbers, or an image where a config has a kernel that merges them.
    """
    seen = config.vision_config
    channels: int = getattr(seen, "in_channels", 0) or getattr(seen, "in_chans", 3)
    frames: int = getattr(seen, "temporal_patch_size", 0) or getattr(seen, "patch_temporal", 1)
    side, count = seen.patch_size, prod(grid)
    is_image = getattr(seen, _MERGING, None) is not None
    patch = (channels, side, side) if is_image else (channels * frames * side**2,)
    spec = TensorSpec("pixel_values", dtype or USUAL, (batch * count, *patch), "input")
    return spec, count // _patches_merged_per_side(seen) ** 2


def _patches_merged_per_side(vision_config: Any) -> int:
    """Return how many patches per side of an image are merged to one token."""
    if kernel := getattr(vision_config, _MERGING, None):
        return int(max(kernel))
    merged: int = getattr(vision_config, "spatial_merge_size", 0) or getattr(
        vision_config, "merge_size", 1
    )
    return merged
