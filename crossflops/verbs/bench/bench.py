"""The verb `bench`: run a model at some batch sizes, and account for the time of one."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from crossflops.bench.batches import MOST, Goal, search
from crossflops.bench.processes import bench as run
from crossflops.bench.timing import USUAL, BenchLimits, FileOrder, ModelOrder, Order, Ran
from crossflops.errors import InputError, NormalizeError
from crossflops.files import draft
from crossflops.frontends import of_runtime
from crossflops.ir.measurement import Measurement, Unfit
from crossflops.limits import TIMEOUT
from crossflops.report.bench import Bench, BenchPeak
from crossflops.report.report import InputInfo, ModelInfo
from crossflops.targets.request import Request
from crossflops.targets.target import imports_restored
from crossflops.verbs.bench.kernels import accounted, read_trace
from crossflops.verbs.bench.runnable import ONNX, Runnable, at_batch, runnable
from crossflops.verbs.provenance import asked, made_with

Progress = Callable[[str], None]
AUTO = "auto"
_TRACE = "trace.json"
_BRIEF = BenchLimits(warmup=1, runs=1, fewest=1)  # of a batch that was timed before


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is run, at which batches, and against which peak: see `crossflops.bench`.

    `batches` are the sizes to try, or "auto" to look for the fastest; by default that of the
    inputs alone. Of several, the one with the most examples per second within `max_latency_ms`
    (p99) is profiled. `batch_dim` is the dimension of an ONNX file that is the batch. `memory`
    bounds a worker in bytes, `timeout` in seconds. `write_trace` is the file (.json) or the folder
    in which the trace of some runs is left; with `trace`, one that is there, nothing is run.
    """

    batches: Sequence[int] | str = ()
    batch_dim: str | None = None
    max_latency_ms: float | None = None
    memory: int | None = None
    threads: int | None = None
    runtime: str = ONNX
    optimization: str = "all"
    limits: BenchLimits = USUAL
    timeout: float = TIMEOUT
    write_trace: str | None = None
    peak_tflops: float | None = None
    trace: str | None = None

    @property
    def goal(self) -> Goal:
        """The fastest batch, within the latency where one is asked for."""
        return Goal(None if self.max_latency_ms is None else self.max_latency_ms / 1e3)

    @property
    def peak(self) -> BenchPeak | None:
        """The peak that is given, in float32. Raises InputError for one that is no rate."""
        if self.peak_tflops is None:
            return None
        if not 1e-18 <= self.peak_tflops <= 1e18:
            message = f"a peak of {self.peak_tflops} TFLOP/s is no rate"
            raise InputError(message, "give a number above zero")
        return BenchPeak(rates={"float32": self.peak_tflops * 1e12}, source="given")

    @property
    def flags(self) -> dict[str, Any]:
        """What a report says of the conditions."""
        if self.trace is not None:
            return {"trace": self.trace, "peak_tflops": self.peak_tflops}
        flags = {**asdict(self), "batches": self.batches or None, "seconds": self.limits.seconds}
        del flags["limits"]
        return flags


# The same model at one batch size after the other, each in a worker of its own.


