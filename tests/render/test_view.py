"""Tables of a report as text, Markdown, CSV, JSON and HTML."""

import csv
import io
import json

import pytest
from msgspec.structs import replace

from crossflops import Report
from crossflops.errors import UnknownNameError
from crossflops.ir.graph import TensorSpec
from crossflops.ir.ledger import Intensity, Memory
from crossflops.render.formats import FORMATS
from crossflops.render.html import html
from crossflops.render.page import Page
from crossflops.render.pages.view import ReportTable
from crossflops.render.terminal import terminal
from crossflops.report.report import ModuleRow, NodeRow

BIG = 10**25


def node(name, path, macs, **fields):
    """A row of a convolution."""
    return NodeRow(
        node=name, op="Conv", path=path, macs=macs, flops=2 * macs, bytes_read=3,
        bytes_written=4, precision="float32", exactness="exact", **fields,
    )  # fmt: skip


@pytest.fixture
def tree(count):
    """A model of two layers, one of them two levels deep."""
    modules = (("", "Net"), ("a", "Block"), ("a.b", "Conv2d"), ("c", "Conv2d"))
    return replace(
        count,
        totals=replace(count.totals, macs=4 + BIG, flops=8 + 2 * BIG),
        nodes=(node("n1", "a.b", 4, kind="call_module", target="a.b"), node("n2", "c", BIG)),
        modules=tuple(
            ModuleRow(path=path, class_=name, macs=0, flops=0, params=1) for path, name in modules
        ),
    )


def shown(report, **options):
    """The report and a table of it."""
    return ReportTable(report, report.view(**options))


def test_the_tree_is_indented_and_adds_up(tree):
    """Names of modules alone, under those that they are in, and a line for the whole."""
    lines = terminal(shown(tree, by="module"), 200).splitlines()
    rows = [line for line in lines if "Conv2d" in line or "Block" in line]
    names = [line.split()[0] for line in rows]
    indents = [len(line) - len(line.lstrip()) for line in rows]
    assert list(zip(names, indents, strict=True)) == [("a", 3), ("b", 5), ("c", 3)]
    assert lines[-1].split()[0] == "total"
    assert lines[-1].endswith("100.0 %")


@pytest.mark.parametrize("by", ["op", "module", "node", "type"])
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_too_long(tree, by, width):
    """At any width."""
    assert all(len(line) <= width for line in terminal(shown(tree, by=by), width).splitlines())


def test_csv_has_raw_integers(tree):
    """One row for each, whatever its size, and no line for the whole."""
    rows = list(csv.DictReader(io.StringIO(FORMATS[".csv"](shown(tree, by="node")))))
    assert [row["node"] for row in rows] == ["n1", "n2"]
    assert rows[1]["macs"] == str(BIG)
    assert rows[0]["kind"] == "call_module"
    paths = list(csv.DictReader(io.StringIO(FORMATS[".csv"](shown(tree, by="module")))))
    assert [row["module"] for row in paths] == ["", "a", "a.b", "c"]
    assert sum(int(row["macs"]) for row in paths if row["module"] in ("a", "c")) == 4 + BIG


def test_csv_of_a_report_is_its_operators_and_of_a_comparison_its_tools(tree, resnet):
    """The table that the page is about."""
    assert FORMATS[".csv"](tree).startswith("operator,nodes,macs,flops,")
    tools = list(csv.DictReader(io.StringIO(FORMATS[".csv"](resnet))))
    assert [row["tool"] for row in tools] == [profile.tool for profile in resnet.profiles]
    assert {row["residual"] for row in tools} == {"0"}


def test_csv_quotes_what_needs_it(tree):
    """A comma in a name ends no cell."""
    odd = replace(tree, nodes=(node('a,"b"\nc', "c", 1),))
    rows = list(csv.reader(io.StringIO(FORMATS[".csv"](shown(odd, by="node")))))
    assert rows[1][0] == 'a,"b"\nc'


def test_what_is_no_table_is_no_csv():
    """A page of words is refused, with what to do."""
    with pytest.raises(UnknownNameError, match="has more than one table"):
        FORMATS[".csv"](Page(()))


def test_json_adds_the_table_to_the_contract(tree):
    """Everything of the report, and the rows by column."""
    data = json.loads(FORMATS[".json"](shown(tree, by="type", top=1)))
    assert data["totals"]["macs"] == 4 + BIG
    assert data["view"]["rows"][0]["type"] == "Conv2d"
    assert data["view"]["by"] == "type"
    assert Report.from_json(json.dumps(data)) == tree


def test_markdown_and_html_keep_the_indentation(tree):
    """Spaces that a browser does not swallow."""
    assert "\n| &nbsp;&nbsp;&nbsp;&nbsp;b | Conv2d |" in FORMATS[".md"](shown(tree, by="module"))
    assert "white-space: pre-wrap" in html(shown(tree, by="module"))


def test_memory_figures_are_on_the_page(count):
    """Exact integers, and the ratio in four digits."""
    memory = Memory(
        access_bytes=1_000_000,
        access_elements=250_000,
        elements_read=150_000,
        elements_written=100_000,
        intensity=Intensity(19_340_000, 1_000_000),
        peak_activation_bytes=4_000_000,
        peak_node="relu_7",
        unsized=1,
        param_bytes=40_000_000,
    )
    text = terminal(replace(count, memory=memory), 120)
    assert "memory traffic" in text
    assert "250 000 elements" in text
    assert "19.34" in text
    assert "alive at relu_7, without parameters; 1 tensor of unknown size left out" in text
    assert "40 000 000" in text
    assert "memory traffic" not in terminal(count, 120)


def test_ten_million_floats_are_forty_megabytes():
    """What a parameter takes is its number of elements in its type."""
    assert TensorSpec("w", "float32", (10_000, 1000)).nbytes == 40_000_000
    assert TensorSpec("w", "bfloat16", (10_000, 1000)).nbytes == 20_000_000
