"""`crossflops identify` and `crossflops audit`: JSON by contract, and pages that render again."""

import json

import pytest

from tests.onnx_files import saved, with_weights


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two models in the current folder: 30 MACs with 15 parameters, and 100 MACs."""
    one = "one (float[2,3] x, float[3,5] w) => (float[2,5] y) { y = MatMul(x, w) }"
    two = """two (float[2,3] x, float[3,5] w, float[5,7] v) => (float[2,7] y) {
        h = MatMul(x, w)
        y = MatMul(h, v)
    }"""
    saved(tmp_path, with_weights(one, "w"), "one.onnx")
    saved(tmp_path, with_weights(two, "w", "v"), "two.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_audits_and_renders_again(folder, line):
    """JSON by contract; a saved audit renders to the same page."""
    path = folder / "table.csv"
    path.write_text("model,macs\none.onnx,30\ntwo.onnx,200\n")
    status, out, _ = line("audit", path.name, "--as", "elementwise-1", "--json", "-o", "a.json")
    first, two = json.loads(out)["rows"]
    assert status == 0
    assert {"model", "published", "reproduced_by", "prints", "status"} <= first.keys()
    assert (first["status"], two["prints"]) == ("exact", 200)
    _, page, _ = line("render", "a.json")
    assert line("audit", path.name, "--as", "elementwise-1")[1] == page
    assert line("audit", path.name, "--only", "x*")[0] == 2


def test_the_command_identifies(folder, line):
    """The first candidate, with the command that prints it; a wrong figure ends with status 2."""
    status, out, _ = line("identify", "60", "one.onnx", "--json", "-o", "i.json")
    found = json.loads(out)["candidates"]
    assert status == 0
    assert found[0] | {"tool": "native", "unit": "FLOPs", "prints": 60, "missing": []} == found[0]
    assert found[0]["command"] == "crossflops count one.onnx"
    _, page, _ = line("render", "i.json")
    assert "60 of one.onnx" in page
    assert line("identify", "many", "one.onnx")[0] == 2
    _, out, _ = line("identify", "31 MACs", "one.onnx")
    assert "No convention prints this figure." in out