class Attempts:
    """The model under these conditions. What ran is kept in `ran`, by batch."""

    def __init__(self, request: Request, conditions: Conditions, folder: str) -> None:
        self._request, self._conditions, self._folder = request, conditions, folder
        self._ready: dict[int | None, Runnable] = {}
        self.ran: dict[int, Ran] = {}

    def runnable(self, batch: int | None) -> Runnable:
        """The model at a batch; None is that of its inputs."""
        if batch not in self._ready:
            request, how = self._request, self._conditions
            if batch is not None:
                request = at_batch(request, batch, how.batch_dim)
            place = tempfile.mkdtemp(dir=self._folder)
            self._ready[batch] = runnable(request, place, how.runtime)
        return self._ready[batch]

    def again(self, batch: int) -> None:
        """Trace a batch that was timed before."""
        how = msgspec.structs.replace(self._conditions, limits=_BRIEF)
        self._run(self.runnable(batch), how, profiled=True)

    def once(self, batch: int | None, profiled: bool = False) -> Measurement | Unfit:
        """Run it; with `profiled` some runs more are traced."""
        return self._run(self.runnable(batch), self._conditions, profiled)

    def _run(self, ready: Runnable, how: Conditions, profiled: bool) -> Measurement | Unfit:
        order = _file_order(ready, how, profiled)
        if how.runtime != ONNX:
            order = _model_order(ready, how, profiled)
        ran = run(order, how.timeout, ready.folder)
        if isinstance(ran, Unfit):
            return ran
        assert ran.measurement is not None
        self.ran[ready.batch] = ran
        if profiled and how.write_trace and ran.profile:
            written(Path(ran.profile), Path(how.write_trace))
        return ran.measurement


def _file_order(ready: Runnable, how: Conditions, profiled: bool) -> Order:
    return FileOrder(
        path=ready.path,
        dims=ready.dims,
        specs=ready.specs,
        inputs_file=ready.inputs_file,
        allocated=ready.hollow,
        batch=ready.batch,
        optimization=how.optimization,
        threads=how.threads or cpus(),
        limits=how.limits,
        profiled=profiled,
        memory=how.memory,
        folder=ready.folder,
    )


def _model_order(ready: Runnable, how: Conditions, profiled: bool) -> Order:
    request = ready.request
    assert request.target is not None
    into_folder = of_runtime(how.runtime).traces_into_folder
    trace = how.write_trace if into_folder else str(Path(ready.folder, _TRACE))
    return ModelOrder(
        target=request.target,
        arguments=request.arguments,
        specs=request.specs,
        inputs_file=request.inputs_file,
        allow_pickle=request.allow_pickle,
        setting=request.setting,
        runtime=how.runtime,
        batch=ready.batch,
        threads=how.threads or cpus(),
        limits=how.limits,
        trace=trace if profiled else None,
        memory=how.memory,
        paths=tuple(map(os.path.abspath, sys.path)),
    )


def written(trace: Path, target: Path) -> Path:
    """Copy a trace to a file that ends in .json, else into a folder, as TensorBoard looks for it.

    Raises CrossflopsError where it cannot be written.
    """
    if target.suffix != ".json":
        target = target / "crossflops.pt.trace.json"
    with draft(target, "give another --write-trace") as path:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(trace, path)
    return target


# The verb.


@imports_restored()
def bench(request: Request, how: Conditions, tell: Progress) -> Bench:
    """Run a model, or read a trace of it: see `crossflops.bench`."""
    if how.trace is None:
        benched = measured(request, how, tell)
    else:
        peak = how.peak
        _refuse(how, request)
        benched = read_trace(request, how.trace, peak)
    return msgspec.structs.replace(
        benched,
        request=asked("bench", request, benched.model, how.flags),
        made_with=made_with(request.is_file),
    )


def once(request: Request, how: Conditions) -> Ran | Unfit:
    """How fast a model is on its inputs, and nothing else. Raises what building it raises."""
    with tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True) as folder:
        attempts = Attempts(request, how, folder)
        timing = attempts.once(None)
        return timing if isinstance(timing, Unfit) else attempts.ran[timing.batch]


def measured(request: Request, how: Conditions, tell: Progress = lambda _: None) -> Bench:
    """How fast a model is, at which batch, and where the time goes.

    Raises NormalizeError when the model runs at no batch.
    """
    peak = how.peak
    if request.inputs_file is not None and how.batches:
        raise InputError("real values have one batch", "leave --batch or --inputs out")
    with tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True) as folder:
        attempts = Attempts(request, how, folder)
        tried, largest = _tried(attempts, how, tell)
        chosen = how.goal.best(tried) or Goal().best(tried)
        if chosen is None:
            raise _no_run(tried)
        ready = attempts.runnable(chosen.batch if how.batches else None)
        if how.batches:
            tell(f"profiling batch {chosen.batch}")
            attempts.again(chosen.batch)
        ran = attempts.ran[chosen.batch]
        return accounted(_bench(ready, ran, how, tried, chosen, largest), ready, ran, peak)


