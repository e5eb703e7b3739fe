"""Operators on small numbers, as far as sizes and conditions are computed with them."""

from collections.abc import Callable, Mapping
from functools import reduce
from math import ceil, floor, prod, sqrt

from crossflops.normalize.onnx_file.whole_numbers import MATRIX, MOST, Number, Value, rounded

_Operator = Callable[[list[Value]], Value]


def _same(values: list[Value]) -> Value:
    return values[0]


def _vector(values: list[Value]) -> Value:
    return values[0]._replace(rank=1)


def _squeezed(values: list[Value]) -> Value:
    data = values[0]
    return data._replace(rank=0 if len(data.items) == 1 else data.rank)


def _gathered(values: list[Value]) -> Value:
    data, places = values
    return Value(places.rank, tuple(data.items[place] for place in places.whole), kind=data.kind)


def _joined(values: list[Value]) -> Value:
    items = tuple(item for value in values for item in value.items)
    return Value(1, items, kind=_kind(values))


def _kind(values: list[Value]) -> str:
    """What all of them are: whole numbers, or floats of one kind."""
    if len({value.kind for value in values}) > 1:
        raise ValueError("these are of several types")
    return values[0].kind


def _made(rank: int, items: tuple[Number, ...], kind: str) -> Value:
    """What comes out of a computation, rounded where it is of floats."""
    return Value(rank, rounded(items, kind) if kind else items, kind=kind)


