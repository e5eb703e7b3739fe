"""What counting a file does not import: a framework takes longer than the count."""

import subprocess
import sys

import pytest

from tests.onnx_files import parsed, saved

MOST = 112  # modules of the package for a count
HEAVY = ("jax", "numpy", "onnx_ir", "onnxruntime", "sympy", "tensorflow", "torch")
SAYS = (
    "import sys; from crossflops.cli import main; "
    "main(sys.argv[1:]); print('imported', *sys.modules, file=sys.stderr)"
)


def imported_by(verb, folder):
    """The modules that are there when a verb has done its work on a small file."""
    path = saved(folder, parsed("g (float[4,4] x) => (y) { h = MatMul(x, x) y = Relu(h) }"))
    line = [sys.executable, "-c", SAYS, verb, *([path] if verb == "count" else [])]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120)
    return done.stderr.rpartition("imported ")[2].split()


@pytest.mark.parametrize("verb", ["--help", "count"])
def test_no_framework_is_imported(verb, tmp_path):
    """Neither help nor the count of a file needs one, nor the whole of onnx."""
    imported = imported_by(verb, tmp_path)
    assert "crossflops.cli" in imported
    assert not {name for name in imported if name.partition(".")[0] in HEAVY}
    assert "onnx" not in imported


def test_a_count_imports_what_it_needs(tmp_path):
    """Neither tools nor their causes, no hardware, no other verb, no other page and no format."""
    own = [name for name in imported_by("count", tmp_path) if name.startswith("crossflops")]
    assert len(own) <= MOST, own
    rooms = {".".join(name.split(".")[:2]) for name in own}
    unneeded = ("bench", "causes", "hardware", "plugins", "reconcile", "tools", "workers")
    assert rooms.isdisjoint(f"crossflops.{room}" for room in unneeded)


def test_a_count_imports_no_library_that_its_page_does_not_need(tmp_path):
    """A page without colours is written without rich; versions are read from names of folders."""
    imported = imported_by("count", tmp_path)
    assert {"email", "logging", "rich.console", "tempfile", "zipfile"}.isdisjoint(imported)
