"""Warm-up, timing and the search for a batch, on clocks and models of paper."""

import itertools

import pytest

from crossflops.bench.batches import Goal, search_batch_size
from crossflops.bench.timing import BenchLimits, is_latency_settled, time_warm_runs
from crossflops.ir.measurement import Measurement, Unfit, measurement_of_runs


class Machine:
    """Runs that take the seconds that they are told, on a clock of its own."""

    def __init__(self, seconds):
        self.now = 0.0
        self._seconds = iter(seconds)

    def run(self):
        self.now += next(self._seconds)

    def clock(self):
        return self.now


def test_warm_up_ends_when_the_median_of_five_stands_still():
    """Medians of five: 1 1 1 from the fifth on; six runs are the least, the slow first counts."""
    machine = Machine(itertools.chain([9.0], itertools.repeat(1.0)))
    measurement = time_warm_runs(machine.run, 4, machine.clock, BenchLimits(runs=7, seconds=100))
    assert (measurement.warmup, measurement.runs, measurement.settled) == (6, 7, True)
    assert measurement.examples_per_second == 4.0


def test_a_falling_median_is_waited_for():
    """Each run takes half of the one before, down to a floor: medians move by half until then."""
    times = [64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0]
    machine = Machine(itertools.chain(times, itertools.repeat(1.0)))
    measurement = time_warm_runs(machine.run, 1, machine.clock, BenchLimits(runs=3, seconds=1000))
    # the median of five is first 1 at runs 5 to 9, and still 1 at runs 6 to 10
    assert measurement.warmup == 10
    assert measurement.seconds == (1.0, 1.0, 1.0)


def test_what_never_settles_is_said():
    """Ever slower: warm-up ends at its limit, and the measurement says so."""
    machine = Machine(float(2**n) for n in range(100))
    measurement = time_warm_runs(
        machine.run, 1, machine.clock, BenchLimits(warmup=8, runs=3, seconds=1e30)
    )
    assert (measurement.warmup, measurement.settled) == (8, False)


def test_slow_runs_end_after_the_seconds_but_not_before_the_fewest():
    """Runs of 10 s with 5 s to spend: three to warm up, three that count."""
    machine = Machine(itertools.repeat(10.0))
    measurement = time_warm_runs(machine.run, 1, machine.clock, BenchLimits(seconds=5, fewest=3))
    assert (measurement.warmup, measurement.runs) == (3, 3)


@pytest.mark.parametrize(("runs", "expected"), [(100, 100), (None, 500)])
def test_seconds_that_are_asked_for_are_spent(runs, expected):
    """Runs of 1/64 s in 7.8125 s: 500 fit, and 100 where the number of runs is limited."""
    machine = Machine(itertools.repeat(1 / 64))
    limits = BenchLimits(seconds=500 / 64, runs=runs)
    assert time_warm_runs(machine.run, 1, machine.clock, limits).runs == expected


def test_the_rate_is_that_of_the_median_run():
    """One run that was disturbed does not change it: 2 examples in 1 s, and not in 2.6 s."""
    machine = Machine(itertools.chain(itertools.repeat(1.0, 10), [9.0], itertools.repeat(1.0)))
    measurement = time_warm_runs(machine.run, 2, machine.clock, BenchLimits(runs=5, seconds=100))
    assert max(measurement.seconds) == 9.0
    assert measurement.examples_per_second == 2.0


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([1] * 5, False), ([1] * 6, True), ([1, 1, 1, 1, 1, 1.5], True), ([], False)],
)
def test_settled(seconds, expected):
    """It takes six runs to compare two medians; one outlier moves none."""
    assert is_latency_settled(seconds) is expected


def fits_up_to(most, rate, seen):
    """A device that holds batches up to `most`, at `rate(batch)` examples per second."""

    def attempt(batch):
        seen.append(batch)
        if batch > most:
            return Unfit(batch=batch, stage="memory", message="out of memory")
        return measurement_of_runs(batch, [batch / rate(batch)], 0)

    return attempt


@pytest.mark.parametrize("most", [1, 2, 3, 37, 64, 100])
def test_the_largest_that_fits_is_found_exactly(most):
    """Whatever the border, every batch is tried once, and the fastest is the largest here."""
    seen = []
    outcome = search_batch_size(fits_up_to(most, lambda batch: 100.0 + batch, seen))
    assert (outcome.largest, outcome.bounded) == (most, True)
    assert len(seen) == len(set(seen))
    assert Goal().best_measurement(list(outcome.tried)).batch == most


def test_the_fastest_is_not_the_largest():
    """Throughput peaks at 24: between 16 and 32 it is found within an eighth."""
    outcome = search_batch_size(fits_up_to(100, lambda batch: 1000.0 - abs(batch - 24), []))
    assert outcome.largest == 100
    best = Goal().best_measurement(list(outcome.tried))
    assert abs(best.batch - 24) <= 3


def test_doubling_ends_where_it_brings_nothing():
    """From 4 on nothing is gained: 8 and 16 are tried in vain, and 32 no more."""
    seen = []
    outcome = search_batch_size(
        fits_up_to(1 << 20, lambda batch: 10.0 * min(batch, 4), seen), to_the_limit=False
    )
    assert max(seen) == 16
    assert not outcome.bounded
    assert Goal().best_measurement(list(outcome.tried)).batch == 4


def test_a_latency_bounds_the_batch():
    """0.01 s for each example and 0.2 s allowed: 20 examples."""
    outcome = search_batch_size(fits_up_to(1000, lambda batch: 100.0, []), Goal(latency=0.2))
    met = [
        attempt
        for attempt in outcome.tried
        if isinstance(attempt, Measurement) and Goal(0.2).is_met(attempt)
    ]
    assert max(measurement.batch for measurement in met) == 20


def test_nothing_fits():
    """One attempt, no measurement, no best."""
    seen = []
    outcome = search_batch_size(fits_up_to(0, lambda batch: 1.0, seen))
    assert (seen, outcome.largest, Goal().best_measurement(list(outcome.tried))) == (
        [1],
        None,
        None,
    )
