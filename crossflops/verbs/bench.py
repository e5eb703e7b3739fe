"""Run the verb `bench`: run a model at some batch sizes, and explain the time of one of them.

A request becomes the ONNX file that onnxruntime is given, at some batch, and its count. The time
of one run stands node by node beside that count: of a run, or from a trace.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict

from crossflops.bench.batches import MOST, Goal, search_batch_size
from crossflops.bench.covers import (
    ExecutedGraph,
    build_kernel_profile,
    guess_executed_graph,
    match_nodes_to_kernels,
    name_executed_nodes,
)
from crossflops.bench.covers import read_executed_graph as read_graph
from crossflops.bench.kernels import (
    KernelTimes,
    is_onnxruntime_trace,
    mean_kernel_times,
    read_trace_events,
)
from crossflops.bench.processes import run_bench_order as run
from crossflops.bench.session import LEVELS
from crossflops.bench.timing import (
    USUAL,
    BenchLimits,
    FileOrder,
    ModelOrder,
    Order,
    Ran,
    TrainingOrder,
)
from crossflops.bench.torch_trace import is_torch_trace, match_torch_operators
from crossflops.errors import CrossflopsError, InputError, NormalizeError
from crossflops.files import replacing_file
from crossflops.frontends import (
    Source,
    library_of_target,
    reject_unsupported_no_grad,
    runtime_frontend,
)
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.binding import inputs_given_by_caller
from crossflops.hardware.rates.runs import COVERED
from crossflops.ir.graph import TensorSpec
from crossflops.ir.ledger import ZERO, CountedNode, Ledger
from crossflops.ir.measurement import Measurement, Unfit
from crossflops.ledger.count import count_dead
from crossflops.limits import TIMEOUT, usable_cpus
from crossflops.load import read_onnx_model
from crossflops.report.bench import Bench, BenchPeak, KernelProfile
from crossflops.report.bench_errors import batch_rate_errors, kernel_time_errors
from crossflops.report.report import InputInfo, ModelInfo, Report
from crossflops.targets.request import Request
from crossflops.targets.target import full_target_name, restoring_imports
from crossflops.verbs.bench_training import (
    RunWork,
    build_bench_step,
    count_model_training_step,
    reject_untrainable_request,
    step_timing_notes,
    training_step_work,
)
from crossflops.verbs.count import (
    CountedModel,
    count_source,
    request_with_observed_sizes,
    write_onnx_program,
)
from crossflops.verbs.provenance import build_request_record, framework_versions

# The same model at another batch size.


def with_batch_size(request: Request, batch: int, dim: str | None = None) -> Request:
    """Return a copy of the request that runs the model with this batch size; `dim` names the batch
    dimension of an ONNX file.

    Of an ONNX file that is the dimension `dim`; else the one name that stands first in inputs;
    else the first size of every input that has the first size of the first one. Of another target
    it is the first size of every input. Raises InputError where there is nothing to set.
    """
    if request.given is not None:
        raise InputError(
            "--batch changes the shapes of the inputs, but the model or its inputs are objects",
            'give the target as text, such as "file.py:callable", and the shapes as text, such '
            'as ["1x3x224x224"]',
        )
    if not request.is_file:
        if dim is not None:
            raise InputError(
                "--batch-dim can be used only with an ONNX file", "leave out --batch-dim"
            )
        if not request.specs and request.inputs_file is None and _is_library_model_name(request):
            return msgspec.structs.replace(request, sizes={**request.sizes, "batch": batch})
        return msgspec.structs.replace(request, specs=_resize_input_batches(request.specs, batch))
    assert request.target is not None
    inputs = inputs_given_by_caller(read_onnx_model(request.target).graph)
    names = [dim] if dim else _batch_dimension_names(inputs)
    if len(names) == 1:
        return msgspec.structs.replace(request, dims={**request.dims, names[0]: batch})
    if names:
        raise InputError(
            f"the batch dimension is ambiguous: inputs begin with {', '.join(names)}",
            f"give its name, for example --batch-dim {names[0]}",
        )
    specs = {spec.name: spec for spec in request.specs}
    provided = [specs.get(spec.name) or _spec_from_value_info(spec) for spec in inputs]
    return msgspec.structs.replace(request, specs=_resize_input_batches(provided, batch))


def _is_library_model_name(request: Request) -> bool:
    """Return whether the target is a name in a library of models, such as "timm:resnet50"."""
    return (
        request.target is not None
        and library_of_target(full_target_name(request.target)) is not None
    )


def first_batch_size(inputs: Sequence[tuple[int, ...]]) -> int:
    """Return the batch size: the first dimension of the first input that has dimensions, 1 if none
    has.
    """
    return next((shape[0] for shape in inputs if shape), 1)


def _resize_input_batches(specs: Sequence[TensorSpec], batch: int) -> tuple[TensorSpec, ...]:
    """Return the input specifications with `batch` as first dimension, wherever that was the batch
    size before.
    """
    first = next((spec.shape[0] for spec in specs if spec.shape), None)
    if first is None:
        raise InputError(
            "no input has a batch dimension, so the batch size cannot be changed",
            "run the command once for each size, with --input NAME=SHAPE",
        )
    return tuple(
        msgspec.structs.replace(spec, shape=(batch, *spec.shape[1:]))
        if spec.shape and spec.shape[0] == first
        else spec
        for spec in specs
    )


def _batch_dimension_names(inputs: Sequence[Any]) -> list[str]:
    """Return the names of the symbolic first dimensions of the ONNX inputs, each name once."""
    firsts = (value.type.tensor_type.shape.dim[:1] for value in inputs)
    return list(dict.fromkeys(dim.dim_param for dims in firsts for dim in dims if dim.dim_param))


def _spec_from_value_info(value: Any) -> TensorSpec:
    """Return the name and the shape of an ONNX input as a tensor spec without a dtype."""
    dims = value.type.tensor_type.shape.dim
    return TensorSpec(value.name, "", tuple(dim.dim_value for dim in dims))


NAME = "model.onnx"
ONNX = "onnxruntime"


class Runnable(msgspec.Struct, frozen=True, kw_only=True):
    """A model, its count, and its form to run: a file with bound sizes, or the request's target.

    `inputs_file` has real values for the file. Weights of a `hollow` one are there by shape alone.
    Files of runs go into `folder`.
    """

    request: Request
    counted: CountedModel
    folder: str
    path: str = ""
    dims: dict[str, int] = {}
    specs: tuple[TensorSpec, ...] = ()
    inputs_file: str | None = None
    hollow: bool = False
    notes: tuple[str, ...] = ()
    step: Report | None = None  # the count of a training step

    @property
    def batch_size(self) -> int:
        """The batch size: the first dimension of the first input that has one."""
        return first_batch_size([spec.shape or () for spec in self.counted.graph.inputs])


def prepare_runnable(request: Request, folder: str, runtime: str = ONNX) -> Runnable:
    """Return the model, counted and prepared to run in a runtime: as an ONNX file in `folder` for
    onnxruntime, else by its target.
    """
    request.refuse_unused_options()
    source = request.source()
    reject_unsupported_no_grad(source, request.setting)
    if runtime != ONNX:
        return _prepare_framework_run(request, source, folder, runtime)
    if isinstance(source.model, OnnxFile):
        return _prepare_file_run(request, source, folder)
    native = count_source(source, request.setting, ())
    path, hollow = Path(folder, NAME), isinstance(native.program, bytes)
    write_onnx_program(native, path, "convert the model to ONNX, and give the file")
    notes = ("the weights are random; only their shapes are those of the model",) if hollow else ()
    return Runnable(
        request=request, counted=native, folder=folder, path=str(path), hollow=hollow, notes=notes
    )


def _prepare_framework_run(
    request: Request, source: Source, folder: str, runtime: str
) -> Runnable:
    """Return a model that a worker will build again from its target and run in its own framework,
    with its count.
    """
    if isinstance(source.model, OnnxFile):
        raise InputError(f"--runtime {runtime} cannot run an ONNX file", "leave out --runtime")
    if request.given is not None:
        raise InputError(
            "a model object cannot be built again in the process that runs it",
            'give the target as text, such as "file.py:callable"',
        )
    return Runnable(
        request=request, counted=count_source(source, request.setting, ()), folder=folder
    )


def prepare_training_run(request: Request, folder: str, optimizer: str) -> Runnable:
    """Return a model that a worker will train, with the count of its training step; raise
    InputError for a model object.
    """
    if request.given is not None:
        raise InputError(
            "a model object cannot be built again in the process that runs it",
            'give the target as text, such as "file.py:callable"',
        )
    report, native = count_model_training_step(request, optimizer)
    return Runnable(request=request, counted=native, folder=folder, step=report)


def _prepare_file_run(request: Request, source: Source, folder: str) -> Runnable:
    """Return an ONNX file prepared to run, with its count; sizes and branches that depend on data
    are taken from one run.
    """
    notes: tuple[str, ...] = ()
    file = source.model
    native = None if request.inputs_file else count_source(source, request.setting, ())
    if native is None or _has_uncounted_or_bounded_nodes(native):
        native, note = _count_with_observed_sizes(request, native)
        notes = (note,)
    return Runnable(
        request=request,
        counted=native,
        folder=folder,
        path=file.path,
        dims=dict(file.dims),
        specs=file.specs,
        inputs_file=request.inputs_file,
        notes=notes,
    )


class ObservedCount(NamedTuple):
    """The count of a file with the sizes of one run, and a note on that run."""

    counted: CountedModel
    note: str


def _count_with_observed_sizes(request: Request, fallback: CountedModel | None) -> ObservedCount:
    """Return the count of the file with sizes and branches of one run; `fallback` if the run
    fails, with a note that says why.
    """
    try:
        settled, run = request_with_observed_sizes(request)
    except NormalizeError as error:
        if fallback is None:
            raise
        note = f"sizes and branches that depend on data are unknown: {error.message}"
        return ObservedCount(fallback, note)
    native = count_source(settled.source(), request.setting, ())
    note = f"sizes, iterations and branches are those of a run on {run.inputs}"
    return ObservedCount(native, note)


def _has_uncounted_or_bounded_nodes(native: CountedModel) -> bool:
    """Return whether a node is uncounted or has only an upper bound, so that one run can say
    more.
    """
    return any(
        not isinstance(count, CountedNode) or count.exactness == "bound"
        for count in native.ledger.counts
    )


# What is asked, and the batches that are tried.

Progress = Callable[[str], None]
AUTO = "auto"
_TRACE = "trace.json"
_BRIEF = BenchLimits(warmup=1, runs=1, fewest=1)  # of a batch that was timed before


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a model, at which batches, and against which peak: see `crossflops.bench`.

    `batches` are the sizes to try, or "auto" to look for the fastest; by default that of the
    inputs alone. Of several, the one with the most examples per second within `max_latency_ms`
    (p99) is profiled. `batch_dim` is the dimension of an ONNX file that is the batch. `memory`
    bounds a worker in bytes, `timeout` in seconds. `write_trace` is the file (.json) or the folder
    in which the trace of some runs is left; with `trace`, one that is there, nothing is run.
    With `train` a run is a training step of a model of PyTorch, by a class of torch.optim.
    """

    train: bool = False
    optimizer: str = "adamw"
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
    def batch_search_goal(self) -> Goal:
        """The goal of a search for a batch size: most examples per second, with a limit of the
        latency if one is given.
        """
        return Goal(None if self.max_latency_ms is None else self.max_latency_ms / 1e3)

    @property
    def given_peak(self) -> BenchPeak | None:
        """The peak that the user gives for float32, None without one; raises InputError for an
        invalid number.
        """
        if self.peak_tflops is None:
            return None
        if not 1e-18 <= self.peak_tflops <= 1e18:
            message = f"--peak-tflops must be a positive number, got {self.peak_tflops}"
            raise InputError(message, "give a positive number")
        return BenchPeak(rates={"float32": self.peak_tflops * 1e12}, source="given")

    @property
    def option_values(self) -> dict[str, Any]:
        """The options of `bench` as {name: value}, for the record of the request."""
        if self.trace is not None:
            return {"trace": self.trace, "peak_tflops": self.peak_tflops}
        flags = {**asdict(self), "batches": self.batches or None, "seconds": self.limits.seconds}
        del flags["limits"]
        del flags["optimizer"]
        return {**flags, "train": self.train or None, "optimizer": self.step_optimizer}

    @property
    def step_optimizer(self) -> str | None:
        """The name of the optimizer of the training step; None if the model is not trained."""
        return self.optimizer if self.train else None


