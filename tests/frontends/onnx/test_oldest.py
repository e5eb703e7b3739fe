"""The first versions of operators: their shapes follow, though ONNX infers none for them."""

import numpy as np
import onnx
import pytest
from onnx import helper

import crossflops
from tests.onnx_files import saved

PICTURE = {"x": (2, 3, 4, 5)}
PAIR = {"x": (2, 3, 4, 5), "b": (2, 3, 4, 5)}
WHOLE = (
    *("Abs", "Ceil", "Clip", "Elu", "Exp", "Floor", "HardSigmoid", "LeakyRelu", "Log", "Neg"),
    *("Reciprocal", "Relu", "Selu", "Sigmoid", "Sqrt", "Tanh", "Dropout"),
)
STATISTICS = {"x": (2, 3, 4, 5), "s": (3,), "b": (3,), "m": (3,), "v": (3,)}
STEPS = {"x": (5, 2, 3)}

# operator, inputs, attributes, opset, the shape of its first result by its specification
CASES = [
    *((op, PICTURE, {}, 1, (2, 3, 4, 5)) for op in WHOLE),
    *((op, PAIR, {}, 1, (2, 3, 4, 5)) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum")),
    ("Mean", PAIR, {}, 5, (2, 3, 4, 5)),
    ("Add", {**PICTURE, "b": (3,)}, {"broadcast": 1, "axis": 1}, 1, (2, 3, 4, 5)),
    ("Mul", {**PICTURE, "b": (4, 5)}, {"broadcast": 1}, 5, (2, 3, 4, 5)),
    ("PRelu", {**PICTURE, "s": (3,)}, {}, 1, (2, 3, 4, 5)),
    (
        "BatchNormalization",
        STATISTICS,
        {"is_test": 1, "consumed_inputs": [0] * 5},
        1,
        (2, 3, 4, 5),
    ),
    ("InstanceNormalization", {**PICTURE, "s": (3,), "b": (3,)}, {}, 1, (2, 3, 4, 5)),
    ("Concat", {"x": (2, 3), "b": (2, 4)}, {}, 1, (2, 7)),
    ("Concat", {"x": (2, 3), "b": (5, 3)}, {"axis": 0}, 3, (7, 3)),
    ("Gemm", {"x": (2, 3), "w": (3, 4), "c": (4,)}, {"broadcast": 1}, 1, (2, 4)),
    ("Gemm", {"x": (3, 2), "w": (4, 3), "c": (2, 4)}, {"transA": 1, "transB": 1}, 5, (2, 4)),
    ("Reshape", PICTURE, {"shape": [0, -1]}, 1, (2, 60)),
    ("Pad", PICTURE, {"paddings": [0, 0, 1, 2, 0, 0, 3, 4]}, 1, (2, 3, 8, 11)),
    ("Upsample", PICTURE, {"height_scale": 2.0, "width_scale": 3.0}, 1, (2, 3, 8, 15)),
    ("Split", PICTURE, {"axis": 1, "split": [3]}, 1, (2, 3, 4, 5)),
    ("LpPool", PICTURE, {"kernel_shape": [2, 2], "p": 2.0}, 1, (2, 3, 3, 4)),
    ("GlobalLpPool", PICTURE, {}, 1, (2, 3, 1, 1)),
    ("Cast", PICTURE, {"to": "DOUBLE"}, 1, (2, 3, 4, 5)),
    ("GRU", {**STEPS, "w": (1, 12, 3), "r": (1, 12, 4)}, {"hidden_size": 4}, 1, (5, 1, 2, 4)),
    ("LSTM", {**STEPS, "w": (1, 16, 3), "r": (1, 16, 4)}, {"hidden_size": 4}, 1, (5, 1, 2, 4)),
    ("RNN", {**STEPS, "w": (1, 4, 3), "r": (1, 4, 4)}, {"hidden_size": 4}, 6, (5, 1, 2, 4)),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "opset", "shape"), CASES)
