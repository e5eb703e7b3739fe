"""The orders and answers of a process that measures, and the rules for warm-up and number of timed
runs.
"""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple, TypeAlias

import msgspec

from crossflops.ir.graph import TensorSpec
from crossflops.ir.measurement import (
    Measurement,
    SteadyTensor,
    StepPhases,
    Unfit,
    measurement_of_runs,
)
from crossflops.ir.trace import Setting

# When a run is warm, and how often it is then timed.

Run = Callable[[], None]
Clock = Callable[[], float]
WINDOW = 5  # runs whose median has to stand still
STILL = 0.02  # by how much of itself it may move


class BenchLimits(NamedTuple):
    """The number of runs: warm-up takes at most `warmup` of them, timing at most `runs`.

    Both end sooner when `seconds` have passed, but not before `fewest` runs. Without `runs` the
    timing ends by its seconds alone.
    """

    warmup: int = 50
    runs: int | None = 100
    fewest: int = 3
    seconds: float = 5.0


USUAL = BenchLimits()


def is_latency_settled(seconds: Sequence[float]) -> bool:
    """Return whether the last run moved the median of five runs by less than 2 %.

    >>> is_latency_settled([9.0, 1, 1, 1, 1, 1, 1]), is_latency_settled([2.0] * 5 + [1.0] * 3)
    (True, False)
    """
    if len(seconds) < WINDOW + 1:
        return False
    last, before = median(seconds[-WINDOW:]), median(seconds[-WINDOW - 1 : -1])
    return abs(last - before) < STILL * before if before else not last


def time_warm_runs(
    run: Run, batch: int, clock: Clock, limits: BenchLimits = USUAL, mode: str = ""
) -> Measurement:
    """Run a model until it is warm, then time it, and return the measurement; `run` returns when
    its work is done.

    The warm-up ends when the median of the last five runs changes by less than 2 % from one run
    to the next; one that does not is told by `is_latency_settled`.
    """
    warm = _repeat_timed_run(run, clock, limits.warmup, limits, is_latency_settled)
    # a run that takes seconds is not warmed up for a minute: what was seen says whether it is
    seconds = _repeat_timed_run(run, clock, limits.runs, limits, lambda _: False)
    return measurement_of_runs(
        batch, seconds, len(warm), settled=is_latency_settled(warm), mode=mode
    )


def _repeat_timed_run(
    run: Run,
    clock: Clock,
    max_runs: int | None,
    limits: BenchLimits,
    enough: Callable[[Sequence[float]], bool],
) -> list[float]:
    """Run a model again and again until `enough(seconds so far)` is true or a limit is reached;
    return the seconds of each run.
    """
    times: list[float] = []
    begin = clock()
    while (max_runs is None or len(times) < max_runs) and not enough(times):
        if len(times) >= limits.fewest and clock() - begin >= limits.seconds:
            break
        start = clock()
        run()
        times.append(clock() - start)
    return times


class FileOrder(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run an ONNX file in onnxruntime.

    Weights without values get random ones if they are to be `allocated`. `profiled` asks for runs
    with the runtime's profiler after those that are timed; the profile and the graph that ran are
    left in `folder`. With `unrun` the graph alone is made. `memory_limit` bounds the worker, in
    bytes; `answer_path` is the file for its answer.
    """

    path: str
    dims: dict[str, int] = {}
    specs: tuple[TensorSpec, ...] = ()
    inputs_file: str | None = None
    allocated: bool = False
    batch: int
    optimization: str = "all"
    threads: int
    limits: BenchLimits = USUAL
    profiled: bool = False
    unrun: bool = False
    memory_limit: int | None = None
    folder: str
    answer_path: str = ""


class ModelOrder(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run a model in its own framework, `runtime`, built afresh from its target.

    `trace` is the file or the folder to which a trace of some runs is written, None for none.
    """

    target: str
    arguments: dict[str, Any] = {}
    specs: tuple[TensorSpec, ...] = ()
    sizes: dict[str, int] = {}
    inputs_file: str | None = None
    allow_pickle: bool = False
    setting: Setting
    runtime: str
    batch: int
    threads: int
    limits: BenchLimits = USUAL
    trace: str | None = None
    memory_limit: int | None = None
    paths: tuple[str, ...] = ()
    answer_path: str = ""


class TrainingOrder(ModelOrder, frozen=True, kw_only=True, tag=True):
    """Train a model of PyTorch for some steps; `optimizer` as `profiling.run.Recipe` has it."""

    optimizer: str = "adamw"


class Ran(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="ran"):
    """A model that ran: its runtime, its inputs, its speed.

    `profile` is the file that the runtime's profiler wrote, `graph` that of the graph which ran,
    of whose runs the first `dropped` do not count. A training step has `phases`. `notes` say how
    it ran otherwise than the model does.
    """

    runtime: str
    device: str
    inputs: dict[str, SteadyTensor]
    measurement: Measurement | None = None
    phases: StepPhases | None = None
    profile: str | None = None
    graph: str | None = None
    dropped: int = 0
    notes: tuple[str, ...] = ()


class Refusal(msgspec.Struct, frozen=True, tag_field="kind", tag="refused"):
    """A wrong request, whatever the batch."""

    message: str
    hint: str


Order: TypeAlias = FileOrder | ModelOrder | TrainingOrder
Answer: TypeAlias = Ran | Unfit | Refusal
