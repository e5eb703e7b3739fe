"""`python -m crossflops.bench.bencher`: runs and times one model at one batch.

A process of its own, so that running out of memory ends no other process. The conversation with it
is that of all (`crossflops.workers.conversation`).
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from crossflops.bench import session
from crossflops.bench.session import fill_weights_with_random_values
from crossflops.bench.timing import (
    Answer,
    BenchLimits,
    FileOrder,
    ModelOrder,
    Order,
    Ran,
    Refusal,
    time_warm_runs,
)
from crossflops.errors import CrossflopsError, InputError, print_traceback
from crossflops.frontends import RunnableModel, Source, frontend_of, runtime_frontend
from crossflops.ir.measurement import Measurement, SteadyTensor, Unfit
from crossflops.plugins.failures import exception_text, says_memory_ran_out, shorten_line
from crossflops.targets.batch_arrays import arrays_of_inputs
from crossflops.workers.conversation import Wait, serve_order

_TRACED = 10  # runs under the profiler, where they are not short
PROFILED = BenchLimits(warmup=3, runs=_TRACED, fewest=3, seconds=5.0)
_MOST = 500  # runs under the profiler: short ones are disturbed by whatever else there is
_EVENTS = 50_000  # of a profile, about 20 MB
_SPAN = 1.0  # seconds that they may take together
_SAID = 300
_OUT_OF_MEMORY = "ran out of memory"


def main() -> None:
    """Read a bench order from stdin, run it, write its answer to a file, and exit."""
    serve_order(Order, answer_bench_order)


def answer_bench_order(order: Order, wait: Wait) -> Answer:
    """Run the model of an order; return its measurements, or why it cannot run."""

    def run_and_measure_order() -> Ran:
        """Run the model or the file of the order, and return what was measured."""
        return run_model(order) if isinstance(order, ModelOrder) else run_file(order)

    return run_to_answer(run_and_measure_order, order.batch)


def run_to_answer(run: Callable[[], Ran], batch: int) -> Answer:
    """Call `run` and return its measurements; if it raises an error, return the error as an
    answer.
    """
    try:
        return run()
    except CrossflopsError as error:
        print_traceback(error)
        return Refusal(error.message, error.hint)
    except MemoryError:
        return Unfit(batch=batch, stage="memory", message=_OUT_OF_MEMORY)
    except Exception as error:  # whatever the runtime raises is its word on the model
        print_traceback(error)
        message = exception_text(error)
        if says_memory_ran_out(message):
            return Unfit(batch=batch, stage="memory", message=_OUT_OF_MEMORY)
        return Unfit(batch=batch, stage="run", message=shorten_line(message, _SAID))


def run_file(order: FileOrder) -> Ran:
    """Run an ONNX file in onnxruntime and return its measurement, with a profile of its kernels if
    the order requests one.
    """
    module = session.import_onnxruntime()
    provided = arrays_of_inputs(order.inputs_file) if order.inputs_file else {}
    model = session.prepare_session_model(order.path, order.dims, order.specs, provided)
    session.make_node_names_unique(model.graph)
    if order.allocated:
        fill_weights_with_random_values(model)
    feeds = session.make_model_inputs(model, provided)
    data, nodes = session.to_model_bytes(model), len(model.graph.node)
    del model
    if order.unrun:
        return _save_executed_graph(module, order, data)
    config = f"InferenceSession.run, {order.threads} thread{'s' if order.threads > 1 else ''}, CPU"
    timing = Ran(
        runtime=f"onnxruntime {module.__version__}",
        device="cpu",
        inputs={
            name: SteadyTensor(str(value.dtype), value.shape) for name, value in feeds.items()
        },
        measurement=_time_session(module, order, data, feeds, config),
    )
    if not order.profiled:
        return timing
    return _profile_session(
        module, order, data, feeds, timing, _profiler_run_limits(timing, nodes)
    )


def _save_executed_graph(module: Any, order: FileOrder, data: bytes) -> Ran:
    """Save the graph that onnxruntime would run for the model bytes `data`, without running it;
    return where it is.
    """
    options = _order_session_options(module, order)
    graph = Path(order.folder, "optimized.onnx")
    session.set_optimized_graph_path(options, graph)
    module.InferenceSession(data, options, providers=session.PROVIDERS)
    name = f"onnxruntime {module.__version__}"
    return Ran(runtime=name, device="cpu", inputs={}, graph=str(graph))


def run_model(order: ModelOrder) -> Ran:
    """Run a model in its own framework and return its measurement, with a trace if the order
    requests one.
    """
    run = _prepare_framework_model(build_ordered_model(order), order)
    config = f"{run.how}, {order.threads} thread{'s' if order.threads > 1 else ''}"
    measurement = time_warm_runs(run.once, order.batch, time.perf_counter, order.limits, config)
    runs = min(_TRACED, max(PROFILED.fewest, int(PROFILED.seconds / measurement.p50)))
    return Ran(
        runtime=run.runtime,
        device=run.device,
        inputs={},
        measurement=measurement,
        profile=run.trace(runs + 1, order.trace) if order.trace else None,
        dropped=1,
        notes=tuple(filter(None, [run.note()])),
    )


def build_ordered_model(order: ModelOrder) -> Source:
    """Build the model of an order in this process, and return it with its inputs."""
    from crossflops import targets

    sys.path.extend(path for path in order.paths if path not in sys.path)
    runtime_frontend(order.runtime).limit_threads(order.threads)
    return targets.load_target_source(
        order.target,
        order.arguments,
        order.specs,
        order.inputs_file,
        order.allow_pickle,
        sizes=order.sizes,
    )


def _prepare_framework_model(source: Source, order: ModelOrder) -> RunnableModel:
    """Return the model in a form that can be run in its own framework. Raises InputError if the
    order names another one.
    """
    frontend = frontend_of(source.model)
    framework = frontend.runtime if frontend is not None else ""
    if frontend is None or framework != order.runtime:
        raise InputError(
            f"--runtime {order.runtime} cannot run this model"
            + (f"; its own framework is {framework}" if framework else ""),
            f"give --runtime {framework}" if framework else "leave out --runtime",
        )
    return frontend.prepare_run(source, order.threads, order.setting)


def _time_session(
    module: Any, order: FileOrder, data: bytes, feeds: dict[str, Any], mode: str
) -> Measurement:
    """Return the measurement of an onnxruntime session of the model bytes `data`, run on these
    inputs.
    """
    ready = module.InferenceSession(
        data, _order_session_options(module, order), providers=session.PROVIDERS
    )

    def run_session() -> None:
        """Run the onnxruntime session once on the inputs."""
        ready.run(None, feeds)

    return time_warm_runs(run_session, order.batch, time.perf_counter, order.limits, mode)


def _profiler_run_limits(timing: Ran, nodes: int) -> BenchLimits:
    """Return the limits of the runs under the profiler: more runs if a run is short, but not too
    many events.
    """
    took = timing.measurement.p50 if timing.measurement is not None else _SPAN
    requested = min(_MOST, int(_SPAN / took) if took else _MOST, _EVENTS // max(1, nodes))
    return PROFILED._replace(runs=max(_TRACED, requested))


def _profile_session(
    module: Any,
    order: FileOrder,
    data: bytes,
    feeds: dict[str, Any],
    timing: Ran,
    limits: BenchLimits,
) -> Ran:
    """Return the timed answer extended by a profile of further runs and by the graph that ran."""
    options = _order_session_options(module, order)
    graph = Path(order.folder, "optimized.onnx")
    session.set_optimized_graph_path(options, graph)
    options.enable_profiling = True
    options.profile_file_prefix = str(Path(order.folder, "profile"))
    ready = module.InferenceSession(data, options, providers=session.PROVIDERS)

    def run_under_profiler() -> None:
        """Run the onnxruntime session once on the inputs, with its profiler on."""
        ready.run(None, feeds)

    runs = time_warm_runs(run_under_profiler, order.batch, time.perf_counter, limits)
    return msgspec.structs.replace(
        timing, profile=ready.end_profiling(), graph=str(graph), dropped=runs.warmup
    )


def _order_session_options(module: Any, order: FileOrder) -> Any:
    """Return onnxruntime session options with the threads and the optimization level of
    the order.
    """
    folder = str(Path(order.path).resolve().parent)
    return session.build_session_options(module, folder, order.threads, order.optimization)


if __name__ == "__main__":
    main()
