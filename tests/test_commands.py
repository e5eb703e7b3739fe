"""Commands in hints: what is printed can be copied, and does what it says where the reader is."""

import shlex
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from crossflops import commands
from crossflops.commands import localize_commands, program_command, python_command

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A PATH with nothing on it, in a folder far from everything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def command(path, name):
    """A file that a shell would start."""
    file = path / name
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_named_by_what_it_consists_of(extra):
    """No extra of crossflops is fetched from an index, where it need not be."""
    line = localize_commands(f"pip install 'crossflops[{extra}]'")
    words = shlex.split(line)
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    wanted = words[4:]
    assert wanted
    folders = [word for flag, word in pairwise(wanted) if flag == "-e"]
    assert all((Path(folder) / "pyproject.toml").is_file() for folder in folders)
    others = {word for word in wanted if word != "-e"} - set(folders)
    assert not any(word.startswith("crossflops") for word in others)
    assert others <= {row for rows in EXTRAS.values() for row in rows}


@pytest.mark.usefixtures("path")
def test_an_extra_holds_those_that_it_names():
    """[rebuild] is [torch] and one more."""
    line = localize_commands("pip install 'crossflops[rebuild]'")
    assert shlex.split(line)[4:] == [*EXTRAS["torch"], EXTRAS["rebuild"][-1]]


@pytest.mark.usefixtures("path")
def test_a_plugin_is_installed_from_the_sources():
    """A plugin of this repository lies on no index."""
    line = localize_commands("choose one, or: pip install crossflops-thop crossflops-torch numpy")
    folders = [str(ROOT / "plugins" / name) for name in ("crossflops-thop", "crossflops-torch")]
    assert line == "choose one, or: " + shlex.join(
        [sys.executable, "-m", "pip", "install", "-e", folders[0], "-e", folders[1], "numpy"]
    )


@pytest.mark.parametrize(
    ("origin", "plugin"),
    [
        (
            {"url": "https://h/x.git", "vcs_info": {"vcs": "git"}},
            "'crossflops-thop @ git+https://h/x.git#subdirectory=plugins/crossflops-thop'",
        ),
        ({}, "crossflops-thop"),
    ],
)
def test_without_the_sources_the_origin_of_the_installation_counts(
    path, monkeypatch, origin, plugin
):
    """As pip notes it: a plugin comes from the same repository, or from the index."""
    monkeypatch.setattr(commands, "ROOT", path)
    monkeypatch.setattr(commands, "_install_origin", lambda: origin)
    declared = ["crossflops-thop; extra == 'thop'", "onnx2torch>=1; extra == 'rebuild'", "click"]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: declared)
    assert localize_commands("pip install 'crossflops[thop]'").endswith(f" pip install {plugin}")
    rebuilt = localize_commands("pip install 'crossflops[thop,rebuild]'")
    assert rebuilt.endswith(f" pip install {plugin} 'onnx2torch>=1'")
    unknown = localize_commands("pip install 'crossflops[no-such]'")
    assert unknown.endswith(" pip install 'crossflops[no-such]'")


def test_the_python_is_named_as_it_can_be_typed(path, monkeypatch):
    """By its name where the shell finds this very one, by its path otherwise, from here."""
    own = command(path, "python3")
    monkeypatch.setattr(sys, "executable", str(own))
    assert python_command() == "python3"
    command(path, "python")
    monkeypatch.setattr(sys, "executable", str(path / "python"))
    assert python_command() == "python"
    monkeypatch.setattr(sys, "executable", str(path / "my venv" / "bin" / "python"))
    assert python_command() == "'my venv/bin/python'"
    monkeypatch.setattr(sys, "executable", "/else/bin/python")
    assert localize_commands("pip uninstall a, then pip install b") == (
        "/else/bin/python -m pip uninstall a, then /else/bin/python -m pip install b"
    )
    assert localize_commands("/v/python -m pip install x") == "/v/python -m pip install x"


def test_the_command_is_named_as_it_was_called(path, monkeypatch):
    """`.venv/bin/crossflops` is not on the PATH, and `python -m crossflops` is no command."""
    hint = "see `crossflops doctor`"
    command(path, "crossflops")
    monkeypatch.setattr(sys, "argv", [str(path / "crossflops")])
    assert localize_commands(hint) == hint
    monkeypatch.setattr(sys, "argv", [".venv/bin/crossflops"])
    assert localize_commands(hint) == "see `.venv/bin/crossflops doctor`"
    monkeypatch.setattr(sys, "argv", ["/site-packages/crossflops/__main__.py"])
    monkeypatch.setattr(sys, "executable", "/v/bin/python")
    assert program_command() == "/v/bin/python -m crossflops"
    monkeypatch.setattr(sys, "argv", ["pytest"])
    assert localize_commands(hint) == hint
    assert localize_commands("crossflops is a word") == "crossflops is a word"
