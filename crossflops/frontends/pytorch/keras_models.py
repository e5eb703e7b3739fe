"""Models of Keras that run on PyTorch, in which every layer is a module."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crossflops.errors import InputError, raised_at

if TYPE_CHECKING:
    from torch import nn


def is_keras(model: object) -> bool:
    """Whether this is a layer or a model of Keras."""
    keras = sys.modules.get("keras")
    return keras is not None and hasattr(keras, "Layer") and isinstance(model, keras.Layer)


def as_arguments(model: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the inputs as Keras takes them: several ones of a functional model are one list."""
    several = isinstance(getattr(model, "_inputs_struct", None), list | tuple)
    return (list(args),) if several and len(args) > 1 else args


def build(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Let a model make its variables, by a call on shapes. Raises InputError where that raises."""
    if model.built:
        return
    import keras
    import torch
    from torch.utils._pytree import tree_map_only

    def symbol(tensor: Any) -> Any:
        return keras.KerasTensor(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))

    try:
        model(
            *tree_map_only(torch.Tensor, symbol, args),
            **tree_map_only(torch.Tensor, symbol, dict(kwargs)),
        )
    except Exception as error:  # whatever code of a model raises
        raise InputError(
            f"the model raised {type(error).__name__}: {error}{raised_at(error)}",
            "check the number, the shapes and the types of --input",
        ) from error


def without_weights(model: "nn.Module") -> frozenset[int]:
    """Return the ids of tensors that Keras holds as parameters, and are statistics or seeds."""
    if not is_keras(model):
        return frozenset()
    keras_model: Any = model
    layers = keras_model._flatten_layers()
    weights = {id(v) for layer in layers for v in layer._trainable_variables}
    return frozenset(id(v.value) for v in keras_model.variables if id(v) not in weights)
