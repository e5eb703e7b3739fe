"""Small numbers that are known without running the model: counts, sizes, conditions.

Whole numbers above all; floats as far as sizes are computed with them, such as those of an image
that is made larger by a factor. Each float is rounded to its type, as a run would.
"""

import struct
from collections.abc import Iterable
from math import isfinite, prod
from typing import Any, NamedTuple, TypeAlias

MOST = 64  # a shape, a number of steps: never a tensor that a model computes with
_FORMATS = {2: "B", 3: "b", 4: "H", 5: "h", 6: "i", 7: "q", 9: "?", 12: "I", 13: "Q"}
FLOATS = {1: "f", 10: "e", 11: "d"}  # TensorProto.DataType: how struct writes it
_EXACT = 1 << 53  # up to here every whole number is a float of 64 bits
Number: TypeAlias = int | float

SEQUENCE = -1
MATRIX = 2


class Value(NamedTuple):
    """A scalar (rank 0), a vector (rank 1) of numbers, or of a sequence (-1) its length.

    A matrix (rank 2) has its items row by row, each of so many `columns`. Items are whole numbers,
    or floats of the `kind` by which struct writes them ("f").
    """

    rank: int
    items: tuple[Number, ...]
    columns: int = 0
    kind: str = ""

    @property
    def whole(self) -> tuple[int, ...]:
        """The items. Raises ValueError where they are floats, which say no size."""
        if self.kind:
            raise ValueError("these are floats")
        return tuple(map(int, self.items))


def scalar(value: Value | None) -> int | None:
    """The one whole number of a value, if it is known and has one."""
    if value is None or value.rank == SEQUENCE or value.kind or len(value.items) != 1:
        return None
    return int(value.items[0])


def length(value: Value | None) -> int | None:
    """How many tensors a sequence holds, if that is known."""
    return int(value.items[0]) if value is not None and value.rank == SEQUENCE else None


def rounded(numbers: Iterable[Number], kind: str) -> tuple[float, ...]:
    """Numbers as floats of that kind. Raises ValueError where one is beyond all, or none."""
    items = tuple(numbers)
    form = f"<{len(items)}{kind}"
    try:
        if any(abs(item) > _EXACT for item in items if isinstance(item, int)):
            raise ValueError("that may be rounded twice")
        found: tuple[float, ...] = struct.unpack(form, struct.pack(form, *items))
    except (OverflowError, struct.error) as error:
        raise ValueError("that is no such float") from error
    if not all(map(isfinite, found)):
        raise ValueError("that is no number")
    return found


def of_tensor(tensor: Any) -> Value | None:
    """The numbers of a small TensorProto whose payload is there."""
    dims = tuple(tensor.dims)
    count = prod(dims)
    kind = FLOATS.get(tensor.data_type, "")
    form = kind or _FORMATS.get(tensor.data_type)
    if form is None or len(dims) > 1 or not 0 < count <= MOST:
        return None
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != count * struct.calcsize(form):
            return None
        items = struct.unpack(f"<{count}{form}", tensor.raw_data)
    elif kind:
        items = tuple(tensor.float_data or tensor.double_data)
    else:
        items = tuple(tensor.int64_data or tensor.int32_data or tensor.uint64_data)
    if len(items) != count:
        return None
    if not kind:
        return Value(len(dims), tuple(map(int, items)))
    return Value(len(dims), items, kind=kind) if all(map(isfinite, items)) else None


def cast(value: Value | None, to: int) -> Value | None:
    """The numbers in another type; None of what does not fit into it."""
    if value is None:
        return None
    try:
        if to in FLOATS:
            return value._replace(items=rounded(value.items, FLOATS[to]), kind=FLOATS[to])
        form = _FORMATS[to]
        if form == "?":
            return Value(value.rank, tuple(int(item != 0) for item in value.items))
        items = tuple(map(int, value.items))  # towards zero
        struct.pack(f"<{len(items)}{form}", *items)
    except (KeyError, ValueError, struct.error):
        return None
    return value._replace(items=items, kind="")
