"""ONNX files for tests, written in ONNX's own text form or built by hand."""

from pathlib import Path

import numpy as np
import onnx

from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.reading import normalize_onnx_file
from crossflops.ir.graph import Control
from crossflops.ir.ledger import Ledger
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    """A model from the text form of a graph (and of functions behind it)."""
    imports = f'"": {opset}, "com.microsoft": 1, "local": 1'
    return onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> {text}")


def with_weights(text: str, *names: str, opset: int = 17) -> onnx.ModelProto:
    """A model whose inputs of these names are stored in the file."""
    model = parsed(text, opset)
    random = np.random.default_rng(0)
    for value in model.graph.input:
        if value.name in names:
            tensor = value.type.tensor_type
            dims = [dim.dim_value for dim in tensor.shape.dim]
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            data = random.normal(size=dims).astype(kind)
            model.graph.initializer.append(onnx.numpy_helper.from_array(data, value.name))
    for name in names:
        model.graph.input.remove(next(value for value in model.graph.input if value.name == name))
    return model


def saved(folder: Path, model: onnx.ModelProto | bytes, name: str = "model.onnx") -> str:
    """The path of a file with that model, or those bytes."""
    file = folder / name
    file.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return str(file)


def optimized(path: str, level: str) -> str:
    """The file that onnxruntime writes of the graph that it runs at a level of optimization."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = path.replace(".onnx", f".{level}.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return options.optimized_model_filepath


def graph_of(path: str, trips=None, branches=None, **options):
    """The graph of a file."""
    control = Control(trips or {}, branches or {})
    return normalize_onnx_file(OnnxFile(path=path, control=control, **options), Setting())[0]


def ledger_of(path: str, **options) -> Ledger:
    """The ledger of a file."""
    return count(graph_of(path, **options))


def shapes_of(
    folder: Path, inputs: str, node: str, outputs: str = "y", opset: int = 17
) -> list[tuple[tuple[int, ...] | None, str]]:
    """The shapes of the outputs of one node, none of which the file says."""
    model = parsed(f"g ({inputs}) => ({outputs}) {{ {outputs} = {node} }}", opset)
    for domain in ("com.microsoft.nchwc", "com.ms.internal.nhwc"):
        model.opset_import.add(domain=domain, version=1)
    (only,) = graph_of(saved(folder, model)).nodes
    return [(spec.shape, spec.dtype) for spec in only.outputs if spec]
