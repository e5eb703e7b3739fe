"""Compute how a model's outputs change if weights and inputs are rounded differently (NumPy)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crossflops.frontends.frontend import ModelRun

_SEEDS = (1, 2)  # of what the numbers are rounded by
_FLOATS = "fc"


def randomly_rounded_array(array: Any, generator: Any) -> Any:
    """Return the array with each float randomly moved by one rounding step up, down, or not."""
    values = np.asarray(array)
    if values.dtype.kind not in _FLOATS:
        return values
    steps = generator.integers(-1, 2, values.shape) * np.finfo(values.dtype).eps
    return (values * (1 + steps)).astype(values.dtype)


def make_random_array(shape: Sequence[int], dtype: Any) -> Any:
    """Return an array of normally distributed random floats, or of zeros for other dtypes."""
    if np.issubdtype(dtype, np.floating):
        return np.random.default_rng(0).standard_normal(shape).astype(dtype)
    return np.zeros(shape, dtype)


def measure_rounding_changes(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    drawn: Sequence[bool],
    run_rounded: Callable[[Any], Sequence[Any]],
) -> ModelRun:
    """Return the inputs and outputs of a run, and how much rounding changes each output."""
    changes = [
        map(_rounding_change, outputs, run_rounded(np.random.default_rng(seed))) for seed in _SEEDS
    ]
    return ModelRun(tuple(inputs), tuple(outputs), tuple(drawn), tuple(map(max, *changes)))


def _rounding_change(output: Any, other: Any) -> float:
    """Return how much two outputs differ: by largest element, or the share of integers."""
    if output.shape != other.shape or not output.size or output.dtype.kind not in "biufc":
        return 0.0
    differs = (output != other) & ~((output != output) & (other != other))
    if output.dtype.kind not in _FLOATS:
        return float(differs.mean())
    wide = output.astype(np.complex128 if output.dtype.kind == "c" else np.float64)
    gaps, sizes = np.abs(wide - other)[differs], np.abs(wide[np.isfinite(wide)])
    if not gaps.size or not sizes.size or not np.isfinite(gaps).all():
        return 0.0
    return float(gaps.max() / sizes.max()) if sizes.max() else 0.0
