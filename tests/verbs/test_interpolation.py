"""Polynomials through points: found exactly where there is one, and nowhere else."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.polynomial import evaluate_polynomial, polynomial, polynomial_text
from crossflops.verbs.vary import interpolate_on_grid, polynomial_degree

coefficients = st.integers(-(10**24), 10**24)


@given(st.lists(coefficients, min_size=1, max_size=5), st.sets(st.integers(1, 999), min_size=9))
def test_the_degree_is_that_of_the_polynomial(factors, places):
    """Any distinct points in any order tell it, whatever the size of the numbers."""
    values = [sum(f * x**power for power, f in enumerate(factors)) for x in places]
    expected = max((power for power, f in enumerate(factors) if f), default=0)
    assert polynomial_degree(list(places), values, 4) == expected


@pytest.mark.parametrize("function", [lambda x: x // 2, lambda x: 2**x, lambda x: max(x, 40)])
def test_what_is_no_polynomial_has_no_degree(function):
    """A quotient that is rounded, a power, a kink."""
    places = [17, 18, 19, 60, 34, 41, 22, 75, 53, 28, 47]
    assert polynomial_degree(places, [function(x) for x in places], 4) is None


def test_points_that_only_just_suffice_prove_nothing():
    """Five points always lie on a polynomial of degree 4, and that is no finding."""
    assert polynomial_degree([1, 2, 3, 4, 5], [0, 7, 1, 9, 2], 4) is None
    assert polynomial_degree([1, 2, 3, 4, 5], [3] * 5, 4) == 0


@given(
    st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 3)), coefficients),
    st.permutations(range(1, 12)),
)
def test_a_polynomial_of_two_dimensions_is_found_again(terms, sizes):
    """Through a grid of 3 x 4 points, in exact arithmetic, and it prints and evaluates so."""
    expected = {powers: Fraction(value) for powers, value in terms.items() if value}
    axes = [sizes[:3], sizes[3:7]]
    values = {
        (x, y): sum(value * x**p * y**q for (p, q), value in terms.items())
        for x, y in itertools.product(*axes)
    }
    interpolated = interpolate_on_grid(axes, values)
    assert interpolated == expected
    formula = polynomial(("a", "b"), interpolated)
    assert len(formula) == len(expected)
    for (x, y), value in values.items():
        assert evaluate_polynomial(formula, {"a": x, "b": y}) == value


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ({}, "0"),
        ({(0, 0): Fraction(7)}, "7"),
        ({(1, 0): Fraction(1), (0, 0): Fraction(-1)}, "batch - 1"),
        ({(1, 2): Fraction(18432), (1, 1): Fraction(5)}, "18432 batch seq^2 + 5 batch seq"),
        ({(0, 2): Fraction(1, 2), (0, 1): Fraction(-1, 2)}, "1/2 seq^2 - 1/2 seq"),
        ({(1, 0): Fraction(-3)}, "-3 batch"),
    ],
)
def test_a_polynomial_as_one_reads_it(terms, text):
    """The highest degree first, no factor 1, and fractions where there are any."""
    assert polynomial_text(polynomial(("batch", "seq"), terms)) == text
