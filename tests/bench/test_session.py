"""Why onnxruntime cannot be imported: it is not there, finds no room, or is broken."""

import sys

import pytest

from crossflops.bench.session import import_onnxruntime
from crossflops.errors import MissingExtraError, NormalizeError


@pytest.mark.parametrize(
    ("raised", "expected", "said"),
    [
        ("ModuleNotFoundError('No module named onnxruntime')", MissingExtraError, "not installed"),
        ("ImportError('a.so: failed to map segment from shared object')", MemoryError, "a.so"),
        ("ImportError('a.so: undefined symbol')", NormalizeError, "undefined symbol"),
    ],
)
def test_what_an_import_says(tmp_path, monkeypatch, raised, expected, said):
    """A limit on the address space is no missing package."""
    (tmp_path / "onnxruntime.py").write_text(f"raise {raised}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    with pytest.raises(expected, match=said):
        import_onnxruntime()
