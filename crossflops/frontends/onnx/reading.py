"""Turn an ONNX file, or a converted model in memory, into its graph and table of modules."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from crossflops.errors import NormalizeError, OperandError, TargetError
from crossflops.frontends.onnx.binding import OnnxFile
from crossflops.frontends.onnx.passes import PIPELINE, FileReading
from crossflops.ir.graph import Control, Graph
from crossflops.ir.measurement import Observation
from crossflops.ir.trace import Setting, Trace
from crossflops.load import beside, decode_onnx_model, read_onnx_model
from crossflops.load.protobuf import parse_model_proto, protobuf_decode_error_class

_REPORT = (
    "the conversion to ONNX failed, not the model: please report it, with a model that shows it"
)


def normalize_onnx_file(file: OnnxFile, setting: Setting) -> tuple[Graph, Trace]:
    """Return the graph of a file, and a trace with its modules but without calls.

    Modules come from the notes of torch.onnx, otherwise from node names with slashes, otherwise
    there is only the root. Raises TargetError, InputError, NormalizeError.
    """
    normalized = _normalize_model(lambda: read_onnx_model(file.path), file, setting, has_dead=True)
    beside.release_file_readers()
    return normalized


def normalize_onnx_bytes(
    data: bytes,
    name: str,
    setting: Setting,
    control: Control = Control(),
    seen: Observation | None = None,
    has_dead: bool = False,
) -> tuple[Graph, Trace]:
    """Return the graph and the trace of a converted ONNX model, given as bytes.

    `has_dead` means that the converter writes work that no result depends on.

    Raises NormalizeError where a file would raise TargetError: its user has no file to repair.
    """
    file = OnnxFile(path=name, control=control, seen=seen)
    try:
        return _normalize_model(lambda: decode_onnx_model(data), file, setting, has_dead)
    except (TargetError, OperandError) as error:
        message = f"the converted graph of {name} cannot be read: {error.message}"
        raise NormalizeError(message, _REPORT) from error


def normalize_written_model(
    read: Callable[[], Any], file: OnnxFile, setting: Setting
) -> tuple[Graph, Trace]:
    """Return the graph and the trace of a model that was written for a file of another format.

    `read` returns the checked model once, and no one else holds it; `file` names the file, and
    has the caller's sizes. Raises as `normalize_onnx_file`.
    """
    return _normalize_model(read, file, setting, has_dead=True)


class OpenedFile:
    """A file that is read once, and counted with many sizes of its inputs."""

    def __init__(self, file: OnnxFile) -> None:
        """Read the model of a file once, and keep its bytes without weights."""
        self._file = file
        self._bytes: bytes = read_onnx_model(file.path).SerializeToString()

    def graph_with_dims(self, dims: Mapping[str, int], setting: Setting) -> tuple[Graph, Trace]:
        """Return the file's graph and trace with these sizes. Raises an error if impossible."""
        file = msgspec.structs.replace(self._file, dims=dims)
        return _normalize_model(
            lambda: parse_model_proto(self._bytes), file, setting, has_dead=True
        )


def _normalize_model(
    model: Callable[[], Any], file: OnnxFile, setting: Setting, has_dead: bool
) -> tuple[Graph, Trace]:
    """Return the graph and the trace of the ONNX model that the function `model` returns.

    The caller must not hold the model, so that it can be released. Dead nodes are searched only
    where the graph is not that of a program, whose own calls show them.
    """
    trace = Trace(calls=(), modules=(), setting=setting)
    try:
        made = PIPELINE.run(FileReading(read=model, file=file, trace=trace, has_dead=has_dead))
    except (RecursionError, protobuf_decode_error_class()) as error:
        message = "functions, loops and branches are nested too deeply"
        raise TargetError(
            message,
            "inline the functions with onnx.inliner, and reduce the nesting of If, Loop and Scan",
        ) from error
    return made.current_graph, made.trace
