"""One tool in one process: `python -m crossflops.workers.worker`, started by `pool`.

It reads an Order, loads the tool, builds the model, says `ready`, and waits for `go`, because the
prediction has to be fixed before the tool starts. Its answer is a Profile or a Failure. The
conversation is that of all processes beside this one (`crossflops.workers.conversation`).

A worker that a warm parent forked (`crossflops.workers.parent`) has its tool and its model
already, and holds the rest of the same conversation.
"""

import contextlib
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET

from crossflops.errors import ValuesNeededError, print_traceback
from crossflops.frontends import Source, frontend_of
from crossflops.ir.profile import Failure, Profile
from crossflops.ir.provenance import FAKE, META, REAL, WeightsKind
from crossflops.plugins import discovery
from crossflops.plugins.adapter import Adapter
from crossflops.plugins.failures import Stage, tool_failure
from crossflops.workers import jobs
from crossflops.workers.conversation import Wait, serve_order
from crossflops.workers.jobs import Job, Order
from crossflops.workers.observe import model_kind_failure, observe_tool

_TRY_VALUES = "it ran on fake tensors; use --weights real, if the weights fit in memory"


def main() -> None:
    """Read an order from stdin, run its tool, write the answer to a file, and exit."""
    serve_order(Order, _answer_order)


def _answer_order(order: Order, wait: Wait) -> Profile | Failure:
    """Run the job of an order with its import paths; return the profile of the tool, or its
    failure.
    """
    extend_import_path(order.paths)
    return answer_job(order.job, wait)


def answer_job(job: Job, wait: Wait) -> Profile | Failure:
    """Load the tool of a job, build the model, wait, then run the tool; return its profile or
    failure.
    """
    stage: Stage = "load"
    hint = ""
    try:
        adapter = find_job_adapter(job)
        if isinstance(adapter, Failure):
            return adapter
        with pausing_garbage_collection():
            adapter.load()
        stage, hint = "build", build_failure_hint(job)
        source = build_job_source(job)
    except BaseException as problem:  # a tool may well call sys.exit
        print_traceback(problem)
        return tool_failure(job.tool, stage, problem, hint)
    return run_when_permitted(job, wait, adapter, source)


def run_when_permitted(
    job: Job, wait: Wait, adapter: Adapter, source: Source
) -> Profile | Failure:
    """Wait for permission, then run the loaded tool on the model; return its profile or failure.

    Where values turn out to be needed, on one that is built with them, if nobody forbade it.
    """
    stage: Stage = "build"
    hint = build_failure_hint(job)
    try:
        adapter = _with_user_formulas(job, adapter)
        if not adapter.accepts(source.model):
            return model_kind_failure(adapter, source.model)
        wait()
        stage, hint = "run", _TRY_VALUES if source.weights == FAKE else ""
        try:
            return _observe_job(job, adapter, source)
        except ValuesNeededError as error:
            if job.target is None or job.weights is not None:
                raise
            reason = error.reason
        stage, hint = "build", build_failure_hint(job)
        source = build_job_source(msgspec.structs.replace(job, weights=REAL))
        stage, hint = "run", ""
        again = _observe_job(job, adapter, source)
        return msgspec.structs.replace(again, weights=WeightsKind(REAL, reason))
    except BaseException as problem:  # a tool may well call sys.exit
        print_traceback(problem)
        return tool_failure(job.tool, stage, problem, hint)


def _with_user_formulas(job: Job, adapter: Adapter) -> Adapter:
    """Return the adapter with the caller's formulas, if the job says that its tool gets some."""
    if not job.taught:
        return adapter
    from crossflops.operators.formula_sources import load_formulas_for_process
    from crossflops.plugins.teaching import teach_adapter

    load_formulas_for_process(job.formulas)
    return teach_adapter(adapter, job.taught)


def _observe_job(job: Job, adapter: Adapter, source: Source) -> Profile:
    """Run the tool of a job on the model, and return its profile."""
    setting = msgspec.structs.replace(job.setting, fake=source.weights == FAKE or UNSET)
    return observe_tool(adapter, source.model, source.args, source.kwargs, setting)


def build_job_source(job: Job) -> Source:
    """Return the model of a job with its positional and keyword inputs."""
    if job.onnx_path is not None:
        return Source(Path(job.onnx_path), (), {})
    if job.pickle_path is not None:
        return _unpack_job_source(job)
    if job.target is None:
        raise ValueError("the job has neither a target nor a pickle")
    from crossflops import targets
    from crossflops.targets import weights

    def load_job_model(values: bool) -> Source:
        """Return the model of the job, built from its target; `values` says whether its weights
        get values.
        """
        return targets.load_target_source(
            job.target or "",
            job.arguments,
            job.inputs,
            job.inputs_file,
            job.allow_pickle,
            sizes=job.sizes,
            values=values,
        )

    return weights.build_source_and_reason_for_values(load_job_model, job.weights)[0]


def _unpack_job_source(job: Job) -> Source:
    """Return the caller's model from its file, with fake weights if the job requests them."""
    source = Source(*jobs.read_model_contents(Path(job.pickle_path or "")))
    frontend = frontend_of(source.model)
    if job.weights != FAKE or frontend is None:
        return source
    return frontend.to_fake_source(msgspec.structs.replace(source, weights=META))


def build_failure_hint(job: Job) -> str:
    """Return the remedy if the model of a job cannot be built; "" for the usual one."""
    return jobs.HINT if job.pickle_path else ""


def find_job_adapter(job: Job) -> Adapter | Failure:
    """Return the adapter that the job names, else that of the plugin of its tool; a failure if it
    cannot be loaded.
    """
    if job.adapter is None:
        return discovery.load_plugin_adapter(job.tool)
    return discovery.load_adapter_from_path(job.tool, job.adapter)


@contextlib.contextmanager
def pausing_garbage_collection() -> Iterator[None]:
    """Pause garbage collection during imports, since all objects that they make stay.

    Looking for some after every 700 objects takes a third of the time. A fork, too, shares only
    what its collector leaves alone: https://docs.python.org/3/library/gc.html#gc.freeze
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def extend_import_path(paths: tuple[str, ...]) -> None:
    """Append these folders to sys.path, except those that are in it."""
    sys.path.extend(path for path in paths if path not in sys.path)


if __name__ == "__main__":
    main()
