"""An ONNX file -> its graph, and the table of the modules that its nodes tell of."""

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
from crossflops.load.protobuf import decode_error, parse_model_proto

_REPORT = (
    "the conversion to ONNX failed, not the model: please report it, with a model that shows it"
)


def normalize(file: OnnxFile, setting: Setting) -> tuple[Graph, Trace]:
    """The graph of a file, and a trace without calls: a file does not say who called what.

    Modules are those that torch.onnx notes, else those that node names with slashes tell of,
    else the root alone. Raises TargetError, InputError, NormalizeError.
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
    """As `normalize`, of a model that was converted to ONNX in memory, with definite shapes.

    `has_dead` says that the converter writes work on which no result depends.

    Raises NormalizeError for what would be wrong with a file: its user has none to mend.
    """
    file = OnnxFile(path=name, control=control, seen=seen)
    try:
        return _normalize_model(lambda: decode_onnx_model(data), file, setting, has_dead)
    except (TargetError, OperandError) as error:
        message = f"the graph that was made of {name} cannot be read: {error.message}"
        raise NormalizeError(message, _REPORT) from error


class OpenedFile:
    """A file that was read once, to be normalized at many sizes. Raises TargetError."""

    def __init__(self, file: OnnxFile) -> None:
        self._file = file
        self._bytes: bytes = read_onnx_model(file.path).SerializeToString()

    def graph_with_dims(self, dims: Mapping[str, int], setting: Setting) -> tuple[Graph, Trace]:
        """The graph with these dimensions. Raises InputError, NormalizeError, TargetError."""
        file = msgspec.structs.replace(self._file, dims=dims)
        return _normalize_model(
            lambda: parse_model_proto(self._bytes), file, setting, has_dead=True
        )


def _normalize_model(
    model: Callable[[], Any], file: OnnxFile, setting: Setting, has_dead: bool
) -> tuple[Graph, Trace]:
    """`model` reads the model anew: nobody else may hold it, so that it is gone when it can be.

    What is dead is looked for where the graph is not that of a program, whose own calls say so.
    """
    trace = Trace(calls=(), modules=(), setting=setting)
    try:
        made = PIPELINE.run(FileReading(read=model, file=file, trace=trace, has_dead=has_dead))
    except (RecursionError, decode_error()) as error:
        message = "functions, loops and branches lie too deep within one another"
        raise TargetError(message, "inline the functions with onnx.inliner") from error
    return made.current_graph, made.trace
