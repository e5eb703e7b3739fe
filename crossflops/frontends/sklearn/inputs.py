"""Inputs of an estimator: their shapes and types, since nothing is run."""

from collections.abc import Mapping, Sequence
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.inputs import arguments, from_npz, split
from crossflops.ir.tensor import TensorSpec

Given = tuple[tuple[Any, ...], dict[str, Any]]


def make(specs: Sequence[TensorSpec]) -> Given:
    """The specs themselves, by place and by name."""
    return split({one.name: one for one in specs})


def from_file(path: str) -> Given:
    """The shapes and types of the arrays in an .npz file. Raises InputError."""
    return from_npz(path, spec)


def given(inputs: Any) -> Given:
    """What Python callers give: X as `predict` takes it, a frame with an input for each column,
    or a dict of such columns. Raises InputError.
    """
    if isinstance(inputs, Mapping):
        return (), {str(name): spec(one, str(name)) for name, one in inputs.items()}
    if hasattr(inputs, "columns") and hasattr(inputs, "dtypes"):
        rows = (len(inputs), 1)
        kinds = zip(inputs.columns, inputs.dtypes, strict=True)
        return (), {str(name): TensorSpec(str(name), _name(kind), rows) for name, kind in kinds}
    if isinstance(inputs, list):
        import numpy as np

        return (spec(np.asarray(inputs)),), {}
    args, kwargs = arguments(inputs)
    return tuple(map(spec, args)), {name: spec(one, name) for name, one in kwargs.items()}


def spec(value: Any, name: str = "X") -> TensorSpec:
    """The shape and the type of an array. Raises InputError for what is none."""
    if isinstance(value, TensorSpec):
        return value
    try:
        shape = tuple(map(int, value.shape))
        return TensorSpec(name, _name(value.dtype), shape, "input")
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"an input is a {type(value).__name__}, which has no shape and type",
            "give X as an array, or as texts: ['1x4']",
        ) from error


def _name(dtype: Any) -> str:
    """How a type of NumPy or pandas is called: what is no number or truth value is text."""
    kind = getattr(dtype, "kind", "O")
    return str(dtype.name) if kind in "fiub" else "string"
