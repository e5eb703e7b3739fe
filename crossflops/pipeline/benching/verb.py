"""The verb `bench` as values: what `crossflops bench` takes as flags."""

from collections.abc import Callable, Sequence
from typing import Any

from crossflops.core.bench import Bench, Peak
from crossflops.core.trace import Setting
from crossflops.errors import InputError

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
) -> Bench:
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
        from crossflops.pipeline.benching.reading import read_trace

        told = {"trace": trace, "peak_tflops": peak_tflops}
        return read_trace(target, inputs, trace=trace, flags=told, **shared)
    from crossflops.measure.timing import Limits
    from crossflops.pipeline.benching.attempts import Conditions
    from crossflops.pipeline.benching.bench import bench as run
    from crossflops.pipeline.benching.bench import cpus

    how = Conditions(
        runtime=runtime,
        write_trace=write_trace,
        optimization=optimization,
        threads=threads or cpus(),
        limits=Limits(seconds=seconds),
        memory=memory,
        timeout=timeout,
    )
    return run(
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


def _refuse(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value:
            flag = {"batches": "batch", "memory": "memory-limit", "inputs_file": "inputs"}
            option = f"--{flag.get(name, name.replace('_', '-'))}"
            hint = "give --input" if name == "inputs_file" else "leave one out"
            raise InputError(f"--trace runs nothing, and {option} is about runs", hint)


def _peak(tflops: float) -> Peak:
    if not 1e-18 <= tflops <= 1e18:
        raise InputError(f"a peak of {tflops} TFLOP/s is no rate", "give a number above zero")
    return Peak(rates={"float32": tflops * 1e12}, source="given")
