"""A request -> the ONNX file that onnxruntime is given, at some batch, and its count."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import InputError, NormalizeError
from crossflops.frontends import Source
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.binding import model_inputs
from crossflops.ir.graph import TensorSpec
from crossflops.ir.ledger import Counted as CountedNode
from crossflops.load import read
from crossflops.targets.request import Request
from crossflops.verbs.count import CountedModel, counted, seen, write_program

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
    specs = {spec.name: spec for spec in request.specs}
    given = [specs.get(spec.name) or _spec(spec) for spec in inputs]
    return msgspec.structs.replace(request, specs=_scaled(given, batch))


def batch_of(inputs: Sequence[tuple[int, ...]]) -> int:
    """The batch size of inputs of these shapes: the first size of the first that has one."""
    return next((shape[0] for shape in inputs if shape), 1)


def _scaled(specs: Sequence[TensorSpec], batch: int) -> tuple[TensorSpec, ...]:
    """Every input that has the first size of the first one, with this size instead."""
    first = next((spec.shape[0] for spec in specs if spec.shape), None)
    if first is None:
        raise InputError("no input has a batch to set", "give --input with a shape for each")
    return tuple(
        msgspec.structs.replace(spec, shape=(batch, *spec.shape[1:]))
        if spec.shape and spec.shape[0] == first
        else spec
        for spec in specs
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
    """A model, its count, and what runs: a file with sizes bound in it, or the request's target.

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

    @property
    def batch(self) -> int:
        """The first size of the first input that has one."""
        return batch_of([spec.shape or () for spec in self.counted.graph.inputs])


def runnable(request: Request, folder: str, runtime: str = ONNX) -> Runnable:
    """What is to be run. Raises what counting raises, and InputError where no file can be made."""
    source = request.source()
    if runtime != ONNX:
        return _in_its_framework(request, source, folder, runtime)
    if isinstance(source.model, OnnxFile):
        return _file(request, source, folder)
    native = counted(source, request.setting, ())
    path, hollow = Path(folder, NAME), isinstance(native.program, bytes)
    write_program(native, path, "convert the model to ONNX, and give the file")
    notes = ("the weights are random: only their shapes are those of the model",) if hollow else ()
    return Runnable(
        request=request, counted=native, folder=folder, path=str(path), hollow=hollow, notes=notes
    )


def _in_its_framework(request: Request, source: Source, folder: str, runtime: str) -> Runnable:
    """A model that runs in its own framework: it is built again there, from its target."""
    if isinstance(source.model, OnnxFile):
        raise InputError(f"--runtime {runtime} runs no ONNX file", "leave --runtime out")
    if request.given is not None:
        raise InputError("a worker builds the model afresh", "give a target, file.py:callable")
    return Runnable(request=request, counted=counted(source, request.setting, ()), folder=folder)


def _file(request: Request, source: Source, folder: str) -> Runnable:
    """A file as it is. What depends on data is counted as it runs."""
    notes: tuple[str, ...] = ()
    file = source.model
    native = None if request.inputs_file else counted(source, request.setting, ())
    if native is None or _depends_on_data(native):
        native, note = _as_it_runs(request, native)
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


def _as_it_runs(request: Request, otherwise: CountedModel | None) -> tuple[CountedModel, str]:
    """The count with what one run shows, else, where nothing can be seen, the count there is."""
    try:
        settled, run = seen(request)
    except NormalizeError as error:
        if otherwise is None:
            raise
        return otherwise, f"what depends on data is not known: {error.message}"
    native = counted(settled.source(), request.setting, ())
    return native, f"sizes, iterations and branches are those of a run on {run.inputs}"


def _depends_on_data(native: CountedModel) -> bool:
    return any(
        not isinstance(count, CountedNode) or count.exactness == "bound"
        for count in native.ledger.counts
    )
