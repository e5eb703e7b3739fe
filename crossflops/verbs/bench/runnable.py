"""A request -> the ONNX file that onnxruntime is given, at some batch, and its count."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import InputError, NormalizeError
from crossflops.frontends import Source
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.binding import model_inputs
from crossflops.ir.ledger import Counted as CountedNode
from crossflops.ir.tensor import TensorSpec
from crossflops.load import read
from crossflops.load.payload import filled
from crossflops.targets.request import Request
from crossflops.verbs.count import Counted, counted

# The same model at another batch size.


def at_batch(request: Request, batch: int, dim: str | None = None) -> Request:
    """The request with this batch size.

    Of an ONNX file that is the dimension `dim`; else the one name that stands first in inputs;
    else the first size of every input that has the first size of the first one. Of another target
    it is the first size of every input. Raises InputError where there is nothing to set.
    """
    if request.given is not None:
        raise InputError("the inputs of this model are given", "give shapes, as texts, instead")
    if not request.is_file:
        if dim is not None:
            raise InputError("--batch-dim is for ONNX files", "leave it out")
        return msgspec.structs.replace(request, specs=_scaled(request.specs, batch))
    assert request.target is not None
    inputs = model_inputs(read(request.target).graph)
    names = [dim] if dim else _named(inputs)
    if len(names) == 1:
        return msgspec.structs.replace(request, dims={**request.dims, names[0]: batch})
    if names:
        raise InputError(
            f"which dimension is the batch? inputs begin with {', '.join(names)}",
            f"say it: --batch-dim {names[0]}",
        )
    specs = {one.name: one for one in request.specs}
    given = [specs.get(one.name) or _spec(one) for one in inputs]
    return msgspec.structs.replace(request, specs=_scaled(given, batch))


def batch_of(inputs: Sequence[tuple[int, ...]]) -> int:
    """The batch size of inputs of these shapes: the first size of the first that has one."""
    return next((shape[0] for shape in inputs if shape), 1)


def _scaled(specs: Sequence[TensorSpec], batch: int) -> tuple[TensorSpec, ...]:
    """Every input that has the first size of the first one, with this size instead."""
    first = next((one.shape[0] for one in specs if one.shape), None)
    if first is None:
        raise InputError("no input has a batch to set", "give --input with a shape for each")
    return tuple(
        msgspec.structs.replace(one, shape=(batch, *one.shape[1:]))
        if one.shape and one.shape[0] == first
        else one
        for one in specs
    )


def _named(inputs: Sequence[Any]) -> list[str]:
    firsts = (value.type.tensor_type.shape.dim[:1] for value in inputs)
    return list(dict.fromkeys(dim.dim_param for dims in firsts for dim in dims if dim.dim_param))


def _spec(value: Any) -> TensorSpec:
    dims = value.type.tensor_type.shape.dim
    return TensorSpec(value.name, "", tuple(dim.dim_value for dim in dims))


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
    from crossflops.verbs.count import seen

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
