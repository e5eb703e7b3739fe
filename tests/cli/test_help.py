"""Help in groups, and the example of every verb, which runs."""

import re
import shlex

import click
import pytest

from crossflops.cli import VERBS, command_group, main
from crossflops.cli.options import FIRST, Verb, option_group, verb
from crossflops.render.formats import FORMATS
from tests.onnx_files import saved, with_weights


def of(name):
    """The command of a verb."""
    return command_group.get_command(click.Context(command_group), name)


def headings(out):
    """The headings in a help."""
    return re.findall(r"^(\S.*):$", out, re.MULTILINE)


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_an_example_of_itself(line, name):
    """Its help ends with a line to type."""
    _, out, _ = line(name, "--help")
    assert out.rstrip().splitlines()[-1].strip() == of(name).example
    assert of(name).example.startswith(f"crossflops {name}")


@pytest.mark.parametrize(
    "name", [name for name in VERBS if {"file", "as_json"} <= {p.name for p in of(name).params}]
)
def test_the_formats_of_output_are_formats(name):
    """The suffixes that the help of -o names are known to what writes a file."""
    [output] = [param for param in of(name).params if param.name == "file"]
    suffixes = re.findall(r"\.\w+(?=[, ])", output.help)
    assert len(suffixes) > 3
    assert set(suffixes) <= FORMATS.keys()


@pytest.mark.parametrize("name", VERBS)
def test_every_option_stands_in_one_group(line, name):
    """Nothing is left out of the help, and nothing is there twice."""
    _, out, _ = line(name, "--help")
    groups = out[out.index(f"{headings(out)[0]}:") :]  # behind the sentences, which name options
    shown = re.findall(r"^  (?:-\w, |--\w+, )?(--[a-z][\w-]*)", groups, re.MULTILINE)
    known = [
        max(param.opts, key=len) for param in of(name).params if isinstance(param, click.Option)
    ]
    assert sorted(shown) == sorted([*known, "--help"])


def test_at_most_five_come_first(line):
    """Those of `efficiency` are five of its many."""
    _, out, _ = line("efficiency", "--help")
    for name in VERBS:
        flags = of(name).first
        assert len(flags) <= 5
        known = {flag for param in of(name).params for flag in param.opts}
        assert set(flags) <= known
    assert headings(out)[0] == FIRST
    assert {"The device and its peak", "The roofline", "Training"} <= set(headings(out))


def test_an_option_without_a_group_stands_behind_the_others():
    """A new option is not lost."""

    @verb("try", example="crossflops try", first=("--b",))
    @click.option("--a")
    @option_group("Group", click.option("--b"))[0]
    @option_group("Group", click.option("--c"))[0]
    def command(**_):
        """Try."""

    assert isinstance(command, Verb)
    text = command.get_help(click.Context(command))
    places = [text.index(word) for word in (FIRST, "--b", "Group:", "--c", "Others:", "--a")]
    assert places == sorted(places)


# `check-formula` runs a reference, which needs PyTorch (tests/formulas)
# The examples of the others need a framework; docs/identify.md runs those of two.
RUN = [
    name
    for name in VERBS
    if name not in ("audit", "bench", "check-formula", "identify", "profile")
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two models, a report and a budget."""
    graph = "agraph (float[1,3] x, float[3,4] w) => (float[1,4] y) { y = MatMul(x, w) }"
    for name in ("model", "other"):
        saved(tmp_path, with_weights(graph, "w"), f"{name}.onnx")
    (tmp_path / "suite.toml").write_text('tools = []\n[[model]]\ntarget = "model.onnx"\n')
    (tmp_path / "crossflops.toml").write_text('[budgets."model.onnx"]\nrules = ["macs <= 1G"]\n')
    monkeypatch.chdir(tmp_path)
    assert main(["count", "model.onnx", "-o", "report.json"]) == 0
    return tmp_path


@pytest.mark.parametrize("name", RUN)
def test_the_example_runs(name, folder):
    """In a folder with these files it ends with status 0."""
    assert main(shlex.split(of(name).example)[1:]) == 0


@pytest.mark.onnxruntime
def test_the_example_of_bench_runs(folder):
    """It needs onnxruntime."""
    assert main(shlex.split(of("bench").example)[1:]) == 0


@pytest.mark.torch
def test_the_example_of_profile_runs(folder):
    """It needs PyTorch."""
    code = "from torch import nn\ndef net():\n    return nn.Linear(4, 4)\n"
    (folder / "small.py").write_text(code)
    assert main(shlex.split(of("profile").example)[1:]) == 0
