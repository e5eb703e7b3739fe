"""Small whole numbers that are known without running the model: counts, sizes, conditions."""

import struct
from math import prod
from typing import Any, NamedTuple

MOST = 64  # a shape, a number of steps: never a tensor that a model computes with
_FORMATS = {2: "B", 3: "b", 4: "H", 5: "h", 6: "i", 7: "q", 9: "?", 12: "I", 13: "Q"}


SEQUENCE = -1
MATRIX = 2


class Value(NamedTuple):
    """A scalar (rank 0), a vector (rank 1) of whole numbers, or of a sequence (-1) its length.

    A matrix (rank 2) has its items row by row, each of so many `columns`.
    """

    rank: int
    items: tuple[int, ...]
    columns: int = 0


def scalar(value: Value | None) -> int | None:
    """The one number of a value, if it is known and has one."""
    known = value is not None and value.rank != SEQUENCE and len(value.items) == 1
    return value.items[0] if value is not None and known else None


def length(value: Value | None) -> int | None:
    """How many tensors a sequence holds, if that is known."""
    return value.items[0] if value is not None and value.rank == SEQUENCE else None


def of_tensor(tensor: Any) -> Value | None:
    """The whole numbers of a small TensorProto whose payload is there."""
    dims = tuple(tensor.dims)
    count = prod(dims)
    form = _FORMATS.get(tensor.data_type)
    if form is None or len(dims) > 1 or not 0 < count <= MOST:
        return None
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != count * struct.calcsize(form):
            return None
        return Value(len(dims), tuple(map(int, struct.unpack(f"<{count}{form}", tensor.raw_data))))
    stored = tensor.int64_data or tensor.int32_data or tensor.uint64_data
    return Value(len(dims), tuple(map(int, stored))) if len(stored) == count else None


def cast(value: Value | None, to: int) -> Value | None:
    """Whole numbers in another type of whole numbers; what a float would hold is not known."""
    form = _FORMATS.get(to)
    if value is None or form is None:
        return None
    if form == "?":
        return Value(value.rank, tuple(int(item != 0) for item in value.items))
    try:
        struct.pack(f"<{len(value.items)}{form}", *value.items)
    except struct.error:
        return None
    return value
