"""Values for weights of which only the shapes are known."""

from math import prod, sqrt
from typing import Any

from crossflops.load.payload import ELEMENT_TYPES

_VALUES = (
    *("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"),
    "external_data",
)


def allocate(model: Any) -> int:
    """Fill the tensors of a model that have a shape and no values, in place; how many.

    Matrices and kernels get random values of about 1 / sqrt(inputs of an output), so that numbers
    neither grow nor vanish on their way through the model; vectors, which scale or are variances,
    values about 1. Integers are zero.
    """
    import numpy as np

    random = np.random.default_rng(0)
    found = 0
    for tensor in model.graph.initializer:
        size = prod(tensor.dims)
        if not size or any(getattr(tensor, field) for field in _VALUES):
            continue
        dtype = ELEMENT_TYPES.get(tensor.data_type, "")
        values = _values(random, tuple(tensor.dims), dtype)
        tensor.raw_data = values.astype(dtype).tobytes()
        found += 1
    return found


def _values(random: Any, shape: tuple[int, ...], dtype: str) -> Any:
    import numpy as np

    if not dtype.startswith("float"):
        return np.zeros(shape)
    if len(shape) < 2:
        return random.uniform(0.5, 1.5, shape)
    return random.standard_normal(shape) / sqrt(prod(shape) / max(shape[0], shape[-1]))
