"""Files of a quantizer, whose nodes have no notes: they are in the modules as before."""

import numpy as np
import pytest
from onnx import numpy_helper

from crossflops.report.difference import report_difference
from crossflops.verbs import api
from tests.onnx_files import parsed, saved

CONV = "torch.nn.modules.conv.Conv2d"
SHAPES = {
    "net.0.weight": (4, 3, 3, 3),
    "net.0.bias": (4,),
    "head.weight": (8, 256),
    "head.bias": (8,),
    "val_0": (8, 8),
    "last.bias": (8,),
}
# name of a node -> the modules around it, with their classes, in the file on floats
NOTES = {
    "conv": (
        ["", "net", "net.1"],
        ["Net", "Sequential", "torch.nn.BatchNorm2d"],
        "aten.batch_norm",
    ),
    "act": (["", "net", "net.2"], ["Net", "Sequential", "torch.nn.ReLU"], "aten.relu"),
    "sum": ([""], ["Net"], "aten.add"),
    "fc": (["", "head"], ["Net", "torch.nn.Linear"], "aten.linear"),
    "last": (["", "last"], ["Net", "torch.nn.Linear"], "aten.linear"),
    "last_bias": (["", "last"], ["Net", "torch.nn.Linear"], "aten.linear"),
}
FLOATS = """g (float[1,3,8,8] x) => (y) {
    [conv] a = Conv<pads = [1, 1, 1, 1]>(x, "net.0.weight", "net.0.bias")
    [act] b = Relu(a)  [sum] c = Add(a, b)  f = Flatten(c)
    [fc] d = Gemm<transB = 1>(f, "head.weight", "head.bias")
    [last] e = MatMul(d, val_0)  [last_bias] y = Add(e, "last.bias")
}"""
SCALES = "<float s = {0.5}, uint8 z = {0}, int8 o = {0}>"
QDQ = f"""g (float[1,3,8,8] x) => (y) {SCALES} {{
    xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)
    w = DequantizeLinear("net.0.weight_quantized", s, o)
    v = DequantizeLinear("net.0.bias_quantized", s)
    [conv] a = Conv<pads = [1, 1, 1, 1]>(xd, w, v)
    aq = QuantizeLinear(a, s, z)  ad = DequantizeLinear(aq, s, z)
    [act] b = Relu(ad)  [sum] c = Add(ad, b)  f = Flatten(c)
    hw = DequantizeLinear("head.weight_quantized", s, o)
    [fc] d = Gemm<transB = 1>(f, hw, "head.bias")
    l = DequantizeLinear("val_0_quantized", s, o)
    [last] e = MatMul(d, l)  [last_bias] y = Add(e, "last.bias")
}}"""
OPERATOR = f"""g (float[1,3,8,8] x) => (y) {SCALES} {{
    xq = QuantizeLinear(x, s, z)
    [conv_quant] a = QLinearConv<pads = [1, 1, 1, 1]>
        (xq, s, z, "net.0.weight_quantized", s, o, s, z, "net.0.bias_quantized")
    ad = DequantizeLinear(a, s, z)
    [act] b = Relu(ad)  bq = QuantizeLinear(b, s, z)
    [sum_quant] c = com.microsoft.QLinearAdd(a, s, z, bq, s, z, s, z)  f = Flatten(c)
    [fc_quant] d = com.microsoft.QGemm<transB = 1>
        (f, s, z, "head.weight_quantized", s, o, "head.bias_quantized", s, z)
    [last_quant] e = QLinearMatMul(d, s, z, val_0_quantized, s, o, s, z)
    ed = DequantizeLinear(e, s, z)  [last_bias] y = Add(ed, "last.bias")
}}"""
DYNAMIC = f"""g (float[1,3,8,8] x) => (y) {SCALES} {{
    xq, xs, xz = DynamicQuantizeLinear(x)
    [conv_quant] i = ConvInteger<pads = [1, 1, 1, 1]>(xq, "net.0.weight_quantized", xz, o)
    k = Cast<to = 1>(i)  m = Mul(k, xs)  n = Reshape("net.0.bias", shape)  a = Add(m, n)
    [act] b = Relu(a)  [sum] c = Add(a, b)  f = Flatten(c)
    fq, fs, fz = DynamicQuantizeLinear(f)
    [fc_MatMul_quant] g1 = MatMulInteger(fq, "head.weight_turned", fz, o)
    g2 = Cast<to = 1>(g1)  g3 = Mul(g2, fs)  d = Add(g3, "head.bias")
    dq, ds, dz = DynamicQuantizeLinear(d)
    [last_quant] h = MatMulInteger(dq, val_0_quantized, dz, o)
    h2 = Cast<to = 1>(h)  e = Mul(h2, ds)  [last_bias] y = Add(e, "last.bias")
}}"""
FORMS = {"QDQ": QDQ, "QOperator": OPERATOR, "dynamic": DYNAMIC}
MACS = {"net.0": 64 * 4 * 27, "head": 8 * 256, "last": 8 * 8}


