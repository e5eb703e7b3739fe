"""What a user sees when something is wrong, and what the command costs when nothing is asked."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from click import Context
from msgspec.structs import replace

from crossflops.cli import VERBS, command_group
from crossflops.errors import TargetError

HEAVY = ("torch", "torchvision", "tensorflow", "jax", "onnx", "numpy", "rich", "jinja2", "thop")


def loaded_after(*arguments):
    """The heavy modules that a process has loaded after running these arguments."""
    code = (
        "import sys; from crossflops.cli import main; main(sys.argv[1:]); "
        f"print(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_help_imports_nothing_heavy(arguments):
    """Help and version come at once: no framework, no onnx, no renderer."""
    assert loaded_after(*arguments) == set()


@pytest.mark.parametrize("verb", ["count", "compare"])
def test_a_verbs_help_imports_no_framework(verb):
    """The help of a verb that runs models does not load what runs them."""
    assert not loaded_after(verb, "--help") & {"torch", "tensorflow", "jax", "thop", "onnx"}


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "efficiency"])
def test_the_list_says_what_the_verb_says(verb):
    """The sentence in the list of verbs is the first of the verb's own help."""
    command = command_group.get_command(Context(command_group), verb)
    assert command.name == verb
    assert command.help.splitlines()[0] == VERBS[verb]


def test_help_lists_the_verbs(line):
    """Every verb has its line in the help, which goes to stdout."""
    status, out, err = line("--help")
    assert (status, err) == (0, "")
    assert all(f"  {verb} " in out for verb in VERBS)
    assert line() == (0, out, "")


@pytest.mark.parametrize("verb", [(), ("count",), ("efficiency",)])
def test_help_has_a_short_form(line, verb):
    """-h is --help, of the command and of every verb."""
    assert line(*verb, "-h") == line(*verb, "--help")
    assert "--debug" in line(*verb, "-h")[1]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("cuont", "m:f"), "did you mean count?"),
        (("explane", "thop"), "did you mean explain?"),
        (("count", "m:f", "--inptu", "1"), "'--input'"),
        (("explain", "norm.bacth"), "did you mean norm.batch"),
    ],
)
def test_a_slip_is_met_with_what_was_meant(line, typed, meant):
    """Verbs, options, causes: the nearest names stand in the answer."""
    status, out, err = line(*typed)
    assert (status, out, len(err.splitlines())) == (2, "", 2)
    assert meant in err


@pytest.mark.parametrize("how", ["before", "behind", "environment", "no", "environment 0"])
def test_the_traceback_is_shown_where_it_is_asked_for(line, answers, monkeypatch, how):
    """With what led to the error, and before the two lines, which stay the last."""
    error = TargetError("m:f failed", "mend it")
    error.__cause__ = RuntimeError("deep\x1b[2J inside")
    answers(error)
    monkeypatch.setenv("CROSSFLOPS_DEBUG", {"environment": "1", "environment 0": "0"}.get(how, ""))
    before, behind = (["--debug"] if how == place else [] for place in ("before", "behind"))
    status, out, err = line(*before, "count", "m:f", *behind)
    assert (status, out) == (2, "")
    assert err.endswith("error: m:f failed\nhint: mend it\n")
    shown = how in ("before", "behind", "environment")
    assert ("RuntimeError: deep\\x1b[2J inside\n" in err) is shown
    assert ("Traceback (most recent call last):\n" in err) is shown


def test_names_in_errors_are_inert_and_short(line, answers):
    """Whatever a file calls its nodes, stderr shows letters alone, and few of them."""
    answers(TargetError(f"the node '\x1b[2J\x9b{'n' * 100_000}' has no input", "\u202elook"))
    status, out, err = line("count", "m:f")
    assert (status, out) == (2, "")
    assert all(letter == "\n" or letter.isprintable() for letter in err)
    assert len(err) < 1_000
    assert r"\x1b[2J\x9bnnn" in err
    assert err.splitlines()[0].endswith("nnn' has no input")


def test_json_on_a_terminal_is_inert_as_well(line, answers, report):
    """Control characters stand in it as JSON spells them, and are read back as they were."""
    name = "a\x1b[2J\x9b\x7f\u202e\u2028z"
    made = report()
    answers(replace(made, model=replace(made.model, name=name)))
    out = line("count", "m:f", "--json")[1]
    assert all(letter == "\n" or letter.isprintable() for letter in out)
    assert json.loads(out)["model"]["name"] == name


