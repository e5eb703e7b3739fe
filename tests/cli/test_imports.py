"""What counting a file does not import: a framework takes longer than the count."""

import subprocess
import sys

import pytest

from tests.onnx_files import parsed, saved

HEAVY = ("jax", "numpy", "onnx_ir", "onnxruntime", "sympy", "tensorflow", "torch")
SAYS = (
    "import sys; from crossflops.cli import main; "
    "main(sys.argv[1:]); print('imported', *sys.modules, file=sys.stderr)"
)


@pytest.mark.parametrize("verb", ["--help", "count"])
def test_no_framework_is_imported(verb, tmp_path):
    """Neither help nor the count of a file needs one, nor the whole of onnx."""
    path = saved(tmp_path, parsed("g (float[4,4] x) => (y) { h = MatMul(x, x) y = Relu(h) }"))
    line = [sys.executable, "-c", SAYS, verb, *([path] if verb == "count" else [])]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120)
    imported = done.stderr.rpartition("imported ")[2].split()
    assert "crossflops.cli" in imported
    assert not {name for name in imported if name.partition(".")[0] in HEAVY}
    assert "onnx" not in imported
