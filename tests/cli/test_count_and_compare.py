"""What reaches the pipeline, what comes out, and with which status."""

import io
import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from crossflops.cli import compare, main
from crossflops.commands import python_command
from crossflops.errors import TargetError
from crossflops.frontends.inputs import parse_inputs
from crossflops.ir.trace import Setting
from crossflops.report.report import Report
from crossflops.targets.request import Request
from crossflops.verbs import count
from crossflops.verbs.compare.compare import Comparison


def test_count_passes_everything_on(line, answers, report):
    """Every option of count reaches the pipeline as it was meant."""
    answers(report())
    status, _, _ = line(
        "count", "m:f", "--input", "1x2", "--input", "y=3:int64",
        "--arg", "weights=null", "--arg", "sizes=[1, 2]", "--arg", 'name="a=b"',
        "--dim", "batch=8", "--dim", "a=b=2", "--trips", "/loop=3", "--branch", "fork=else",
        "--no-grad", "--train-mode", "--allow-pickle", "--as", "thop@0.0.31",
    )  # fmt: skip
    assert status == 0
    assert line.asked == Request(
        target="m:f",
        specs=parse_inputs(("1x2", "y=3:int64")),
        arguments={"weights": None, "sizes": [1, 2], "name": "a=b"},
        dims={"batch": 8, "a=b": 2},
        trips={"/loop": 3},
        branches={"fork": "else"},
        setting=Setting(grad=False, training=True),
        as_=("thop@0.0.31",),
        allow_pickle=True,
    )
    line("count", "m.onnx", "--inputs", "v.npz", "--vary", "n", "--observe")
    assert line.asked == Request(target="m.onnx", inputs_file="v.npz", vary=("n",), observe=True)


def test_compare_passes_everything_on(line, answers, report):
    """Every option of compare reaches the pipeline; no --tool means the default."""
    answers(report({"thop": 0}))
    line(
        "compare", "m:f", "--tool", "thop", "--tool", "fvcore", "--timeout", "5",
        "--memory", "1.5", "--python", "thop=/venvs/thop",
    )  # fmt: skip
    line.tell("exporting")
    assert line.asked == Request(target="m:f")
    assert line.comparison == Comparison(
        tools=("thop", "fvcore"),
        timeout=5.0,
        memory=3 << 29,
        python={"thop": "/venvs/thop"},
    )
    line("compare", "m:f")
    assert line.comparison == Comparison()
    status, out, err = line("compare", "m:f", "--python", "thop")
    assert (status, out) == (2, "")
    assert err.startswith("error: --python must be TOOL=INTERPRETER, got 'thop'\nhint: write, ")


def test_the_text_goes_to_stdout_alone(line, answers, report):
    """Nothing but the result is on stdout, nothing at all on a piped stderr."""
    answers(report({"thop": 0}))
    status, out, err = line("compare", "m:f")
    assert (status, err) == (0, "")
    assert out.startswith("Net · 3 parameters · input 1x2 float32 · 10 MACs · 20 FLOPs")


def test_json_is_all_there_is(line, answers, report):
    """With --json stdout is one document, which reads back as the report."""
    made = report({"thop": 1})
    answers(made)
    status, out, err = line("compare", "m:f", "--json")
    assert (status, err) == (0, "")
    assert Report.from_json(out) == made
    assert json.loads(out)["reconciliations"][0]["residual"] == 1


def test_what_a_model_prints_does_not_reach_stdout(line, answers, report, monkeypatch):
    """A model that prints while it is built does not spoil the JSON."""

    def talkative(_, on_progress):
        print("building")
        return report(), None

    monkeypatch.setattr(count, "native_count", talkative)
    _, out, err = line("count", "m:f", "--json")
    assert Report.from_json(out) == report()
    assert err == "building\n"


def test_columns_is_honoured(line, answers, report, monkeypatch):
    """COLUMNS sets the width, and 80 columns are assumed without it."""
    answers(report(uncounted=1))
    monkeypatch.setenv("COLUMNS", "50")
    _, narrow, _ = line("count", "m:f")
    assert max(map(len, narrow.splitlines())) <= 50
    for columns in ("", "0", "wide"):
        monkeypatch.setenv("COLUMNS", columns)
        _, usual, _ = line("count", "m:f")
        assert 50 < max(map(len, usual.splitlines())) <= 80


