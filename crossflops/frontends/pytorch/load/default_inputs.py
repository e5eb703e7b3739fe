"""Find the usual inputs that a built model of timm, transformers, diffusers or Lightning tells.

A model that a callable returns tells them as one that is given by name.
"""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from crossflops.frontends.named import NamedModel, image_input_spec
from crossflops.frontends.pytorch.load.config_inputs import inputs_from_config
from crossflops.frontends.pytorch.load.tensors import dtype_name
from crossflops.frontends.pytorch.load.weight_types import USUAL, with_float_dtype
from crossflops.ir.graph import TensorSpec

_TEXT = 77  # tokens of the text encoder of Stable Diffusion


def default_torch_input(model: Any, sizes: Mapping[str, int]) -> NamedModel | None:
    """Return the model with the usual inputs that it tells; None if it tells none."""
    libraries = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    if "transformers" in libraries and hasattr(model, "main_input_name"):
        return _transformers_input(model, sizes)
    if "diffusers" in libraries and hasattr(model, "config"):
        return diffusers_input(model, sizes)
    if "timm" in libraries:
        return _timm_input(model, sizes)
    if libraries & {"lightning", "pytorch_lightning"}:
        return _lightning_input(model)
    return None


def size_option_names(specs: tuple[TensorSpec, ...]) -> Iterator[str]:
    """Yield the size options that apply to inputs of a model of transformers."""
    yield "batch"
    names = {spec.name for spec in specs}
    if names & {"input_ids", "decoder_input_ids", "decoder_input_values"}:
        yield "seq"
    if "pixel_values" in names:
        yield "image_size"


def _transformers_input(model: Any, sizes: Mapping[str, int]) -> NamedModel | None:
    """Return a model of transformers with the usual inputs of its config; None if they are
    unknown.
    """
    dtype = dtype_name(getattr(model, "dtype", None))
    usual = inputs_from_config(model, model.config, sizes, "" if dtype == USUAL else dtype)
    if not usual.specs:
        return None
    return NamedModel(
        model=model,
        specs=usual.specs,
        values=usual.values,
        origin=f"its config, model_type {model.config.model_type}",
        sizes=tuple(size_option_names(usual.specs)),
        notes=tuple(f"the model {note}" for note in usual.notes),
    )


def _timm_input(model: Any, sizes: Mapping[str, int]) -> NamedModel | None:
    """Return a model of timm with the image of its configuration; None if it names none."""
    cfg = getattr(model, "pretrained_cfg", None) or {}
    if not cfg.get("input_size"):
        return None
    channels, height, width = cfg["input_size"]
    dtype = next((dtype_name(weight.dtype) for weight in model.parameters()), USUAL)
    spec = image_input_spec("0", channels, height, width, sizes)
    fixed = cfg.get("fixed_input_size")
    return NamedModel(
        model=model,
        specs=with_float_dtype((spec,), "" if dtype == USUAL else dtype),
        origin="its default_cfg in timm",
        sizes=("batch",) if fixed else ("batch", "image_size"),
    )


def _lightning_input(model: Any) -> NamedModel | None:
    """Return a Lightning module with the types and shapes of its `example_input_array`."""
    example = getattr(model, "example_input_array", None)
    if example is None:
        return None
    named = (
        dict(example)
        if isinstance(example, Mapping)
        else {str(index): tensor for index, tensor in enumerate(example)}
        if isinstance(example, list | tuple)
        else {"0": example}
    )
    if not all(hasattr(tensor, "dtype") for tensor in named.values()):
        return None
    specs = tuple(
        TensorSpec(name, dtype_name(tensor.dtype), tuple(tensor.shape), "input")
        for name, tensor in named.items()
    )
    return NamedModel(model=model, specs=specs, origin="its example_input_array")


def diffusers_input(model: Any, sizes: Mapping[str, int]) -> NamedModel | None:
    """Return a model of diffusers with the inputs of one step, by the names of its parameters and
    its config; None if one that it needs is unknown.

    `image_size` is the side of the sample, which may be one of latents.
    """
    parameters = inspect.signature(model.forward).parameters
    usual = {name: spec for name, spec in _step_inputs(model.config, sizes) if name in parameters}
    needed = {
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    }
    if not needed <= usual.keys() or not usual.keys() & {"sample", "hidden_states"}:
        return None
    text = ("seq",) if "encoder_hidden_states" in usual else ()
    return NamedModel(
        model=model,
        specs=tuple(usual[name] for name in parameters if name in usual),
        origin="its config, for one step; --image-size is the side of the sample",
        sizes=("batch", *text, "image_size"),
    )


def _step_inputs(config: Any, sizes: Mapping[str, int]) -> Iterator[tuple[str, TensorSpec]]:
    """Yield (name, spec) of inputs that the config of a model of diffusers tells."""
    batch = sizes.get("batch", 1)
    side, channels = getattr(config, "sample_size", None), getattr(config, "in_channels", None)
    if isinstance(side, int) and isinstance(channels, int):
        for name in ("sample", "hidden_states"):
            yield name, image_input_spec(name, channels, side, side, sizes)
    yield "timestep", TensorSpec("timestep", "int64", (batch,), "input")
    for key in ("cross_attention_dim", "joint_attention_dim"):
        if isinstance(width := getattr(config, key, None), int):
            shape = (batch, sizes.get("seq", _TEXT), width)
            name = "encoder_hidden_states"
            yield name, TensorSpec(name, "float32", shape, "input")
    if isinstance(pooled := getattr(config, "pooled_projection_dim", None), int):
        name = "pooled_projections"
        yield name, TensorSpec(name, "float32", (batch, pooled), "input")
    classes = (getattr(config, key, None) for key in ("num_class_embeds", "num_embeds_ada_norm"))
    if any(isinstance(number, int) for number in classes):
        yield "class_labels", TensorSpec("class_labels", "int64", (batch,), "input")