@pytest.mark.parametrize(
    "arguments",
    [
        ("cuont", "m:f"),
        ("--nope",),
        ("count",),
        ("count", "m:f", "--nope"),
        ("count", "m:f", "--unit", "gigaflops"),
        ("count", "m:f", "--arg", "weights"),
        ("count", "m:f", "--arg", "weights=None"),
        ("count", "m:f", "--arg", "two words=1"),
        ("count", "m:f", "-o", "report.pdf"),
        ("count", "m:f", "-o", "report"),
        ("count", "m:f", "-o", "no-such-folder/report.md"),
        ("compare", "m:f", "--timeout", "0"),
        ("compare", "m:f", "--timeout", "soon"),
        ("count", "m:f", "--timeout", "nan"),
        ("compare", "m:f", "--memory", "inf"),
        ("bench", "m:f", "--seconds", "nan"),
        ("devices", "--peak-tflops", "1", "--bandwidth", "nan"),
        ("count", "m.onnx", "--dim", "batch=9999999999999999999"),
        ("count", "m.onnx", "--trips", "Loop_1=x"),
        ("count", "m.onnx", "--dim", "n=2", "--dim", "n=3"),
        ("count", "m.onnx", "--branch", "If_1=then", "--branch", "If_1=else"),
        ("count", "m:f", "--arg", "n=2", "--arg", "n=3"),
        ("explain", ""),
        ("explain",),
        ("explain", "no-such-thing"),
    ],
)
def test_a_wrong_request_is_two_lines(line, answers, report, arguments):
    """Whatever is wrong with the arguments: status 2, what is wrong, what to do, no traceback."""
    answers(report())
    status, out, err = line(*arguments)
    assert (status, out) == (2, "")
    wrong, remedy = err.splitlines()
    assert wrong.startswith("error: ")
    assert remedy.startswith("hint: ")
    assert min(len(wrong), len(remedy)) > len("error: ")
    assert line.asked is None


@pytest.mark.parametrize("verb", ["count", "compare"])
def test_an_error_of_the_pipeline_is_two_lines(line, answers, verb):
    """What crossflops raises on purpose is told in two lines, however it was broken up."""
    answers(TargetError("there is no\nmodule m", "look at   PYTHONPATH"))
    message = "error: there is no module m\nhint: look at PYTHONPATH\n"
    assert line(verb, "m:f") == (2, "", message)


def test_an_unintended_error_is_two_lines_as_well(line, answers):
    """No input ends in a traceback: the error is named, and where to take it."""
    answers(RuntimeError("a bug"))
    status, out, err = line("count", "m:f")
    assert (status, out) == (2, "")
    assert err.startswith("error: RuntimeError: a bug (")  # and where
    assert len(err.splitlines()) == 2


def test_ctrl_c_is_quiet(line, answers):
    """An interrupted run says nothing and ends as shells expect."""
    answers(KeyboardInterrupt())
    status, out, err = line("count", "m:f")
    assert (status, out, err.strip()) == (130, "", "")


def test_a_reader_who_leaves_is_no_error():
    """With a closed pipe behind stdout the command ends quietly."""
    code = (
        "import os, sys; from crossflops.cli.output import _print_to_stdout; r, w = os.pipe(); "
        "os.dup2(w, 1); os.close(w); os.close(r); _print_to_stdout('x' * 100000)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_module_is_the_command():
    """`python -m crossflops` says the same as the command."""
    line = [sys.executable, "-m", "crossflops", "count", "m:f", "-o", "x.pdf"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "error: x.pdf has the suffix '.pdf', which is not a known format\n"
        "hint: choose one of .json, .md, .txt, .tex, .html, .csv, .json.gz, .parquet\n"
    )


def test_workers_are_asked_for_their_tracebacks_for_one_command(line, answers, monkeypatch):
    """By the variable that they inherit, which is afterwards as it was."""
    monkeypatch.delenv("CROSSFLOPS_DEBUG", raising=False)
    seen = []

    class WatchedError(TargetError):
        """An error that looks at the environment when it is shown."""

        @property
        def message(self):
            seen.append(os.environ.get("CROSSFLOPS_DEBUG"))
            return "m:f failed"

        @message.setter
        def message(self, text):
            """It is always the same."""

    answers(WatchedError("", "mend it"))
    line("count", "m:f", "--debug")
    assert seen
    assert set(seen) == {"1"}
    assert "CROSSFLOPS_DEBUG" not in os.environ


def test_what_is_no_exception_is_an_error_as_well(line, answers):
    """asyncio and test runners raise what only BaseException is above of."""
    answers(asyncio.CancelledError("enough"))
    status, out, err = line("count", "m:f")
    assert (status, out) == (2, "")
    assert err.startswith("error: CancelledError: enough (")
    assert len(err.splitlines()) == 2


def test_who_counts_several_models_is_sent_to_the_table(line):
    """`count` takes one; where another verb is called wrongly, its help says more."""
    status, _, err = line("count", "a.onnx", "b.onnx")
    assert status == 2
    assert "hint: `crossflops table` counts several models into one table" in err
    status, _, err = line("render", "a.json", "b.json")
    assert status == 2
    assert err.endswith("hint: `crossflops render --help` lists the accepted arguments\n")
