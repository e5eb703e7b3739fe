"""The scripts of examples/ do what they say, as someone runs them."""

import csv
import subprocess
import sys

import pytest

from tests.docs.blocks import ROOT
from tests.onnx_files import saved, with_weights

LAYER = "g (float[batch,4] x, float[4,{0}] w) => (y) {{ h = MatMul(x, w) y = Relu(h) }}"


@pytest.fixture
def models(tmp_path):
    """Two files with a layer each, of 4 to 8 and of 4 to 16, for a batch of any size."""
    small = saved(tmp_path, with_weights(LAYER.format(8), "w"), "small.onnx")
    large = saved(tmp_path, with_weights(LAYER.format(16), "w"), "large.onnx")
    return small, large


def run(script, *words):
    """The status and the lines of a script."""
    line = [sys.executable, str(ROOT / "examples" / script), *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout.splitlines() or done.stderr


def test_a_sweep_has_a_line_for_each_model_and_size(models):
    """Batch x 4 x width MACs, a compare for each result; x, h and y, of float32, alive at once."""
    status, lines = run("sweep.py", "batch=1,8", *models)
    assert status == 0, lines
    assert list(csv.DictReader(lines)) == [
        {
            "model": name,
            "size": str(batch),
            "macs": str(batch * 4 * width),
            "flops": str(2 * batch * 4 * width + batch * width),
            "params": str(4 * width),
            "peak_activation_bytes": str(4 * batch * (4 + 2 * width)),
        }
        for name, width in (("small", 8), ("large", 16))
        for batch in (1, 8)
    ]


@pytest.mark.parametrize(
    ("limit", "status", "word"), [(64, 0, "ok"), (63, 1, "OVER")], ids=["within", "exceeded"]
)
def test_a_budget_fails_when_a_model_grows(tmp_path, limit, status, word):
    """A layer of 4 to 16 on one row has 64 MACs; the other stays within its budget."""
    one_row = LAYER.replace("batch", "1")
    saved(tmp_path, with_weights(one_row.format(8), "w"), "small.onnx")
    saved(tmp_path, with_weights(one_row.format(16), "w"), "large.onnx")
    budget = tmp_path / "budget.toml"
    budget.write_text(f'"small.onnx" = 32\n"large.onnx" = {limit}\n')
    assert run("budget.py", str(budget)) == (
        status,
        [
            "ok   small.onnx: 32 of 32 MACs",
            f"{word:4} large.onnx: 64 of {limit} MACs",
        ],
    )


def test_a_budget_needs_a_whole_count(tmp_path):
    """An operator without a rule is no zero."""
    saved(tmp_path, with_weights("g (float[1] x) => (y) { y = local.Unknown(x) }"), "odd.onnx")
    budget = tmp_path / "budget.toml"
    budget.write_text('"odd.onnx" = 1\n')
    status, lines = run("budget.py", str(budget))
    assert (status, lines) == (1, ["OVER odd.onnx: 0 of 1 MACs, 1 nodes uncounted"])
