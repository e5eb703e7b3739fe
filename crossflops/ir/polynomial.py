"""A count as a formula: exact polynomials in the named dimensions of a model."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:  # imported where formulas are: a report without any is a blink
    from fractions import Fraction


class Term(msgspec.Struct, frozen=True):
    """A product: 18432 batch seq^2 has the powers {"batch": 1, "seq": 2}.

    A coefficient that is no whole number is written as a text, "1/2".
    """

    coefficient: int | str
    powers: dict[str, int]


Polynomial: TypeAlias = tuple[Term, ...]


class Dimension(msgspec.Struct, frozen=True, kw_only=True):
    """A dimension that varies, and where the formulas hold.

    That is on its multiples of `multiple_of`, checked from `smallest` to `largest`. Where that
    is not 1, or None since no multiple helps, `node` is the first one whose cost is no
    polynomial, if a node is why, and `reason` says why in words. With a `multiple_of` of 1 the
    node is one whose cost bends far beyond the sizes that were checked.
    """

    name: str
    multiple_of: int | None
    smallest: int
    largest: int
    node: str = ""
    reason: str = ""


class Formulas(msgspec.Struct, frozen=True, kw_only=True):
    """The totals as polynomials, equal to the count at all `points` that were counted.

    None where there is no polynomial: `dimensions` say why. `at` are the sizes to which the
    tables of the report belong.
    """

    dimensions: tuple[Dimension, ...]
    at: dict[str, int]
    points: int
    macs: Polynomial | None = None
    flops: Polynomial | None = None
    bytes_read: Polynomial | None = None
    bytes_written: Polynomial | None = None
    params: Polynomial | None = None


def polynomial(names: tuple[str, ...], terms: "Mapping[tuple[int, ...], Fraction]") -> Polynomial:
    """Return a polynomial from its coefficients by powers, terms of the highest total degree
    first, without zero terms.
    """
    order = sorted((powers for powers in terms if terms[powers]), key=_term_sort_key, reverse=True)
    return tuple(
        Term(
            _coefficient_value(terms[powers]),
            {name: power for name, power in zip(names, powers, strict=True) if power},
        )
        for powers in order
    )


def _term_sort_key(powers: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
    """Return the sort key of a term, from its powers: (total degree, highest power, all
    powers).
    """
    return sum(powers), max(powers, default=0), powers


def _coefficient_value(value: "Fraction") -> int | str:
    """Return the coefficient as an int if it is whole, else as text such as "3/2"."""
    return value.numerator if value.denominator == 1 else str(value)


def evaluate_polynomial(formula: Polynomial, sizes: Mapping[str, int]) -> "Fraction":
    """Return the value of a polynomial for these sizes of its named dimensions."""
    from fractions import Fraction

    total = Fraction(0)
    for term in formula:
        value = Fraction(term.coefficient)
        for name, power in term.powers.items():
            value *= sizes[name] ** power
        total += value
    return total


def polynomial_text(formula: Polynomial) -> str:
    """Return the polynomial as text, such as "18432 batch seq^2 + 84934656 batch seq"."""
    from fractions import Fraction

    text = ""
    for term in formula:
        coefficient = Fraction(term.coefficient)
        size, sign = abs(coefficient), "-" if coefficient < 0 else "+"
        factors = [name if p == 1 else f"{name}^{p}" for name, p in term.powers.items()]
        words = " ".join([*([] if size == 1 and factors else [str(size)]), *factors])
        text += f" {sign} {words}" if text else f"-{words}" if sign == "-" else words
    return text or "0"
