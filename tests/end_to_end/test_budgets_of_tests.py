"""Budgets that a suite of pytest holds: each call has its entry, and no two share one."""

import json

import pytest

from tests.end_to_end.test_gates import model, run
from tests.onnx_files import saved

PYTEST = ("-m", "pytest", "-q", "-p", "crossflops.pytest_plugin", "-p", "no:cacheprovider")
SUITE = """import pytest

class TestFirst:
    def test_it(self, flops_budget):
        flops_budget("a.onnx", "macs <= +0%")

class TestSecond:
    def test_it(self, flops_budget):
        flops_budget("b.onnx", "macs <= +0%")

@pytest.mark.parametrize("file", ["a.onnx", "b.onnx"])
def test_each(flops_budget, file):
    flops_budget(file, "macs <= +0%", "params <= +0%")

@pytest.mark.parametrize("file", ["a.onnx", "b.onnx"])
def test_named(flops_budget, file):
    flops_budget(file, "macs <= +0%", name=f"net of {file}")

def test_several(flops_budget):
    flops_budget("a.onnx", "macs <= +0%")
    flops_budget("b.onnx", "macs <= +0%")
    flops_budget("a.onnx", "flops <= +0%")
"""
# Each call is wrong, and its words are in what pytest prints.
WRONG = {
    'flops_budget("a.onnx", ["macs <= 1k"])': "write the rules after the model",
    'flops_budget("a.onnx", rules=["macs <= 1k"])': "flops_budget has no argument rules=",
    'flops_budget("a.onnx", 3)': "a rule must be a text, got 3",
    'flops_budget("a.onnx", "macs <= 1k", dim={"N": 1})': "did you mean dims?",
    'flops_budget("a.onnx", "macs <= 1k", input="10x8")': "did you mean inputs",
    'flops_budget("a.onnx", "macs <= 1")': "`pytest --update-flops` writes one",
    'flops_budget("a.onnx", "macs <= +1%")': "`pytest --update-flops` writes one",
    '[flops_budget(f, "macs <= 1k", name="n") for f in ("a.onnx", "b.onnx")]':
        "use the same budget name 'n'",
}  # fmt: skip


@pytest.fixture
def suite(tmp_path):
    """A folder with two models of 800 and 1000 MACs."""
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    saved(tmp_path, model(("body",)), "a.onnx")
    saved(tmp_path, model(("body", "head")), "b.onnx")
    return tmp_path


def test_every_call_has_an_entry(suite):
    """Nine calls of seven tests; a model that grows fails those of its own, and no other."""
    (suite / "test_them.py").write_text(SUITE)
    for words in (("--update-flops",), ()):
        done = run(suite, *PYTEST, *words)
        assert done.returncode == 0, done.stdout
    models = json.loads((suite / "crossflops-baseline.json").read_text())["models"]
    assert len(models) == 9
    saved(suite, model(("body", "head", "more")), "a.onnx")
    done = run(suite, *PYTEST)
    assert "4 failed, 3 passed" in done.stdout
    assert "TestSecond" not in done.stdout


def test_a_wrong_call_says_what_to_write(suite):
    """In the words of the call, and with the remedy of a run of tests."""
    tests = (f"def test_{k}(flops_budget): {call}\n" for k, call in enumerate(WRONG))
    (suite / "test_them.py").write_text("".join(tests))
    done = run(suite, *PYTEST)
    assert f"{len(WRONG)} failed" in done.stdout
    for words in WRONG.values():
        assert words in done.stdout
    assert "crossflops check --update" not in done.stdout
