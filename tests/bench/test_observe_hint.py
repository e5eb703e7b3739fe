"""Sizes that follow from values: a count names the node and --observe, and a run has them."""

import warnings

import numpy as np
import pytest

from crossflops import count
from crossflops.errors import CrossflopsWarning
from tests.onnx_files import parsed, saved

pytest.importorskip("onnxruntime", reason="the extra [runtime] is not installed")
pytestmark = pytest.mark.onnxruntime

BOXES = "float[1,20,4] b, float[1,1,20] s, float[3,8] w"
CHOSEN = """<int64 most = {5}, float iou = {0.5}, float least = {0.0}> {
    k = NonMaxSuppression (b, s, most, iou, least) f = Cast <to = 1> (k) y = MatMul (f, w) }"""
# 20 squares of 1 side by side, and 20 times the same.
APART = np.stack([np.array([2 * at, 0, 2 * at + 1, 1], np.float32) for at in range(20)])[None]
ALIKE = np.repeat(APART[:, :1], 20, axis=1)
SCORES = np.linspace(0.1, 1, 20, dtype=np.float32).reshape(1, 1, 20)
ROWS = np.arange(20, dtype=np.float32).reshape(4, 5)
KEPT = np.array([True, False, True, True])
W = {"w": np.ones((5, 8), np.float32)}

# operator, graph, values, MACs behind it by hand
CASES = [
    ("NonMaxSuppression", f"g ({BOXES}) => (y) {CHOSEN}",
     {"b": APART, "s": SCORES, "w": np.ones((3, 8), np.float32)}, 5 * 3 * 8),
    ("NonMaxSuppression", f"g ({BOXES}) => (y) {CHOSEN}",
     {"b": ALIKE, "s": SCORES, "w": np.ones((3, 8), np.float32)}, 1 * 3 * 8),
    ("NonZero", "g (float[4,5] x, float[2,8] w) => (y) { k = NonZero (x) t = Transpose (k) "
     "f = Cast <to = 1> (t) y = MatMul (f, w) }",
     {"x": ROWS, "w": np.ones((2, 8), np.float32)}, 19 * 2 * 8),
    ("Compress", "g (float[4,5] x, bool[4] c, float[5,8] w) => (y) "
     "{ k = Compress <axis = 0> (x, c) y = MatMul (k, w) }", {"x": ROWS, "c": KEPT, **W},
     3 * 5 * 8),
    ("Unique", "g (float[4,5] x, float[5,8] w) => (y) { k = Unique <axis = 0> (x) "
     "y = MatMul (k, w) }", {"x": np.ones((4, 5), np.float32), **W}, 1 * 5 * 8),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "text", "values", "macs"), CASES)
def test_the_hint_names_the_node_and_the_run_has_its_sizes(operator, text, values, macs, tmp_path):
    """Without the run nothing behind the node is counted, and that is said."""
    path, file = saved(tmp_path, parsed(text)), tmp_path / "values.npz"
    np.savez(file, **values)
    with pytest.warns(CrossflopsWarning, match=rf"\({operator}\) depend on values.*--observe"):
        open_ = count(path)
    assert open_.uncounted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = count(path, inputs_file=str(file), observe=True)
    assert (seen.macs, seen.uncounted) == (macs, ())


def test_no_hint_where_sizes_are_known(tmp_path):
    """A product of fixed sizes: no run would show more."""
    path = saved(tmp_path, parsed("g (float[4,5] x, float[5,8] w) => (y) { y = MatMul (x, w) }"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert count(path).macs == 160
