"""Loops whose shapes change from run to run: the sum over the runs, or nothing at all."""

import pytest
from onnx import TensorProto, helper

from crossflops.errors import CrossflopsWarning
from tests.frontends.onnx.test_control_flow import HEAD, PRODUCT, loop, named
from tests.onnx_files import ledger_of, parsed, saved

DOUBLING = (
    "(int64 i, bool ci, a) => (co, e) "
    "{ co = Identity(ci) h = MatMul(a, w) e = Concat<axis = 0>(h, h) }"
)
CACHE = (  # one more key with every run, and a query against all of them
    "g (float[1,16] q, float[3,16] k, int64 n) => (y, all) <int64 five = {5}, bool yes = {1}> "
    "{ y, all = Loop (MARK, yes, k) <body = b (int64 i, bool ci, a) => (co, e, s) "
    "{ co = Identity(ci) e = Concat<axis = 0>(a, q) t = Transpose(e) p = MatMul(q, t) "
    "s = MatMul(p, e) }> }"
)
KEYS = sum(2 * 16 * (3 + run) for run in range(1, 6))  # scores, and the mixture of the keys


def test_a_shape_that_doubles_with_every_run(tmp_path):
    """Rows 8, 16 ... 8 * 2^9: the products of all runs, each of its own size."""
    ledger = ledger_of(saved(tmp_path, loop("ten, yes", DOUBLING)))
    assert ledger.total.macs == PRODUCT * (2**10 - 1)
    assert not ledger.uncounted


def test_a_cache_that_grows(tmp_path):
    """Attention over 4, 5, 6, 7 and 8 keys, and what comes out behind the loop has 8."""
    text = CACHE.replace("MARK", "five")
    assert ledger_of(saved(tmp_path, parsed(text))).total.macs == KEYS
    behind = text.replace("(y, all) <", "(z, all) <").replace(
        "}> }", "}> t = Transpose(y) z = MatMul(q, t) }"
    )
    assert ledger_of(saved(tmp_path, parsed(behind))).total.macs == KEYS + 16 * 8


def test_a_cache_that_grows_as_often_as_data_says(tmp_path):
    """Without a count it is uncounted; with --trips the sum is exact."""
    path = saved(tmp_path, named(parsed(CACHE.replace("MARK", "n"))))
    assert "--trips loop=N" in ledger_of(path).uncounted[0].reason
    assert ledger_of(path, trips={"loop": 5}).total.macs == KEYS


def test_a_shape_that_the_number_of_the_run_decides(tmp_path):
    """The first i + 1 rows of x in run i, for ten runs of which the last two have all eight."""
    body = (
        "(int64 i, bool ci, float[8,16] a) => (co, e, s) { co = Identity(ci) e = Identity(a) "
        "l = Add(i, one) ax = Constant<value_ints = [0]>() u = Unsqueeze(l, ax) "
        "r = Slice(a, ax, u) m = MatMul(r, w) s = ReduceSum<keepdims = 0>(m) }"
    )
    model = parsed(
        f"{HEAD} <int64 ten = {{10}}, int64 one = {{1}}, bool yes = {{1}}> "
        f"{{ z, y = Loop (ten, yes, x) <body = b {body}> }}"
    )
    rows = sum(min(run + 1, 8) for run in range(10))
    ledger = ledger_of(saved(tmp_path, model))
    assert ledger.total.macs == rows * 16 * 16
    assert not ledger.uncounted


def test_a_growing_loop_within_a_loop(tmp_path):
    """The inner one grows from the same size each time: three times the sum of ten runs."""
    inner = (
        "(int64 j, bool cj, b) => (cp, k) "
        "{ cp = Identity(cj) h = MatMul(b, w) k = Concat<axis = 0>(h, h) }"
    )
    outer = (
        "(int64 i, bool ci, float[8,16] a) => (co, e) { co = Identity(ci) "
        f"f = Loop (ten, yes, a) <body = v {inner}> s = ReduceSum<keepdims = 0>(f) "
        "e = Add(a, s) }"
    )
    model = parsed(
        f"{HEAD} <int64 ten = {{10}}, int64 three = {{3}}, bool yes = {{1}}> "
        f"{{ y = Loop (three, yes, x) <body = b {outer}> }}"
    )
    assert ledger_of(saved(tmp_path, model)).total.macs == 3 * PRODUCT * (2**10 - 1)


def test_a_loop_within_a_growing_loop(tmp_path):
    """Two products in every run of the outer loop, which doubles its rows ten times."""
    step = "(int64 j, bool cj, b) => (cp, f) { cp = Identity(cj) f = MatMul(b, w) }"
    outer = (
        "(int64 i, bool ci, a) => (co, e) { co = Identity(ci) "
        f"h = Loop (two, yes, a) <body = v {step}> e = Concat<axis = 0>(h, h) }}"
    )
    model = parsed(
        f"{HEAD} <int64 ten = {{10}}, int64 two = {{2}}, bool yes = {{1}}> "
        f"{{ y = Loop (ten, yes, x) <body = b {outer}> }}"
    )
    assert ledger_of(saved(tmp_path, model)).total.macs == 2 * PRODUCT * (2**10 - 1)


def test_a_branch_in_every_run_of_a_growing_loop(tmp_path):
    """--branch holds for the If in all runs, which read what the loop carries."""
    body = (
        "(int64 i, bool ci, a) => (co, e) { co = Identity(ci) h = If (c) "
        "<then_branch = t () => (p) { p = MatMul(a, w) }, "
        "else_branch = s () => (q) { o = MatMul(a, w) q = MatMul(o, w) }> "
        "e = Concat<axis = 0>(h, h) }"
    )
    path = saved(tmp_path, named(loop("ten, yes", body)))
    once = PRODUCT * (2**10 - 1)
    assert ledger_of(path).total.macs == 2 * once
    assert ledger_of(path, branches={"loop/If_1": "then"}).total.macs == once


def test_too_many_runs_are_not_followed(tmp_path):
    """A million different runs are more than the limit: named, warned of, and never a number."""
    body = DOUBLING.replace("Concat<axis = 0>(h, h)", "Concat<axis = 0>(h, x)")
    model = loop("n, yes", body)
    inner = model.graph.node[-1].attribute[0].g
    inner.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, [8, 16]))
    with pytest.warns(CrossflopsWarning, match="Loop 'loop' change in each iteration"):
        ledger = ledger_of(saved(tmp_path, named(model)), trips={"loop": 10**6})
    assert {gap.node.op.type for gap in ledger.uncounted} >= {"MatMul"}
    assert ledger.total.macs == 0


def test_a_shape_that_data_decides_is_never_believed(tmp_path):
    """What comes back has a size that only data knows: the first shape does not hold for all."""
    body = (
        "(int64 i, bool ci, a) => (co, e) { co = Identity(ci) h = MatMul(a, w) "
        "m = ReduceSum<keepdims = 0>(h, one) t = Greater(m, zero) e = Compress<axis = 0>(h, t) }"
    )
    model = parsed(
        f"{HEAD} <int64 ten = {{10}}, bool yes = {{1}}, int64[1] one = {{1}}, float zero = {{0}}> "
        f"{{ y = Loop (ten, yes, x) <body = b {body}> }}"
    )
    ledger = ledger_of(saved(tmp_path, model))
    products = [row for row in ledger.counts if row.node.op.type == "MatMul"]
    assert all(product in ledger.uncounted for product in products[1:])
    assert ledger.total.macs in (0, PRODUCT)  # of the first run alone the shape is known
