"""What a tensor is to a counter: a name, an element type and a shape. Never its values."""

from functools import lru_cache
from math import prod

import msgspec

_BITS = {
    "float64": 64, "float32": 32, "float16": 16, "bfloat16": 16,
    "float8e4m3fn": 8, "float8e4m3fnuz": 8, "float8e5m2": 8, "float8e5m2fnuz": 8,
    "float8e8m0": 8, "float6e2m3": 6, "float6e3m2": 6, "float4e2m1": 4,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "int4": 4, "int2": 2,
    "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "uint4": 4, "uint2": 2,
    "bool": 8, "complex64": 64, "complex128": 128,
}  # fmt: skip

DIGITS = 18  # of a size that is given: with more it may not fit into 64 bits


class TensorSpec(msgspec.Struct, frozen=True):
    """A tensor without its values.

    `name` says which tensor it is: a value name in a graph, an argument name in a call.
    `shape` is None when it is not known, and `()` for a scalar. `role` is "input",
    "parameter", "constant", "output" or "" for a plain intermediate value.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    role: str = ""

    @property
    def numel(self) -> int:
        """Number of elements. Raises ValueError when the shape is not known."""
        if self.shape is None:
            raise ValueError(f"the shape of {self.name!r} is not known")
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor, sub-byte types packed. A string counts no bytes."""
        if self.shape is None:
            raise ValueError(f"the shape of {self.name!r} is not known")
        return _nbytes(self.dtype, self.shape)


@lru_cache(maxsize=4096)  # a graph has few shapes, and asks several times for each tensor
def _nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    return (prod(shape) * _BITS.get(dtype, 0) + 7) // 8
