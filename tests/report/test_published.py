"""A printed figure: its digits, and the numbers that print so."""

from fractions import Fraction

import pytest

from crossflops.errors import InputError
from crossflops.report.model_numbers import CauseAmount, ConventionNumber, ModelNumbers
from crossflops.report.published import parse_figure
from crossflops.report.readings import find_near_readings, find_readings, native_numbers

WRITTEN = [
    ("4.11G", 4_110_000_000, ""),
    ("17.6 GFLOPs", 17_600_000_000, "flops"),
    ("0.39B", 390_000_000, ""),
    ("3.8 x 10^9", 3_800_000_000, ""),
    ("3.8e9 MACs", 3_800_000_000, "macs"),
    ("300 MMACs", 300_000_000, "macs"),
    ("300MACs", 300, "macs"),
    ("300M mult-adds", 300_000_000, "macs"),
    ("25.6M params", 25_600_000, "params"),
    ("4,111,514,624", 4_111_514_624, ""),
    ("1Gi", 2**30, ""),
]


@pytest.mark.parametrize(("text", "value", "unit"), WRITTEN)
def test_figures_are_read_as_they_are_printed(text, value, unit):
    """With prefix, exponent, separators and unit."""
    figure = parse_figure(text)
    assert (figure.value, figure.unit) == (value, unit)


@pytest.mark.parametrize(
    "text", ["", "G", "4.11X", "1,2,3", "-1G", "0", "0.0G", "4.1.1", "9" * 41]
)
def test_other_texts_are_rejected(text):
    """One line of what, one of what to do."""
    with pytest.raises(InputError) as caught:
        parse_figure(text)
    assert caught.value.hint


def test_the_last_digit_decides():
    """A half rounds either way; below the last digit a number is cut off or rounded."""
    figure = parse_figure("4.11G")
    assert figure.rounding_of(4_115_000_000) == figure.rounding_of(4_105_000_000) == "rounded"
    assert figure.rounding_of(4_115_000_001) == "truncated"
    assert figure.rounding_of(4_120_000_000) is None
    assert figure.rounding_of(4_104_999_999) is None
    assert figure.rounding_of(4_110_000_000) == "exact"
    assert figure.rounding_of(411 * 2**30 // 100) == "binary"
    assert parse_figure("5.10M").rounding_of(5_140_000) is None
    assert parse_figure("5.1M").rounding_of(5_140_000) == "rounded"


def model_numbers(*numbers):
    """A model of 100 MACs and 230 FLOPs, with these numbers."""
    return ModelNumbers(target="net", numbers=(*native_numbers(100, 230, 7), *numbers))


def number(tool, total, per_mac=1, **fields):
    """A number of a tool."""
    return ConventionNumber(
        tool=tool, edition="1", unit="MACs", per_mac=per_mac, total=total, **fields
    )


def test_readings_have_an_order():
    """The native count, tools, doubled numbers, then conventions without a tool."""
    model = model_numbers(
        number("no-tool", 200, is_tool=False), number("a", 200), number("b", 100)
    )
    names = [reading.convention for reading in find_readings(parse_figure("200.0"), model)]
    assert names == ["a@1", "2 x MACs", "2 x b@1", "no-tool@1"]


def test_a_doubled_count_that_is_flops_is_halved():
    """FLOPs that were published as MACs."""
    [reading] = find_readings(parse_figure("150"), model_numbers(number("f", 300, per_mac=2)))
    assert (reading.factor, reading.convention) == (Fraction(1, 2), "1/2 x f@1")


def test_a_figure_of_parameters_is_no_other_number():
    """And MACs are no parameters, where the unit says so."""
    assert [r.number.unit for r in find_readings(parse_figure("7 params"), model_numbers())] == [
        "params"
    ]
    assert not find_readings(parse_figure("7 MACs"), model_numbers())
    assert not find_readings(parse_figure("100 params"), model_numbers())


def test_one_cause_comes_before_two():
    """123 = 100 + 20 + 3: without both causes it is the native count."""
    causes = (CauseAmount("bias.conv", 20), CauseAmount("pool.max", 3), CauseAmount("unit.x", 4))
    model = model_numbers(number("a", 123, causes=causes))
    half = Fraction(1, 2)
    [one] = find_near_readings(parse_figure("103"), model, half)
    assert one.missing == ("bias.conv",)
    both = find_near_readings(parse_figure("100 MACs"), model, half)
    assert [reading.missing for reading in both] == [("bias.conv", "pool.max")]
    assert not find_near_readings(parse_figure("119"), model, half)  # the unit is not work
