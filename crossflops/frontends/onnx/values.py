"""Compute small values that follow from constants and shapes, without running the model."""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import accumulate
from math import ceil, floor, isfinite, prod, sqrt
from typing import Any, NamedTuple, TypeAlias

# Small numbers that are known without running the model: counts, sizes, conditions.
#
# Whole numbers above all; floats as far as sizes are computed with them, such as those of an image
# that is made larger by a factor. Each float is rounded to its type, as a run would.

MOST = 64  # a shape, a number of steps: never a tensor that a model computes with
_FORMATS = {2: "B", 3: "b", 4: "H", 5: "h", 6: "i", 7: "q", 9: "?", 12: "I", 13: "Q"}
FLOATS = {1: "f", 10: "e", 11: "d"}  # TensorProto.DataType: how struct writes it
_EXACT = 1 << 53  # up to here every whole number is a float of 64 bits
Number: TypeAlias = int | float

SEQUENCE = -1
MATRIX = 2


class Value(NamedTuple):
    """A known scalar (rank 0) or vector (1), or the length of a sequence of tensors (-1).

    A matrix (rank 2) has its items row by row, each of so many `columns`. Items are whole numbers,
    or floats of the struct format `kind` ("f").
    """

    rank: int
    items: tuple[Number, ...]
    columns: int = 0
    kind: str = ""

    @property
    def integer_items(self) -> tuple[int, ...]:
        """The items as integers. Raises ValueError if they are floats."""
        if self.kind:
            raise ValueError("these are floats")
        return tuple(map(int, self.items))


def single_integer(value: Value | None) -> int | None:
    """Return the integer of a value that has exactly one, or None for any other value."""
    if value is None or value.rank == SEQUENCE or value.kind or len(value.items) != 1:
        return None
    return int(value.items[0])


def tensor_sequence_length(value: Value | None) -> int | None:
    """Return the number of tensors in a sequence, or None if the value is not a sequence."""
    return int(value.items[0]) if value is not None and value.rank == SEQUENCE else None


def round_to_float_kind(numbers: Iterable[Number], kind: str) -> tuple[float, ...]:
    """Return numbers rounded to a float type ("f", "e", "d"). Raises ValueError on overflow.

    An integer that may be inexact is an error, too.
    """
    items = tuple(numbers)
    form = f"<{len(items)}{kind}"
    try:
        if any(abs(item) > _EXACT for item in items if isinstance(item, int)):
            raise ValueError("that may be rounded twice")
        stored: tuple[float, ...] = struct.unpack(form, struct.pack(form, *items))
    except (OverflowError, struct.error) as error:
        raise ValueError("the number does not fit the float type") from error
    if not all(map(isfinite, stored)):
        raise ValueError("the result is not a finite number")
    return stored


def value_from_tensor(tensor: Any) -> Value | None:
    """Return the numbers in a TensorProto, or None if they are too many or not stored in it."""
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


def cast_value(value: Value | None, to: int) -> Value | None:
    """Return a value in the element type `to`, or None if a number does not fit into it."""
    if value is None:
        return None
    try:
        if to in FLOATS:
            return value._replace(
                items=round_to_float_kind(value.items, FLOATS[to]), kind=FLOATS[to]
            )
        form = _FORMATS[to]
        if form == "?":
            return Value(value.rank, tuple(int(item != 0) for item in value.items))
        items = tuple(map(int, value.items))  # towards zero
        struct.pack(f"<{len(items)}{form}", *items)
    except (KeyError, ValueError, struct.error):
        return None
    return value._replace(items=items, kind="")


# Operators on small numbers, as far as sizes and conditions are computed with them.

_Operator = Callable[[list[Value]], Value]


def _identity_value(values: list[Value]) -> Value:
    """Return the first operand unchanged, as Identity does."""
    return values[0]


def _flatten_value(values: list[Value]) -> Value:
    """Return the first operand as a vector (rank 1)."""
    return values[0]._replace(rank=1)


def _squeeze_value(values: list[Value]) -> Value:
    """Return the operand as a scalar if it has one item, a matrix of one row or one column as a
    vector, otherwise unchanged. Raises ValueError for a matrix with more of both.
    """
    data = values[0]
    if data.rank == MATRIX:
        if data.columns != 1 and len(data.items) != data.columns:
            raise ValueError("the matrix has several rows and columns")
        return Value(1, data.items, kind=data.kind)
    return data._replace(rank=0 if len(data.items) == 1 else data.rank)