def reject_untrainable_options(request: Request, conditions: Conditions) -> None:
    """Raise InputError if the model cannot be trained, or if an option has no effect on a training
    step.
    """
    reject_untrainable_request(request)
    idle = {
        "--runtime": conditions.runtime not in (ONNX, _OWN),
        "--optimization": conditions.optimization != Conditions().optimization,
        "--write-trace": conditions.write_trace is not None,
    }
    for flag, is_given in idle.items():
        if is_given:
            raise InputError(
                f"{flag} cannot be used with --train, which always runs in PyTorch",
                "leave out one of the two",
            )


# The same model at one batch size after the other, each in a worker of its own.


class Attempts:
    """The model under these conditions. Runs are kept in `ran`, by batch."""

    def __init__(self, request: Request, conditions: Conditions, folder: str) -> None:
        self._request, self._conditions, self._folder = request, conditions, folder
        self._ready: dict[int | None, Runnable] = {}
        self.ran: dict[int, Ran] = {}

    def prepare_batch(self, batch: int | None) -> Runnable:
        """Return the model prepared for this batch size, None meaning the size of its inputs; each
        size is prepared once.
        """
        if batch not in self._ready:
            request, config = self._request, self._conditions
            if batch is not None:
                request = with_batch_size(request, batch, config.batch_dim)
            index = tempfile.mkdtemp(dir=self._folder)
            if config.train:
                self._ready[batch] = prepare_training_run(request, index, config.optimizer)
            else:
                self._ready[batch] = prepare_runnable(request, index, config.runtime)
        return self._ready[batch]

    def run_batch_again_under_profiler(self, batch: int) -> None:
        """Run the model once more at this batch size, under the profiler, to get kernel times."""
        config = msgspec.structs.replace(self._conditions, limits=_BRIEF)
        self._run_and_keep(self.prepare_batch(batch), config, profiled=True)

    def run_batch(self, batch: int | None, profiled: bool = False) -> Measurement | Unfit:
        """Run the model at this batch size in a worker; return its times, or why it did not run.
        With `profiled` it also gets kernel times.
        """
        return self._run_and_keep(self.prepare_batch(batch), self._conditions, profiled)

    def _run_and_keep(
        self, ready: Runnable, conditions: Conditions, profiled: bool
    ) -> Measurement | Unfit:
        """Run the prepared model in a worker and keep the result by batch size; return its times,
        or why it did not run.
        """
        ran = _run_in_worker(ready, conditions, profiled)
        if isinstance(ran, Unfit):
            return ran
        assert ran.measurement is not None
        self.ran[ready.batch_size] = ran
        if profiled and conditions.write_trace and ran.profile:
            write_trace_copy(Path(ran.profile), Path(conditions.write_trace))
        return ran.measurement


