"""Figures that no run can have: those of DeepSpeed's README on an A100, and made up ones."""

import pytest

from crossflops.hardware.rates.remarks import fast_update_warnings, module_time_remarks
from crossflops.hardware.rates.runs import TimedRow

A100, BANDWIDTH = 312e12, 1555e9


def row(path, seconds, rate=1e12):
    """A row with that rate."""
    return TimedRow(path=path, flops=round(rate * seconds), seconds=seconds)


def test_a_step_of_34_us_updates_no_336_million_parameters():
    """Three times four bytes each are 4.03 GB, 2.6 ms; Adam's 28 bytes take 6.1 ms."""
    (warning,) = fast_update_warnings(34.09e-6, 336_230_000, BANDWIDTH)
    assert "a step of 0.0341 ms cannot be an update of 336.2 M parameters" in warning
    assert "2.6 ms" in warning
    assert "6.1 ms" in warning
    assert fast_update_warnings(2.7e-3, 336_230_000, BANDWIDTH) == ()


@pytest.mark.parametrize("tflops", [1310, 735, 491, 460, 404, 375])
def test_a_linear_above_the_peak(tflops):
    """Rows of the published tree that a part of 312 TFLOP/s cannot have."""
    (warning,) = module_time_remarks(
        [row("a.linear", 1e-3, tflops * 1e12), row("b", 1e-3, 300e12)], A100
    )
    assert warning.startswith(f"a.linear at {tflops} TFLOP/s is above the peak of 312")


def test_children_that_do_not_cover_their_parent():
    """34.29 and 3.23 ms of 76.39 leave 38.87 ms: timing that did not wait."""
    rows = [row("", 76.39e-3), row("bert", 34.29e-3), row("head", 3.23e-3)]
    (warning,) = module_time_remarks(rows, None)
    assert "(the model) took 76.39 ms, and its parts 37.52 ms" in warning
    assert "take 38.87 ms less" in warning


def test_children_that_take_longer_than_their_parent():
    """More than all of it is as odd."""
    (warning,) = module_time_remarks(
        [row("a", 1e-3), row("a.b", 0.8e-3), row("a.c", 0.8e-3)], None
    )
    assert "take 0.6 ms more" in warning


def test_children_that_cover_are_well():
    """Levels that have no row are passed over; a row without children says nothing."""
    rows = [row("", 10e-3), row("a.b", 6e-3), row("a.c", 3.5e-3), row("a.b.d", 6e-3)]
    assert module_time_remarks(rows, None) == ()
    assert module_time_remarks([row("a", 0.0)], A100) == ()
