"""Inputs of a TensorFlow model: only their shapes and types, since nothing is run."""

from collections.abc import Mapping, Sequence
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.inputs import arguments, from_npz, split
from crossflops.ir.tensor import TensorSpec

Given = tuple[tuple[Any, ...], dict[str, Any]]


def make(specs: Sequence[TensorSpec]) -> Given:
    """tf.TensorSpec by place and by name."""
    import tensorflow as tf

    return split(
        {
            one.name: tf.TensorSpec(one.shape, one.dtype, None if one.name.isdigit() else one.name)
            for one in specs
        }
    )


def from_file(path: str) -> Given:
    """The shapes and types of the arrays in an .npz file. Raises InputError."""
    return from_npz(path, _spec)


def given(inputs: Any) -> Given:
    """What Python callers give: tensors, arrays or specs, also in lists and dicts.

    Raises InputError for a value without a shape, and for a size that is left open: TensorFlow's
    profiler counts 0 where the batch is None, and says nothing.
    """
    args, kwargs = arguments(inputs)
    return tuple(map(_checked, args)), {name: _checked(one, name) for name, one in kwargs.items()}


def _checked(value: Any, name: str | None = None) -> Any:
    if isinstance(value, Mapping):
        return {key: _checked(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple) and all(hasattr(one, "shape") for one in value):
        return [_checked(one) for one in value]
    try:
        spec = _spec(value, name)
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"an input is a {type(value).__name__}, which has no shape and type",
            "give a tensor, an array or a tf.TensorSpec",
        ) from error
    if not spec.shape.is_fully_defined():
        raise InputError(
            f"the input has the shape {spec.shape}, which is not definite",
            "give a number for every size, the batch too",
        )
    return spec


def _spec(value: Any, name: str | None = None) -> Any:
    import tensorflow as tf

    return tf.TensorSpec(value.shape, value.dtype, name)
