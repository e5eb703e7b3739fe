"""Write a table as Parquet, by pyarrow, which is imported when it is used.

A column of integers has 64 bits, or is a decimal of 38 digits where one of them is larger, or
text where one has more digits than that. A column in which texts stand among numbers is text,
and an empty cell is null.
"""

from collections.abc import Sequence
from decimal import Decimal
from importlib import import_module
from io import BytesIO
from typing import Any

from crossflops.errors import MissingExtraError

_LARGEST = 2**63 - 1
_DIGITS = 38  # of a decimal of 128 bits


def encode_parquet(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """Return a table as the bytes of a Parquet file. Raises MissingExtraError without pyarrow."""
    require_pyarrow()
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    columns = zip(*rows, strict=True) if rows else ((),) * len(heads)
    table = arrow.table([_encode_column(arrow, cells) for cells in columns], names=list(heads))
    out = BytesIO()
    parquet.write_table(table, out)
    return out.getvalue()


def require_pyarrow() -> None:
    """Raise MissingExtraError if pyarrow is not installed."""
    try:
        import_module("pyarrow")
    except ImportError as error:
        raise MissingExtraError(
            "a .parquet file needs pyarrow, which is not installed",
            "pip install pyarrow, or write a .csv file",
        ) from error


def _encode_column(arrow: Any, cells: Sequence[Any]) -> Any:
    """Return the cells of a column as an array of Arrow."""
    values = [None if cell == "" or cell is None else cell for cell in cells]
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool}:
        return arrow.array(values, arrow.bool_() if kinds else arrow.string())
    if kinds <= {int}:
        return _encode_integers(arrow, values)
    if kinds <= {int, float} and all(_is_exact_as_float(value) for value in values):
        return arrow.array([None if value is None else float(value) for value in values])
    return arrow.array([None if value is None else str(value) for value in values], arrow.string())


def _encode_integers(arrow: Any, values: Sequence[int | None]) -> Any:
    """Return integers as an array of 64 bits, of decimals, or of text, by the largest of them."""
    largest = max((abs(value) for value in values if value is not None), default=0)
    if largest <= _LARGEST:
        return arrow.array(values, arrow.int64())
    if largest < 10**_DIGITS:
        decimals = [None if value is None else Decimal(value) for value in values]
        return arrow.array(decimals, arrow.decimal128(_DIGITS, 0))
    return arrow.array([None if value is None else str(value) for value in values], arrow.string())


def _is_exact_as_float(value: Any) -> bool:
    """Return whether a number is the same as a float, or None."""
    return value is None or isinstance(value, float) or abs(value) <= 2**53
