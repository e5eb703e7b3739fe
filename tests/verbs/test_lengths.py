"""Polynomials in a length, piece by piece, and their sums, against loops over every length."""

from fractions import Fraction

import pytest

from crossflops.errors import InputError
from crossflops.verbs.lengths import (
    fit_polynomial_pieces,
    fit_prompt_polynomials,
    fit_two_length_polynomials,
    polynomial_value,
    prefix_sum_polynomial,
    sum_pieces_over_lengths,
)

CUBE = {(3,): Fraction(1), (1,): Fraction(1, 2), (2,): Fraction(1, 2)}  # whole at every length


def cube(n):
    """Return a cubic polynomial in plain arithmetic."""
    return n**3 + n * (n + 1) // 2


def test_the_sum_of_a_polynomial_is_the_sum_of_a_loop():
    """The sum of a cubic polynomial equals the loop."""
    sums = prefix_sum_polynomial(CUBE)
    for last in range(40):
        assert polynomial_value(sums, last) == sum(cube(n) for n in range(1, last + 1))


@pytest.mark.parametrize("window", [3, 7, 8, 100, 1023])
def test_pieces_end_where_a_window_is_full(window):
    """A window ends a piece, and few lengths are counted."""
    asked = []

    def count(n):
        asked.append(n)
        return 5 * min(n, window) + 2, 3 * n + 1

    pieces = fit_polynomial_pieces(count, 2, 1500, [], "a step")
    for first, last in ((2, 1500), (5, 5), (window - 1, window + 1), (17, 1200)):
        loop = sum(5 * min(n, window) + 2 for n in range(max(first, 2), last + 1))
        assert sum_pieces_over_lengths(pieces, 0, first, last) == loop
    assert len(pieces) <= 4
    assert len(set(asked)) < 40


def test_a_hint_saves_counts_and_changes_nothing():
    """Sums are the same with and without hints."""

    def count(n):
        return (min(n, 700) ** 2,)

    plain = fit_polynomial_pieces(count, 2, 5000, [], "a step")
    hinted = fit_polynomial_pieces(count, 2, 5000, [699, 700, 701], "a step")
    expected = sum(min(n, 700) ** 2 for n in range(2, 5001))
    assert sum_pieces_over_lengths(plain, 0, 2, 5000) == expected
    assert sum_pieces_over_lengths(hinted, 0, 2, 5000) == expected


def test_a_cost_without_pieces_is_an_error():
    """A cost that changes at every length is refused."""
    with pytest.raises(InputError, match="no single polynomial of the length"):
        fit_polynomial_pieces(lambda n: (n * n.bit_count(),), 2, 4000, [], "a step")


def test_a_kind_without_polynomial_in_the_prompt_has_none():
    """A sort has no polynomial, a square has one."""
    square, sort = fit_prompt_polynomials(lambda n: (n * n + 7, n * n.bit_length()), 2, 1000)
    assert square == {(2,): 1, (0,): 7}
    assert sort is None


@pytest.mark.parametrize("largest", [1, 2, 3, 23])
def test_a_second_length(largest):
    """A kind is a polynomial in two lengths, or has none: few lengths are no reason for one."""

    def count(prompt, context):
        return 11 * prompt + 2 * context + 5, prompt.bit_count() + context

    (piece,) = fit_polynomial_pieces(lambda n: count(largest, n), 2, 50, [], "a step")
    joint, alone = fit_two_length_polynomials(count, piece, largest)
    for prompt, context in ((2, 2), (9, 31), (23, 50)):
        assert polynomial_value(joint, prompt, context) == 11 * prompt + 2 * context + 5
    assert alone is None
