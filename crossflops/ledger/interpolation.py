"""Exact polynomials through counted points, in whole numbers and fractions alone."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

Powers = tuple[int, ...]


def degree(places: Sequence[int], values: Sequence[int], spare: int) -> int | None:
    """The degree of the one polynomial through all points; None if it takes too many of them.

    At least `spare` points more than the degree needs must lie on it, so that they are a check:
    Newton's divided differences of every order above the degree are zero.
    """
    top = _divided(places, [Fraction(value) for value in values])
    highest = max((order for order, value in enumerate(top) if value), default=0)
    return highest if highest + 1 + spare <= len(places) else None


def _divided(places: Sequence[int], values: Sequence[Fraction]) -> list[Fraction]:
    """Newton's coefficients: the divided differences that begin at the first point."""
    row, coefficients = list(values), []
    for order in range(len(places)):
        coefficients.append(row[0])
        row = [
            (row[i + 1] - row[i]) / (places[i + order + 1] - places[i])
            for i in range(len(row) - 1)
        ]
    return coefficients


def interpolate(
    axes: Sequence[Sequence[int]], values: Mapping[tuple[int, ...], int]
) -> dict[Powers, Fraction]:
    """The polynomial through a grid: coefficients by the power of every dimension.

    `axes` are the sizes of each dimension, `values` what was counted at every combination.
    Newton's form is found along one axis after the other, then multiplied out.
    """
    newton = {at: Fraction(value) for at, value in values.items()}
    for place, axis in enumerate(axes):
        lines = {(*at[:place], *at[place + 1 :]) for at in newton}
        newton = {
            (*rest[:place], axis[order], *rest[place:]): value
            for rest in lines
            for order, value in enumerate(
                _divided(axis, [newton[(*rest[:place], size, *rest[place:])] for size in axis])
            )
        }
    bases = [dict(zip(axis, _basis(axis), strict=True)) for axis in axes]
    polynomial: dict[Powers, Fraction] = {}
    for at, value in newton.items():
        terms: dict[Powers, Fraction] = {(): value}
        for base, size in zip(bases, at, strict=True):
            terms = {
                (*powers, power): coefficient * factor
                for powers, coefficient in terms.items()
                for power, factor in enumerate(base[size])
            }
        for powers, coefficient in terms.items():
            polynomial[powers] = polynomial.get(powers, Fraction(0)) + coefficient
    return {powers: value for powers, value in polynomial.items() if value}


def _basis(places: Sequence[int]) -> list[list[Fraction]]:
    """Newton's basis, multiplied out: the product of (x - place) over the first k places."""
    product, basis = [Fraction(1)], []
    for place in places:
        basis.append(product)
        shifted = [Fraction(0), *product]
        product = [
            high - place * low for high, low in zip(shifted, [*product, Fraction(0)], strict=True)
        ]
    return basis
