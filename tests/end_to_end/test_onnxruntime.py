"""What onnxruntime makes of a model counts like the model: fused, laid out anew, quantized."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from crossflops.ir.ledger import UncountedNode
from tests.onnx_files import graph_of, ledger_of, optimized, saved, with_weights

onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.onnxruntime

LAYER = """
g (float[2,16,32] x,
  float[32,32] wq, float[32] bq, float[32,32] wk, float[32] bk, float[32,32] wv, float[32] bv,
  float[32,32] wo, float[32] bo, float[32,64] w1, float[64] b1, float[64,32] w2, float[32] b2,
  float[32] g1, float[32] g2, float[32] g3, float[32] g4) => (float[2,16,32] y) {
    heads = Constant <value = int64[4] {0, 0, 4, 8}> ()
    merged = Constant <value = int64[3] {0, 0, 32}> ()
    q0 = MatMul (x, wq) q1 = Add (bq, q0) q2 = Reshape (q1, heads)
    q = Transpose <perm = [0, 2, 1, 3]> (q2)
    k0 = MatMul (x, wk) k1 = Add (bk, k0) k2 = Reshape (k1, heads)
    k = Transpose <perm = [0, 2, 3, 1]> (k2)
    v0 = MatMul (x, wv) v1 = Add (bv, v0) v2 = Reshape (v1, heads)
    v = Transpose <perm = [0, 2, 1, 3]> (v2)
    s0 = MatMul (q, k) root = Constant <value = float {2.828427}> () s = Div (s0, root)
    p = Softmax <axis = -1> (s) c0 = MatMul (p, v)
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0) c = Reshape (c1, merged)
    o0 = MatMul (c, wo) o1 = Add (bo, o0) o = Add (o1, x)
    n = LayerNormalization <axis = -1> (o, g1, g2)
    f0 = MatMul (n, w1) f1 = Add (b1, f0)
    two = Constant <value = float {1.4142135}> () one = Constant <value = float {1.0}> ()
    half = Constant <value = float {0.5}> ()
    d = Div (f1, two) e = Erf (d) t = Add (e, one) m = Mul (f1, t) h = Mul (m, half)
    r0 = MatMul (h, w2) r1 = Add (b2, r0) r = Add (r1, n)
    y = LayerNormalization <axis = -1> (r, g3, g4)
}"""
WEIGHTS = ("wq", "bq", "wk", "bk", "wv", "bv", "wo", "bo", "w1", "b1", "w2", "b2")
NORMS = ("g1", "g2", "g3", "g4")
# 32 tokens meet 4 weights of 32x32 and two of 32x64; 2*4*16*16 scores of 8 + 8.
LAYER_MACS = 32 * (4 * 32 * 32 + 2 * 32 * 64) + 2 * 4 * 16 * 16 * (8 + 8)

IMAGES = """
g (float[1,3,32,32] x, float[32,3,3,3] w1, float[32] b1, float[32,32,3,3] w2, float[32] b2,
  float[32,1,3,3] w3, float[32] b3, float[32,10] w4, float[10] b4) => (float[1,10] y) {
    a0 = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w1, b1) a = Relu (a0)
    p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (a)
    c0 = Conv <pads = [1,1,1,1]> (p, w2, b2) c1 = Add (c0, p) c = Relu (c1)
    d0 = Conv <pads = [1,1,1,1], group = 32> (c, w3, b3) d = Relu (d0)
    e = GlobalAveragePool (d) f = Flatten (e) y = Gemm (f, w4, b4)
}"""
FILTERS = ("w1", "b1", "w2", "b2", "w3", "b3", "w4", "b4")
IMAGES_MACS = 32 * 256 * 27 + 32 * 64 * 288 + 32 * 64 * 9 + 320

MODELS = {"layer": (LAYER, (*WEIGHTS, *NORMS)), "images": (IMAGES, FILTERS)}
MACS = {"layer": LAYER_MACS, "images": IMAGES_MACS}


@pytest.fixture(params=MODELS)
def model(request, tmp_path):
    """The name of a model, and its file."""
    text, weights = MODELS[request.param]
    return request.param, saved(tmp_path, with_weights(text, *weights))


def counted(path):
    """MACs, and the operators; nothing is left uncounted."""
    ledger = ledger_of(path)
    assert [row.reason for row in ledger.counts if isinstance(row, UncountedNode)] == []
    return ledger.total.macs, {str(row.node.op) for row in ledger.counts}


@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_an_optimized_graph_has_the_macs_of_the_model(model, level):
    """Fused convolutions, products and normalizations; channels in blocks."""
    name, path = model
    assert counted(path)[0] == MACS[name]
    macs, operators = counted(optimized(path, level))
    assert macs == MACS[name]
    if level != "ORT_ENABLE_BASIC":
        assert any(operator.startswith("com.microsoft") for operator in operators)


LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def narrow(path, folder):
    """The file with layers of 64 units for 4096, whose weights are not worth writing."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name.endswith("__SHAPE"):
            sizes = numpy_helper.to_array(tensor)
            slim = np.where(sizes == 4096, 64, sizes)
            tensor.CopyFrom(numpy_helper.from_array(slim, tensor.name))
    return saved(folder, model)