def test_an_old_operator_hands_its_shape_on(op, inputs, attributes, opset, shape, tmp_path):
    """A product behind it, with its last axis, has the MACs of the shape that it makes."""
    kind = {"Cast": onnx.TensorProto.DOUBLE}.get(op, onnx.TensorProto.FLOAT)
    weight = helper.make_tensor("matrix", kind, (shape[-1], 7), np.ones(shape[-1] * 7))
    nodes = [
        helper.make_node(op, list(inputs), ["h"], **attributes),
        helper.make_node("MatMul", ["h", "matrix"], ["y"]),
    ]
    given = [helper.make_tensor_value_info(name, 1, dims) for name, dims in inputs.items()]
    result = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph(nodes, "old", given, [result], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
    report = crossflops.count(saved(tmp_path, model))
    assert not report.uncounted
    products = next(row for row in report.by_op if row.op == "MatMul")
    assert products.macs == np.prod(shape) * 7


@pytest.mark.parametrize("axis", [1, -2])
@pytest.mark.parametrize("is_constant", [True, False])
def test_the_first_tile_reads_its_numbers(axis, is_constant, tmp_path):
    """2x3x4 three times along axis 1 is 2x9x4; a product with 4x7 behind it."""
    numbers = {"t": np.array([3], np.float32), "a": np.array([axis], np.float32)}
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in numbers.items()]
    constants = [helper.make_node("Constant", [], [item.name], value=item) for item in tensors]
    nodes = [
        *(constants if is_constant else ()),
        helper.make_node("Tile", ["x", "t", "a"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, 1, dims)
        for name, dims in (("x", (2, 3, 4)), ("w", (4, 7)))
    ]
    result = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph(nodes, "g", inputs, [result], [] if is_constant else tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 1)], ir_version=4)
    report = crossflops.count(saved(tmp_path, model))
    assert (report.totals.macs, report.uncounted) == (2 * 9 * 4 * 7, ())


@pytest.mark.parametrize(
    "domain", ["qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas"]
)
def test_quantizers_of_other_libraries_keep_the_shape(domain, tmp_path):
    """Conv 16 x 16 x 8 x 27 and MatMul 2048 x 10; Quant 7, BipolarQuant 2, Trunc 7 per element."""
    text = f"""<ir_version: 8, opset_import: ["": 17, "{domain}": 1]>
    g (float[1,3,16,16] x, float[8,3,3,3] w, float[2048,10] m, float s, float z, float b) => (y) {{
      q = {domain}.Quant <signed = 1, narrow = 0> (x, s, z, b)
      v = {domain}.IntQuant (w, s, z, b)
      c = Conv <pads = [1, 1, 1, 1]> (q, v)
      p = {domain}.BipolarQuant (c, s)
      t = {domain}.Trunc (p, s, z, b, b)
      f = Flatten (t)
      y = MatMul (f, m)
    }}"""
    report = crossflops.count(saved(tmp_path, onnx.parser.parse_model(text)))
    assert report.totals.macs == 16 * 16 * 8 * 27 + 2048 * 10
    work = {row.op.rpartition(".")[2]: row.flops for row in report.by_op}
    assert work["Quant"] == 3 * 256 * 7
    assert work["IntQuant"] == 8 * 27 * 7
    assert work["BipolarQuant"] == 2048 * 2
    assert work["Trunc"] == 2048 * 7
    assert not report.uncounted


def test_thresholds_count_each_step(tmp_path):
    """MultiThreshold: each of 15 steps of a channel is compared and summed; scale, bias."""
    domain = "finn.custom_op.general"
    text = f"""<ir_version: 8, opset_import: ["": 17, "{domain}": 1]>
    g (float[1,4,2,2] x, float[4,15] t) => (y) {{ y = {domain}.MultiThreshold (x, t) }}"""
    report = crossflops.count(saved(tmp_path, onnx.parser.parse_model(text)))
    assert report.totals.flops == 16 * (15 + 15 + 2)
