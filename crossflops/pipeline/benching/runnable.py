"""A request -> the ONNX file that onnxruntime is given, and the count of exactly that."""

from pathlib import Path

import msgspec

from crossflops.core.ledger import Counted as CountedNode
from crossflops.core.tensor import TensorSpec
from crossflops.errors import InputError, NormalizeError
from crossflops.load.hollow import filled
from crossflops.normalize import Source
from crossflops.normalize.onnx_file import OnnxFile
from crossflops.normalize.request import Request
from crossflops.pipeline.benching.batching import batch_of
from crossflops.pipeline.counting import Counted, counted

NAME = "model.onnx"
ONNX = "onnxruntime"


class Runnable(msgspec.Struct, frozen=True, kw_only=True):
    """A file, the sizes that are bound in it, and its count.

    Weights of a `hollow` one are there by shape alone. Files of runs go into `folder`.
    """

    path: str
    dims: dict[str, int]
    specs: tuple[TensorSpec, ...]
    batch: int
    counted: Counted
    folder: str
    hollow: bool = False
    notes: tuple[str, ...] = ()
    request: Request | None = None


def runnable(
    request: Request, inputs_file: str | None, folder: str, runtime: str = ONNX
) -> Runnable:
    """What is to be run. Raises what counting raises, and InputError where no file can be made."""
    source = request.source()
    if runtime != ONNX:
        return _own(request, source, folder, runtime)
    if isinstance(source.model, OnnxFile):
        return _file(request, source.model, inputs_file, folder)
    own = counted(source, request.setting, ())
    path, hollow = Path(folder, NAME), isinstance(own.program, bytes)
    if isinstance(own.program, bytes):
        path.write_bytes(filled(own.program))
    elif own.program is None:
        what = "the normalized file of such a model cannot be written yet"
        raise InputError(what, "convert the model to ONNX, and give the file")
    else:
        from crossflops.export import save_program

        save_program(own.program, path, {})
    notes = ("the weights are random: only their shapes are those of the model",) if hollow else ()
    return Runnable(
        path=str(path),
        dims={},
        specs=(),
        batch=batch_of([one.shape or () for one in own.graph.inputs]),
        counted=own,
        folder=folder,
        hollow=hollow,
        notes=notes,
    )


def _own(request: Request, source: Source, folder: str, runtime: str) -> Runnable:
    """A model that runs in its own framework: it is built again there, from its target."""
    if isinstance(source.model, OnnxFile):
        raise InputError(f"--runtime {runtime} runs no ONNX file", "leave --runtime out")
    if request.target is None:
        raise InputError("a worker builds the model afresh", "give a target, file.py:callable")
    own = counted(source, request.setting, ())
    return Runnable(
        path="",
        dims={},
        specs=request.specs,
        batch=batch_of([one.shape or () for one in own.graph.inputs]),
        counted=own,
        folder=folder,
        request=request,
    )


def _file(request: Request, file: OnnxFile, inputs_file: str | None, folder: str) -> Runnable:
    """A file as it is. What depends on data is counted as it runs."""
    notes: tuple[str, ...] = ()
    source = request.source()
    own = None if inputs_file else counted(source, request.setting, ())
    if own is None or _depends_on_data(own):
        own, note = _as_it_runs(request, inputs_file, own)
        notes = (note,)
    return Runnable(
        path=file.path,
        dims=dict(file.dims),
        specs=file.specs,
        batch=batch_of([one.shape or () for one in own.graph.inputs]),
        counted=own,
        folder=folder,
        notes=notes,
    )


def _as_it_runs(
    request: Request, inputs_file: str | None, otherwise: Counted | None
) -> tuple[Counted, str]:
    """The count with what one run shows, else, where nothing can be seen, the count there is."""
    from crossflops.pipeline.running import seen

    try:
        settled, run = seen(request, inputs_file)
    except NormalizeError as error:
        if otherwise is None:
            raise
        return otherwise, f"what depends on data is not known: {error.message}"
    own = counted(settled.source(), request.setting, ())
    return own, f"sizes, iterations and branches are those of a run on {run.inputs}"


def _depends_on_data(own: Counted) -> bool:
    return any(
        not isinstance(one, CountedNode) or one.exactness == "bound" for one in own.ledger.counts
    )
