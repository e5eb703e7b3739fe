"""How many bits an element takes when a model runs in another precision than it is written in."""

import msgspec

from crossflops.core.tensor import TensorSpec
from crossflops.errors import UnknownNameError
from crossflops.hardware.devices.peaks import EMULATIONS

# Precision of a run -> bits of an element in memory. TF32 is a format of the matrix unit alone.
BITS = {
    "fp64": 64,
    "fp32": 32,
    "tf32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "int8": 8,
    "fp6": 6,
    "fp4": 4,
    "int4": 4,
}
# Element type of a graph -> precision of the catalogue.
PRECISIONS = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int8": "int8",
    "int4": "int4",
    "float4e2m1": "fp4",
    "float6e2m3": "fp6",
    "float6e3m2": "fp6",
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"), "fp8"),
}
_RESTATED = frozenset(("float64", "float32", "float16", "bfloat16"))


class Formats(msgspec.Struct, frozen=True, kw_only=True):
    """The precision in which values are kept in memory; "" as the graph has it.

    Weights and caches are kept as the activations unless they have a precision of their own.
    Integers, and floats of 8 bits or fewer, stay as they are stored.
    """

    activations: str = ""
    weights: str = ""
    cache: str = ""

    def __post_init__(self) -> None:
        for name in filter(None, (self.activations, self.weights, self.cache)):
            if storage(name) not in BITS:
                raise UnknownNameError(
                    f"how many bytes an element of {name!r} takes is not known",
                    f"give one of {', '.join(BITS)}",
                )

    def of_weights(self) -> str:
        """The precision of weights."""
        return self.weights or self.activations

    def of_cache(self) -> str:
        """The precision of caches."""
        return self.cache or self.activations


def storage(precision: str) -> str:
    """The precision that values are kept in, whichever unit computes with them.

    >>> storage("fp16_vector"), storage("fp8"), storage("bf16x3")
    ('fp16', 'fp8', 'fp32')
    """
    return "fp32" if precision in EMULATIONS else precision.partition("_")[0]


def nbytes(spec: TensorSpec, precision: str) -> int:
    """Bytes of a tensor whose floats are kept in `precision`. Raises ValueError with no shape."""
    return elements_to_bytes(spec, spec.numel, precision)


def elements_to_bytes(spec: TensorSpec, elements: int, precision: str) -> int:
    """Bytes of so many elements of a tensor, sub-byte types packed."""
    if precision and spec.dtype in _RESTATED:
        return (elements * BITS[storage(precision)] + 7) // 8
    if elements == spec.numel:
        return spec.nbytes
    return TensorSpec("", spec.dtype, (elements,)).nbytes


def run_precision(counted: str, asked: str) -> str:
    """The precision whose peak a node runs at, by the name that the catalogue has for it.

    `counted` is that of the count ("float32", "float32xint4": data first), `asked` that of the
    run. Floats run as asked; a node whose data are integers runs in these, and one whose weights
    alone are narrow computes in the precision of its data. A name of the catalogue is kept.
    """
    if counted in BITS:
        return counted
    data = counted.partition("x")[0]
    if asked and (not data or data in _RESTATED):
        return asked
    return PRECISIONS.get(data, asked or data)
