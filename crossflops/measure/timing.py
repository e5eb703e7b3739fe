"""When a run is warm, and how often it is then timed."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from crossflops.core.measurement import Measurement, measured

Run = Callable[[], None]
Clock = Callable[[], float]
WINDOW = 5  # runs whose median has to stand still
STILL = 0.02  # by how much of itself it may move


class Limits(NamedTuple):
    """How many runs: warm-up ends after `warmup` of them at the latest, timing after `runs`.

    Both end sooner when `seconds` have passed, but not before `fewest` runs.
    """

    warmup: int = 50
    runs: int = 100
    fewest: int = 3
    seconds: float = 5.0


USUAL = Limits()


def settled(seconds: Sequence[float]) -> bool:
    """Whether the median of the last five runs is within 2 % of that of the five before.

    >>> settled([9.0, 1, 1, 1, 1, 1, 1]), settled([2.0] * 5 + [1.0] * 5)
    (True, False)
    """
    if len(seconds) < WINDOW + 1:
        return False
    last, before = median(seconds[-WINDOW:]), median(seconds[-WINDOW - 1 : -1])
    return abs(last - before) < STILL * before if before else not last


def timed(
    run: Run, batch: int, clock: Clock, limits: Limits = USUAL, how: str = ""
) -> Measurement:
    """Run until it is warm, then time it. `run` returns when its work is done.

    The warm-up ends when the median of the last five runs changes by less than 2 % from one run
    to the next; one that does not is told by `settled`.
    """
    warm = _repeated(run, clock, limits.warmup, limits, settled)
    # a run that takes seconds is not warmed up for a minute: what was seen says whether it is
    seconds = _repeated(run, clock, limits.runs, limits, lambda _: False)
    return measured(batch, seconds, len(warm), settled=settled(warm), how=how)


def _repeated(
    run: Run, clock: Clock, most: int, limits: Limits, enough: Callable[[Sequence[float]], bool]
) -> list[float]:
    found: list[float] = []
    begin = clock()
    while len(found) < most and not enough(found):
        if len(found) >= limits.fewest and clock() - begin >= limits.seconds:
            break
        start = clock()
        run()
        found.append(clock() - start)
    return found
