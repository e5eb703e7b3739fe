"""The committed reports: they still render, to the bytes that stand beside them."""

from pathlib import Path

import pytest

from crossflops import Report
from crossflops.ir.profile import Failure
from crossflops.render.markdown import markdown
from tests.make_reports import REPORTS

FOLDER = Path(__file__).parent.parent / "reports"
FILES = sorted(FOLDER.glob("*.json"))
ATTENTIVE = {"bert", "gpt2", "llama", "timm-vit_tiny", "vit_b_16", "vit_b_16-no-grad"}
WORDS = {"bert", "gpt2", "gru", "llama", "lstm"}
COLUMNS = ("torchstat", "torchstat-madd", "torchstat-memread", "torchstat-memwrite")
# What a tool itself says on the models on which it fails.
FAILS = {
    # it has no class for the operator Attention, which is whole in the graph
    **{("onnx-tool", one): "NotImplementedError: this Node Attention" for one in ATTENTIVE},
    # it asks for the second result of the GRU, which the file does not list
    ("onnx-tool", "gru"): "IndexError",
    # its trace has the fused kernel of attention, which has no schema there
    ("torchprofile", "vit_b_16-no-grad"): "'NoneType' object has no attribute 'lower'",
    # its rule of a linear layer asserts two axes
    **{
        (column, one): "AssertionError"
        for column in COLUMNS
        for one in (ATTENTIVE - WORDS) | {"convnext_tiny", "swin_t", "swin_v2_t"}
    },
    **{(column, one): "one image of floats" for column in COLUMNS for one in WORDS},
}


def test_there_is_a_report_of_every_model():
    """The folder holds what the `report` environment makes, and nothing else."""
    assert {file.stem for file in FILES} == REPORTS.keys()
    assert {file.stem for file in FOLDER.glob("*.md")} == REPORTS.keys()


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_report_renders_to_the_page_beside_it(file):
    """What was read back renders to the same bytes, JSON and Markdown."""
    text = file.read_text(encoding="utf-8")
    report = Report.from_json(text)
    assert report.to_json() == text
    page = file.with_suffix(".md").read_text(encoding="utf-8")
    assert markdown(report) == page


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_report_leaves_nothing_unexplained(file):
    """Every tool answered, with residual 0, or failed as it does on this model."""
    report = Report.from_json(file.read_text(encoding="utf-8"))
    assert report.uncounted == ()
    assert set(report.residuals.values()) == {0}
    params = [one.params for one in report.reconciliations if one.params]
    assert [one.residual for one in params if one.residual] == []
    failed = {one.tool: one.message for one in report.profiles if isinstance(one, Failure)}
    expected = {tool: text for (tool, name), text in FAILS.items() if name == file.stem}
    assert failed.keys() == expected.keys()
    assert all(text in failed[tool] for tool, text in expected.items())
    assert len(report.residuals) + len(failed) == len(report.profiles) == 19
