"""Element types that onnx-tool has no name for: it reads them, or not, by how they are stored."""

import onnx
import pytest
from crossflops_onnx_tool import OnnxTool
from onnx import TensorProto, helper

from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.reading import normalize_onnx_file
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count_nodes_with_their_bodies
from crossflops.rules.prediction import PredictionError, predict_nodes
from crossflops.tools.registry import find_convention

pytestmark = pytest.mark.tools
BITS = {"INT4": 4, "UINT4": 4, "FLOAT8E4M3FN": 8, "FLOAT8E5M2": 8, "INT8": 8, "UINT8": 8}


def saved(folder, name, raw, rows=16):
    """A weight of `rows` x 32 behind DequantizeLinear, times 4 rows."""
    kind, shape = getattr(TensorProto, name), (rows, 32)
    weight = TensorProto(name="w", data_type=kind, dims=shape)
    if raw:
        weight.raw_data = bytes(rows * 32 * BITS[name] // 8)
    else:
        weight = helper.make_tensor("w", kind, shape, [0.0] * (rows * 32))
    scale = helper.make_tensor("s", TensorProto.FLOAT, (), [0.1])
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    tensor = helper.make_tensor_value_info
    inputs = [tensor("x", TensorProto.FLOAT, (4, rows))]
    outputs = [tensor("y", TensorProto.FLOAT, (4, 32))]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weight, scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = folder / f"{name}_{raw}_{rows}.onnx"
    onnx.save(model, path)
    return path


def predicted(path):
    """Return what onnx-tool should print of a file; None where it should fail."""
    graph, _ = normalize_onnx_file(OnnxFile(path=str(path), inlined=False), Setting())
    try:
        return predict_nodes(
            find_convention("onnx-tool"), graph, count_nodes_with_their_bodies(graph)
        ).total
    except PredictionError:
        return None


def printed(path):
    """Return what it prints; None where it raises."""
    try:
        return OnnxTool().profile(path, (), {}, Setting()).total
    except Exception:  # it raises whatever numpy does
        return None


ROWS = pytest.mark.parametrize("rows", [16, 128])  # a large payload is not read with a model


@ROWS
@pytest.mark.parametrize("name", BITS)
def test_listed_elements_are_read(name, rows, tmp_path):
    """4 MACs and 2 of DequantizeLinear for each element of the weight."""
    path = saved(tmp_path, name, raw=False, rows=rows)
    assert printed(path) == predicted(path) == (4 + 2) * rows * 32


@ROWS
@pytest.mark.parametrize("name", BITS)
def test_raw_bytes_of_a_type_without_a_name_fail(name, rows, tmp_path):
    """They are taken for floats of eight bytes, and do not fill the shape."""
    path = saved(tmp_path, name, raw=True, rows=rows)
    expected = (4 + 2) * rows * 32 if name in ("INT8", "UINT8") else None
    assert printed(path) == predicted(path) == expected
