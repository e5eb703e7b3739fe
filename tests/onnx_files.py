"""ONNX files for tests, written in ONNX's own text form or built by hand."""

from pathlib import Path

import onnx

from crossflops.core.ledger import Ledger
from crossflops.core.trace import Setting
from crossflops.count import count
from crossflops.normalize.onnx_file import OnnxFile, normalize


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    """A model from the text form of a graph (and of functions behind it)."""
    imports = f'"": {opset}, "com.microsoft": 1, "local": 1'
    return onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> {text}")


def saved(folder: Path, model: onnx.ModelProto | bytes, name: str = "model.onnx") -> str:
    """The path of a file with that model, or those bytes."""
    file = folder / name
    file.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return str(file)


def graph_of(path: str, **options):
    """The graph of a file."""
    return normalize(OnnxFile(path=path, **options), Setting())[0]


def ledger_of(path: str, **options) -> Ledger:
    """The ledger of a file."""
    return count(graph_of(path, **options))
