"""Loops whose runs differ: crossflops counts run by run, the tool sees one node."""

import pytest

import crossflops
from tests.onnx_files import parsed, saved, with_weights

pytestmark = pytest.mark.tools
BODY = """<body = b (int64 i, bool k, float[a,4] s) => (bool c2, float[d,4] s2{more}) {{
    c2 = Identity (k) h = MatMul (s, w) s2 = Concat <axis = 0> (s, h) {inside} }}>"""
HEAD = "m = Constant <value = int64 {3}> () c = Constant <value = bool {1}> ()"
GROWING = BODY.format(more="", inside="")
STACKING = BODY.format(more=", float[1,4] t", inside="t = ReduceSum <keepdims = 1> (s, r)")
X = "float[1,4] x"
# the first of three runs has a product
CHOOSING = """<body = b (int64 i, bool k, float[1,4] s) => (bool c2, float[1,4] s2)
    <int64 first = {0}> { c2 = Identity (k) here = Equal (i, first) s2 = If (here)
    <then_branch = t () => (p) { p = MatMul (s, w) },
     else_branch = f () => (q) { q = Identity (s) }> }>"""

# what stands around the loop, its weights, MACs of all: the state has 1, 2 and 4 rows of 4 x 4
CASES = [
    (f"({X}, float[4,4] w) => (y) {{ {HEAD} y = Loop (m, c, x) {GROWING} }}", (), 7 * 16),
    (f"({X}, float[4,4] w) => (y) {{ {HEAD} y = Loop (m, c, x) {GROWING} }}", ("w",), 7 * 16),
    (f"({X}, float[4,4] w) => (z) {{ {HEAD} g = MatMul (x, w) y = Loop (m, c, g) {GROWING}"
     " z = Relu (y) }", ("w",), 8 * 16),
    (f"({X}, float[4,4] w, int64[1] r) => (y, t) {{ {HEAD} y, t = Loop (m, c, x) {STACKING} }}",
     (), 7 * 16),
    (f"({X}, float[4,4] w) => (q) {{ {HEAD} y = Loop (m, c, x) {GROWING}"
     f" z = Loop (m, c, x) {GROWING} q = Sum (y, z) }}", (), 2 * 7 * 16),
]  # fmt: skip


@pytest.mark.parametrize(("place", "case"), enumerate(CASES))
def test_a_growing_loop_is_one_node_to_the_tool(place, case, tmp_path):
    """All of its products are a loop's body, which the tool does not open."""
    (text, weights, macs), name = case, "net/grow" if place % 2 else ""
    model = with_weights(f"g {text}", *weights) if weights else parsed(f"g {text}")
    for number, node in enumerate(model.graph.node):
        if name and node.op_type == "Loop":
            node.name = f"{name}{number}"
    report = crossflops.compare(saved(tmp_path, model), tools=["onnx-opcounter"], isolate=False)
    assert report.totals.macs == macs
    account = report.reconciliations[0]
    assert account.residual == 0
    opened = sum(s.amount for s in account.explanations if s.cause == "control.loop-body-once")
    assert opened == -(macs - 16 * ("g = MatMul" in text))
