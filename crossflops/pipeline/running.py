"""`--observe`: one run of a file fills in what its shapes do not tell."""

import msgspec

from crossflops.core.observation import Run
from crossflops.core.tensor import TensorSpec
from crossflops.errors import InputError
from crossflops.normalize import Source
from crossflops.normalize.inputs import MADE_UP, from_archive
from crossflops.normalize.onnx_file import OnnxFile
from crossflops.normalize.request import Request

_DRAWS = "the file draws random numbers (from no seed): another run may have other sizes"


def seen(request: Request, inputs_file: str | None) -> tuple[Request, Run]:
    """The request with what a run of its file showed, and a note of that run.

    Raises InputError unless it is about an ONNX file, and what `measure` raises.
    """
    file = request.source().model if request.is_file else None
    if not isinstance(file, OnnxFile):
        raise InputError(
            "--observe runs an ONNX file, and this is none",
            "leave it out: a PyTorch model is run when it is exported",
        )
    from crossflops.measure.observing import observe

    found = observe(file.path, file.specs, dict(file.dims), inputs_file)
    specs = tuple(TensorSpec(name, one.dtype, one.shape) for name, one in found.inputs.items())
    settled = msgspec.structs.replace(file, dims={}, specs=specs, seen=found)
    request = msgspec.structs.replace(request, given=Source(settled, (), {}), dims={})
    values = MADE_UP
    if inputs_file is not None:
        others = found.inputs.keys() - from_archive(inputs_file).keys()
        values = f"{inputs_file}, {MADE_UP}" if others else inputs_file
    return request, Run(found.runtime, values, (_DRAWS,) if found.draws else ())
