"""A model at one batch size after the other, each in a worker of its own."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from crossflops.bench.benching import bench as run
from crossflops.bench.order import USUAL, FileOrder, Limits, ModelOrder, Order, Ran
from crossflops.errors import CrossflopsError
from crossflops.frontends import of_runtime
from crossflops.ir.measurement import Measurement, Unfit
from crossflops.targets.request import Request
from crossflops.verbs.bench.runnable import ONNX, Runnable, at_batch, runnable

_TRACE = "trace.json"
_BRIEF = Limits(warmup=1, runs=1, fewest=1)  # of a batch that was timed before


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is run. `memory` bounds a worker in bytes, `timeout` in seconds.

    `write_trace` is the file (.json) or the folder in which the trace of some runs is left.
    """

    runtime: str = ONNX
    optimization: str = "all"
    threads: int
    limits: Limits = USUAL
    memory: int | None = None
    timeout: float = 300.0
    inputs_file: str | None = None
    write_trace: str | None = None


class Attempts:
    """The model under these conditions. What ran is kept in `ran`, by batch."""

    def __init__(
        self, request: Request, conditions: Conditions, folder: str, dim: str | None
    ) -> None:
        self._request, self._conditions = request, conditions
        self._folder, self._dim = folder, dim
        self._ready: dict[int | None, Runnable] = {}
        self.ran: dict[int, Ran] = {}

    def runnable(self, batch: int | None) -> Runnable:
        """The model at a batch; None is that of its inputs."""
        if batch not in self._ready:
            request, how = self._request, self._conditions
            if batch is not None:
                request = at_batch(request, batch, self._dim)
            place = tempfile.mkdtemp(dir=self._folder)
            self._ready[batch] = runnable(request, how.inputs_file, place, how.runtime)
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
        found = run(order, how.timeout, ready.folder)
        if isinstance(found, Unfit):
            return found
        assert found.measurement is not None
        self.ran[ready.batch] = found
        if profiled and how.write_trace and found.profile:
            written(Path(found.profile), Path(how.write_trace))
        return found.measurement


def _file_order(ready: Runnable, how: Conditions, profiled: bool) -> Order:
    return FileOrder(
        path=ready.path,
        dims=ready.dims,
        specs=ready.specs,
        inputs_file=how.inputs_file,
        allocated=ready.hollow,
        batch=ready.batch,
        optimization=how.optimization,
        threads=how.threads,
        limits=how.limits,
        profiled=profiled,
        memory=how.memory,
        folder=ready.folder,
    )


def _model_order(ready: Runnable, how: Conditions, profiled: bool) -> Order:
    request = ready.request
    assert request is not None
    assert request.target is not None
    trace = (
        how.write_trace
        if of_runtime(how.runtime).traces_into_folder
        else str(Path(ready.folder, _TRACE))
    )
    return ModelOrder(
        target=request.target,
        arguments=request.arguments,
        specs=request.specs,
        inputs_file=request.inputs_file,
        allow_pickle=request.allow_pickle,
        setting=request.setting,
        runtime=how.runtime,
        batch=ready.batch,
        threads=how.threads,
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
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(trace, draft)
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        what = f"{target} cannot be written: {error.strerror or error}"
        raise CrossflopsError(what, "give another --write-trace") from error
    return target
