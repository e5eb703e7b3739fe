"""Percentiles and throughput of runs, by hand."""

import pytest

from crossflops.ir.measurement import measurement_of_runs, percentile


def test_throughput_is_that_of_the_median_run():
    """Of four runs of a batch of 8 the median takes 0.25 s: 32 examples per second."""
    measurement = measurement_of_runs(8, [0.5, 0.25, 0.25, 1.0], 3)
    assert measurement.examples_per_second == 32.0
    assert (measurement.p50, measurement.p90, measurement.p99) == (0.25, 1.0, 1.0)
    assert (measurement.runs, measurement.warmup) == (4, 3)


@pytest.mark.parametrize(
    ("percent", "expected"), [(50, 50), (90, 90), (99, 99), (100, 100), (0, 1)]
)
def test_percentiles_by_nearest_rank(percent, expected):
    """Of 1 to 100 the p-th percentile is p."""
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_one_run_is_every_percentile():
    """Nothing is interpolated."""
    measurement = measurement_of_runs(1, [0.125], 0)
    assert measurement.p50 == measurement.p90 == measurement.p99 == 0.125