def _run_in_worker(ready: Runnable, conditions: Conditions, profiled: bool) -> Ran | Unfit:
    """Run the prepared model in a worker process; return all measurements, or why it did not
    run.
    """
    if conditions.train:
        fields = asdict(_framework_run_order(ready, conditions, profiled=False))
        order = TrainingOrder(**{**fields, "runtime": _OWN, "optimizer": conditions.optimizer})
        return run(order, conditions.timeout, ready.folder, "crossflops.profiling.bencher")
    if conditions.runtime != ONNX:
        return run(
            _framework_run_order(ready, conditions, profiled), conditions.timeout, ready.folder
        )
    return run(_onnx_run_order(ready, conditions, profiled), conditions.timeout, ready.folder)


def _onnx_run_order(ready: Runnable, conditions: Conditions, profiled: bool) -> Order:
    """Return the order for a worker to run an ONNX file, with or without the profiler."""
    return FileOrder(
        path=ready.path, dims=ready.dims, specs=ready.specs, inputs_file=ready.inputs_file,
        allocated=ready.hollow, batch=ready.batch_size, optimization=conditions.optimization,
        threads=conditions.threads or default_thread_count(), limits=conditions.limits,
        profiled=profiled,
        memory_limit=conditions.memory,
        folder=ready.folder,
    )  # fmt: skip


