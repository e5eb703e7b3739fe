"""The formats beside the terminal, and the law that a report read back renders the same."""

import json

import pytest
from msgspec.structs import replace

from crossflops import Report
from crossflops.render.formats import FORMATS, markdown
from crossflops.render.html import html
from crossflops.render.page import Page, Text
from crossflops.render.terminal import terminal

REPORTS = ["resnet", "troubled", "count", "folded"]


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_read_back_renders_to_the_same_bytes(request, name):
    """JSON loses nothing that any renderer shows."""
    report = request.getfixturevalue(name)
    again = Report.from_json(report.to_json())
    for render in (*FORMATS.values(), html):
        assert render(again) == render(report)
        assert render(again, unit="flops") == render(report, unit="flops")
    assert terminal(again, 120, True) == terminal(report, 120, True)


def test_the_suffixes_are_these():
    """A file may end in .json, .md, .txt, .tex, .html, .csv and .json.gz."""
    assert list(FORMATS) == [".json", ".md", ".txt", ".tex", ".html", ".csv", ".json.gz"]


def test_json_keeps_integers_beyond_two_to_the_53(resnet):
    """Counts are exact JSON integers at any size."""
    big = 10**25 + 1
    report = replace(resnet, totals=replace(resnet.totals, macs=big))
    read = json.loads(FORMATS[".json"](report))
    assert read["totals"]["macs"] == big
    assert read["reconciliations"][0]["delta"] == 44_558_336
    assert read["reconciliations"][0]["residual"] == 0


def test_text_is_the_terminal_at_eighty_columns(resnet):
    """A text file is what a terminal of 80 columns shows."""
    assert FORMATS[".txt"](resnet) == terminal(resnet, 80)


def test_markdown_tells_the_calls(resnet):
    """A written report names calls and sources, which a terminal has no room for."""
    text = markdown(resnet)
    assert text.startswith("# ResNet\n\n25.56 M parameters · input 1x3x224x224 float32 · ")
    assert "\n## thop = native + 44 558 336\n" in text
    row = "| norm.batch | +44 455 936 | 53 calls | 4 per element of every nn.BatchNorm2d "
    assert row + "| call0, and 52 more | r |\n" in text
    assert "\n| residual | 0 |  |  |  |  |\n" in text


def test_markdown_escapes_what_would_end_a_cell(count):
    """A bar or a star in a name neither ends a cell nor turns anything bold."""
    assert "| fc\\|x | Linear | 2 048 000 | 1 | 2 049 000 |" in markdown(count)


def test_markdown_leaves_addresses_whole():
    """An address is a link only while nothing in it is escaped."""
    page = Page((Text("see https://onnx.ai/onnx__Abs.html#abs-13 of a_b"),))
    assert markdown(page) == "see https://onnx.ai/onnx__Abs.html#abs-13 of a\\_b\n"


def test_every_markdown_row_has_the_cells_of_its_head(troubled, resnet, count):
    """Tables are rectangular."""
    for report in (troubled, resnet, count):
        for block in markdown(report).split("\n\n"):
            rows = [line.replace("\\|", "") for line in block.splitlines() if line[:1] == "|"]
            assert len({row.count("|") for row in rows}) <= 1


def test_html_escapes_names(count):
    """A model's name cannot write markup into a notebook."""
    evil = replace(count, model=replace(count.model, name="<script>alert(1)</script>"))
    text = html(evil)
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; · 25.56 M parameters" in text


def test_html_is_one_self_contained_fragment(resnet):
    """A notebook gets one div, without a script or anything from elsewhere."""
    text = html(resnet)
    assert text.startswith("<div")
    assert text.rstrip().endswith("</div>")
    assert "http" not in text
    assert '<td style="text-align: right">4 133 742 592</td>' in text
    assert resnet._repr_html_() == text
