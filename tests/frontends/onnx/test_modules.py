"""Modules and parameters of files."""

import json

import numpy as np
import pytest
from onnx import numpy_helper

from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.modules import place_from_name
from crossflops.frontends.onnx.reading import normalize_onnx_file
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.report.tables import report_from_ledger
from tests.onnx_files import graph_of, parsed, saved

CHAIN = "g (float[4,8] x, float[8,8] w) => (y) { a = MatMul(x, w) b = Relu(a) y = MatMul(b, w) }"
FLOATS = np.zeros((8, 8), np.float32)


def stored(model, **tensors):
    """The model with these stored."""
    for name, value in tensors.items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


def rows(path):
    """Path, class and MACs of every module of a report."""
    graph, trace = normalize_onnx_file(OnnxFile(path=path), Setting())
    modules = report_from_ledger(graph, trace, count(graph)).modules
    return [(row.path, row.class_, row.macs) for row in modules]


@pytest.mark.parametrize("writing", [str, json.dumps, lambda items: str(items).replace(" ", "")])
def test_modules_come_from_the_notes_of_torch_onnx(writing, tmp_path):
    """The scopes name modules and classes, however the list is written; the operator is last."""
    model = parsed(CHAIN)
    for node, path in zip(model.graph.node, ["net.0", "net.1", "head"], strict=True):
        chain = ["", *(["net"] if "." in path else []), path]
        classes = ["m.Net", *(["torch.nn.Sequential"] if "." in path else []), "torch.nn.Linear"]
        for key, items in (("name_scopes", chain), ("class_hierarchy", classes)):
            value = writing([*items, "operator"])
            node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    assert rows(saved(tmp_path, model)) == [
        ("", "Net", 2 * 4 * 8 * 8),
        ("net", "Sequential", 4 * 8 * 8),
        ("net.0", "Linear", 4 * 8 * 8),
        ("net.1", "Linear", 0),
        ("head", "Linear", 4 * 8 * 8),
    ]


PRODUCTS = {
    "Conv": ("y = Conv(x, w)", (8, 4, 3, 3), 8 * 4 * 9 * 36),
    "ConvTranspose": ("y = ConvTranspose(x, w)", (4, 8, 3, 3), 4 * 64 * 8 * 9),
    "Gemm": ("f = Flatten(x) y = Gemm(f, w)", (256, 8), 256 * 8),
    "MatMul": ("y = MatMul(x, w)", (8, 8), 4 * 8 * 8 * 8),
}
FOLDED = ("aten._native_batch_norm_legit_no_training.default", "aten.batch_norm.default")


def noted(product, weight, operator, chain, classes):
    """A file with one product whose weight bears that name, with the notes of torch.onnx."""
    text, shape, _ = PRODUCTS[product]
    model = parsed(f"g (float[1,4,8,8] x) => (y) {{ {text.replace('w)', 'weight)')} }}")
    stored(model, weight=np.zeros(shape, np.float32))
    model.graph.initializer[0].name = model.graph.node[-1].input[1] = weight
    for node in model.graph.node:
        for key, items in (("name_scopes", chain), ("class_hierarchy", classes)):
            value = str([*items, operator])
            node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    return model


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("operator", [*FOLDED, "aten.add.Tensor", "aten.mul.Tensor"])
def test_a_folded_product_is_in_the_module_that_owns_its_weight(product, operator, tmp_path):
    """The notes are those of what was folded into it, which multiplies no matrices."""
    chain = ["", "block", "block.bn"], ["m.Net", "m.Block", "torch.nn.BatchNorm2d"]
    path = saved(tmp_path, noted(product, "block.conv.weight", operator, *chain))
    by_path = {name: (kind, macs) for name, kind, macs in rows(path)}
    macs = PRODUCTS[product][2]
    assert by_path[""] == ("Net", macs)
    assert by_path["block"][1] == by_path["block.conv"][1] == macs
    assert by_path.get("block.bn", ("", 0))[1] == 0


@pytest.mark.parametrize(
    ("weight", "operator"),
    [("words.weight", "aten.linear.default"), ("words.weight", "aten.mm.default")],
)
def test_a_tied_weight_leaves_work_where_it_is_done(weight, operator, tmp_path):
    """A head that multiplies by the weight of another module works itself."""
    chain = ["", "head"], ["m.Net", "torch.nn.Linear"]
    path = saved(tmp_path, noted("MatMul", weight, operator, *chain))
    assert rows(path) == [("", "Net", 2048), ("head", "Linear", 2048)]


def params(path):
    """Parameters of every module of a report, with all beneath it."""
    graph, trace = normalize_onnx_file(OnnxFile(path=path), Setting())
    return {row.path: row.params for row in report_from_ledger(graph, trace, count(graph)).modules}


