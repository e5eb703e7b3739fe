"""Observations of model runs: durations, and sizes that depend on data."""

from collections.abc import Sequence
from math import ceil

import msgspec


class Measurement(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="measured"):
    """Runs of one model at one batch size, after warm-up.

    `seconds` are those of each run, in order; `p50`, `p90` and `p99` are percentiles of them by
    nearest rank. `examples_per_second` is batch / p50, of the median run. `warmup` is the
    number of runs before them that are left out, `settled` whether these had become stable, and
    `how` says what was timed.
    """

    batch: int
    seconds: tuple[float, ...]
    p50: float
    p90: float
    p99: float
    examples_per_second: float
    warmup: int
    settled: bool = True
    how: str = ""

    @property
    def runs(self) -> int:
        """The number of timed runs."""
        return len(self.seconds)


class StepPhases(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a training step and its phases: of the timed steps, the median one.

    `backward` is None where no output has a gradient, `optimizer` without one, which is called
    `optimizer_name`. It ran the model `passes` times a step; its own time is without these. `note`
    says how a step differs from one of the model as it is.
    """

    whole: float
    forward: float
    backward: float | None
    optimizer: float | None
    optimizer_name: str = ""
    passes: int = 1
    note: str = ""


class Unfit(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="unfit"):
    """A batch that could not run: `stage` is "memory", "time", "run" or "crash"."""

    batch: int
    stage: str
    message: str


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile: the smallest of the values such that `percent` % of them
    are not larger.

    >>> percentile([3.0, 1.0, 2.0, 4.0], 50), percentile([3.0, 1.0, 2.0, 4.0], 90)
    (2.0, 4.0)
    """
    ordered = sorted(values)
    return ordered[max(ceil(percent / 100 * len(ordered)), 1) - 1]


def measurement_of_runs(
    batch: int, seconds: Sequence[float], warmup: int, *, settled: bool = True, mode: str = ""
) -> Measurement:
    """Return the measurement of timed runs of one batch size, from the seconds of each run (at
    least one).
    """
    return Measurement(
        batch=batch,
        seconds=tuple(seconds),
        p50=percentile(seconds, 50),
        p90=percentile(seconds, 90),
        p99=percentile(seconds, 99),
        examples_per_second=batch / percentile(seconds, 50),
        warmup=warmup,
        settled=settled,
        how=mode,
    )


# What a run of a model brought to light: sizes that depend on data, iterations, branches.


class SteadyTensor(msgspec.Struct, frozen=True):
    """A tensor that had the same shape in every run."""

    dtype: str
    shape: tuple[int, ...]


class Run(msgspec.Struct, frozen=True):
    """The run that sizes come from: the model and its inputs.

    `runtime` is "" where no size does, and there are only `notes`: what a reader should know of
    how a run differs from what was counted, or from another run.
    """

    runtime: str
    inputs: str
    notes: tuple[str, ...] = ()


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one model on one set of inputs.

    `inputs` are the shapes it was given, `values` the tensors that it made, by name. `trips` says
    how often the body of a Loop or a Scan ran, `branches` which branch of an If ("then", "else"):
    by the name of the node's first result. What differed within the run is in none of them.
    `draws` says whether random numbers were drawn, others in every run.
    """

    runtime: str
    inputs: dict[str, SteadyTensor]
    values: dict[str, SteadyTensor]
    trips: dict[str, int]
    branches: dict[str, str]
    draws: bool = False