def _framework_run_order(ready: Runnable, conditions: Conditions, profiled: bool) -> Order:
    """Return the order for a worker to run a framework model, with or without the profiler."""
    request = ready.request
    assert request.target is not None
    into_folder = profiled and runtime_frontend(conditions.runtime).traces_into_folder
    trace = conditions.write_trace if into_folder else str(Path(ready.folder, _TRACE))
    return ModelOrder(
        target=request.target, arguments=request.arguments, specs=request.specs,
        sizes=request.sizes, inputs_file=request.inputs_file, allow_pickle=request.allow_pickle,
        setting=request.setting, runtime=conditions.runtime, batch=ready.batch_size,
        threads=conditions.threads or default_thread_count(), limits=conditions.limits,
        trace=trace if profiled else None,
        memory_limit=conditions.memory, paths=tuple(map(os.path.abspath, sys.path)),
    )  # fmt: skip


def write_trace_copy(trace: Path, target: Path) -> Path:
    """Copy a trace to `target`, which is a .json file or a folder for TensorBoard; return the path
    of the copy.

    Raises CrossflopsError where it cannot be written.
    """
    if target.suffix != ".json":
        target = target / "crossflops.pt.trace.json"
    with replacing_file(target, "give another --write-trace") as path:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(trace, path)
    return target


# The verb.


@restoring_imports()
def bench_request(request: Request, conditions: Conditions, on_progress: Progress) -> Bench:
    """Return the result of `bench`: run the model, or read the trace that `conditions` name."""
    if conditions.trace is None:
        benched = measure_batches(request, conditions, on_progress)
    else:
        peak = conditions.given_peak
        _check_trace_options(conditions, request)
        benched = read_trace(request, conditions.trace, peak)
    return msgspec.structs.replace(
        benched,
        request=build_request_record("bench", request, benched.model, conditions.option_values),
        made_with=framework_versions(request.is_file),
    )


def measure_on_given_inputs(request: Request, conditions: Conditions) -> Ran | Unfit:
    """Return the measurements of the model on its inputs, or why it did not run."""
    with tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True) as folder:
        attempts = Attempts(request, conditions, folder)
        timing = attempts.run_batch(None)
        return timing if isinstance(timing, Unfit) else attempts.ran[timing.batch]


def measure_batches(
    request: Request, conditions: Conditions, on_progress: Progress = lambda _: None
) -> Bench:
    """Return the speed of the model at each requested batch size, and the kernel times of the best
    one.

    Raises NormalizeError when the model runs at no batch.
    """
    peak = conditions.given_peak
    if conditions.batch_dim is not None and not conditions.batches:
        raise InputError("--batch-dim requires --batch", "add --batch N, or leave out --batch-dim")
    if conditions.train:
        reject_untrainable_options(request, conditions)
    if conditions.runtime != ONNX and conditions.optimization != Conditions().optimization:
        raise InputError(
            "--optimization can be used only with onnxruntime, but --runtime is "
            f"{conditions.runtime}",
            "leave out --optimization, or leave out --runtime",
        )
    if request.inputs_file is not None and conditions.batches:
        raise InputError(
            "--inputs fixes the batch size, so --batch cannot be used with it",
            "leave out --batch, or leave out --inputs",
        )
    with tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True) as folder:
        attempts = Attempts(request, conditions, folder)
        tried, largest = _try_batches(attempts, conditions, on_progress)
        chosen = conditions.batch_search_goal.best_measurement(tried) or Goal().best_measurement(
            tried
        )
        if chosen is None:
            raise _no_batch_ran_error(tried)
        ready = attempts.prepare_batch(chosen.batch if conditions.batches else None)
        if conditions.batches and not conditions.train:
            on_progress(f"profiling batch {chosen.batch}")
            attempts.run_batch_again_under_profiler(chosen.batch)
        ran = attempts.ran[chosen.batch]
        return with_kernel_times(
            _build_bench_report(ready, ran, conditions, tried, chosen, largest), ready, ran, peak
        )


