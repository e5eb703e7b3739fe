"""Which Python runs which tool: the command line, and tables in files."""

from pathlib import Path

import pytest

from crossflops.errors import InputError
from crossflops.plugins.elsewhere import interpreters_by_tool, parse_interpreters

OWN = '[python]\nthop = "/venvs/one/python"\n'
PROJECT = '[tool.crossflops.python]\nthop = "/venvs/two/python"\n'


def test_a_table_is_found_upwards(tmp_path):
    """The nearest folder that has a table counts, and none above it."""
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "crossflops.toml").write_text(OWN)
    assert interpreters_by_tool(folder=below) == {"thop": "/venvs/one/python"}
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.ruff]\nline-length = 99\n")
    assert interpreters_by_tool(folder=below) == {"thop": "/venvs/one/python"}
    (tmp_path / "a" / "pyproject.toml").write_text(PROJECT)
    assert interpreters_by_tool(folder=below) == {"thop": "/venvs/two/python"}


def test_the_own_file_stands_before_the_project(tmp_path):
    """Of two files in one folder crossflops.toml counts."""
    (tmp_path / "crossflops.toml").write_text(OWN)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    assert interpreters_by_tool(folder=tmp_path) == {"thop": "/venvs/one/python"}


def test_what_is_given_goes_over_the_table(tmp_path):
    """Tool by tool: the others stay as the table has them."""
    (tmp_path / "crossflops.toml").write_text(OWN + 'fvcore = "/venvs/two/python"\n')
    interpreters = interpreters_by_tool({"thop": "/venvs/three/python"}, tmp_path)
    assert interpreters == {"thop": "/venvs/three/python", "fvcore": "/venvs/two/python"}


def test_the_folder_of_a_venv_stands_for_its_python(tmp_path, monkeypatch):
    """Paths in a file are relative to the file, given ones to the current folder; ~ is home."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    (tmp_path / "crossflops.toml").write_text('[python]\nthop = "venv"\nfvcore = "~/venv"\n')
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert interpreters_by_tool({"torchinfo": "../venv"}) == {
        "thop": str(python),
        "fvcore": str(python),
        "torchinfo": str(tmp_path / "below" / ".." / "venv" / "bin" / "python"),
    }


def test_a_bare_name_is_looked_up_on_the_path(tmp_path, monkeypatch):
    """`python3.11` is what a shell would start."""
    python = tmp_path / "python9"
    python.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreters_by_tool({"thop": "python9"}, tmp_path) == {"thop": str(python)}


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("crossflops.toml", "[python\n", "is not valid TOML"),
        ("crossflops.toml", "[pythons]\n", "unknown key pythons"),
        ("crossflops.toml", "python = 3\n", "python in .* must be a table"),
        ("crossflops.toml", "[python]\nthop = 3\n", r"thop in \[python\] of .* must be a path"),
        ("crossflops.toml", '[python]\nthop = ""\n', "must be a path"),
        ("pyproject.toml", "[tool.crossflops]\npythons = 3\n", "unknown key pythons"),
        ("pyproject.toml", "[tool.crossflops.python]\nthop = []\n", "must be a path"),
        ("pyproject.toml", "[tool]\ncrossflops = 3\n", "must be a table"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, name, text, what):
    """With its path, and a hint."""
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=what) as caught:
        interpreters_by_tool(folder=tmp_path)
    assert str(tmp_path) in caught.value.message
    assert caught.value.hint


def test_a_file_that_is_no_text_is_refused(tmp_path):
    """Bytes that are no UTF-8 are no traceback."""
    (tmp_path / "crossflops.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not valid TOML"):
        interpreters_by_tool(folder=tmp_path)


def test_texts_of_the_command_line():
    """TOOL=INTERPRETER, once for each tool."""
    assert parse_interpreters(["thop=/a=b", " fvcore = x "]) == {"thop": "/a=b", "fvcore": "x"}
    for text in ("thop", "=x", "thop=", ""):
        with pytest.raises(InputError, match="must be TOOL=INTERPRETER"):
            parse_interpreters([text])
    with pytest.raises(InputError, match="is given twice for thop"):
        parse_interpreters(["thop=a", "thop=b"])


def test_nothing_is_chosen_where_nothing_is_said(tmp_path):
    """Most people have no such file."""
    assert interpreters_by_tool(folder=Path(tmp_path)) == {}
