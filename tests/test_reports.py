"""The committed reports: they still render, to the bytes that stand beside them."""

from pathlib import Path

import pytest

from crossflops.core.report import Report
from crossflops.render.markdown import markdown

REPORTS = Path(__file__).parent.parent / "reports"
FILES = sorted(REPORTS.glob("*.json"))


def test_there_are_reports():
    """The folder holds what the `report` environment makes."""
    assert {file.stem for file in FILES} >= {"resnet50", "vit_b_16", "vit_b_16-no-grad"}


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
    """Every tool answered, with residual 0."""
    report = Report.from_json(file.read_text(encoding="utf-8"))
    assert report.residuals
    assert set(report.residuals.values()) == {0}
    assert len(report.residuals) == len(report.profiles)
