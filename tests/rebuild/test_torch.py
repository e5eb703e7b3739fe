"""Torch modules that are rebuilt from ONNX files compute what ONNX's own reference computes."""

import importlib
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from crossflops.frontends import load_with_retry  # noqa: E402

try:
    load_with_retry(lambda: importlib.import_module("onnx2torch"))
except ImportError:
    pytest.skip("onnx2torch is not installed", allow_module_level=True)

from onnx.reference import ReferenceEvaluator  # noqa: E402

import crossflops.rebuild as room  # noqa: E402
from crossflops.errors import InputError, MissingExtraError, NormalizeError  # noqa: E402
from crossflops.frontends import normalize  # noqa: E402
from crossflops.frontends.onnx import OnnxFile  # noqa: E402
from crossflops.ir.graph import TensorSpec  # noqa: E402
from crossflops.ir.trace import Setting  # noqa: E402
from crossflops.ledger.count import count  # noqa: E402
from crossflops.rebuild import rebuild_as_torch  # noqa: E402
from tests.onnx_files import ledger_of, parsed, saved, with_weights  # noqa: E402

pytestmark = pytest.mark.tools
X, Y = "float[1,4,6,6] x", "float[?,?,?,?] y"
ROWS, FLAT = "float[2,6] x", "float[?,?] y"


def conv(opset):
    """A convolution with batch normalization and ReLU."""
    names = ("w", "s", "b", "m")
    text = (
        f"g ({X}, float[8,4,3,3] w, float[8] s, float[8] b, float[8] m) => ({Y})"
        " <float[8] v = {1,1,1,1,2,2,2,2}> { c = Conv<pads=[1,1,1,1]>(x, w)"
        " n = BatchNormalization(c, s, b, m, v) y = Relu(n) }"
    )
    return with_weights(text, *names, opset=opset)


def single(node, inputs=X, outputs=Y, opset=17, constants=""):
    """One node, or a few, with integers beside them."""
    return parsed(f"g ({inputs}) => ({outputs}) <{constants}> {{ {node} }}", opset)