def _gather_value(values: list[Value]) -> Value:
    """Return the items of the first operand at the indices of the second, as Gather does."""
    data, indices = values
    return Value(
        indices.rank, tuple(data.items[index] for index in indices.integer_items), kind=data.kind
    )


def _concat_values(values: list[Value]) -> Value:
    """Return a vector of the items of all operands in their order, as Concat does."""
    items = tuple(item for value in values for item in value.items)
    return Value(1, items, kind=_common_value_kind(values))


def _common_value_kind(values: list[Value]) -> str:
    """Return the type of number that all values have. Raises ValueError if they differ."""
    if len({value.kind for value in values}) > 1:
        raise ValueError("the values have several types")
    return values[0].kind


def _make_value(rank: int, items: tuple[Number, ...], kind: str) -> Value:
    """Return a value of these items, rounded to the float type `kind` if it is not ""."""
    return Value(rank, round_to_float_kind(items, kind) if kind else items, kind=kind)


def _pairwise_operator(
    function: Callable[[Number, Number], Number], compares: bool = False
) -> _Operator:
    """Return an operator that applies a function to pairs of items, with broadcasting."""

    def apply_pairwise(values: list[Value]) -> Value:
        """Return the result for two operands. Raises ValueError if they do not broadcast."""
        left, right = values
        kind = _common_value_kind(values)
        count = max(len(left.items), len(right.items))
        if any(count % len(value.items) or 1 < len(value.items) < count for value in values):
            raise ValueError("the values do not broadcast")
        both = [value.items * (count // len(value.items)) for value in (left, right)]
        items = tuple(map(function, *both))
        return _make_value(max(left.rank, right.rank), items, "" if compares else kind)

    return apply_pairwise


def _elementwise_operator(function: Callable[[Number], Number]) -> _Operator:
    """Return an operator that applies a function to each item."""

    def apply_elementwise(values: list[Value]) -> Value:
        """Return the operand with the function applied to each item."""
        (data,) = values
        return _make_value(data.rank, tuple(map(function, data.items)), data.kind)

    return apply_elementwise


def _range_value(values: list[Value]) -> Value:
    """Return the vector of Range (start, limit, step). Raises ValueError if it is too long."""
    steps = range(*(value.integer_items[0] for value in values))
    if len(steps) > MOST:
        raise ValueError("the value is not a shape")
    return Value(1, tuple(steps))


def _slice_value(values: list[Value]) -> Value:
    """Return the items of a vector, or the rows of a matrix, as Slice does."""
    data, begin, end, *rest = values
    if data.rank == MATRIX:
        return _slice_matrix_rows(*values)
    step = rest[1].integer_items[0] if len(rest) > 1 else 1
    first, last = begin.integer_items[0], end.integer_items[0]
    if step < 0:  # an end before the first element means all of them, which Python writes as None
        bounds = slice(first, None if last < -len(data.items) else last, step)
    else:
        bounds = slice(first, last, step)
    return Value(1, data.items[bounds], kind=data.kind)


def _slice_matrix_rows(data: Value, begin: Value, end: Value, *rest: Value) -> Value:
    """Return the rows of a matrix that a slice of axis 0 selects. Raises ValueError otherwise."""
    if not rest or rest[0].items != (0,):
        raise ValueError("the slice does not select rows")
    columns = data.columns
    indices = Value(1, tuple(range(len(data.items) // columns)))
    taken = _slice_value([indices, begin, end, *rest]).integer_items
    rows = (data.items[index * columns : (index + 1) * columns] for index in taken)
    return data._replace(items=tuple(item for row in rows for item in row))


def _transpose_value(values: list[Value]) -> Value:
    """Return a matrix with its rows as columns; a scalar or a vector is unchanged."""
    (data,) = values
    if data.rank != MATRIX:
        return data
    turned = (data.items[column :: data.columns] for column in range(data.columns))
    items = tuple(item for row in turned for item in row)
    return data._replace(items=items, columns=len(items) // data.columns)


def _value_product(values: list[Value]) -> Value:
    """Return the product of all items as a scalar, as ReduceProd does."""
    (data,) = values
    value = _make_value(0, (1,), data.kind)
    factors = (Value(0, (item,), kind=data.kind) for item in data.items)
    return reduce(lambda product, factor: _TIMES([product, factor]), factors, value)


def _reshape_value(values: list[Value]) -> Value:
    """Return the operand as a scalar, vector or matrix. Raises ValueError for more axes."""
    data, shape = values
    if len(shape.items) < 2:
        return Value(len(shape.items), data.items, kind=data.kind)
    rows, columns = shape.integer_items  # of a matrix; a tensor of more axes raises ValueError
    columns = columns if columns > 0 else len(data.items) // rows
    if columns < 1 or len(data.items) % columns:
        raise ValueError("the value is not a matrix")
    return Value(MATRIX, data.items, columns, data.kind)


def _expand_value(values: list[Value]) -> Value:
    """Return a vector that repeats the one number of the operand. Raises ValueError otherwise."""
    data, shape = values
    if len(shape.items) > 1 or len(data.items) != 1 or shape.items[0] > MOST:
        raise ValueError("the value is not a vector of equal numbers")
    return Value(1, data.items * shape.integer_items[0], kind=data.kind)


def _select_value(values: list[Value]) -> Value:
    """Return the second operand if the first is true, else the third, as Where does."""
    condition, yes, no = values
    return (
        (yes if condition.items[0] else no) if len(condition.items) == 1 else _select_items(values)
    )


def _select_items(values: list[Value]) -> Value:
    """Return the value of Where: each item is that of the second operand where the first operand
    is true, else that of the third.
    """
    if len({len(value.items) for value in values}) > 1:
        raise ValueError("the values do not broadcast")
    rows = zip(*(value.items for value in values), strict=True)
    items = tuple(yes if condition else no for condition, yes, no in rows)
    return Value(1, items, kind=_common_value_kind(values[1:]))


def _quotient(dividend: Number, divisor: Number) -> Number:
    """Return dividend / divisor; for integers rounded towards zero, as in C."""
    if isinstance(dividend, float):
        return dividend / divisor
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def _remainder_of_non_negative_integers(dividend: Number, divisor: Number) -> Number:
    """Return dividend % divisor. Raises ValueError for floats and negative numbers."""
    if isinstance(dividend, float) or dividend < 0 or divisor < 0:
        raise ValueError("that depends on an attribute")
    return dividend % divisor


def _exact_power(base: Number, exponent: Number) -> Number:
    """Return base ** exponent for integers, exponent 0 to 64. Raises ValueError otherwise."""
    if base != int(base) or exponent != int(exponent) or not 0 <= exponent <= 64:
        raise ValueError("that is rounded")
    return prod([int(base)] * int(exponent))


def _power_value(values: list[Value]) -> Value:
    """Return base to the exponent, item by item, in the type of the base."""
    base, exponent = values
    kind = base.kind
    power = _POWER([base._replace(kind=""), exponent._replace(kind="")])
    return _make_value(power.rank, power.items, kind)


_TIMES = _pairwise_operator(lambda a, b: a * b)
_POWER = _pairwise_operator(_exact_power)
# Each takes the values of its inputs, and raises ValueError, IndexError or ArithmeticError where
# it cannot tell what comes out.
OPERATORS: Mapping[str, _Operator] = {
    "Identity": _identity_value,
    "Unsqueeze": _flatten_value,
    "Squeeze": _squeeze_value,
    "Gather": _gather_value,
    "Concat": _concat_values,
    "Add": _pairwise_operator(lambda a, b: a + b),
    "Sub": _pairwise_operator(lambda a, b: a - b),
    "Mul": _TIMES,
    "Div": _pairwise_operator(_quotient),
    "Min": _pairwise_operator(min),
    "Max": _pairwise_operator(max),
    "Less": _pairwise_operator(lambda a, b: int(a < b), compares=True),
    "LessOrEqual": _pairwise_operator(lambda a, b: int(a <= b), compares=True),
    "Greater": _pairwise_operator(lambda a, b: int(a > b), compares=True),
    "GreaterOrEqual": _pairwise_operator(lambda a, b: int(a >= b), compares=True),
    "Equal": _pairwise_operator(lambda a, b: int(a == b), compares=True),
    "And": _pairwise_operator(lambda a, b: int(bool(a and b))),
    "Or": _pairwise_operator(lambda a, b: int(bool(a or b))),
    "Not": lambda values: Value(values[0].rank, tuple(int(not item) for item in values[0].items)),
    "Neg": _elementwise_operator(lambda item: -item),
    "Abs": _elementwise_operator(abs),
    "Floor": _elementwise_operator(floor),
    "Ceil": _elementwise_operator(ceil),
    "Round": _elementwise_operator(round),  # both round half to even
    "Sqrt": _elementwise_operator(sqrt),
    "Pow": _power_value,
    "Range": _range_value,
    "Slice": _slice_value,
    "ReduceProd": _value_product,
    "Expand": _expand_value,
    "Reshape": _reshape_value,
    "Transpose": _transpose_value,
    "Mod": _pairwise_operator(_remainder_of_non_negative_integers),
    "Where": _select_value,
}


# Operators on sequences, and what the length of their result is above that of their input.
_SEQUENCES = {
    **dict.fromkeys(("SequenceConstruct", "SequenceEmpty", "SplitToSequence"), 0),
    **dict.fromkeys(("SequenceMap", "SequenceLength"), 0),
    "SequenceInsert": 1,
    "SequenceErase": -1,
}
_OF_MATRICES = ("Cast", "Identity", "Reshape", "Slice", "Squeeze", "Transpose")
_EVALUATED = frozenset(
    ("Constant", "ConstantOfShape", "Shape", "Size", "Cast", "Split", *_SEQUENCES, *OPERATORS)
)


def small_values_by_name(
    nodes: Any, tensors: Any, shapes: Mapping[str, tuple[int, ...] | None], outer: dict[str, Value]
) -> dict[str, Value]:
    """Return the small values that follow from constants and shapes, by name of the value."""
    known_values = dict(outer)
    for tensor in tensors:
        if (value := value_from_tensor(tensor)) is not None:
            known_values[tensor.name] = value
    for node in nodes:
        if node.op_type not in _EVALUATED or node.domain:
            continue
        if node.op_type == "Split":
            parts = _split_values(node, known_values)
            known_values.update(zip(node.output, parts, strict=False))
        elif len(node.output) == 1 or node.op_type == "SequenceMap":
            value = _value_of_node(node, shapes, known_values)
            if value is not None and len(value.items) <= MOST and _fits_64_bits(value):
                known_values.update(dict.fromkeys(node.output, value))
    return known_values


def _split_values(node: Any, known_values: Mapping[str, Value]) -> tuple[Value, ...]:
    """Return the parts of a vector, or of a matrix by its rows or columns, as Split makes them; ()
    if they are unknown.
    """
    data = known_values.get(node.input[0]) if node.input else None
    sizes = known_values.get(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    if data is None or data.rank not in (1, MATRIX) or (len(node.input) > 1 and sizes is None):
        return ()
    attributes = {attribute.name: attribute for attribute in node.attribute}
    axis = attributes["axis"].i if "axis" in attributes else 0
    columns = data.columns if data.rank == MATRIX else 1
    rows = len(data.items) // columns
    is_by_column = data.rank == MATRIX and axis in (1, -1)
    length, count = columns if is_by_column else rows, len(node.output)
    equal = -(-length // count)
    lengths = (
        sizes.items
        if sizes is not None
        else (*([equal] * (count - 1)), length - equal * (count - 1))
    )
    if sum(lengths) != length or min(lengths) < 1 or len(lengths) != count:
        return ()
    ends = [int(end) for end in accumulate(lengths)]
    return tuple(
        _matrix_part(data, columns, range(begin, end), is_by_column)
        for begin, end in zip([0, *ends], ends, strict=False)
    )


def _matrix_part(data: Value, columns: int, taken: range, is_by_column: bool) -> Value:
    """Return these rows, or columns, of a matrix, or of a vector as a matrix of one column."""
    items = tuple(
        item
        for index, item in enumerate(data.items)
        if (index % columns if is_by_column else index // columns) in taken
    )
    own_columns = 0 if data.rank != MATRIX else len(taken) if is_by_column else columns
    return data._replace(items=items, columns=own_columns)


def _fits_64_bits(value: Value) -> bool:
    """Return whether each integer of a value fits into 64 bits; True for floats."""
    return bool(value.kind) or all(-(1 << 63) <= item < 1 << 63 for item in value.items)


def _value_of_node(
    node: Any, shapes: Mapping[str, tuple[int, ...] | None], known_values: Mapping[str, Value]
) -> Value | None:
    """Return the small value that a node computes from known values and shapes, or None."""
    operator = node.op_type
    values = [known_values.get(name) for name in node.input[:] if name]
    if operator in OPERATORS and (not values or None in values):
        return None
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if operator == "Constant":
        return _constant_value(attributes)
    if operator in ("Shape", "Size"):
        shape = shapes.get(node.input[0]) if node.input else None
        return _shape_or_size_value(operator, shape, attributes)
    if operator in _SEQUENCES:
        return _sequence_length_value(node, shapes, known_values, attributes)
    if not values or None in values:
        return None
    if any(value is not None and value.rank == MATRIX for value in values):
        turned = list(attributes["perm"].ints) if "perm" in attributes else [1, 0]
        if node.op_type not in _OF_MATRICES or turned != [1, 0]:
            return None
    if node.op_type == "Cast":
        return cast_value(values[0], attributes["to"].i if "to" in attributes else 0)
    if node.op_type == "ConstantOfShape":
        return _constant_of_shape_value(values[0], attributes)
    try:
        return OPERATORS[node.op_type]([value for value in values if value is not None])
    except (ValueError, IndexError, ArithmeticError):
        return None


def _shape_or_size_value(
    kind: str, shape: tuple[int, ...] | None, attributes: Mapping[str, Any]
) -> Value | None:
    """Return the result of Shape or Size for an input of this shape, or None if that is None."""
    if shape is None:
        return None
    if kind == "Size":
        return Value(0, (prod(shape),))
    begin = attributes["start"].i if "start" in attributes else 0
    end = attributes["end"].i if "end" in attributes else len(shape)
    return Value(1, shape[begin:end])


def _sequence_length_value(
    node: Any,
    shapes: Mapping[str, tuple[int, ...] | None],
    known_values: Mapping[str, Value],
    attributes: Mapping[str, Any],
) -> Value | None:
    """Return the length of the sequence that a node makes, as a Value, or None if unknown."""
    if node.op_type in ("SequenceConstruct", "SequenceEmpty"):
        return Value(SEQUENCE, (len(node.input),))
    if not node.input:
        return None
    if node.op_type == "SplitToSequence":
        shape = shapes.get(node.input[0])
        axis = attributes["axis"].i if "axis" in attributes else 0
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        split = known_values.get(node.input[1]) if len(node.input) > 1 else Value(0, (1,))
        if split is None or (split.rank == 0 and split.items[0] < 1):
            return None
        parts = len(split.items) if split.rank else -(-shape[axis] // split.integer_items[0])
        return Value(SEQUENCE, (parts,))
    before = tensor_sequence_length(known_values.get(node.input[0]))
    if before is None:
        return None
    after = before + _SEQUENCES[node.op_type]
    return Value(0 if node.op_type == "SequenceLength" else SEQUENCE, (max(after, 0),))


def _constant_of_shape_value(shape: Value | None, attributes: Mapping[str, Any]) -> Value | None:
    """Return the vector of a ConstantOfShape, one number repeated, or None if unknown."""
    value = value_from_tensor(attributes["value"].t) if "value" in attributes else None
    if value is None or shape is None or len(shape.items) != 1 or not 0 < shape.items[0] <= MOST:
        return None
    return Value(1, value.items[:1] * shape.integer_items[0], kind=value.kind)


def _constant_value(attributes: Mapping[str, Any]) -> Value | None:
    """Return the scalar or vector of a Constant node, or None if it has another value."""
    if "value" in attributes:
        return value_from_tensor(attributes["value"].t)
    if "value_int" in attributes:
        return Value(0, (attributes["value_int"].i,))
    if "value_ints" in attributes:
        return Value(1, tuple(attributes["value_ints"].ints))
    if "value_float" in attributes:
        return _value_of_finite_floats(0, (attributes["value_float"].f,))
    if "value_floats" in attributes:
        return _value_of_finite_floats(1, attributes["value_floats"].floats)
    return None


def _value_of_finite_floats(rank: int, items: Sequence[float]) -> Value | None:
    """Return a value of these floats, or None if one of them is infinite or NaN."""
    return Value(rank, tuple(items), kind="f") if all(map(isfinite, items)) else None