class TriedBatches(NamedTuple):
    """The results of all batch sizes that were run; the largest that fits is None if unknown."""

    results: list[Measurement | Unfit]
    largest: int | None


def _try_batches(
    attempts: Attempts, conditions: Conditions, on_progress: Progress
) -> TriedBatches:
    """Run the requested batch sizes; return all results, and the largest size that fits."""

    def run_batch_with_progress(batch: int) -> Measurement | Unfit:
        """Report progress and run the model at this batch size; return its times, or why it did
        not run.
        """
        on_progress(f"running batch {batch}")
        return attempts.run_batch(batch)

    if isinstance(conditions.batches, str):
        if conditions.batches != AUTO:
            raise InputError(
                f"--batch must be a list of sizes or auto, got {conditions.batches!r}",
                "write --batch 1,2,4,8 or auto",
            )
        searched = search_batch_size(
            run_batch_with_progress,
            conditions.batch_search_goal,
            MOST,
            to_the_limit=conditions.memory is not None,
        )
        largest = searched.largest if searched.bounded else None
        return TriedBatches(list(searched.tried), largest)
    if not conditions.batches:
        return TriedBatches([attempts.run_batch(None, profiled=True)], None)
    return TriedBatches(
        [run_batch_with_progress(batch) for batch in dict.fromkeys(conditions.batches)], None
    )


def _no_batch_ran_error(tried: Sequence[Measurement | Unfit]) -> NormalizeError:
    """Return the error that says why no batch size ran, with a hint about memory or time."""
    unfit = next((run for run in tried if isinstance(run, Unfit)), None)
    message = (
        f"the model did not run ({unfit.stage}): {unfit.message}"
        if unfit
        else "no run of the model succeeded"
    )
    hints = {"memory": "give a smaller input or batch, or more --memory-limit",
             "time": "give a smaller input, or more --timeout"}  # fmt: skip
    hint = hints.get(unfit.stage if unfit else "", "check that the model can run on these inputs")
    return NormalizeError(message, hint)


def _build_bench_report(
    ready: Runnable, ran: Ran, conditions: Conditions, tried: Sequence[Measurement | Unfit],
    chosen: Measurement, largest: int | None,
) -> Bench:  # fmt: skip
    """Return the result of `bench` for the chosen batch size, without kernel times: work,
    conditions, and all batch sizes.
    """
    macs, flops, by_precision = _work_of_one_run(ready, ran)
    graph = ready.counted.graph
    goal = "" if len(tried) < 2 else "most examples per second"
    if conditions.max_latency_ms is not None:
        within = f"p99 within {conditions.max_latency_ms:g} ms"
        met = conditions.batch_search_goal.is_met(chosen)
        goal = (
            f"most examples per second with {within}" if met else f"no batch size reaches {within}"
        )
    return Bench(
        model=ModelInfo(
            name=graph.name,
            digest=graph.digest,
            inputs=_run_input_infos(ready, ran),
            opset=graph.opset,
        ),
        batch=chosen.batch,
        macs=macs,
        flops=flops,
        macs_by_precision=by_precision,
        runtime=ran.runtime,
        device=ran.device,
        threads=conditions.threads or default_thread_count(),
        optimization=conditions.optimization
        if conditions.runtime == ONNX and not conditions.train
        else "",
        goal=goal,
        curve=tuple(tried),
        largest=largest,
    )


def _work_of_one_run(ready: Runnable, ran: Ran) -> RunWork:
    """Return the work of one run, or of one training step."""
    if ready.step is not None and ran.phases is not None:
        return training_step_work(ready.step, ran.phases)
    ledger = ready.counted.ledger
    return RunWork(ledger.total.macs, ledger.total.flops, ledger.macs_by_precision)


def _run_input_infos(ready: Runnable, ran: Ran) -> tuple[InputInfo, ...]:
    """Return name, dtype and shape of each input of the run, or of the counted model if the run
    has none.
    """
    if ran.inputs:
        return tuple(InputInfo(name, spec.dtype, spec.shape) for name, spec in ran.inputs.items())
    specs = ready.counted.graph.inputs
    return tuple(InputInfo(spec.name, spec.dtype, spec.shape or ()) for spec in specs)