MODELS = {
    "conv-15": (conv(15), 1),
    "conv-22": (conv(22), 1),
    "conv-transpose": (
        with_weights(
            f"g ({X}, float[4,6,3,3] w, float[6] b) => ({Y})"
            " { y = ConvTranspose<strides=[2,2], output_padding=[1,1]>(x, w, b) }",
            "w", "b", opset=22,
        ),
        1,
    ),
    "gemm": (
        with_weights(
            f"g ({ROWS}, float[5,6] w, float[5] b) => ({FLAT})"
            " { y = Gemm<transB=1, alpha=0.5, beta=2.0>(x, w, b) }",
            "w", "b",
        ),
        1,
    ),
    "reshape": (single("y = Reshape(x, s)", outputs=FLAT, constants="int64[2] s = {0, -1}"), 1),
    "reshape-allowzero": (
        single(
            "y = Reshape<allowzero=1>(x, s)", outputs=FLAT, opset=23,
            constants="int64[2] s = {4, 36}",
        ),
        1,
    ),
    "computed-shape": (
        single(
            "h = Shape<start=0, end=1>(x) s = Concat<axis=0>(h, r) y = Reshape(x, s)",
            outputs=FLAT, constants="int64[1] r = {-1}",
        ),
        1,
    ),
    "expand-tile": (
        single(
            "e = Expand(x, s) y = Tile(e, r)", "float[2,1] x", FLAT,
            constants="int64[2] s = {1, 3}, int64[2] r = {2, 1}",
        ),
        1,
    ),
    "slices": (
        single(
            "a = Slice(x, i, j, k, l) y = Slice(a, m, n, o)", ROWS, FLAT,
            constants="int64[1] i = {-1}, int64[1] j = {-9223372036854775807}, int64[1] k = {1},"
            " int64[1] l = {-2}, int64[1] m = {0}, int64[1] n = {1000}, int64[1] o = {-1}",
        ),
        1,
    ),
    "split": (
        single(
            "a, b = Split<axis=1>(x, s)", ROWS, "float[?,?] a, float[?,?] b",
            constants="int64[2] s = {2, 4}",
        ),
        2,
    ),
    "split-num-outputs": (
        single(
            "a, b = Split<axis=1, num_outputs=2>(x)", "float[2,5] x",
            "float[?,?] a, float[?,?] b", 18,
        ),
        2,
    ),
    "pad": (
        single(
            "a = Pad(x, i, v) y = Pad(a, j, v, k)", ROWS, FLAT, 23,
            "int64[4] i = {1, 0, 2, 3}, int64[2] j = {0, 2}, int64[1] k = {-1}, float v = {0.5}",
        ),
        1,
    ),
    "reflected": (
        single("y = Pad<mode = \"reflect\">(x, i)", opset=19,
               constants="int64[8] i = {0, 0, 1, 2, 0, 0, 2, 1}"),
        1,
    ),
    "edges": (
        single("y = Pad<mode = \"edge\">(x, i)", opset=23,
               constants="int64[8] i = {0, 0, 1, 2, 0, 0, 2, 1}"),
        1,
    ),
    "triangles": (
        single("a = Trilu<upper = 0>(x, i) y = Trilu(a, j)", ROWS, FLAT, 17,
               "int64 i = {1}, int64 j = {-1}"),
        1,
    ),
    "one-hot": (
        single("y = OneHot<axis = 1>(x, d, v)", "int64[2,3] x", "float[?,?,?] y", 17,
               "int64 d = {4}, float[2] v = {0.5, 2.0}"),
        1,
    ),
    **{
        f"running-sum-{exclusive}-{reverse}": (
            single(f"y = CumSum<exclusive = {exclusive}, reverse = {reverse}>(x, a)", ROWS, FLAT,
                   17, "int64 a = {1}"),
            1,
        )
        for exclusive in (0, 1)
        for reverse in (0, 1)
    },
    "global-max": (single("y = GlobalMaxPool(x)", opset=22), 1),
    "resized": (
        single("y = Resize<mode = \"linear\", antialias = 0>(x, \"\", s)", opset=19,
               constants="float[4] s = {1.0, 1.0, 2.0, 2.0}"),
        1,
    ),
    "filled": (
        single(
            "f = ConstantOfShape<value=float[1] {2.0}>(s) y = Add(x, f)", ROWS, FLAT,
            constants="int64[2] s = {2, 6}",
        ),
        1,
    ),
    "axes": (
        single(
            "a = Unsqueeze(x, i) y = Squeeze(a, j)", "float[2,1,6] x", "float[?,?,?] y", 23,
            constants="int64[2] i = {0, -1}, int64[1] j = {2}",
        ),
        1,
    ),
    "gelu": (single("a = Gelu(x) y = Gelu<approximate=\"tanh\">(a)", opset=20), 1),
    "layer-norm": (
        with_weights(
            f"g ({ROWS}, float[6] s, float[6] b) => ({FLAT})"
            " { y = LayerNormalization(x, s, b) }",
            "s", "b",
        ),
        1,
    ),
    "group-norm": (
        with_weights(
            f"g ({X}, float[4] s, float[4] b) => ({Y})"
            " { y = GroupNormalization<num_groups=2>(x, s, b) }",
            "s", "b", opset=21,
        ),
        1,
    ),
    "rms-norm": (
        with_weights(
            f"g ({ROWS}, float[6] s) => ({FLAT}) {{ y = RMSNormalization(x, s) }}", "s", opset=23
        ),
        1,
    ),
    "mish": (single("y = Mish(x)", opset=18), 1),
    "attention": (
        single(
            "y = Attention<q_num_heads=2, kv_num_heads=2, is_causal=1>(x, x, x)",
            "float[1,5,8] x", "float[?,?,?] y", 23,
        ),
        1,
    ),
    "local-function": (
        parsed(
            f'g ({X}) => ({Y}) {{ y = local.twice(x) }} <domain: "local",'
            ' opset_import: ["": 17]> twice (a) => (b) { b = Add(a, a) }'
        ),
        1,
    ),
    "average": (single("y = AveragePool<kernel_shape=[2,2], strides=[2,2]>(x)", opset=22), 1),
    **{
        f"reduce-{name}-{opset}": (
            single(f"y = Reduce{name}<keepdims=0>(x, a)", X, "float[?,?] y", opset,
                   "int64[2] a = {1, -1}"),
            1,
        )
        for name in ("Sum", "Mean", "Max", "Min", "Prod", "LogSumExp", "L1", "L2", "SumSquare")
        for opset in (18, 23)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_it_computes_what_the_file_says(tmp_path, name):
    """Output by output, against ONNX's reference; and it has the contraction work of the file."""
    model, outputs = MODELS[name]
    path = saved(tmp_path, model)
    source = rebuild_as_torch(OnnxFile(path=path))
    values = [value.numpy() for value in source.args]
    feed = dict(zip((value.name for value in model.graph.input), values, strict=True))
    expected = ReferenceEvaluator(model).run(None, feed)
    with torch.no_grad():
        computed = source.model(*source.args)
    computed = (
        [computed]
        if torch.is_tensor(computed)
        else list(computed[0] if outputs > len(computed) else computed)
    )
    assert len(computed) == outputs == len(expected)
    for output, other in zip(computed, expected, strict=True):
        assert tuple(output.shape) == other.shape
        np.testing.assert_allclose(output.numpy(), other, rtol=1e-4, atol=1e-5)
    macs = ledger_of(path).total.macs
    if macs:
        assert count(normalize(source, Setting())[0]).total.macs == macs


def test_sizes_are_those_that_are_asked_for(tmp_path):
    """Named dimensions by `dims`, whole shapes by specs; open ones are told as for a count."""
    model = single("y = Relu(x)", "float[n,4] x", "float[n,4] y")
    path = saved(tmp_path, model)
    assert rebuild_as_torch(OnnxFile(path=path, dims={"n": 3})).args[0].shape == (3, 4)
    specs = (TensorSpec("x", "float32", (5, 4), "input"),)
    assert rebuild_as_torch(OnnxFile(path=path, specs=specs)).args[0].shape == (5, 4)
    with pytest.raises(InputError, match="sizes of inputs are unknown"):
        rebuild_as_torch(OnnxFile(path=path))


BRANCH = "a () => (float[2,6] z) { z = Identity(x) }"


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (
            single(
                "c = ReduceSum<keepdims=0>(x) b = Cast<to=9>(c)"
                f" y = If<then_branch={BRANCH}, else_branch={BRANCH}>(b)",
                ROWS, FLAT,
            ),
            "If has subgraphs",
        ),
        (
            single(
                "y = DequantizeLinear(x, s)", "int8[2,6] x", FLAT,
                constants="float s = {0.5}",
            ),
            "DequantizeLinear is quantized",
        ),
        (single("y = com.microsoft.FastGelu(x)", ROWS, FLAT), "com.microsoft.FastGelu of opset 1"),
        (single("y = Det(x)", "float[2,3,3] x", "float[2] y", 22), "Det of opset 22"),
    ],
)  # fmt: skip
def test_what_cannot_be_rebuilt_is_said(tmp_path, model, what):
    """The operator, its opset, and that the file can be counted all the same."""
    path = saved(tmp_path, model)
    with pytest.raises(NormalizeError, match=what) as caught:
        rebuild_as_torch(OnnxFile(path=path))
    assert "crossflops count" in caught.value.hint


def test_the_converters_of_onnx2torch_are_as_before(tmp_path):
    """What is lent for one model is not left behind."""
    registry = importlib.import_module("onnx2torch.node_converters.registry")
    before = dict(registry._CONVERTER_REGISTRY)
    rebuild_as_torch(OnnxFile(path=saved(tmp_path, MODELS["conv-22"][0])))
    assert before == registry._CONVERTER_REGISTRY


def test_without_onnx2torch_the_extra_is_told(tmp_path, monkeypatch):
    """It is needed for nothing else."""
    monkeypatch.setitem(sys.modules, "onnx2torch", None)
    with pytest.raises(MissingExtraError) as caught:
        room.rebuild_as_torch(OnnxFile(path=saved(tmp_path, MODELS["mish"][0])))
    assert caught.value.hint == "pip install 'crossflops[rebuild]'"
