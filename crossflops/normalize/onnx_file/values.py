"""Small whole numbers that are known without running the model: trip counts and conditions."""

import struct
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

_MOST = 64  # a shape, a number of steps: never a tensor that a model computes with
_FORMATS = {2: "B", 3: "b", 4: "H", 5: "h", 6: "i", 7: "q", 9: "?", 12: "I", 13: "Q"}


class Value(NamedTuple):
    """A scalar (rank 0) or a vector of whole numbers."""

    rank: int
    items: tuple[int, ...]


def scalar(value: Value | None) -> int | None:
    """The one number of a value, if it is known and has one."""
    return value.items[0] if value is not None and len(value.items) == 1 else None


def of_tensor(tensor: Any) -> Value | None:
    """The whole numbers of a small TensorProto whose payload is there."""
    dims = tuple(tensor.dims)
    count = prod(dims)
    form = _FORMATS.get(tensor.data_type)
    if form is None or len(dims) > 1 or not 0 < count <= _MOST:
        return None
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != count * struct.calcsize(form):
            return None
        return Value(len(dims), tuple(map(int, struct.unpack(f"<{count}{form}", tensor.raw_data))))
    stored = tensor.int64_data or tensor.int32_data or tensor.uint64_data
    return Value(len(dims), tuple(map(int, stored))) if len(stored) == count else None


def known(
    nodes: Any, tensors: Any, shapes: Mapping[str, tuple[int, ...] | None], outer: dict[str, Value]
) -> dict[str, Value]:
    """The values that follow from small constants and from shapes, by name."""
    found = dict(outer)
    for tensor in tensors:
        if (value := of_tensor(tensor)) is not None:
            found[tensor.name] = value
    for node in nodes:
        if node.op_type in _EVALUATED and node.domain in ("", "ai.onnx") and len(node.output) == 1:
            value = _evaluate(node, shapes, found)
            if value is not None and len(value.items) <= _MOST and _fit(value):
                found[node.output[0]] = value
    return found


def _fit(value: Value) -> bool:
    return all(-(1 << 63) <= item < 1 << 63 for item in value.items)


def _evaluate(
    node: Any, shapes: Mapping[str, tuple[int, ...] | None], found: Mapping[str, Value]
) -> Value | None:
    attributes = {one.name: one for one in node.attribute}
    if node.op_type == "Constant":
        return _constant(attributes)
    if node.op_type in ("Shape", "Size"):
        shape = shapes.get(node.input[0]) if node.input else None
        if shape is None:
            return None
        if node.op_type == "Size":
            return Value(0, (prod(shape),))
        begin = attributes["start"].i if "start" in attributes else 0
        end = attributes["end"].i if "end" in attributes else len(shape)
        return Value(1, shape[begin:end])
    values = [found.get(name) for name in node.input if name]
    if not values or any(value is None for value in values):
        return None
    try:
        return _EVALUATED[node.op_type]([value for value in values if value is not None])
    except (ValueError, IndexError, ZeroDivisionError):
        return None


def _constant(attributes: Mapping[str, Any]) -> Value | None:
    if "value" in attributes:
        return of_tensor(attributes["value"].t)
    if "value_int" in attributes:
        return Value(0, (attributes["value_int"].i,))
    if "value_ints" in attributes:
        return Value(1, tuple(attributes["value_ints"].ints))
    return None


def _same(values: list[Value]) -> Value:
    return values[0]


def _vector(values: list[Value]) -> Value:
    return Value(1, values[0].items)


def _squeezed(values: list[Value]) -> Value:
    return Value(0 if len(values[0].items) == 1 else values[0].rank, values[0].items)


def _gathered(values: list[Value]) -> Value:
    data, places = values
    return Value(places.rank, tuple(data.items[place] for place in places.items))


def _joined(values: list[Value]) -> Value:
    return Value(1, tuple(item for value in values for item in value.items))


def _pairwise(function: Callable[[int, int], int]) -> Callable[[list[Value]], Value]:
    def apply(values: list[Value]) -> Value:
        left, right = values
        count = max(len(left.items), len(right.items))
        if any(count % len(value.items) or 1 < len(value.items) < count for value in values):
            raise ValueError("these do not broadcast")
        both = [value.items * (count // len(value.items)) for value in (left, right)]
        return Value(max(left.rank, right.rank), tuple(map(function, *both)))

    return apply


def _quotient(dividend: int, divisor: int) -> int:
    """As in C: towards zero."""
    found = abs(dividend) // abs(divisor)
    return found if (dividend < 0) == (divisor < 0) else -found


_EVALUATED: dict[str, Callable[[list[Value]], Value]] = {
    **dict.fromkeys(("Constant", "Shape", "Size", "Identity", "Cast"), _same),
    "Unsqueeze": _vector,
    "Squeeze": _squeezed,
    "Gather": _gathered,
    "Concat": _joined,
    "Add": _pairwise(lambda a, b: a + b),
    "Sub": _pairwise(lambda a, b: a - b),
    "Mul": _pairwise(lambda a, b: a * b),
    "Div": _pairwise(_quotient),
    "Min": _pairwise(min),
    "Max": _pairwise(max),
}