def default_thread_count() -> int:
    """Return the number of threads to use: OMP_NUM_THREADS, else the number of CPUs that this
    process may use.
    """
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads):
        return int(threads)
    return usable_cpus()


# What a trace that is read leaves no room for.

_OF_RUNS = {"batches": "--batch", "batch_dim": "--batch-dim", "max_latency_ms": "--max-latency-ms",
            "write_trace": "--write-trace", "memory": "--memory-limit", "threads": "--threads",
            "runtime": "--runtime", "train": "--train", "optimizer": "--optimizer",
            "optimization": "--optimization", "limits": "--seconds",
            "timeout": "--timeout"}  # fmt: skip


def _check_trace_options(conditions: Conditions, request: Request) -> None:
    """Raise InputError if an option is given that has no effect when a trace is read."""
    usual = Conditions()
    flag = next(
        (f for name, f in _OF_RUNS.items() if getattr(conditions, name) != getattr(usual, name)),
        None,
    )
    if flag is None and request.inputs_file:
        raise InputError(
            "--inputs has no effect with --trace, which runs nothing",
            "give the shapes with --input instead",
        )
    if flag is not None:
        raise InputError(
            f"{flag} has no effect with --trace, which runs nothing", "leave out one of the two"
        )


# What this machine can do, as the denominator of what ran on it.

_DTYPES = {  # precision of a peak -> that of the count
    "fp32": "float32",
    "fp64": "float64",
    "fp16": "float16",
    "bf16": "bfloat16",
    "int8": "int8",  # with signs and without
}


def machine_peak_or_reason(threads: int, ignore_stored: bool = False) -> BenchPeak | str:
    """Return the measured peak of this machine with this number of threads, or a text why it has
    none.

    Measured with all CPUs, and its FP32 rate with one: with fewer than all, and more than one, the
    rate of one times their number is taken, which is the most that they can do. With
    `ignore_stored` a stored peak is not used.
    """
    from crossflops.hardware.peaks import load_or_measure_peak

    try:
        machine = load_or_measure_peak(measure_anew=ignore_stored)
    except CrossflopsError as error:
        return error.message
    rates = {_DTYPES[name]: rate for name, rate in machine.peaks.items() if name in _DTYPES}
    source = f"measured on this machine with {machine.threads} threads: {machine.how}"
    if threads < machine.threads:
        if machine.one_thread is None:
            return f"it was measured only with {machine.threads} threads"
        share = machine.one_thread * threads / rates["float32"]
        rates = {name: rate * share for name, rate in rates.items()}
        source = (
            f"measured on this machine with one thread and multiplied by {threads}: {machine.how}"
        )
    return BenchPeak(
        rates=rates, bandwidth=machine.bandwidth, source=source, is_peak=machine.is_peak
    )


def max_peaks(first: BenchPeak, other: BenchPeak) -> BenchPeak:
    """Return a peak that has for each precision the higher FLOP/s of two measurements."""
    rates = {name: max(rate, other.rates.get(name, 0.0)) for name, rate in first.rates.items()}
    return BenchPeak(
        rates=rates, bandwidth=first.bandwidth, source=first.source, is_peak=first.is_peak
    )


RULE = "rates are 2 x MACs / seconds; additions, activations and other work are not in the rates"
_OF_STEPS = "the loss is the sum of all float outputs; MFU leaves out recomputed work"


def with_kernel_times(
    bench: Bench, ready: Runnable, ran: Ran, provided: BenchPeak | None
) -> Bench:
    """Return a copy of the result with kernel times, assumptions, warnings and errors; the peak is
    `provided` or measured.

    Without a peak that is given, that of this machine is taken; where a kernel or a whole run was
    faster, it is measured once more, since the machine may have been busy the first time.
    """
    warnings = [*_bench_warnings(bench, ready, ran), *_thread_count_warnings(bench.threads)]
    peak = provided
    if peak is None:
        measured = machine_peak_or_reason(bench.threads)
        peak = None if isinstance(measured, str) else measured
        warnings += [f"no measured peak: {measured}"] if isinstance(measured, str) else []
    account = _with_peak_kernels_and_phases(bench, ready, ran, peak)
    if provided is None and peak is not None and _is_above_peak(account):
        again = machine_peak_or_reason(bench.threads, ignore_stored=True)
        peak = peak if isinstance(again, str) else max_peaks(peak, again)
        account = _with_peak_kernels_and_phases(bench, ready, ran, peak)
    errors = [
        *batch_rate_errors(account),
        *(kernel_time_errors(account.profile, peak) if account.profile else ()),
    ]
    if account.profile is not None and account.profile.covered < COVERED:
        warnings.append(_coverage_warning(account.profile))
    steps = [_OF_STEPS] if ready.step is not None else []
    return msgspec.structs.replace(
        account,
        errors=tuple(errors),
        assumptions=(
            RULE,
            *steps,
            *ready.notes,
            *([f"peak: {peak.source}"] if peak else []),
        ),
        warnings=tuple(warnings),
    )


