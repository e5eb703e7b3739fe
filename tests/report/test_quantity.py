"""How numbers are written."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.report.quantity import (
    amount_with_sign,
    exact_amount,
    explanation_percent,
    percent_change,
    percent_share,
    short_amount,
)


@given(st.integers())
def test_exact_keeps_every_digit(number):
    """Taking the spaces out gives the number back, whatever its size."""
    assert int(exact_amount(number).replace(" ", "")) == number


@given(st.integers(min_value=1000, max_value=10**32))
def test_short_is_within_half_of_its_last_digit(number):
    """Four significant digits are right to half a unit of the fourth."""
    digits, prefix = short_amount(number).split()
    power = 3 * ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q").index(prefix)
    assert len(digits.replace(".", "")) == 4
    assert abs(Fraction(digits) * 10**power - number) <= Fraction(number, 2000)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.000 k"),
        (999_949, "999.9 k"),
        (999_950, "1.000 M"),
        (25_557_032, "25.56 M"),
        (8_240_000_000, "8.240 G"),
        (10**34, "1.000E+34"),
        (0.5, "0.5"),
        (1234567.5, "1.235 M"),
        (-2_000_000, "-2.000 M"),
        (float("inf"), "inf"),
    ],
)
def test_short_carries_into_the_next_prefix(number, text):
    """Rounding up to one thousand moves on to the next prefix."""
    assert short_amount(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (5, "+5"), (-1234, "-1 234"), (0.5, "+0.5")]
)
def test_signed_shows_the_sign_of_all_but_zero(number, text):
    """A difference shows its direction; none has none."""
    assert amount_with_sign(number) == text


@pytest.mark.parametrize(
    ("value", "reference", "text"),
    [
        (4_133_742_592, 4_089_184_256, "+1.09 %"),
        (4_111_512_576, 4_089_184_256, "+0.55 %"),
        (Fraction(7, 2), 7, "-50.00 %"),
        (1_000_001, 1_000_000, "+0.0001 %"),
        (999_999, 1_000_000, "-0.0001 %"),
        (1, 1, "0.00 %"),
        (173_000_000_000, 1, "+17 299 999 999 900.00 %"),
        (1, 0, "-"),
        (float("nan"), 1, "-"),
    ],
)
def test_change_never_hides_a_difference(value, reference, text):
    """A difference too small for the digits still shows its sign."""
    assert percent_change(value, reference) == text


@pytest.mark.parametrize(
    ("residual", "delta", "text"),
    [
        (0, 10, "100 %"),
        (1, 10**12, "99.99 %"),
        (-5, 10, "50.00 %"),
        (20, 10, "0.00 %"),
        (3, 0, "0.00 %"),
        (0.5, 10, "95.00 %"),
    ],
)
def test_only_no_residual_is_all_explained(residual, delta, text):
    """One in a trillion that is not explained is not 100 %."""
    assert explanation_percent(residual, delta) == text


def test_a_share_of_nothing_is_no_number():
    """There is no share of nothing."""
    assert percent_share(0, 0) == "-"
    assert percent_share(1, 3) == "33.3 %"
