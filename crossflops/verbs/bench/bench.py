"""The verb `bench`: run a model at some batch sizes, and account for the time of one."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from crossflops.bench.batches import MOST, Goal, search
from crossflops.bench.order import Ran
from crossflops.errors import InputError, NormalizeError
from crossflops.facade import ShownBench
from crossflops.frontends import FRONTENDS
from crossflops.ir.measurement import Measurement, Unfit
from crossflops.ir.trace import Setting
from crossflops.report.bench import Bench, BenchPeak
from crossflops.report.report import InputInfo, ModelInfo
from crossflops.targets import is_file
from crossflops.targets.request import asked_for
from crossflops.targets.target import imports_restored
from crossflops.verbs.bench.attempts import Attempts, Conditions
from crossflops.verbs.bench.kernels import accounted
from crossflops.verbs.bench.runnable import ONNX, Runnable
from crossflops.verbs.efficiency.shares import by_precision
from crossflops.verbs.provenance import asked, made_with

Progress = Callable[[str], None]
AUTO = "auto"
RUNTIMES = (ONNX, *(frontend.runtime for frontend in FRONTENDS if frontend.runtime))


@imports_restored()
def measured(
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    allow_pickle: bool = False,
    batches: Sequence[int] | str = (),
    batch_dim: str | None = None,
    conditions: Conditions | None = None,
    max_latency: float | None = None,
    peak: BenchPeak | None = None,
    on_progress: Progress | None = None,
    flags: Mapping[str, Any] = {},
) -> Bench:
    """Run a model, and say how fast it is, at which batch, and where the time goes.

    `batches` are the sizes to try, or "auto" to look for the fastest; by default that of the
    inputs alone. Of several, the one with the most examples per second within `max_latency`
    seconds (p99) is profiled. `flags` are what the result tells of the request. Raises
    NormalizeError when the model runs at no batch.
    """
    how = conditions or Conditions(threads=cpus())
    own = isinstance(target, str) and is_file(target)
    how = msgspec.structs.replace(how, inputs_file=inputs_file if own else None)
    request = asked_for(
        target, inputs, None if own else inputs_file, setting, arguments,
        allow_pickle=allow_pickle, dims=dims, trips=trips, branches=branches,
    )  # fmt: skip
    if inputs_file is not None and batches:
        raise InputError("real values have one batch", "leave --batch or --inputs out")
    tell = on_progress or (lambda _: None)
    with tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True) as folder:
        attempts = Attempts(request, how, folder, batch_dim)
        found = _found(attempts, batches, Goal(max_latency), how, peak, tell)
    given = {**flags, "inputs": inputs_file}
    return msgspec.structs.replace(
        found,
        request=asked("bench", request, found.model, given, target, arguments),
        made_with=made_with(request.is_file),
    )


def _found(
    attempts: Attempts, batches: Sequence[int] | str, goal: Goal, how: Conditions,
    peak: BenchPeak | None, tell: Progress,
) -> Bench:  # fmt: skip
    """Try the batches, choose one, and account for its time."""
    tried, largest = _tried(attempts, batches, goal, how, tell)
    chosen = goal.best(tried) or Goal().best(tried)
    if chosen is None:
        raise _no_run(tried)
    ready = attempts.runnable(chosen.batch if batches else None)
    if batches:
        tell(f"profiling batch {chosen.batch}")
        attempts.again(chosen.batch)
    ran = attempts.ran[chosen.batch]
    return accounted(_bench(ready, ran, how, tried, chosen, goal, largest), ready, ran, peak)


def _tried(
    attempts: Attempts, batches: Sequence[int] | str, goal: Goal, how: Conditions, tell: Progress
) -> tuple[list[Measurement | Unfit], int | None]:
    """Every batch that was tried, and of a search the largest that fits."""

    def attempt(batch: int) -> Measurement | Unfit:
        tell(f"running batch {batch}")
        return attempts.once(batch)

    if isinstance(batches, str):
        if batches != AUTO:
            raise InputError(f"there is no batch {batches!r}", "give sizes, or auto")
        found = search(attempt, goal, MOST, to_the_limit=how.memory is not None)
        return list(found.tried), found.largest if found.bounded else None
    if not batches:
        return [attempts.once(None, profiled=True)], None
    return [attempt(one) for one in dict.fromkeys(batches)], None


def _no_run(tried: Sequence[Measurement | Unfit]) -> NormalizeError:
    said = next((one for one in tried if isinstance(one, Unfit)), None)
    what = f"the model did not run ({said.stage}): {said.message}" if said else "nothing ran"
    hints = {"memory": "give a smaller input or batch, or more --memory-limit",
             "time": "give a smaller input, or more --timeout"}  # fmt: skip
    hint = hints.get(said.stage if said else "", "see whether the model runs there at all")
    return NormalizeError(what, hint)


def _bench(
    ready: Runnable, ran: Ran, how: Conditions, tried: Sequence[Measurement | Unfit],
    chosen: Measurement, goal: Goal, largest: int | None,
) -> Bench:  # fmt: skip
    total = ready.counted.ledger.total
    graph = ready.counted.graph
    said = "" if len(tried) < 2 else "most examples per second"
    if goal.latency is not None:
        within = f"p99 within {1e3 * goal.latency:g} ms"
        met = goal.met(chosen)
        said = f"most examples per second with {within}" if met else f"no batch has its {within}"
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
        macs_by_precision=by_precision(ready.counted.ledger),
        runtime=ran.runtime,
        device=ran.device,
        threads=how.threads,
        optimization=how.optimization if how.runtime == ONNX else "",
        goal=said,
        curve=tuple(tried),
        largest=largest,
    )


def _inputs(ready: Runnable, ran: Ran) -> tuple[InputInfo, ...]:
    if ran.inputs:
        return tuple(InputInfo(n, one.dtype, one.shape) for n, one in ran.inputs.items())
    specs = ready.counted.graph.inputs
    return tuple(InputInfo(one.name, one.dtype, one.shape or ()) for one in specs)


def cpus() -> int:
    """Threads to run with: OMP_NUM_THREADS, else the CPUs that this process may use."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    if said.isdecimal() and int(said):
        return int(said)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# The verb `bench` as values: what `crossflops bench` takes as flags.