def test_colour_is_for_terminals_and_never_with_no_color(line, answers, report, monkeypatch):
    """Piped text has no escapes; FORCE_COLOR asks for them; NO_COLOR has the last word."""
    answers(report({"thop": 0}))
    assert "\x1b" not in line("compare", "m:f")[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" in line("compare", "m:f")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in line("compare", "m:f")[1]


def test_an_old_encoding_gets_ascii(answers, report, monkeypatch):
    """Where stdout cannot write the middle dot, a dash stands for it, and JSON is escaped."""
    made = report()
    made = replace(made, model=replace(made.model, name="Né·𝔛"))
    answers(made)
    for arguments in (["count", "m:f"], ["count", "m:f", "--json"]):
        out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", out)
        assert main(arguments) == 0
        text = out.buffer.getvalue().decode("ascii")
        monkeypatch.undo()
        answers(made)
        if "--json" in arguments:
            assert Report.from_json(text) == made
        else:
            assert text.startswith("N?-? - 3 parameters - input 1x2 float32")


@pytest.mark.parametrize(
    ("arguments", "made", "status"),
    [
        ([], {"tools": {"thop": 0}}, 0),
        ([], {"tools": {"thop": 1}}, 0),
        (["--strict"], {"tools": {"thop": 0}}, 0),
        (["--strict"], {"tools": {"thop": 1}}, 1),
        (["--strict"], {"tools": {"thop": 0}, "uncounted": 1}, 1),
        ([], {"tools": {"thop": 0}, "failures": ("fvcore",)}, 0),
        (["--strict"], {"tools": {"thop": 0}, "failures": ("fvcore",)}, 0),
        ([], {"tools": {}, "failures": ("thop", "fvcore")}, 3),
        (["--strict"], {"tools": {}, "failures": ("thop",), "uncounted": 1}, 3),
        ([], {"tools": {}}, 0),
    ],
)
@pytest.mark.parametrize("output", [[], ["--json"]])
def test_the_status_of_compare(line, answers, report, arguments, made, status, output):
    """1 for a check that does not hold, 3 only when every tool that was tried failed."""
    answers(report(**made))
    got, out, err = line("compare", "m:f", *arguments, *output)
    assert got == status
    assert out
    assert len(err.splitlines()) == (0 if status == 0 and made["tools"] else 1)


@pytest.mark.parametrize(("uncounted", "strict", "status"), [(1, 0, 0), (1, 1, 1), (0, 1, 0)])
def test_the_status_of_count(line, answers, report, uncounted, strict, status):
    """An uncounted node is an error only where it was asked for."""
    answers(report(uncounted=uncounted))
    assert line("count", "m:f", *(["--strict"] if strict else []))[0] == status


def test_without_a_tool_the_remedy_is_told(line, answers, report, monkeypatch):
    """With no tool installed the native count is shown, and the command that installs some."""
    monkeypatch.setattr(compare, "plugin_install_command", lambda: "pip install that")
    answers(report({}))
    status, out, err = line("compare", "m:f")
    assert status == 0
    assert "10 MACs" in out
    assert (
        err == f"no tool is installed. To install tools: {python_command()} -m pip install that\n"
    )


@pytest.mark.parametrize(
    ("suffix", "start"), [(".json", "{\n"), (".md", "# Net\n"), (".txt", "Net · 3"), (".MD", "# ")]
)
def test_the_suffix_picks_the_format(line, answers, report, tmp_path, suffix, start):
    """-o writes the file whole, says so on stderr, and leaves stdout empty."""
    answers(report())
    file = tmp_path / f"report{suffix}"
    assert line("count", "m:f", "-o", str(file)) == (0, "", f"wrote {file}\n")
    assert file.read_text(encoding="utf-8").startswith(start)
    assert list(tmp_path.iterdir()) == [file]


def test_json_and_a_file_go_together(line, answers, report, tmp_path):
    """--json prints JSON also when the report goes to a file."""
    answers(report())
    _, out, _ = line("count", "m:f", "--json", "-o", str(tmp_path / "a.md"))
    assert Report.from_json(out) == report()
    assert (tmp_path / "a.md").read_text().startswith("# Net")


def test_a_failed_count_leaves_the_old_file(line, answers, report, tmp_path):
    """An error writes nothing: what was there before stays."""
    file = tmp_path / "a.md"
    file.write_text("before")
    answers(TargetError("gone", "look"))
    assert line("count", "m:f", "-o", str(file))[0] == 2
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.md", "before")]


def test_a_file_that_cannot_be_written_is_two_lines(line, answers, report, tmp_path, monkeypatch):
    """A full disk is told in two lines, and leaves no half-written file."""

    def full(self, target):
        raise OSError(28, "No space left on device")

    answers(report())
    monkeypatch.setattr(Path, "replace", full)
    status, out, err = line("count", "m:f", "-o", str(tmp_path / "a.md"))
    assert (status, out) == (2, "")
    assert err.splitlines()[0].endswith("a.md: No space left on device")
    assert len(err.splitlines()) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(line, answers, report, tmp_path):
    """A folder that looks like a report is refused before anything runs."""
    (tmp_path / "a.md").mkdir()
    answers(report())
    status, _, err = line("count", "m:f", "-o", str(tmp_path / "a.md"))
    assert (status, len(err.splitlines()), line.asked) == (2, 2, None)


@pytest.mark.parametrize("text", ["fork", "fork=both", "=then"])
def test_a_branch_that_cannot_be_read(text, line):
    """--branch names a node and one of three choices."""
    status, _, err = line("count", "m:f", "--branch", text)
    assert status == 2
    assert "NODE=then|else|sum" in err
