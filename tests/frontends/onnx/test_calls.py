"""Functions that are read once for all of their calls: the same count as when they are inlined."""

import pytest
from onnx import TensorProto, helper

from crossflops.errors import TargetError
from crossflops.frontends.onnx import functions
from crossflops.ledger.count import count
from tests.frontends.onnx.test_control_flow import FUNCTIONS, PRODUCT, doubling, named
from tests.onnx_files import graph_of, ledger_of, parsed, saved

LOCAL = '<domain: "local", opset_import: ["": 17, "local": 1]>'
ONES = f"float[16] {{{', '.join(['1'] * 16)}}}"
FILES = {
    "functions that call functions": FUNCTIONS,
    "an attribute of the call": (
        "g (float[16,8] x, float[16,16] w) => (y, z) "
        "{ y = local.F <t = 1> (x, w) z = local.F (y, w) } "
        f"{LOCAL} F <t: int = 0> (a, b) => (c) {{ c = Gemm <transA: int = @t> (a, b) }}"
    ),
    "a size that the caller gives": (
        "g (float[8,16] x, float[4,4] w) => (y, z) <int64[2] s = {32, 4}, int64[2] q = {2, 4}> "
        "{ y = local.F (x, s, w) h = ReduceSum (y) z = local.F (y, s, w) } "
        f"{LOCAL} F (a, n, b) => (c) {{ r = Reshape(a, n) c = MatMul(r, b) }}"
    ),
    "an input that is left out": (
        "g (float[8,16] x, float[16,16] w, float[16] b) => (y, z) "
        "{ y = local.F (x, w) z = local.F (x, w, b) } "
        f"{LOCAL} F (a, u, v) => (c) {{ c = Gemm (a, u, v) }}"
    ),
    "loops and branches within": (
        "g (float[8,16] x, float[16,16] w, bool c) => (y) { y = local.F (c, x, w) } "
        f"{LOCAL} F (k, a, b) => (r) {{ n = Constant <value_int = 3> () "
        "r = Loop (n, , a) <body = l "
        "(int64 i, bool t, float[8,16] d) => (o, e) { o = Identity(t) e = If (k) "
        "<then_branch = u () => (s) { s = local.G (d, b) }, "
        "else_branch = v () => (q) { h = local.G (d, b) q = local.G (h, b) }> }> } "
        f"{LOCAL} G (a, b) => (r) {{ r = MatMul(a, b) }}"
    ),
    "a loop that grows": (
        "g (float[8,16] x, float[16,16] w) => (y) { z = local.F (x, w) y = local.F (z, w) } "
        f"{LOCAL} F (a, b) => (r) {{ n = Constant <value_int = 3> () r = Loop (n, , a) <body = l "
        "(int64 i, bool t, d) => (o, e) { o = Identity(t) m = local.G (d, b) "
        f"e = Concat <axis = 0> (m, m) }}> }} {LOCAL} G (a, b) => (r) {{ r = MatMul(a, b) }}"
    ),
    "weights in a function, and given to one": (
        "g (float[8,16] x) => (y, z) { t = local.T (w) y = local.F (x, t) z = local.F (x, w) } "
        f"{LOCAL} T (a) => (b) {{ b = Transpose (a) }} "
        f"{LOCAL} F (a, b) => (r) {{ v = Constant <value = {ONES}> () "
        "h = MatMul(a, b) r = Add(h, v) }"
    ),
    "what is dequantized around a function": (
        "g (float[8,16] x) => (y, z) <float s = {1}> { d = DequantizeLinear(q, s) "
        "y = local.F (x, d) z = local.F (x, w) } "
        f"{LOCAL} F (a, b) => (r) {{ t = Transpose (b) r = MatMul(a, t) }}"
    ),
    "a function that depends on no input": (
        "g (float[8,16] x) => (y) { t = local.F (w, w) y = local.F (x, t) } "
        f"{LOCAL} F (a, b) => (r) {{ r = MatMul(a, b) }}"
    ),
}