_OF_RUNS = ("batches", "max_latency_ms", "write_trace", "memory", "inputs_file")


def bench(
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    batches: Sequence[int] | str = (),
    batch_dim: str | None = None,
    max_latency_ms: float | None = None,
    memory: int | None = None,
    threads: int | None = None,
    runtime: str = "onnxruntime",
    optimization: str = "all",
    seconds: float = 5.0,
    timeout: float = 300.0,
    trace: str | None = None,
    write_trace: str | None = None,
    peak_tflops: float | None = None,
    on_progress: Callable[[str], None] | None = None,
    **options: Any,
) -> ShownBench:
    """Run a model, and say how fast it is and where its time goes.

    `target` and `inputs` are those of `count`, as are `options` (arguments, dims, trips, branches,
    allow_pickle). `batches` are sizes to try, or "auto"; `memory` are the bytes of address space
    of a worker, `seconds` go to the warm-up and again to the timing of each batch. With `trace`
    nothing is run: the profile of onnxruntime or the trace of torch.profiler is read. Without
    `peak_tflops`, which is in float32, the peak of this machine is measured. What no sound
    measurement has is in `errors` of the result.

    Raises CrossflopsError where the model does not run, and InputError for what makes no sense.
    """
    peak = None if peak_tflops is None else _peak(peak_tflops)
    shared = {"setting": setting, "peak": peak, **options}
    flags = {
        "batches": batches or None,
        "batch_dim": batch_dim,
        "max_latency_ms": max_latency_ms,
        "memory": memory,
        "threads": threads,
        "runtime": runtime,
        "optimization": optimization,
        "seconds": seconds,
        "timeout": timeout,
        "write_trace": write_trace,
    }
    if trace is not None:
        given = (batches, max_latency_ms, write_trace, memory, inputs_file)
        _refuse(dict(zip(_OF_RUNS, given, strict=True)))
        from crossflops.verbs.bench.kernels import read_trace

        told = {"trace": trace, "peak_tflops": peak_tflops}
        return ShownBench.of(read_trace(target, inputs, trace=trace, flags=told, **shared))
    from crossflops.bench.order import Limits
    from crossflops.verbs.bench.attempts import Conditions
    # dropped
    # dropped

    how = Conditions(
        runtime=runtime,
        write_trace=write_trace,
        optimization=optimization,
        threads=threads or cpus(),
        limits=Limits(seconds=seconds),
        memory=memory,
        timeout=timeout,
    )
    found = measured(
        target,
        inputs,
        inputs_file=inputs_file,
        batches=batches,
        batch_dim=batch_dim,
        max_latency=None if max_latency_ms is None else max_latency_ms / 1e3,
        conditions=how,
        on_progress=on_progress,
        flags={**flags, "peak_tflops": peak_tflops},
        **shared,
    )
    return ShownBench.of(found)


def _refuse(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value:
            flag = {"batches": "batch", "memory": "memory-limit", "inputs_file": "inputs"}
            option = f"--{flag.get(name, name.replace('_', '-'))}"
            hint = "give --input" if name == "inputs_file" else "leave one out"
            raise InputError(f"--trace runs nothing, and {option} is about runs", hint)


def _peak(tflops: float) -> BenchPeak:
    if not 1e-18 <= tflops <= 1e18:
        raise InputError(f"a peak of {tflops} TFLOP/s is no rate", "give a number above zero")
    return BenchPeak(rates={"float32": tflops * 1e12}, source="given")
