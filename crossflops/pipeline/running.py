"""One run fills in what shapes do not tell: of a file with `--observe`, of a converted model."""

import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from crossflops.core.observation import Observation, Run
from crossflops.core.tensor import TensorSpec
from crossflops.errors import InputError
from crossflops.normalize import Source
from crossflops.normalize.inputs import MADE_UP, from_archive
from crossflops.normalize.onnx_file import OnnxFile
from crossflops.normalize.request import Request

_UNASKED = 120.0  # seconds for a run that nobody asked for: a loop need not end
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


def run_of_bytes(data: bytes, feeds: Mapping[str, Any]) -> Observation:
    """What a run of an ONNX model on these arrays shows, by input name; others are made up.

    Raises what `measure` raises.
    """
    import numpy as np

    from crossflops.measure.observing import observe

    with tempfile.TemporaryDirectory(prefix="crossflops-") as folder:
        model, inputs = Path(folder, "model.onnx"), Path(folder, "inputs.npz")
        model.write_bytes(data)
        with zipfile.ZipFile(inputs, "w") as archive:
            for name, array in feeds.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
        given = str(inputs) if feeds else None
        return observe(str(model), inputs_file=given, seconds=_UNASKED)
