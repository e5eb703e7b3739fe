"""Convert inputs to the form that a Keras model takes, with any backend."""

from collections.abc import Mapping
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.inputs import Arguments


def to_keras_call_inputs(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Arguments:
    """Return (args, kwargs) in the form that a Keras model takes: one list or dict if functional.

    The inputs may be given in that form, in order, or by name. Raises InputError where their
    number is not that of the model's inputs.
    """
    within = getattr(model, "_functional", None) or model  # of a sequential model
    requested = getattr(within, "_inputs_struct", None)
    if requested is None:
        return args, dict(kwargs)
    tensors = _symbolic_inputs(model, requested)
    provided, named = args, dict(kwargs)
    if len(args) == 1 and not kwargs and isinstance(args[0], dict):
        provided, named = (), args[0]
    elif len(args) == 1 and not kwargs and isinstance(args[0], list | tuple):
        provided = tuple(args[0])
    if named.keys() == tensors.keys() and not provided:
        provided, named = tuple(named[name] for name in tensors), {}
    if provided and named:
        return args, dict(kwargs)  # `training` or the like: the model may take it
    if named or len(provided) != len(tensors):
        raise InputError(
            f"the given inputs do not match the inputs of the model: {', '.join(tensors)}",
            _keras_input_hint(tensors),
        )
    if isinstance(requested, dict):
        return (dict(zip(tensors, provided, strict=True)),), {}
    return (
        list(provided)
        if isinstance(requested, list | tuple) and len(provided) > 1
        else provided[0],
    ), {}


def _symbolic_inputs(model: Any, requested: Any) -> dict[str, Any]:
    """Return the input tensors of a Keras model by name; they have shapes but no values."""
    if isinstance(requested, dict):
        return dict(requested)
    return {tensor.name: tensor for tensor in model.inputs}


def _keras_input_hint(tensors: Mapping[str, Any]) -> str:
    """Return a hint with an `--input` option for each of these tensors."""
    shapes = {
        name: "x".join(str(size or 1) for size in tensor.shape) or "scalar"
        if getattr(tensor, "shape", None) is not None  # a list of inputs has none
        else "SHAPE"
        for name, tensor in tensors.items()
    }
    options = " ".join(f"--input {name}={shape}" for name, shape in shapes.items())
    return f"give one --input for each of these inputs: {options}"


def has_created_variables(model: Any) -> bool:
    """Return whether a Keras layer and all layers in it have created their variables.

    A layer without a `build` of its own reports that it is built as soon as that was called,
    although its sublayers are not. Such a layer is treated as not built.
    """
    for layer in model._flatten_layers():
        if getattr(layer.build, "_is_default", False):
            layer.built = layer.built and all(inner.built for inner in layer._flatten_layers())
    return bool(model.built)