def repeated(path):
    """The names of nodes that compute once more what another has: onnxruntime keeps one of them.

    In the light models all weights come from ConstantOfShape, so those of one shape are equal.
    """
    model = onnx.load(path)
    known = {
        initializer.name: (initializer.data_type, *initializer.dims, initializer.raw_data)
        for initializer in model.graph.initializer
    }
    seen, names = set(), set()
    for place, node in enumerate(model.graph.node):
        attributes = sorted(attribute.SerializeToString() for attribute in node.attribute)
        same = (node.op_type, *attributes, *(known.get(name, name) for name in node.input))
        names |= {node.name or f"{node.op_type}_{place}"} if same in seen else set()
        seen.add(same)
        known |= {name: (hash(same), index) for index, name in enumerate(node.output)}
    return names


@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"])
@pytest.mark.parametrize("name", sorted(file.stem for file in LIGHT.glob("*.onnx")))
def test_an_optimized_light_model_has_its_macs_but_those_of_a_merged_node(name, level, tmp_path):
    """The nine of onnx's own test data, which keep version 3 of the format."""
    path = narrow(LIGHT / f"{name}.onnx", tmp_path)
    before, after = ledger_of(path), ledger_of(optimized(path, level))
    assert (before.uncounted, after.uncounted) == ((), ())
    twice = repeated(path)
    merged = {row.node.key: row.cost.macs for row in before.counts if row.node.key in twice}
    assert after.total.macs == before.total.macs - sum(merged.values())
    assert (sum(merged.values()) > 0) == ("inception" in name)


class Feeds:
    """One batch to calibrate with."""

    def __init__(self, path):
        (spec,) = graph_of(path).inputs
        data = np.random.default_rng(1).normal(size=spec.shape).astype(np.float32)
        self._feeds = iter([{spec.name: data}])

    def get_next(self):
        """The next batch, None behind the last."""
        return next(self._feeds, None)


@pytest.mark.parametrize("form", ["dynamic", "QDQ", "QOperator"])
@pytest.mark.parametrize("level", ["", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_a_quantized_model_has_the_macs_of_the_model(model, form, level):
    """Written as pairs around operators, as operators on integers, or quantized on the way."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    name, path = model
    out = path.replace(".onnx", f".{form}.onnx")
    if form == "dynamic":
        quantization.quantize_dynamic(path, out)
    else:
        kind = quantization.QuantFormat[form]
        quantization.quantize_static(path, out, Feeds(path), quant_format=kind)
    macs, _ = counted(optimized(out, level) if level else out)
    assert macs == MACS[name]
    by_precision = {}
    for row in ledger_of(out).counts:
        by_precision[row.precision] = by_precision.get(row.precision, 0) + row.cost.macs
    eight = by_precision.get("int8", 0)
    # dynamically, only products with a stored weight are quantized
    scores = 2 * 4 * 16 * 16 * (8 + 8) if form == "dynamic" and name == "layer" else 0
    assert eight == MACS[name] - scores


def test_four_bit_weights_keep_macs_and_parameters(tmp_path):
    """MatMulNBits: the weights are packed, and there are as many."""
    quantizer = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    model = with_weights(LAYER, *WEIGHTS, *NORMS)
    path = saved(tmp_path, model)
    work = quantizer.MatMulNBitsQuantizer(model, block_size=32, is_symmetric=True, bits=4)
    work.process()
    out = path.replace(".onnx", ".4.onnx")
    work.model.save_model_to_file(out, False)
    macs, operators = counted(out)
    assert "com.microsoft.MatMulNBits" in operators
    assert macs == LAYER_MACS
    assert graph_of(out).params == graph_of(path).params == 4 * 1024 + 2 * 2048 + 5 * 32 + 64 + 128
