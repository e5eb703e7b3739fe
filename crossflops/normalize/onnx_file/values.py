"""What follows from small constants and from shapes, without running the model."""

from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import Any

from crossflops.normalize.onnx_file.arithmetic import OPERATORS
from crossflops.normalize.onnx_file.whole_numbers import (
    MATRIX,
    MOST,
    SEQUENCE,
    Value,
    cast,
    length,
    of_tensor,
)

# Operators on sequences, and what the length of their result is above that of their input.
_SEQUENCES = {
    **dict.fromkeys(("SequenceConstruct", "SequenceEmpty", "SplitToSequence"), 0),
    **dict.fromkeys(("SequenceMap", "SequenceLength"), 0),
    "SequenceInsert": 1,
    "SequenceErase": -1,
}
_OF_MATRICES = ("Cast", "Identity", "Reshape", "Slice", "Transpose")
_EVALUATED = frozenset(
    ("Constant", "ConstantOfShape", "Shape", "Size", "Cast", *_SEQUENCES, *OPERATORS)
)


def known(
    nodes: Any, tensors: Any, shapes: Mapping[str, tuple[int, ...] | None], outer: dict[str, Value]
) -> dict[str, Value]:
    """The values that follow from small constants and from shapes, by name."""
    found = dict(outer)
    for tensor in tensors:
        if (value := of_tensor(tensor)) is not None:
            found[tensor.name] = value
    for node in nodes:
        if node.op_type not in _EVALUATED or node.domain not in ("", "ai.onnx"):
            continue
        if len(node.output) == 1 or node.op_type == "SequenceMap":
            value = _evaluate(node, shapes, found)
            if value is not None and len(value.items) <= MOST and _fit(value):
                found.update(dict.fromkeys(node.output, value))
    return found


def _fit(value: Value) -> bool:
    return bool(value.kind) or all(-(1 << 63) <= item < 1 << 63 for item in value.items)


def _evaluate(
    node: Any, shapes: Mapping[str, tuple[int, ...] | None], found: Mapping[str, Value]
) -> Value | None:
    attributes = {one.name: one for one in node.attribute}
    if node.op_type == "Constant":
        return _constant(attributes)
    if node.op_type in ("Shape", "Size"):
        shape = shapes.get(node.input[0]) if node.input else None
        return _of_shape(node.op_type, shape, attributes)
    if node.op_type in _SEQUENCES:
        return _sequence(node, shapes, found, attributes)
    values = [found.get(name) for name in node.input if name]
    if not values or any(value is None for value in values):
        return None
    if any(one is not None and one.rank == MATRIX for one in values):
        turned = list(attributes["perm"].ints) if "perm" in attributes else [1, 0]
        if node.op_type not in _OF_MATRICES or turned != [1, 0]:
            return None
    if node.op_type == "Cast":
        return cast(values[0], attributes["to"].i if "to" in attributes else 0)
    if node.op_type == "ConstantOfShape":
        return _repeated(values[0], attributes)
    try:
        return OPERATORS[node.op_type]([value for value in values if value is not None])
    except (ValueError, IndexError, ArithmeticError):
        return None


def _of_shape(
    kind: str, shape: tuple[int, ...] | None, attributes: Mapping[str, Any]
) -> Value | None:
    if shape is None:
        return None
    if kind == "Size":
        return Value(0, (prod(shape),))
    begin = attributes["start"].i if "start" in attributes else 0
    end = attributes["end"].i if "end" in attributes else len(shape)
    return Value(1, shape[begin:end])


def _sequence(
    node: Any,
    shapes: Mapping[str, tuple[int, ...] | None],
    found: Mapping[str, Value],
    attributes: Mapping[str, Any],
) -> Value | None:
    """How many tensors a sequence holds: each operator that makes one says it by its inputs."""
    if node.op_type in ("SequenceConstruct", "SequenceEmpty"):
        return Value(SEQUENCE, (len(node.input),))
    if not node.input:
        return None
    if node.op_type == "SplitToSequence":
        shape = shapes.get(node.input[0])
        axis = attributes["axis"].i if "axis" in attributes else 0
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        split = found.get(node.input[1]) if len(node.input) > 1 else Value(0, (1,))
        if split is None or (split.rank == 0 and split.items[0] < 1):
            return None
        parts = len(split.items) if split.rank else -(-shape[axis] // split.whole[0])
        return Value(SEQUENCE, (parts,))
    before = length(found.get(node.input[0]))
    if before is None:
        return None
    after = before + _SEQUENCES[node.op_type]
    return Value(0 if node.op_type == "SequenceLength" else SEQUENCE, (max(after, 0),))


def _repeated(shape: Value | None, attributes: Mapping[str, Any]) -> Value | None:
    """A vector of one number; without an attribute it is a float, of which no size is made."""
    one = of_tensor(attributes["value"].t) if "value" in attributes else None
    if one is None or shape is None or len(shape.items) != 1 or not 0 < shape.items[0] <= MOST:
        return None
    return Value(1, one.items[:1] * shape.whole[0], kind=one.kind)


def _constant(attributes: Mapping[str, Any]) -> Value | None:
    if "value" in attributes:
        return of_tensor(attributes["value"].t)
    if "value_int" in attributes:
        return Value(0, (attributes["value_int"].i,))
    if "value_ints" in attributes:
        return Value(1, tuple(attributes["value_ints"].ints))
    if "value_float" in attributes:
        return _floats(0, (attributes["value_float"].f,))
    if "value_floats" in attributes:
        return _floats(1, attributes["value_floats"].floats)
    return None


def _floats(rank: int, items: Sequence[float]) -> Value | None:
    return Value(rank, tuple(items), kind="f") if all(map(isfinite, items)) else None