def test_modules_of_a_file_have_their_parameters(tmp_path):
    """By the beginning of a weight's name, else by the first node that uses it; each once."""
    model = stored(
        parsed(
            "g (float[4,8] x) => (y) { a = MatMul(x, one) b = Add(a, two) c = MatMul(b, three) "
            "d = MatMul(c, one) y = Mul(d, four) }"
        ),
        one=FLOATS,
        two=FLOATS[0],
        three=FLOATS,
        four=FLOATS[:4],
    )
    names = {"one": "net.0.weight", "two": "net.0.bias", "three": "onnx::MatMul_7", "four": "s"}
    for tensor in model.graph.initializer:
        tensor.name = names[tensor.name]
    paths = ("net/net.0", "net/net.0", "net/net.1", "head", "")
    for node, path in zip(model.graph.node, paths, strict=True):
        node.name = f"{'/' if path else ''}{path}/{node.op_type}"
        node.input[1] = names[node.input[1]]
    assert params(saved(tmp_path, model)) == {
        "": 64 + 8 + 64 + 32,
        "net": 64 + 8 + 64,
        "net.0": 64 + 8,
        "net.1": 64,
        "head": 0,
    }


def test_packed_weights_are_parameters_of_their_module(tmp_path):
    """Eight weights of four bits lie in four bytes."""
    model = stored(
        parsed(
            "g (float[4,32] x, float[16] s) => (y) "
            "{ y = com.microsoft.MatMulNBits <K = 32, N = 16, bits = 4, block_size = 32>(x, w, s)}"
        ),
        w=np.zeros((16, 1, 16), np.uint8),
    )
    model.graph.node[0].name = "/head/MatMul"
    assert params(saved(tmp_path, model)) == {"": 512, "head": 512}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/layer1/layer1.0/conv1/Conv", "layer1.0.conv1"),
        ("/Gemm", ""),
        ("Gemm_3", ""),
        ("", ""),
        ("/encoder/layer.11/attention/self/query/MatMul", "encoder.layer.11.attention.self.query"),
        ("StatefulPartitionedCall/model/dense/MatMul__6", "model.dense"),
        ("functional_9/conv1__4/conv/Conv2D__6", "functional_9.conv1.conv"),
    ],
)
def test_node_names_tell_of_modules(name, path):
    """The path that the older PyTorch exporter and tf2onnx write into names."""
    assert place_from_name(name).innermost_module_path == path


def test_without_any_hint_there_is_the_root(tmp_path):
    """A graph without notes and without slashes is one module."""
    assert rows(saved(tmp_path, parsed(CHAIN))) == [("", "g", 2 * 4 * 8 * 8)]


@pytest.mark.parametrize(
    ("body", "tensors", "params"),
    [
        ("y = MatMul(x, w)", {"w": FLOATS}, 64),
        ("a = MatMul(x, w) y = MatMul(a, w)", {"w": FLOATS}, 64),
        ("t = Transpose(w) y = MatMul(x, t)", {"w": FLOATS}, 64),
        ("s = Shape(x) y = Expand(x, s)", {}, 0),
        ("y = Reshape(x, w)", {"w": np.array([8, 4])}, 0),
        ("a = MatMul(x, w) y = Add(a, b)", {"w": FLOATS, "b": FLOATS[0]}, 72),
        ("y = Mul(x, b)", {"b": np.array(2, np.float32)}, 0),
        ("y = BatchNormalization(x, s, b, m, v)", dict.fromkeys("sbmv", FLOATS[0]), 16),
        ("i = ArgMax(x) y = Gather(w, i)", {"w": FLOATS}, 64),
        (
            "q = DequantizeLinear(w, s) y = MatMul(x, q)",
            {"w": np.zeros((8, 8), np.int8), "s": np.float32(1).reshape(())},
            64,
        ),
        (
            "w = ConstantOfShape<value = float[1] {1}>(d) y = MatMul(x, w)",
            {"d": np.array([8, 8])},
            64,
        ),
    ],
)
def test_parameters_are_what_feeds_weight_inputs(body, tensors, params, tmp_path):
    """Stored floats (or packed integers) that are weights, each tensor once; no statistics."""
    tensors = {name: np.asarray(value) for name, value in tensors.items()}
    model = stored(parsed(f"g (float[4,8] x) => (y) {{ {body} }}"), **tensors)
    assert graph_of(saved(tmp_path, model)).params == params


def test_what_depends_on_no_input_is_constant(tmp_path):
    """Work on weights alone is marked: a converter would fold it."""
    model = stored(
        parsed("g (float[4,8] x) => (y) { t = MatMul(w, w) y = MatMul(x, t) }"), w=FLOATS
    )
    assert [node.constant for node in graph_of(saved(tmp_path, model)).nodes] == [True, False]