def _tried(
    attempts: Attempts, how: Conditions, tell: Progress
) -> tuple[list[Measurement | Unfit], int | None]:
    """Every batch that was tried, and of a search the largest that fits."""

    def attempt(batch: int) -> Measurement | Unfit:
        tell(f"running batch {batch}")
        return attempts.once(batch)

    if isinstance(how.batches, str):
        if how.batches != AUTO:
            raise InputError(f"there is no batch {how.batches!r}", "give sizes, or auto")
        searched = search(attempt, how.goal, MOST, to_the_limit=how.memory is not None)
        return list(searched.tried), searched.largest if searched.bounded else None
    if not how.batches:
        return [attempts.once(None, profiled=True)], None
    return [attempt(batch) for batch in dict.fromkeys(how.batches)], None


def _no_run(tried: Sequence[Measurement | Unfit]) -> NormalizeError:
    unfit = next((run for run in tried if isinstance(run, Unfit)), None)
    message = f"the model did not run ({unfit.stage}): {unfit.message}" if unfit else "nothing ran"
    hints = {"memory": "give a smaller input or batch, or more --memory-limit",
             "time": "give a smaller input, or more --timeout"}  # fmt: skip
    hint = hints.get(unfit.stage if unfit else "", "see whether the model runs there at all")
    return NormalizeError(message, hint)


def _bench(
    ready: Runnable, ran: Ran, how: Conditions, tried: Sequence[Measurement | Unfit],
    chosen: Measurement, largest: int | None,
) -> Bench:  # fmt: skip
    total = ready.counted.ledger.total
    graph = ready.counted.graph
    goal = "" if len(tried) < 2 else "most examples per second"
    if how.max_latency_ms is not None:
        within = f"p99 within {how.max_latency_ms:g} ms"
        met = how.goal.met(chosen)
        goal = f"most examples per second with {within}" if met else f"no batch has its {within}"
    return Bench(
        model=ModelInfo(
            name=graph.name,
            digest=graph.digest,
            inputs=_inputs(ready, ran),
            opset=graph.opset,
        ),
        batch=chosen.batch,
        macs=total.macs,
        flops=total.flops,
        macs_by_precision=ready.counted.ledger.macs_by_precision,
        runtime=ran.runtime,
        device=ran.device,
        threads=how.threads or cpus(),
        optimization=how.optimization if how.runtime == ONNX else "",
        goal=goal,
        curve=tuple(tried),
        largest=largest,
    )


def _inputs(ready: Runnable, ran: Ran) -> tuple[InputInfo, ...]:
    if ran.inputs:
        return tuple(InputInfo(name, spec.dtype, spec.shape) for name, spec in ran.inputs.items())
    specs = ready.counted.graph.inputs
    return tuple(InputInfo(spec.name, spec.dtype, spec.shape or ()) for spec in specs)


def cpus() -> int:
    """Threads to run with: OMP_NUM_THREADS, else the CPUs that this process may use."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads):
        return int(threads)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# What a trace that is read leaves no room for.

_OF_RUNS = {"batches": "--batch", "max_latency_ms": "--max-latency-ms",
            "write_trace": "--write-trace", "memory": "--memory-limit"}  # fmt: skip


def _refuse(how: Conditions, request: Request) -> None:
    flag = next((flag for name, flag in _OF_RUNS.items() if getattr(how, name)), None)
    hint = "leave one out"
    if flag is None and request.inputs_file:
        flag, hint = "--inputs", "give --input"
    if flag is not None:
        raise InputError(f"--trace runs nothing, and {flag} is about runs", hint)
