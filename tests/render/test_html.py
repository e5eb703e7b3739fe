"""The HTML file: whole by itself, exact, escaped, and small."""

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from crossflops.errors import InputError
from crossflops.files import read_file_bytes
from crossflops.ir.profile import Failure
from crossflops.render.figures.canvas import Box, Words, canvas_to_svg
from crossflops.render.figures.comparison import comparison_figure, waterfall_chart
from crossflops.render.figures.files import figure_file_bytes
from crossflops.render.formats import FORMATS
from crossflops.report.report import ModuleRow, NodeRow, Report, UncountedRow
from tests.render.conftest import counted, why

REPORTS = Path(__file__).parents[2] / "reports"
VOID = {"meta", "input", "br", "img", "link", "hr", "wbr"}
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[31m"


class Reader(HTMLParser):
    """Every element with its attributes, the texts, and what was not closed as it should be."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.wrong, self.elements, self.texts = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append((tag, self.getpos()))

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def visible(self):
        return " ".join(text for tag, text in self.texts if tag not in ("script", "style"))


def read(noun):
    """The document of a noun, as a browser's parser sees it."""
    reader = Reader()
    reader.feed(FORMATS[".html"](noun))
    reader.close()
    return reader


def node(name, path="", **changes):
    """A counted node."""
    fields = {
        "node": name, "op": "Conv", "path": path, "macs": 0, "flops": 0, "bytes_read": 0,
        "bytes_written": 0, "precision": "float32", "exactness": "exact",
    }  # fmt: skip
    return NodeRow(**(fields | changes))


def module(path, **changes):
    """A row of the module table."""
    fields = {"path": path, "class_": "Sequential", "macs": 0, "flops": 0, "params": 0}
    return ModuleRow(**(fields | changes))


@pytest.mark.parametrize("name", ["resnet", "troubled", "count", "folded"])
def test_the_file_is_well_formed_and_asks_for_nothing(request, name):
    """Every element is closed in its place, and nothing in the file leads out of it."""
    reader = read(request.getfixturevalue(name))
    assert (reader.open, reader.wrong) == ([], [])
    for _, attributes in reader.elements:
        assert attributes.get("href", "#").startswith("#")
        assert not {"src", "srcset", "action", "data", "poster"} & set(attributes)
        assert not [key for key in attributes if key.startswith("on")]
    rules = [text for tag, text in reader.texts if tag == "style"]
    assert "url(" not in rules[0]
    assert "@import" not in rules[0]
    policies = [meta["content"] for _, meta in reader.elements if "http-equiv" in meta]
    assert policies == [POLICY]


def test_names_are_text_whatever_is_in_them():
    """No name ends the script or begins one: it is read as it is, but for control characters."""
    report = counted(
        modules=(module("", class_=HOSTILE), module(HOSTILE)),
        nodes=(node(HOSTILE, HOSTILE, op=HOSTILE),),
        uncounted=(UncountedRow(HOSTILE, HOSTILE, HOSTILE),),
        warnings=(HOSTILE,),
        profiles=(Failure(tool="thop", stage="run", message=HOSTILE, hint=HOSTILE),),
    )
    report = replace(report, model=replace(report.model, name=HOSTILE))
    reader = read(report)
    tags = Counter(tag for tag, _ in reader.elements)
    assert tags["script"] == tags["style"] == 1
    assert "img" not in tags
    assert "alert" not in "".join(text for tag, text in reader.texts if tag == "script")
    assert reader.visible().count("<script>alert(1)</script>") >= 6
    assert "\x1b" not in reader.visible()
    assert reader.wrong == []


def test_counts_beyond_two_to_the_53_have_every_digit():
    """They are text from Python to the reader."""
    macs = 10**25 + 1
    report = counted(modules=(), nodes=(node("n", macs=macs, flops=2 * macs),))
    text = read(report).visible()
    assert "10 000 000 000 000 000 000 000 001" in text
    assert "20 000 000 000 000 000 000 000 002" in text


def test_the_tree_has_all_beneath_a_module_and_levels():
    """Two nodes of 3 + 4 bytes in a.b and one of 5 in a: 12 in a, 7 in a.b; ids keep the order."""
    report = counted(
        modules=(module(""), module("a"), module("a.b")),
        nodes=(
            node("x", "a.b", bytes_read=1, bytes_written=2),
            node("y", "a.b", bytes_read=4),
            node("z", "a", bytes_written=5),
        ),
    )
    page = FORMATS[".html"](report)
    tree = page.partition('role="treegrid"')[2].partition("</table>")[0]
    rows = [row.split("</td>") for row in tree.split("<tr ")[1:]]
    levels = [row[0].partition('aria-level="')[2].partition('"')[0] for row in rows]
    assert levels == ["1", "2", "3"]
    assert [row[4].rpartition(">")[2] for row in rows] == ["12", "12", "7"]


def test_everything_uncounted_and_every_failure_is_named():
    """A page in a terminal names twelve, the file each of them."""
    missing = tuple(UncountedRow(f"node{k}", f"Op{k}", f"reason {k}") for k in range(40))
    failures = tuple(
        Failure(tool=f"tool{k}", stage="run", message=f"message {k}", hint="hint")
        for k in range(9)
    )
    text = read(counted(uncounted=missing, profiles=failures)).visible()
    assert all(f"reason {k}" in text for k in range(40))
    assert all(f"tool{k}" in text and f"message {k}" in text for k in range(9))


@pytest.mark.parametrize("name", ["resnet50", "bert", "densenet121", "vit_b_16"])
def test_the_files_of_committed_reports_are_small(name):
    """1.5 MB for ResNet-50 is the budget; nineteen tools and 175 nodes are a tenth of it."""
    report = Report.from_json(read_file_bytes(REPORTS / f"{name}.json.gz"))
    assert len(FORMATS[".html"](report).encode()) < 1_500_000


def test_five_thousand_nodes_are_at_most_two_and_a_half_megabytes():
    """With names as long as exporters give, and a module for every second node."""
    paths = [f"model.layers.{k // 20}.self_attn.block.{k % 20}" for k in range(2500)]
    nodes = tuple(
        node(f"node_scaled_dot_product_attention_{k}", paths[k // 2], macs=10**11 + k,
             flops=2 * 10**11, bytes_read=10**9, bytes_written=10**9)
        for k in range(5000)
    )  # fmt: skip
    modules = (module(""), *(module(path, macs=10**11, params=10**8) for path in paths))
    assert len(FORMATS[".html"](counted(modules=modules, nodes=nodes)).encode()) < 2_500_000


def bars(canvas):
    """The bars of a waterfall, from its left."""
    return [shape for shape in canvas.shapes if isinstance(shape, Box)]


def test_bars_of_a_waterfall_are_as_long_as_their_amounts_and_hang_together():
    """+30, +10, -20: lengths 3 : 1 : 2; each begins where the one before it ended."""
    causes = (("a", 30, 1), ("b", 10, 1), ("c", -20, 1))
    first, second, third = bars(waterfall_chart(why("t", 20, causes, ours=0)))
    assert first.width == pytest.approx(3 * second.width)
    assert third.width == pytest.approx(2 * second.width)
    assert second.x == pytest.approx(first.x + first.width)
    assert third.x + third.width == pytest.approx(second.x + second.width)


def test_a_cause_that_dwarfs_the_others_is_drawn_broken_and_says_so():
    """Its amount stands beside it; the others keep their proportion."""
    account = why("t", 10**12 + 40, (("unit", 10**12, 1), ("a", 30, 1), ("b", 10, 1)), ours=0)
    canvas = waterfall_chart(account)
    unit, a, b = bars(canvas)
    assert a.width == pytest.approx(3 * b.width)
    assert unit.width < 2 * a.width
    texts = [shape.text for shape in canvas.shapes if isinstance(shape, Words)]
    assert "the broken bar is longer than drawn" in texts
    assert "+1 000 000 000 000" in texts


def test_a_residual_is_a_bar_of_its_own():
    """What no cause covers is in the picture: 50 - 0 = 30 + 20 that nothing explains."""
    canvas = waterfall_chart(why("t", 50, (("a", 30, 1),), ours=0))
    assert [(bar.ink, bar.tip) for bar in bars(canvas)] == [
        ("more", "a: +30"),
        ("bad", "residual: +20"),
    ]


def test_a_file_of_waterfalls_has_each_tool_that_differs(resnet):
    """torch-flop-counter and the others beneath each other, each with its amounts."""
    text = figure_file_bytes(comparison_figure(resnet, "waterfall.svg"), ".svg").decode()
    for account in resnet.reconciliations:
        assert (f"{account.tool} = native" in text) == bool(account.delta)
    assert "+44 455 936" in text
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"


def test_the_picture_of_the_readme_is_that_of_the_committed_report():
    """`crossflops render reports/vit_b_16.json.gz --plot docs/bars-vit_b_16.svg` writes it."""
    file = REPORTS.parent / "docs" / "bars-vit_b_16.svg"
    report = Report.from_json(read_file_bytes(REPORTS / "vit_b_16.json.gz"))
    assert figure_file_bytes(comparison_figure(report, file.name), ".svg") == file.read_bytes()


def test_without_a_difference_there_is_nothing_to_draw(count):
    """A count has no tools: it is refused, and nothing is written."""
    with pytest.raises(InputError, match="nothing to draw: for no tool is the"):
        comparison_figure(count, "waterfall.svg")


@pytest.mark.plots
def test_a_waterfall_as_png(resnet):
    """The same shapes, painted by matplotlib; the same bytes each time."""
    pytest.importorskip("matplotlib")
    data = figure_file_bytes(comparison_figure(resnet, "waterfall.png"), ".png")
    assert data.startswith(b"\x89PNG")
    assert figure_file_bytes(comparison_figure(resnet, "waterfall.png"), ".png") == data


def test_a_picture_alone_has_its_colours_with_it():
    """It is drawn where no style sheet is, and names are escaped there, too."""
    text = canvas_to_svg(waterfall_chart(why("<t>", 50, (("<a>&", 50, 1),), ours=0)), alone=True)
    assert text.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert "class=" not in text
    assert "&lt;a&gt;&amp;" in text
    assert "<a>" not in text
