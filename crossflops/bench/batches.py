"""Search for the fastest batch size and the largest one that fits: double it, then bisect."""

from collections.abc import Callable
from typing import NamedTuple

from crossflops.ir.measurement import Measurement, Unfit

Try = Callable[[int], Measurement | Unfit]
GAIN = 0.03  # a doubling that brings less than this is no gain
LEVELS = 2  # doublings without gain after which there will be none
MOST = 1 << 16


class Goal(NamedTuple):
    """The goal of a search: the most examples per second, within a latency (seconds, p99)."""

    latency: float | None = None

    def is_met(self, timing: Measurement) -> bool:
        """Return whether the 99th percentile of the measured latencies is within the limit of the
        goal.
        """
        return self.latency is None or timing.p99 <= self.latency

    def best_measurement(self, tried: list[Measurement | Unfit]) -> Measurement | None:
        """Return the measurement with the most examples per second that meets the goal, or None;
        of equal ones the smaller batch.
        """
        able = [run for run in tried if isinstance(run, Measurement) and self.is_met(run)]
        return max(able, key=lambda run: (run.examples_per_second, -run.batch), default=None)


FASTEST = Goal()


class Search(NamedTuple):
    """All batches that were tried, and the largest batch that is known to fit."""

    tried: tuple[Measurement | Unfit, ...]
    largest: int | None
    bounded: bool


def search_batch_size(
    attempt: Try, goal: Goal = FASTEST, max_batch: int = MOST, to_the_limit: bool = True
) -> Search:
    """Run batch sizes to find the fastest one that meets the goal and the largest one that fits;
    return all that were tried.

    Doubling ends at a batch that does not fit, that breaks the latency of the goal, or, unless
    `to_the_limit`, when two doublings gained less than 3 %. Between the last good and the first
    bad batch the border is bisected to within an eighth; then the neighbours of the fastest are
    halved towards it. The `bounded` of the result says
    whether any batch size was seen not to fit.
    """
    tried: dict[int, Measurement | Unfit] = {}

    def meets_goal(batch: int) -> bool:
        """Return whether this batch size runs and meets the goal; run it only at the first
        request.
        """
        outcome = tried[batch] if batch in tried else tried.setdefault(batch, attempt(batch))
        return isinstance(outcome, Measurement) and goal.is_met(outcome)

    batch, flat = 1, 0
    while meets_goal(batch) and batch * 2 <= max_batch:
        flat = flat + 1 if batch > 1 and _relative_gain(tried, batch) < GAIN else 0
        if flat >= LEVELS and not to_the_limit:
            break
        batch *= 2
    if not meets_goal(batch) and batch > 1:
        _bisect_border(meets_goal, batch // 2, batch)
    _refine_fastest_batch(meets_goal, tried, goal)
    fits = [b for b, outcome in tried.items() if isinstance(outcome, Measurement)]
    return Search(
        tuple(tried[size] for size in sorted(tried)),
        max(fits, default=None),
        any(isinstance(outcome, Unfit) for outcome in tried.values()),
    )


def _relative_gain(tried: dict[int, Measurement | Unfit], batch: int) -> float:
    """Return the relative gain in examples per second of a batch size over half of it: 0.1 for 10
    %.
    """
    now, before = tried[batch], tried[batch // 2]
    if not isinstance(now, Measurement) or not isinstance(before, Measurement):
        return 0.0
    return now.examples_per_second / before.examples_per_second - 1


def _bisect_border(good: Callable[[int], bool], low: int, high: int) -> None:
    """Try batch sizes between a good one and a bad one, by bisection, until they are next to each
    other.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)


def _refine_fastest_batch(
    good: Callable[[int], bool], tried: dict[int, Measurement | Unfit], goal: Goal
) -> None:
    """Try batch sizes between the fastest one and its neighbours until this finds no
    faster one.
    """
    best = goal.best_measurement(list(tried.values()))
    while best is not None:
        known = sorted(tried)
        index = known.index(best.batch)
        enclosing = {near for near in known[max(index - 1, 0) : index + 2] if near != best.batch}
        between = [(near + best.batch) // 2 for near in enclosing]
        fresh = [
            b for b in between if b not in tried and min(abs(b - size) for size in known) > b // 8
        ]
        for batch in fresh:
            good(batch)
        again = goal.best_measurement(list(tried.values()))
        if again is best:
            return
        best = again
