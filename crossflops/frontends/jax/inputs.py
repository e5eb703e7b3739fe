"""Inputs of a JAX model: only their shapes and types, since nothing is run."""

from collections.abc import Sequence
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.inputs import arguments, from_npz, split
from crossflops.ir.tensor import TensorSpec

Given = tuple[tuple[Any, ...], dict[str, Any]]
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def make(specs: Sequence[TensorSpec]) -> Given:
    """jax.ShapeDtypeStruct by place and by name."""
    import jax
    import jax.numpy as jnp

    return split(
        {one.name: jax.ShapeDtypeStruct(one.shape, jnp.dtype(one.dtype)) for one in specs}
    )


def from_file(path: str) -> Given:
    """The shapes and types of the arrays in an .npz file. Raises InputError."""
    return from_npz(path, _spec)


def given(inputs: Any) -> Given:
    """What Python callers give: arrays or jax.ShapeDtypeStruct, alone or in lists and dicts.

    Plain numbers, texts and None stay what they are: the model is traced for them. Raises
    InputError for what is neither.
    """
    import jax

    args, kwargs = arguments(inputs)
    found: Given = jax.tree.map(_checked, (args, kwargs))
    return found


def _checked(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    try:
        return _spec(value)
    except (AttributeError, TypeError) as error:
        raise InputError(
            f"an input is a {type(value).__name__}, which has no shape and type",
            "give an array or a jax.ShapeDtypeStruct",
        ) from error


def _spec(value: Any) -> Any:
    import jax

    return jax.ShapeDtypeStruct(value.shape, value.dtype)
