"""Memory of quantized graphs: floats between quantized values are never in memory.

X is 3 x 8 x 8 = 192 values, Y of a 3x3 convolution to 4 channels with padding 4 x 8 x 8 = 256.
"""

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from crossflops.verbs import api
from tests.onnx_files import parsed, saved

X, Y, W = 192, 256, 4 * 3 * 3 * 3
SCALES = "float s = {0.5}, float r = {0.25}, uint8 z = {0}, int8 o = {0}"
CONV = "<pads = [1, 1, 1, 1]>"
BEGIN = f"g (uint8[1,3,8,8] q) => (uint8[1,4,8,8] y) <{SCALES}>"


def with_weight(text, kind=TensorProto.INT8, shape=(4, 3, 3, 3)):
    """The model with a weight of zeros."""
    model = parsed(text, 21)
    if kind == TensorProto.FLOAT:
        tensor = numpy_helper.from_array(np.zeros(shape, np.float32), "w")
    else:
        size = int(np.prod(shape))
        packed = kind in (TensorProto.INT4, TensorProto.UINT4)
        raw = bytes((size + 1) // 2 if packed else size)
        tensor = TensorProto(name="w", data_type=kind, dims=shape, raw_data=raw)
    model.graph.initializer.append(tensor)
    return model


def memory(tmp_path, model):
    """The memory figures of a count, and its traffic by node."""
    report = api.count(saved(tmp_path, model))
    assert not report.uncounted
    return report.memory, {row.node: (row.bytes_read, row.bytes_written) for row in report.nodes}


def summed(rows):
    """All that is read and written."""
    return sum(map(sum, rows.values()))


QDQ = (
    f"{BEGIN} {{ d = DequantizeLinear(q, s, z) f = DequantizeLinear(w, s, o) "
    f"c = Conv{CONV}(d, f) y = QuantizeLinear(c, s, z) }}"
)
OPERATOR = f"{BEGIN} {{ y = QLinearConv{CONV}(q, s, z, w, s, o, r, z) }}"


def test_both_forms_hold_and_move_the_same(tmp_path):
    """uint8 in and out: X + Y alive, and X + W + Y moved beside scales."""
    known, rows = memory(tmp_path, with_weight(QDQ))
    assert known.peak_activation_bytes == X + Y
    assert rows["Conv_2"] == (X + W, Y)
    assert summed(rows) == X + W + Y + 3 * (4 + 1)  # three scales, three zero points
    assert known.param_bytes_by_type == {"int8": W}
    other, rows = memory(tmp_path, with_weight(OPERATOR))
    assert other.peak_activation_bytes == X + Y
    assert summed(rows) == X + W + Y + 2 * 4 + 2 * 1  # two scales, two zero points, each once
    assert sum(known.access_bytes_by_type.values()) == known.access_bytes


BETWEEN = {
    "an addition of two": (
        "d = DequantizeLinear(q, s, z) c = Add(d, d) y = QuantizeLinear(c, s, z)",
        X + X, {"Add_1": (X, X)},
    ),
    "a transposition": (
        "d = DequantizeLinear(q, s, z) c = Transpose<perm = [0, 2, 3, 1]>(d) "
        "y = QuantizeLinear(c, s, z)",
        X + X, {"Transpose_1": (X, X)},
    ),
    "another name": (
        "d = DequantizeLinear(q, s, z) c = Flatten(d) y = QuantizeLinear(c, s, z)",
        X, {"QuantizeLinear_2": (5, 0)},
    ),
    "another scale": (
        "d = DequantizeLinear(q, s, z) y = QuantizeLinear(d, r, z)",
        X + X, {"QuantizeLinear_1": (X + 5, X)},
    ),
    "a float that is read twice": (
        "d = DequantizeLinear(q, s, z) c = Relu(d) e = Sigmoid(c) p = QuantizeLinear(c, s, z) "
        "u = QuantizeLinear(e, s, z) y = Concat<axis = 1>(p, u)",
        X + 4 * X + X + X,  # q, c, and the sigmoid and c as they are quantized
        {"Relu_1": (X, 4 * X), "Sigmoid_2": (4 * X, X), "QuantizeLinear_3": (4 * X + 5, X)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BETWEEN)
def test_floats_between_are_never_in_memory(name, tmp_path):
    """Unless something else reads them, too; another scale is work of its own."""
    body, peak, moved = BETWEEN[name]
    text = f"g (uint8[1,3,8,8] q) => (y) <{SCALES}> {{ {body} }}"
    known, rows = memory(tmp_path, parsed(text, 21))
    assert known.peak_activation_bytes == peak
    assert {node: rows[node] for node in moved} == moved


def test_what_the_model_takes_and_gives_is_as_it_says(tmp_path):
    """Float in, float out: both real, and what is quantized between as well."""
    text = (
        f"g (float[1,3,8,8] x) => (float[1,3,8,8] y) <{SCALES}> {{ q = QuantizeLinear(x, s, z) "
        "d = DequantizeLinear(q, s, z) r1 = Relu(d) p = QuantizeLinear(r1, s, z) "
        "y = DequantizeLinear(p, s, z) }"
    )
    known, rows = memory(tmp_path, parsed(text, 21))
    assert rows["QuantizeLinear_0"] == (4 * X + 5, X)
    assert rows["Relu_2"] == (X, X)
    assert rows["DequantizeLinear_4"] == (X + 5, 4 * X)
    assert known.peak_activation_bytes == 4 * X + X + 4 * X


WIDTHS = {TensorProto.INT8: 1024, TensorProto.INT4: 512, TensorProto.FLOAT8E4M3FN: 1024}


@pytest.mark.parametrize("kind", WIDTHS, ids=TensorProto.DataType.Name)
def test_weights_alone_are_read_as_they_are_stored(kind, tmp_path):
    """A product of floats with 32 x 32 small weights, scaled by block, by column or at once."""
    text = (
        "g (float[8,32] x) => (y) <float s = {1}> { f = DequantizeLinear(w, s) y = MatMul(x, f) }"
    )
    known, rows = memory(tmp_path, with_weight(text, kind, (32, 32)))
    assert rows["MatMul_1"] == (4 * 256 + WIDTHS[kind], 4 * 256)
    assert rows["DequantizeLinear_0"] == (4, 0)
    assert known.peak_activation_bytes == 2 * 4 * 256
    assert sum(known.param_bytes_by_type.values()) == known.param_bytes == WIDTHS[kind]


def test_a_body_reads_what_is_around_it_as_it_is_stored(tmp_path):
    """Ten runs, each of which reads 1024 bytes of weights."""
    text = (
        "g (float[8,32] x) => (y) <float s = {1}, int64 ten = {10}> { d = DequantizeLinear(w, s) "
        "y = Loop(ten, , x) <body = b (int64 i, bool c, float[8,32] a) => (o, e) "
        "{ o = Identity(c) e = MatMul(a, d) }> }"
    )
    _, rows = memory(tmp_path, with_weight(text, TensorProto.INT8, (32, 32)))
    (moved,) = (row for node, row in rows.items() if "MatMul" in node)
    assert moved == (10 * (4 * 256 + 1024), 10 * 4 * 256)