def _pairwise(function: Callable[[Number, Number], Number], compares: bool = False) -> _Operator:
    def apply(values: list[Value]) -> Value:
        left, right = values
        kind = _kind(values)
        count = max(len(left.items), len(right.items))
        if any(count % len(value.items) or 1 < len(value.items) < count for value in values):
            raise ValueError("these do not broadcast")
        both = [value.items * (count // len(value.items)) for value in (left, right)]
        items = tuple(map(function, *both))
        return _made(max(left.rank, right.rank), items, "" if compares else kind)

    return apply


def _each(function: Callable[[Number], Number]) -> _Operator:
    def apply(values: list[Value]) -> Value:
        (data,) = values
        return _made(data.rank, tuple(map(function, data.items)), data.kind)

    return apply


def _range(values: list[Value]) -> Value:
    steps = range(*(value.whole[0] for value in values))
    if len(steps) > MOST:
        raise ValueError("that is no shape")
    return Value(1, tuple(steps))


def _sliced(values: list[Value]) -> Value:
    data, begin, end, *rest = values
    if data.rank == MATRIX:
        return _rows(*values)
    step = rest[1].whole[0] if len(rest) > 1 else 1
    first, last = begin.whole[0], end.whole[0]
    if step < 0:  # an end before the first element means all of them, which Python writes as None
        bounds = slice(first, None if last < -len(data.items) else last, step)
    else:
        bounds = slice(first, last, step)
    return Value(1, data.items[bounds], kind=data.kind)


def _rows(data: Value, begin: Value, end: Value, *rest: Value) -> Value:
    """Some rows of a matrix, as numbers of rows are sliced."""
    if not rest or rest[0].items != (0,):
        raise ValueError("that is no slice of rows")
    columns = data.columns
    places = Value(1, tuple(range(len(data.items) // columns)))
    taken = _sliced([places, begin, end, *rest]).whole
    rows = (data.items[place * columns : (place + 1) * columns] for place in taken)
    return data._replace(items=tuple(item for row in rows for item in row))


def _transposed(values: list[Value]) -> Value:
    (data,) = values
    if data.rank != MATRIX:
        return data
    turned = (data.items[column :: data.columns] for column in range(data.columns))
    items = tuple(item for row in turned for item in row)
    return data._replace(items=items, columns=len(items) // data.columns)


def _product(values: list[Value]) -> Value:
    (data,) = values
    one = _made(0, (1,), data.kind)
    factors = (Value(0, (item,), kind=data.kind) for item in data.items)
    return reduce(lambda product, factor: _TIMES([product, factor]), factors, one)


def _reshaped(values: list[Value]) -> Value:
    data, shape = values
    if len(shape.items) < 2:
        return Value(len(shape.items), data.items, kind=data.kind)
    rows, columns = shape.whole  # of a matrix; a tensor of more axes raises ValueError
    columns = columns if columns > 0 else len(data.items) // rows
    if columns < 1 or len(data.items) % columns:
        raise ValueError("that is no matrix")
    return Value(MATRIX, data.items, columns, data.kind)


def _filled(values: list[Value]) -> Value:
    """Expand of one number to a vector."""
    data, shape = values
    if len(shape.items) > 1 or len(data.items) != 1 or shape.items[0] > MOST:
        raise ValueError("that is no vector of equal numbers")
    return Value(1, data.items * shape.whole[0], kind=data.kind)


def _chosen(values: list[Value]) -> Value:
    condition, yes, no = values
    return (yes if condition.items[0] else no) if len(condition.items) == 1 else _picked(values)


def _picked(values: list[Value]) -> Value:
    if len({len(value.items) for value in values}) > 1:
        raise ValueError("these do not broadcast")
    rows = zip(*(value.items for value in values), strict=True)
    items = tuple(yes if condition else no for condition, yes, no in rows)
    return Value(1, items, kind=_kind(values[1:]))


def _quotient(dividend: Number, divisor: Number) -> Number:
    """As in C: of whole numbers towards zero."""
    if isinstance(dividend, float):
        return dividend / divisor
    found = abs(dividend) // abs(divisor)
    return found if (dividend < 0) == (divisor < 0) else -found


def _remainder(dividend: Number, divisor: Number) -> Number:
    """Of whole numbers that are not negative both kinds are the same."""
    if isinstance(dividend, float) or dividend < 0 or divisor < 0:
        raise ValueError("that depends on an attribute")
    return dividend % divisor


def _power(base: Number, exponent: Number) -> Number:
    """Of whole numbers, where the result is exact; an exponent has a type of its own."""
    if base != int(base) or exponent != int(exponent) or not 0 <= exponent <= 64:
        raise ValueError("that is rounded")
    return prod([int(base)] * int(exponent))


def _raised(values: list[Value]) -> Value:
    base, exponent = values
    kind = base.kind
    found = _POWER([base._replace(kind=""), exponent._replace(kind="")])
    return _made(found.rank, found.items, kind)


_TIMES = _pairwise(lambda a, b: a * b)
_POWER = _pairwise(_power)
# Each takes the values of its inputs, and raises ValueError, IndexError or ArithmeticError where
# it cannot tell what comes out.
OPERATORS: Mapping[str, _Operator] = {
    "Identity": _same,
    "Unsqueeze": _vector,
    "Squeeze": _squeezed,
    "Gather": _gathered,
    "Concat": _joined,
    "Add": _pairwise(lambda a, b: a + b),
    "Sub": _pairwise(lambda a, b: a - b),
    "Mul": _TIMES,
    "Div": _pairwise(_quotient),
    "Min": _pairwise(min),
    "Max": _pairwise(max),
    "Less": _pairwise(lambda a, b: int(a < b), compares=True),
    "LessOrEqual": _pairwise(lambda a, b: int(a <= b), compares=True),
    "Greater": _pairwise(lambda a, b: int(a > b), compares=True),
    "GreaterOrEqual": _pairwise(lambda a, b: int(a >= b), compares=True),
    "Equal": _pairwise(lambda a, b: int(a == b), compares=True),
    "And": _pairwise(lambda a, b: int(bool(a and b))),
    "Or": _pairwise(lambda a, b: int(bool(a or b))),
    "Not": lambda values: Value(values[0].rank, tuple(int(not one) for one in values[0].items)),
    "Neg": _each(lambda one: -one),
    "Abs": _each(abs),
    "Floor": _each(floor),
    "Ceil": _each(ceil),
    "Round": _each(round),  # both round half to even
    "Sqrt": _each(sqrt),
    "Pow": _raised,
    "Range": _range,
    "Slice": _sliced,
    "ReduceProd": _product,
    "Expand": _filled,
    "Reshape": _reshaped,
    "Transpose": _transposed,
    "Mod": _pairwise(_remainder),
    "Where": _chosen,
}
