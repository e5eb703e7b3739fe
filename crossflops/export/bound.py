"""A copy of an ONNX file in which the sizes of the inputs are numbers."""

from pathlib import Path

from crossflops.errors import TargetError
from crossflops.export.program import LIMIT
from crossflops.normalize.onnx_file import OnnxFile
from crossflops.normalize.onnx_file.binding import bind


def save_bound(file: OnnxFile, target: Path) -> list[Path]:
    """Write the model with its weights, its inputs of the sizes that `file` binds.

    Raises InputError as `bind` does, TargetError where the file or its data cannot be read.
    """
    import onnx

    try:
        model = onnx.load(file.path)
    except Exception as error:
        what = f"{file.path} cannot be read with its weights: {error}"
        raise TargetError(what, "see that its external data lies beside it") from error
    bind(model.graph, file.dims, file.specs, file.path)
    beside = f"{target.name}.data" if model.ByteSize() > LIMIT else None
    onnx.save(model, target, save_as_external_data=beside is not None, location=beside)
    return [target, *([target.with_name(beside)] if beside else [])]