def _thread_count_warnings(threads: int) -> list[str]:
    """Return a list with one warning if the run has more threads than this process has CPUs, else
    [].
    """
    known = usable_cpus()
    if threads <= known:
        return []
    return [
        f"{threads} threads share {known} processors, which makes runs slower and less "
        f"stable: use --threads {known} or fewer"
    ]


def _with_peak_kernels_and_phases(
    bench: Bench, ready: Runnable, ran: Ran, peak: BenchPeak | None
) -> Bench:
    """Return a copy of the result with the peak, the kernel times as shares of it, and the phases
    of a training step.
    """
    profile, measurement = (
        _kernel_profile_of_run(ready, ran, peak) if ran.profile else None,
        bench.measurement,
    )
    if profile is not None and measurement is not None:
        longer = min(
            max(profile.run_seconds - measurement.p50, 0.0), max(profile.outside_seconds, 0.0)
        )
        profile = msgspec.structs.replace(profile, profiler_seconds=longer)
    bench = msgspec.structs.replace(bench, peak=peak, profile=profile)
    if ready.step is None or ran.phases is None or measurement is None:
        return bench
    step = build_bench_step(ready.step, ran.phases, measurement, peak)
    return msgspec.structs.replace(bench, step=step)


def _is_above_peak(bench: Bench) -> bool:
    """Return whether the run or one of its kernels is faster than the peak."""
    return bool(bench.above_peak or (bench.profile and bench.profile.above_peak))


def _coverage_warning(profile: KernelProfile) -> str:
    """Return the warning that says, in percent, how much of the run time is in kernels of counted
    nodes and where the rest is.
    """
    rest = profile.run_seconds - profile.profiler_seconds
    added = 100 * profile.added_seconds / rest
    between = 100 * max(profile.outside_seconds - profile.profiler_seconds, 0.0) / rest
    return (
        f"counted nodes cover {100 * profile.covered:.1f} % of the run time; {added:.1f} % is "
        f"in kernels inserted by the runtime, {between:.1f} % in gaps between kernels "
        "(relatively large for short runs)"
    )


def _bench_warnings(bench: Bench, ready: Runnable, ran: Ran) -> Iterator[str]:
    """Yield the warnings about a run: missing kernel times, unstable times, uncounted nodes."""
    yield from ran.notes
    if not ran.profile and ran.phases is None:
        yield f"no times of kernels: {ran.runtime} does not report which nodes its time belongs to"
    measurement = bench.measurement
    if measurement is not None and not measurement.settled:
        yield (
            "the run times did not become stable: the machine is busy, or there were too few runs"
        )
    uncounted: set[str] = {node.node.key for node in ready.counted.ledger.uncounted}
    if ready.step is not None:
        yield from step_timing_notes(ready.step, ran.phases)
        if ready.step.training:
            uncounted |= {row.node for row in ready.step.training.uncounted}
    if uncounted:
        yield f"{len(uncounted)} nodes are not counted and are not in the rates"


def _ledger_with_dead_nodes(counted: CountedModel) -> Ledger:
    """Return a copy of the ledger that also has the nodes without effect on an output, with a cost
    of 0.
    """
    dead = (
        msgspec.structs.replace(row, cost=ZERO) if isinstance(row, CountedNode) else row
        for row in count_dead(counted.graph)
    )
    return Ledger(counted.ledger.digest, (*counted.ledger.counts, *dead))


def _kernel_profile_of_run(ready: Runnable, ran: Ran, peak: BenchPeak | None) -> KernelProfile:
    """Return the kernel times of a profiled run, with the counted nodes of each kernel and its
    FLOP/s.
    """
    assert ran.profile is not None
    trace, ledger = read_trace_events(ran.profile), _ledger_with_dead_nodes(ready.counted)
    source = f"the profile of {ran.runtime}"
    if ran.graph is None:
        calls = match_torch_operators(trace, ready.counted.trace, ran.dropped)
        return build_kernel_profile(calls.kernels, calls.covers, ledger, peak, source)
    times = mean_kernel_times(trace, ran.dropped)
    level = name_executed_nodes(
        read_graph(ran.graph), [(kernel.name, kernel.op) for kernel in times.kernels]
    )
    joined = match_nodes_to_kernels(ready.counted.graph.with_all_nodes_of_file.nodes, level)
    return build_kernel_profile(times, joined, ledger, peak, source)


# A trace that somebody wrote before -> the time of its kernels beside the count of a model.

_OWN = "torch"