def made(text):
    """The model, with a weight w of 16 x 16 and a quantized one where it uses them."""
    model = parsed(text)
    used = {name for node in model.graph.node for name in node.input}
    given = {value.name for value in model.graph.input}
    for name, kind, width in (("w", TensorProto.FLOAT, 4), ("q", TensorProto.INT8, 1)):
        if name in used - given:
            zeros = bytes(256 * width)
            model.graph.initializer.append(
                helper.make_tensor(name, kind, [16, 16], zeros, raw=True)
            )
    return model


@pytest.mark.parametrize("name", FILES)
def test_a_function_called_counts_as_one_inlined(name, tmp_path, monkeypatch):
    """All kinds of work, precisions, parameters and what depends on no input."""
    path = saved(tmp_path, made(FILES[name]))
    inlined = graph_of(path)
    monkeypatch.setattr(functions, "LIMIT", 0)
    called = graph_of(path)
    ledger, other = count(inlined), count(called)
    assert ledger.total.macs
    assert ledger.total == other.total
    assert not ledger.uncounted
    assert not other.uncounted
    assert inlined.params == called.params
    assert by(ledger, "precision") == by(other, "precision")
    assert by(ledger, "constant") == by(other, "constant")


def by(ledger, what):
    """MACs by precision, or by whether they depend on no input."""
    amounts = {}
    for row in ledger.counted:
        key = row.precision if what == "precision" else row.node.constant
        amounts[key] = amounts.get(key, 0) + row.cost.macs
    return {key: macs for key, macs in amounts.items() if macs}


def test_doubling_functions_are_exact(tmp_path):
    """28 functions that each call the next twice: 2^27 leaves of 4 comparisons."""
    ledger = ledger_of(saved(tmp_path, doubling(27)))
    assert ledger.total.compares == 2**27 * 4
    assert len(ledger.counts) < 100


def test_the_larger_branch_is_found_through_functions(tmp_path, monkeypatch):
    """An If of which one branch calls a function twice: the larger one, as when it is inlined."""
    text = (
        "g (float[8,16] x, float[16,16] w, bool c) => (y) { y = If (c) "
        "<then_branch = t () => (p) { p = local.F (x, w) }, "
        "else_branch = e () => (q) { o = local.F (x, w) q = local.F (o, w) }> } "
        f"{LOCAL} F (a, b) => (r) {{ r = MatMul(a, b) }}"
    )
    monkeypatch.setattr(functions, "LIMIT", 0)
    path = saved(tmp_path, named(parsed(text), "fork"))
    assert ledger_of(path).total.macs == 2 * PRODUCT
    assert ledger_of(path, branches={"fork": "then"}).total.macs == PRODUCT


def test_a_loop_in_a_function_is_named_by_it(tmp_path, monkeypatch):
    """--trips reaches a Loop in a function by the key that the report shows."""
    text = (
        "g (float[8,16] x, float[16,16] w, int64 n) => (y) "
        "{ z = local.F (x, w, n) y = local.F (z, w, n) } "
        f"{LOCAL} F (a, b, n) => (r) {{ r = Loop (n, , a) <body = l (int64 i, bool t, "
        "float[8,16] d) => (o, e) { o = Identity(t) e = MatMul(d, b) }> }"
    )
    monkeypatch.setattr(functions, "LIMIT", 0)
    path = saved(tmp_path, parsed(text))
    (row,) = ledger_of(path).uncounted
    assert row.node.key == "F/Loop_0"
    assert ledger_of(path, trips={row.node.key: 5}).total.macs == 2 * 5 * PRODUCT


def test_too_many_kinds_of_calls_are_refused(tmp_path, monkeypatch):
    """Every call with a shape of its own is inferred, up to a limit that the error names."""
    text = (
        "g (float[8,16] x) => (y) { a = local.F (x) b = local.F (a) y = local.F (b) } "
        f"{LOCAL} F (a) => (r) {{ r = Concat <axis = 0> (a, a) }}"
    )
    monkeypatch.setattr(functions, "LIMIT", 0)
    monkeypatch.setattr(functions, "CALL_LIMIT", 2)
    with pytest.raises(TargetError, match="more than 2 different combinations"):
        graph_of(saved(tmp_path, parsed(text)))