def exported(text):
    """The file, with the notes that are left in it and its weights."""
    names = {}
    for name in ("net.0.weight", "net.0.bias", "head.weight", "head.bias", "last.bias"):
        for end in ("", "_quantized", "_turned"):
            names[name.replace(".", "_") + end] = name + end
            text = text.replace(f'"{name}{end}"', name.replace(".", "_") + end)
    model = parsed(text, 21)
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        if node.name in NOTES:
            paths, classes, operator = NOTES[node.name]
            for key, items in (("name_scopes", [*paths, "n"]), ("class_hierarchy", classes)):
                value = str(items if key == "name_scopes" else [*items, f"{operator}.default"])
                node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    made = {name for node in model.graph.node for name in node.output}
    made |= {"x", "s", "z", "o", ""}
    for name in dict.fromkeys(name for node in model.graph.node for name in node.input):
        if name not in made:
            model.graph.initializer.append(numpy_helper.from_array(stored(name), name))
    return model


def stored(name):
    """The numbers of a stored tensor: those of a bias that is quantized have 32 bits."""
    if name == "shape":
        return np.array([1, 4, 1, 1], np.int64)
    plain = name.removesuffix("_quantized").removesuffix("_turned")
    shape = SHAPES[plain] if not name.endswith("_turned") else SHAPES[plain][::-1]
    kind = np.float32
    if plain != name:
        kind = np.int32 if plain.endswith("bias") else np.int8
    return np.zeros(shape, kind)


@pytest.mark.parametrize("form", FORMS)
def test_a_layer_is_in_its_module_with_its_class(form, tmp_path):
    """A folded convolution too; all forms multiply the same in the same modules."""
    report = api.count(saved(tmp_path, exported(FORMS[form])))
    rows = {row.path: row for row in report.modules}
    assert {path: rows[path].macs for path in MACS} == MACS
    assert rows["net.0"].class_ == "Conv2d"
    assert rows["last"].class_ == "Linear"
    assert rows.get("net.1") is None or not rows["net.1"].macs


