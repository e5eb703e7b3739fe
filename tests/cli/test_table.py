"""`crossflops table`: a row each, in every format, exact in JSON and CSV."""

import csv
import io
import json

import pytest

from crossflops.render.latex import escape_latex, latex
from crossflops.render.page import Column, Page, Row, Table, number_columns
from tests.onnx_files import parsed, saved, with_weights

# MACs 2 x 3 x 5 = 30; Relu has 10 comparisons, so 70 FLOPs; 15 parameters.
ONE = "one (float[2,3] x, float[3,5] w) => (float[2,5] y) { h = MatMul(x, w)\n y = Relu(h) }"
# Besides 2 x 5 x 7 = 70 MACs and 35 parameters: 100 MACs, 210 FLOPs, 50 parameters.
TWO = """two (float[2,3] x, float[3,5] w, float[5,7] v) => (float[2,7] y) {
    h = MatMul(x, w)
    r = Relu(h)
    y = MatMul(r, v)
}"""


def files(folder):
    """Both models."""
    return (
        saved(folder, with_weights(ONE, "w"), "one.onnx"),
        saved(folder, with_weights(TWO, "w", "v"), "two.onnx"),
    )


def test_a_row_each_with_exact_counts(line, tmp_path, monkeypatch):
    """Named as typed; `by_tool` by convention, None with a note where it cannot count a file."""
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    tools = ("--by-tool", "exact-2k-1", "--by-tool", "thop")
    status, out, _ = line("table", "one.onnx", "two.onnx", *tools, "--json")
    assert status == 0
    first, two = json.loads(out)["rows"]
    assert [first[key] for key in ("target", "params", "macs", "flops")] == [
        "one.onnx",
        15,
        30,
        70,
    ]
    assert [two[key] for key in ("target", "params", "macs", "flops")] == [
        "two.onnx", 50, 100, 210,
    ]  # fmt: skip
    # K products and K - 1 sums for each result, and the Relu: 2 x 5 x 5 + 10
    assert first["by_tool"] == {"exact-2k-1": 60, "thop": None}
    assert any("a file does not record" in note for note in first["notes"])


def test_latex_has_booktabs_and_the_footnote(line, tmp_path, monkeypatch):
    """And a table of LaTeX escapes what it has to."""
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    status, _, _ = line("table", "one.onnx", "two.onnx", "-o", "t.tex")
    text = (tmp_path / "t.tex").read_text()
    assert status == 0
    assert "\\toprule" in text
    assert "  one.onnx & 15 & 30 & 70 &" in text
    # a head takes a line for each word
    assert [line.split("&")[4].strip(" \\") for line in text.splitlines() if "&" in line][:3] == [
        "memory", "traffic", "(B)",
    ]  # fmt: skip
    assert "Counted with crossflops" in text
    assert escape_latex('a_b & 50 % of "MACs"') == r"a\_b \& 50 \% of ``MACs''"


def test_figures_of_latex_align_at_their_points():
    """Blank digits fill up what has fewer places; a column of words stays."""
    columns = (Column(head="model"), *number_columns("MACs (M)"))
    rows = tuple(
        Row.from_cells(f"v1.{k}", cell) for k, cell in enumerate(("61.10", "1.235", "7", "-"))
    )
    lines = latex(Page((Table(columns=columns, rows=rows),))).splitlines()
    assert [line.strip() for line in lines if "v1" in line] == [
        r"v1.0 & 61.10\phantom{5} \\",
        r"v1.1 & 1.235 \\",
        r"v1.2 & 7\phantom{.235} \\",
        r"v1.3 & -\phantom{.235} \\",
    ]


def test_csv_has_all_digits(line, tmp_path, monkeypatch):
    """Under plain heads."""
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert line("table", "two.onnx", "-o", "t.csv")[0] == 0
    [row] = csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text()))
    assert (row["target"], row["params"], row["macs"]) == ("two.onnx", "50", "100")


@pytest.mark.onnxruntime
def test_latency_is_measured_and_said_where(line, tmp_path, monkeypatch):
    """The second model cannot run: onnxruntime has no such operator."""
    files(tmp_path)
    saved(tmp_path, parsed("g (float[2] x) => (float[2] y) { y = local.Odd(x) }"), "odd.onnx")
    monkeypatch.chdir(tmp_path)
    status, out, err = line("table", "one.onnx", "odd.onnx", "--latency", "--json")
    assert status == 0, err
    table = json.loads(out)
    plain, odd = table["rows"]
    assert 0 < plain["latency_seconds"] < 1
    assert odd["latency_seconds"] is None
    assert any(note.startswith("did not run") for note in odd["notes"])
    assert "onnxruntime" in table["latency"]
    assert "thread" in table["latency"]
    assert line("table", "one.onnx", "--latency", "-o", "t.csv")[0] == 0
    [row] = csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text()))
    assert 0 < float(row["latency_seconds"]) < 1
    assert "latency (ms)" in line("table", "one.onnx", "--latency")[1]


def test_all_conventions_count_a_file_and_those_that_cannot_are_named(line, tmp_path, monkeypatch):
    """`count --as '*'`: 10 results of 3 products and 2 sums, and the Relu; thop has no number."""
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    status, out, err = line("count", "one.onnx", "--as", "*", "--json")
    assert status == 0
    assert "no number as thop: thop counts calls of modules and functions" in err
    report = json.loads(out)
    folds = {fold["tool"]: fold["total"] for fold in (report["as"], *report["as_also"])}
    assert folds["exact-2k-1"] == 60
    assert "thop" not in folds


@pytest.mark.parametrize("width", [80, 60, 40, 20])
def test_no_number_breaks(line, tmp_path, monkeypatch, width):
    """A table that is too wide is broken into several, each with the names of the models."""
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(width))
    tools = ("--by-tool", "exact-2k-1", "--by-tool", "onnx-tool")
    status, out, _ = line("table", "one.onnx", "two.onnx", *tools, "--digits", "12")
    assert status == 0
    assert {"15", "30", "70", "50", "100", "210", "60"} <= set(out.split())
