"""Quantized files: the precision of their contractions, and what their weights amount to."""

import pytest
from onnx import TensorProto, helper

from crossflops.ledger.count import precision_of_contraction
from crossflops.verbs import api
from tests.onnx_files import graph_of, parsed, saved

CONV = 1 * 4 * 6 * 6 * 3 * 3 * 3  # [1,3,8,8] by [4,3,3,3]: outputs x window
SCALES = "float s = {0.5}, uint8 z = {0}, int8 o = {0}"
# one graph, with dequantized operands and as an operator on integers
QDQ = (
    f"g (float[1,3,8,8] x) => (y) <{SCALES}> {{ q = QuantizeLinear(x, s, z) "
    "d = DequantizeLinear(q, s, z) f = DequantizeLinear(w, s, o) e = DequantizeLinear(b, s) "
    "y = Conv(d, f, e) }"
)
OPERATOR = (
    f"g (float[1,3,8,8] x) => (y) <{SCALES}> {{ q = QuantizeLinear(x, s, z) "
    "y = QLinearConv(q, s, z, w, s, o, s, z, b) }"
)


def stored(model, name, kind, *dims):
    """The model with an initializer of zeros."""
    width = {TensorProto.INT4: 0.5, TensorProto.UINT4: 0.5, TensorProto.FLOAT4E2M1: 0.5}
    width |= {TensorProto.INT2: 0.25, TensorProto.UINT2: 0.25, TensorProto.INT32: 4}
    width |= {TensorProto.FLOAT6E2M3: 0.75, TensorProto.FLOAT6E3M2: 0.75, TensorProto.FLOAT: 4}
    size = 1
    for extent in dims:
        size *= extent
    tensor = TensorProto(name=name, data_type=kind, dims=dims)
    tensor.raw_data = bytes(-int(-size * width.get(kind, 1) // 1))
    model.graph.initializer.append(tensor)
    return model


def quantized(text):
    """A convolution of 8-bit data and weights, with a bias of 32 bits."""
    model = stored(parsed(text, 21), "w", TensorProto.INT8, 4, 3, 3, 3)
    return stored(model, "b", TensorProto.INT32, 4)


@pytest.mark.parametrize("text", [QDQ, OPERATOR])
def test_both_forms_run_in_int8(text, tmp_path):
    """QDQ and QOperator count the same MACs under the same key, and the same parameters."""
    report = api.count(saved(tmp_path, quantized(text)))
    assert report.macs_by_precision == {"int8": CONV}
    assert report.params == 4 * 3 * 3 * 3 + 4


KINDS = {
    TensorProto.INT8: ("int8", 1024),
    TensorProto.INT4: ("int4", 512),
    TensorProto.UINT4: ("int4", 512),
    TensorProto.INT2: ("int2", 256),
    TensorProto.UINT2: ("int2", 256),
    TensorProto.FLOAT8E4M3FN: ("float8e4m3fn", 1024),
    TensorProto.FLOAT8E5M2: ("float8e5m2", 1024),
    TensorProto.FLOAT6E2M3: ("float6e2m3", 768),
    TensorProto.FLOAT6E3M2: ("float6e3m2", 768),
    TensorProto.FLOAT4E2M1: ("float4e2m1", 512),
}


@pytest.mark.parametrize("kind", KINDS, ids=TensorProto.DataType.Name)
def test_weights_alone_are_quantized(kind, tmp_path):
    """Float data and small weights: a mixed name, the true count, and packed bytes."""
    name, nbytes = KINDS[kind]
    model = parsed(
        "g (float[8,32] x) => (y) <float s = {1}> "
        "{ d = DequantizeLinear(w, s) t = Transpose(d) y = MatMul(x, t) }",
        28,
    )
    report = api.count(saved(tmp_path, stored(model, "w", kind, 32, 32)))
    assert report.macs_by_precision == {f"float32x{name}": 8 * 32 * 32}
    assert report.params == 32 * 32
    moved = {node.op: (node.bytes_read, node.bytes_written) for node in report.nodes}
    assert moved == {
        "DequantizeLinear": (4, 0),  # the scale
        "Transpose": (nbytes, nbytes),
        "MatMul": (4 * 8 * 32 + nbytes, 4 * 8 * 32),
    }


def test_what_is_computed_in_floats_is_a_float(tmp_path):
    """A node that computes stands between: the data is float32 again, the weight is not."""
    text = QDQ.replace("y = Conv(d,", "r = Add(d, d) y = Conv(r,")
    report = api.count(saved(tmp_path, quantized(text)))
    assert report.macs_by_precision == {"float32xint8": CONV}


def test_a_dequantized_value_is_known_in_a_body(tmp_path):
    """What is dequantized around a Loop is as small within it."""
    model = parsed(
        "g (float[8,32] x) => (y) <float s = {1}, int64 ten = {10}> { d = DequantizeLinear(w, s) "
        "y = Loop(ten, , x) <body = b (int64 i, bool c, float[8,32] a) => (o, e) "
        "{ o = Identity(c) e = MatMul(a, d) }> }",
        21,
    )
    report = api.count(saved(tmp_path, stored(model, "w", TensorProto.INT8, 32, 32)))
    assert report.macs_by_precision == {"float32xint8": 10 * 8 * 32 * 32}


@pytest.mark.parametrize(("bits", "name"), [(4, "float32xint4"), (8, "float32xint8")])
def test_packed_weights_of_an_operator(bits, name, tmp_path):
    """MatMulNBits: K x N parameters, by the attribute and not by the bytes that hold them."""
    model = parsed(
        "g (float[8,64] x) => (float[8,32] y) { y = com.microsoft.MatMulNBits(x, b, s) }"
    )
    stored(model, "b", TensorProto.UINT8, 32, 2, 32 * bits // 8)
    stored(model, "s", TensorProto.FLOAT, 64)
    node = model.graph.node[0]
    for key, value in (("K", 64), ("N", 32), ("bits", bits), ("block_size", 32)):
        node.attribute.append(helper.make_attribute(key, value))
    graph = graph_of(saved(tmp_path, model))
    assert precision_of_contraction(graph.nodes[0], {}) == name
    assert graph.params == 64 * 32


def test_whole_numbers_that_are_no_weights(tmp_path):
    """Indices and tables of positions are stored, and no parameters."""
    model = parsed(
        "g (int64[4] i, float[4,8] x) => (y, p) <int64[9] t = {1,2,3,4,5,6,7,8,9}> "
        "{ p = Gather(t, i) y = Add(x, w) }"
    )
    assert graph_of(saved(tmp_path, stored(model, "w", TensorProto.FLOAT, 8))).params == 8