def read_trace(request: Request, trace: str, peak: BenchPeak | None = None) -> Bench:
    """Return the result of `bench` for a trace file of onnxruntime or torch: kernel times of the
    counted nodes; nothing is run.

    Nothing is run, but onnxruntime, where it is there, is asked which graph it makes of the file:
    only that tells the kernels which it puts in. Raises InputError for what is no such trace.
    """
    traced = read_trace_events(trace)
    if not is_onnxruntime_trace(traced) and not is_torch_trace(traced):
        raise InputError(
            f"the trace {trace} contains neither onnxruntime kernels nor PyTorch operators",
            "give a profile of onnxruntime, or a trace of torch.profiler",
        )
    if request.is_file and not is_onnxruntime_trace(traced):
        raise InputError(
            "a trace of PyTorch cannot be matched with an ONNX file, which does not record the "
            "PyTorch operator of each node",
            "give the PyTorch model as file.py:callable",
        )
    with tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True) as folder:
        ready = prepare_runnable(request, folder, ONNX if is_onnxruntime_trace(traced) else _OWN)
        profile, notes = _match_trace_kernels(ready, traced, trace, peak)
    return _bench_from_trace(ready, profile, notes, trace, peak)


class TraceProfile(NamedTuple):
    """The kernels of a saved trace with their counted nodes, and how they were matched."""

    kernels: KernelProfile
    notes: tuple[str, ...]


def _match_trace_kernels(
    ready: Runnable, traced: list[dict[str, Any]], trace: str, peak: BenchPeak | None
) -> TraceProfile:
    """Return the kernel times of a saved trace with their counted nodes."""
    ledger = _ledger_with_dead_nodes(ready.counted)
    if not is_onnxruntime_trace(traced):
        calls = match_torch_operators(traced, ready.counted.trace, 0)
        profile = build_kernel_profile(calls.kernels, calls.covers, ledger, peak, trace)
        return TraceProfile(profile, ())
    times = mean_kernel_times(traced, 0)
    level, note = _find_executed_graph(ready, times)
    joined = match_nodes_to_kernels(ready.counted.graph.with_all_nodes_of_file.nodes, level)
    return TraceProfile(build_kernel_profile(times, joined, ledger, peak, trace), (note,))


class GraphChoice(NamedTuple):
    """The graph that onnxruntime is taken to have run, and a note on why."""

    graph: ExecutedGraph
    note: str


def _find_executed_graph(ready: Runnable, times: KernelTimes) -> GraphChoice:
    """Return the graph of the onnxruntime optimization level that has most of the kernels."""
    ran = [(kernel.name, kernel.op) for kernel in times.kernels]
    names = {name for name, _ in ran}
    best: tuple[int, str, ExecutedGraph] | None = None
    for optimization in LEVELS:
        level = _save_graph_at_level(ready, optimization)
        if level is None:
            break
        level = name_executed_nodes(level, ran)
        same = len(names & {node.name for node in level.all_nodes()})
        if best is None or same > best[0]:
            best = (same, optimization, level)
        if same == len(names):
            break
    if best is None or 2 * best[0] < len(names):
        note = (
            "kernels are matched to nodes by name only, because the graph of no optimization "
            "level of onnxruntime has these names"
        )
        return GraphChoice(guess_executed_graph(ready.counted.graph.nodes, ran), note)
    note = (
        f"the graph of optimization level {best[1]} matches best: it has {best[0]} of "
        f"{len(names)} kernels"
    )
    return GraphChoice(best[2], note)


def _save_graph_at_level(ready: Runnable, optimization: str) -> ExecutedGraph | None:
    """Return the graph to which onnxruntime optimizes the model at this level, without running it;
    None if that fails.
    """
    order = FileOrder(
        path=ready.path, dims=ready.dims, specs=ready.specs, allocated=ready.hollow,
        batch=ready.batch_size, optimization=optimization, threads=1, unrun=True,
        folder=ready.folder,
    )  # fmt: skip
    try:
        ran = run(order, TIMEOUT, ready.folder)
    except CrossflopsError:  # no onnxruntime here
        return None
    return read_graph(ran.graph) if isinstance(ran, Ran) and ran.graph else None


def _bench_from_trace(
    ready: Runnable,
    profile: KernelProfile,
    notes: Sequence[str],
    trace: str,
    peak: BenchPeak | None,
) -> Bench:
    """Return the result of `bench` for a saved trace: the count and the kernel times, without run
    times.
    """
    graph, ledger = ready.counted.graph, ready.counted.ledger
    inputs = tuple(InputInfo(spec.name, spec.dtype, spec.shape or ()) for spec in graph.inputs)
    assumptions = (RULE, *ready.notes, *notes, *([f"peak: {peak.source}"] if peak else []))
    bench = Bench(
        model=ModelInfo(name=graph.name, digest=graph.digest, inputs=inputs, opset=graph.opset),
        batch=ready.batch_size,
        macs=ledger.total.macs,
        flops=ledger.total.flops,
        macs_by_precision=ledger.macs_by_precision,
        runtime=f"trace {trace}",
        device="",
        threads=0,
        curve=(),
        peak=peak,
        profile=profile,
        assumptions=assumptions,
        errors=tuple(kernel_time_errors(profile, peak)),
    )
    if profile.macs == bench.macs and profile.named_seconds:
        return bench
    warning = (
        "no kernel of the trace matches a node of this model; check that the trace is "
        "of this model"
    )
    return msgspec.structs.replace(bench, warnings=(warning,))
