"""Support for models of Keras that run on PyTorch, in which every layer is a torch module."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crossflops.errors import InputError, error_location, error_words
from crossflops.frontends.keras_inputs import has_created_variables, to_keras_call_inputs
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

if TYPE_CHECKING:
    from torch import nn


def is_torch_keras_layer(model: object) -> bool:
    """Return True if the model is a layer or a model of Keras."""
    keras = sys.modules.get("keras")
    return keras is not None and hasattr(keras, "Layer") and isinstance(model, keras.Layer)


def to_keras_arguments(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword inputs as Keras takes them, NumPy arrays as tensors."""
    import numpy as np
    import torch
    from torch.utils._pytree import tree_map_only

    inputs, named = to_keras_call_inputs(model, args, kwargs)
    tensors = tree_map_only(np.ndarray, torch.from_numpy, (inputs, named))
    return tuple(tensors[0]), dict(tensors[1])


def build_keras_variables(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Let a Keras model create its variables for these inputs. Raises InputError if that fails."""
    if has_created_variables(model):
        return
    import keras
    import torch
    from torch.utils._pytree import tree_map_only

    def to_keras_tensor(tensor: Any) -> Any:
        """Return a symbolic tensor of Keras with the shape and dtype of a PyTorch tensor."""
        return keras.KerasTensor(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))

    try:
        model(
            *tree_map_only(torch.Tensor, to_keras_tensor, args),
            **tree_map_only(torch.Tensor, to_keras_tensor, dict(kwargs)),
        )
    except Exception as error:  # whatever code of a model raises
        raise InputError(
            f"the model raised {error_words(error)}{error_location(error)}",
            "check the number, the shapes and the types of --input",
        ) from error


@contextmanager
def registering_keras_classes(model: Any) -> Iterator[None]:
    """Register the classes of a Keras model's layers by name inside the block, so that Keras can
    copy them.
    """
    if not is_torch_keras_layer(model):
        yield
        return
    import keras

    classes = {type(layer).__name__: type(layer) for layer in model._flatten_layers()}
    with keras.saving.custom_object_scope(classes):
        yield


@contextmanager
def copying_keras_attributes(model: Any) -> Iterator[None]:
    """Make Python copy Keras layers by their attributes, inside the block.

    Keras serializes them instead, which needs a `get_config` that many models leave out.
    """
    if not is_torch_keras_layer(model):
        yield
        return
    from keras.src.saving.keras_saveable import KerasSaveable

    with patching_attribute(
        KerasSaveable, "__reduce__", _reduce_keras_layer, inventory.KERAS_COPIES
    ):
        yield


def _reduce_keras_layer(layer: Any) -> tuple[Any, ...]:
    """Return what `copy` needs for a Keras layer: (function that makes a new one, its arguments,
    attributes).

    The methods that Keras binds to a layer at creation belong to it: the copy has its own.
    """
    made = _new_instance_without_init(type(layer))
    state = {
        name: value
        for name, value in vars(layer).items()
        if name not in vars(made) or not callable(value)
    }
    return _new_instance_without_init, (type(layer),), state


def _new_instance_without_init(kind: Any) -> Any:
    """Return a new instance of a class without a call of its `__init__`."""
    return kind.__new__(kind)


def non_weight_tensor_ids(model: "nn.Module") -> frozenset[int]:
    """Return the ids of the tensors of a Keras model that are not weights, such as statistics and
    seeds.
    """
    if not is_torch_keras_layer(model):
        return frozenset()
    keras_model: Any = model
    layers = keras_model._flatten_layers()
    weights = {id(v) for layer in layers for v in layer._trainable_variables}
    return frozenset(id(v.value) for v in keras_model.variables if id(v) not in weights)