@pytest.mark.parametrize("form", FORMS)
def test_no_layer_vanishes_that_is_there(form, tmp_path):
    """What a quantizer adds has come in; products, additions and activations have changed."""
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    first = api.count(saved(tmp_path / "first", exported(FLOATS)))
    second = api.count(saved(tmp_path / "second", exported(FORMS[form])))
    change = report_difference(first, second, ("first", "second"))
    assert not [row for row in (*change.modules, *change.nodes) if row.kind == "vanished"]
    came = {row.what for row in change.nodes if row.kind == "appeared"}
    assert came <= {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Mul", "Add"}
    assert all(row.delta.macs == 0 for row in (*change.modules, *change.nodes))


# As onnxruntime's optimizer leaves the file on floats, and its quantizer what comes of that: no
# notes, some nodes of other names, a linear layer of two nodes in one.
OPTIMIZED = """g (float[1,3,8,8] x) => (y) {
    [conv] a = Conv<pads = [1, 1, 1, 1]>(x, "net.0.weight", "net.0.bias")
    [act] b = Relu(a)  [sum] c = Add(a, b)  f = Flatten(c)
    [fc] d = Gemm<transB = 1>(f, "head.weight", "head.bias")
    [FUSED] y = Gemm(d, val_0, "last.bias")
}"""
OPTIMIZED_OPERATOR = f"""g (float[1,3,8,8] x) => (y) {SCALES} {{
    xq = QuantizeLinear(x, s, z)
    [conv_quant] a = QLinearConv<pads = [1, 1, 1, 1]>
        (xq, s, z, "net.0.weight_quantized", s, o, s, z, "net.0.bias_quantized")
    ad = DequantizeLinear(a, s, z)
    [act] b = Relu(ad)  bq = QuantizeLinear(b, s, z)
    [sum_quant] c = com.microsoft.QLinearAdd(a, s, z, bq, s, z, s, z)  f = Flatten(c)
    [fc_quant] d = com.microsoft.QGemm<transB = 1>
        (f, s, z, "head.weight_quantized", s, o, "head.bias_quantized", s, z)
    [FUSED_quant] e = com.microsoft.QGemm
        (d, s, z, val_0_quantized, s, o, "last.bias_quantized", s, z)
    y = DequantizeLinear(e, s, z)
}}"""  # fmt: skip


def optimized(text):
    """The file without notes; the name of the last node is one that the text form has not."""
    model = exported(text)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.name = node.name.replace("FUSED", "last/MatMulScaleFusion//MatMulAddFusion")
    return model


@pytest.mark.parametrize("text", [OPTIMIZED, OPTIMIZED_OPERATOR], ids=["floats", "QOperator"])
def test_an_optimizer_loses_no_layer(text, tmp_path):
    """Layers are in the modules that own their weights, in its report; by their names in diff."""
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    first = api.count(saved(tmp_path / "first", exported(FLOATS)))
    second = api.count(saved(tmp_path / "second", optimized(text)))
    own = {row.path: row.macs for row in second.modules}
    assert {path: own[path] for path in MACS} == MACS
    change = report_difference(first, second, ("first", "second"))
    gone = {row.name for row in (*change.modules, *change.nodes) if row.kind == "vanished"}
    assert gone == {"last/Add"}
    assert all(row.delta.macs == 0 for row in (*change.modules, *change.nodes))
    assert all(row.delta.params == 0 for row in change.modules if row.name)


def test_a_vector_of_several_layers_tells_no_module(tmp_path):
    """Exporters store equal tensors once: b.scale is missing, and its node is in no module."""
    model = parsed("g (float[2,4] x) => (y) { [u] a = Mul(x, w)  [v] y = Mul(a, w) }")
    for node in model.graph.node:
        node.input[1] = "a.scale"
    model.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "a.scale"))
    assert {row.path for row in api.count(saved(tmp_path, model)).nodes} == {""}


def test_another_layer_of_the_same_name_is_not_the_same(tmp_path):
    """Exporters number nodes: what has other MACs is not moved into a module."""
    gemm = '[fc] d = Gemm<transB = 1>(x, "head.weight", "head.bias")'
    first = exported(f"g (float[1,256] x) => (d) {{ {gemm} }}")
    second = parsed("g (float[1,256] x, float[256,4] w) => (d) { [fc] d = MatMul(x, w) }")
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    reports = (
        api.count(saved(tmp_path / "first", first)),
        api.count(saved(tmp_path / "second", second)),
    )
    change = report_difference(*reports, ("first", "second"))
    assert {(row.kind, row.name) for row in change.modules if row.delta.macs} == {
        ("vanished", "head"),
        ("changed", ""),
    }
