"""Operators on small whole numbers, as far as sizes and conditions are computed with them."""

from collections.abc import Callable, Mapping
from math import prod

from crossflops.normalize.onnx_file.whole_numbers import MATRIX, MOST, Value


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


def _range(values: list[Value]) -> Value:
    steps = range(*(value.items[0] for value in values))
    if len(steps) > MOST:
        raise ValueError("that is no shape")
    return Value(1, tuple(steps))


def _sliced(values: list[Value]) -> Value:
    data, begin, end, *rest = values
    if data.rank == MATRIX:
        return _rows(*values)
    step = rest[1].items[0] if len(rest) > 1 else 1
    first, last = begin.items[0], end.items[0]
    if step < 0:  # an end before the first element means all of them, which Python writes as None
        bounds = slice(first, None if last < -len(data.items) else last, step)
    else:
        bounds = slice(first, last, step)
    return Value(1, data.items[bounds])


def _rows(data: Value, begin: Value, end: Value, *rest: Value) -> Value:
    """Some rows of a matrix, as numbers of rows are sliced."""
    if not rest or rest[0].items != (0,):
        raise ValueError("that is no slice of rows")
    columns = data.columns
    places = Value(1, tuple(range(len(data.items) // columns)))
    taken = _sliced([places, begin, end, *rest]).items
    rows = (data.items[place * columns : (place + 1) * columns] for place in taken)
    return Value(MATRIX, tuple(item for row in rows for item in row), columns)


def _transposed(values: list[Value]) -> Value:
    (data,) = values
    if data.rank != MATRIX:
        return data
    turned = (data.items[column :: data.columns] for column in range(data.columns))
    items = tuple(item for row in turned for item in row)
    return Value(MATRIX, items, len(items) // data.columns)


def _product(values: list[Value]) -> Value:
    (data,) = values
    return Value(0, (prod(data.items),))


def _reshaped(values: list[Value]) -> Value:
    data, shape = values
    if len(shape.items) < 2:
        return Value(len(shape.items), data.items)
    rows, columns = shape.items  # of a matrix; a tensor of more axes raises ValueError
    columns = columns if columns > 0 else len(data.items) // rows
    if columns < 1 or len(data.items) % columns:
        raise ValueError("that is no matrix")
    return Value(MATRIX, data.items, columns)


def _filled(values: list[Value]) -> Value:
    """Expand of one number to a vector."""
    data, shape = values
    if len(shape.items) > 1 or len(data.items) != 1 or shape.items[0] > MOST:
        raise ValueError("that is no vector of equal numbers")
    return Value(1, data.items * shape.items[0])


def _chosen(values: list[Value]) -> Value:
    condition, yes, no = values
    return (yes if condition.items[0] else no) if len(condition.items) == 1 else _each(values)


def _each(values: list[Value]) -> Value:
    if len({len(value.items) for value in values}) > 1:
        raise ValueError("these do not broadcast")
    rows = zip(*(value.items for value in values), strict=True)
    return Value(1, tuple(yes if condition else no for condition, yes, no in rows))


def _quotient(dividend: int, divisor: int) -> int:
    """As in C: towards zero."""
    found = abs(dividend) // abs(divisor)
    return found if (dividend < 0) == (divisor < 0) else -found


def _remainder(dividend: int, divisor: int) -> int:
    """Of what is not negative both kinds are the same."""
    if dividend < 0 or divisor < 0:
        raise ValueError("that depends on an attribute")
    return dividend % divisor


# Each takes the values of its inputs, and raises ValueError, IndexError or ZeroDivisionError where
# it cannot tell what comes out.
OPERATORS: Mapping[str, Callable[[list[Value]], Value]] = {
    "Identity": _same,
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
    "Less": _pairwise(lambda a, b: int(a < b)),
    "LessOrEqual": _pairwise(lambda a, b: int(a <= b)),
    "Greater": _pairwise(lambda a, b: int(a > b)),
    "GreaterOrEqual": _pairwise(lambda a, b: int(a >= b)),
    "Equal": _pairwise(lambda a, b: int(a == b)),
    "And": _pairwise(lambda a, b: int(bool(a and b))),
    "Or": _pairwise(lambda a, b: int(bool(a or b))),
    "Not": lambda values: Value(values[0].rank, tuple(int(not one) for one in values[0].items)),
    "Neg": lambda values: Value(values[0].rank, tuple(-one for one in values[0].items)),
    "Range": _range,
    "Slice": _sliced,
    "ReduceProd": _product,
    "Expand": _filled,
    "Reshape": _reshaped,
    "Transpose": _transposed,
    "Mod": _pairwise(_remainder),
    "Where": _chosen,
}
