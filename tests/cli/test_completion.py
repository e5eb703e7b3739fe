"""What shells are offered at TAB, and that no error ever stands in the line."""

import os
import random
import shutil
import subprocess
import sys

import pytest

from crossflops.cli import NAME, VERBS, command_group
from crossflops.cli.completion import print_completions

VARIABLE = "_CROSSFLOPS_COMPLETE"


@pytest.fixture
def offered(monkeypatch, capsys):
    """What bash is offered behind some words, the last of which is half typed."""

    def ask(*words, shell="bash_complete"):
        monkeypatch.setenv(VARIABLE, shell)
        monkeypatch.setenv("COMP_WORDS", " ".join(("crossflops", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        status = print_completions(command_group, NAME, VARIABLE)
        out, err = capsys.readouterr()
        assert err == ""
        return status, out.splitlines()

    return ask


def test_verbs_are_offered(offered):
    """All of them, and those that begin so."""
    assert offered("")[1] == [f"plain,{name}" for name in VERBS]
    assert offered("di") == (0, ["plain,diff"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("compare", "--too"), "plain,--tool"),
        (("compare", "--tool", "tho"), "plain,thop"),
        (("count", "m.onnx", "--as", "fvc"), "plain,fvcore"),
        (("render", "r.json", "--between", "thop", "fvc"), "plain,fvcore"),
        (("efficiency", "--device", "h100-s"), "plain,h100-sxm"),
        (("devices", "h100-s"), "plain,h100-sxm"),
        (("explain", "norm.bat"), "plain,norm.batch"),
        (("count", "--by", "mod"), "plain,module"),
        (("count", "mod"), "file,mod"),
        (("diff", "a.onnx", "b"), "file,b"),
        (("count", "m.onnx", "-o", "x"), "file,x"),
        (("check", "--junit", "x"), "file,x"),
        (("check", "--code-quality", "x"), "file,x"),
        (("count", "m.onnx", "--batch", "wrong", "--image-"), "plain,--image-size"),
    ],
)
def test_values_are_offered(offered, words, expected):
    """Options, tools, devices, causes, choices and files, behind what is wrong, too."""
    assert offered(*words) == (0, [expected])


def test_budgets_are_offered(offered, tmp_path, monkeypatch):
    """Beside files; without a configuration nothing but files is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crossflops.toml").write_text('[budgets.batch]\nrules = ["macs <= 1"]\n')
    assert offered("check", "b") == (0, ["plain,batch", "file,b"])
    (tmp_path / "crossflops.toml").write_text("[budgets]\nx = 3")
    assert offered("check", "b") == (1, [])


def test_no_line_ends_in_an_error(offered):
    """Any words, in any order, for any shell: an answer, or nothing."""
    draw = random.Random(6)
    words = [*VERBS, "nosuch", "--", "--debug", "--tool", "--device", "=", "-o", "--unit", "'", ""]
    for _ in range(60):
        shell = draw.choice(["bash_complete", "zsh_complete", "fish_complete", "x", "bash_y"])
        status, lines = offered(*draw.choices(words, k=draw.randrange(1, 5)), shell=shell)
        assert status == 0 or lines == []


def test_no_verb_is_imported_to_offer_verbs():
    """Nor is anything large: TAB is waited for."""
    code = (
        "import sys; from crossflops.cli import main; main(); "
        "print([name for name in ('onnx', 'rich', 'numpy', 'crossflops.cli.count') "
        "if name in sys.modules])"
    )
    environment = {"COMP_WORDS": "crossflops co", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=os.environ | environment | {VARIABLE: "bash_complete"},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["plain,count", "plain,compare", "[]"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(tmp_path):
    """With the script that the documentation names, as bash calls it."""
    command = tmp_path / "crossflops"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m crossflops "$@"\n')
    command.chmod(0o755)
    script = (
        f'eval "$({VARIABLE}=bash_source crossflops)"\n'
        "COMP_WORDS=(crossflops compare --tool tho)\nCOMP_CWORD=3\n"
        '_crossflops_completion crossflops\necho "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True,
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("thop\n", "")
