"""Which Python runs which tool: from the command line, and from tables in a file.

The table is `[python]` of `crossflops.toml`, or `[tool.crossflops.python]` of `pyproject.toml`,
in the nearest folder upwards that has one of them. It names an interpreter, or the folder of a
virtual environment, for each tool::

    [python]
    thop = "/venvs/thop"
"""

import os
import shutil
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crossflops.errors import InputError

# What a user sets for a folder and all beneath it: tables of `crossflops.toml`.
#
# Or `[tool.crossflops.*]` of `pyproject.toml`: the nearest file upwards that has something to say.

NAME = "crossflops.toml"
_PROJECT = "pyproject.toml"
_TABLES = ("python", "devices", "budgets")


def settings(table: str, folder: Path | None = None) -> tuple[Path, Mapping[str, Any]]:
    """A table of the nearest file upwards of `folder` (the current one), and that file.

    The table is empty where nothing is set. Raises InputError on a file that cannot be understood.
    """
    here = folder or Path.cwd()
    for place in (here, *here.parents):
        for name in (NAME, _PROJECT):
            file = place / name
            if file.is_file() and (content := _content(file)) is not None:
                return file, _table(content, table, file)
    return here / NAME, {}


def title(table: str, file: Path) -> str:
    """The heading of the table in that file."""
    return f"[{table}]" if file.name == NAME else f"[tool.crossflops.{table}]"


def _content(file: Path) -> Any:
    """What a file sets for crossflops; None where it is about other things."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}", "make it readable") from error
    except ValueError as error:  # no UTF-8, or no TOML
        raise InputError(f"{file} is no TOML file: {error}", "mend that line") from error
    if file.name == NAME:
        return content
    tools = content.get("tool")
    return tools.get("crossflops") if isinstance(tools, dict) else None


def _table(content: Any, table: str, file: Path) -> Mapping[str, Any]:
    strays = sorted(set(content) - set(_TABLES)) if isinstance(content, dict) else ["a value"]
    if strays:
        known = " and ".join(title(name, file) for name in _TABLES)
        raise InputError(f"{file} sets {strays[0]}, which means nothing", f"it may set {known}")
    rows = content.get(table, {})
    if not isinstance(rows, dict):
        complaint = f"{table} in {file} is no table"
        raise InputError(complaint, f"write {title(table, file)}, and a line for each")
    return rows


_IN_VENV = ("bin/python", "Scripts/python.exe")
_EXAMPLE = 'write for example thop = "/venvs/thop/bin/python"'


def chosen(
    given: Mapping[str, str | Path] | None = None, folder: Path | None = None
) -> dict[str, str]:
    """Interpreter by tool: what the table upwards of `folder` says, and what is given over it.

    `folder` is the current one unless said. Raises InputError on a file that cannot be
    understood.
    """
    here = Path.cwd()
    over = {tool: _absolute(str(python), here) for tool, python in (given or {}).items()}
    return {**_configured(folder or here), **over}


def parsed(texts: Iterable[str]) -> dict[str, str]:
    """Interpreter by tool, from texts TOOL=INTERPRETER. Raises InputError."""
    by_tool: dict[str, str] = {}
    for text in texts:
        tool, equals, python = text.partition("=")
        tool, python = tool.strip(), python.strip()
        if not equals or not tool or not python:
            raise InputError(
                f"--python {text!r} is not TOOL=INTERPRETER",
                "write for example --python thop=/venvs/thop/bin/python",
            )
        if by_tool.setdefault(tool, python) != python:
            raise InputError(f"--python names two interpreters for {tool}", "give one of them")
    return by_tool


def _configured(folder: Path) -> dict[str, str]:
    file, table = settings("python", folder)
    for tool, python in table.items():
        if not isinstance(python, str) or not python:
            named = f"{tool} in {title('python', file)} of {file}"
            raise InputError(f"{named} is no path", _EXAMPLE)
    return {tool: _absolute(python, file.parent) for tool, python in table.items()}


def _absolute(python: str, folder: Path) -> str:
    """The interpreter: of a venv where a folder is named, on PATH where a bare name is.

    Links are not followed: a venv is told by the path of the link. What is not there stays as
    it was written.
    """
    path = folder / Path(os.path.expanduser(python))
    if path.is_dir():
        return next(
            (str(path / place) for place in _IN_VENV if (path / place).is_file()), str(path)
        )
    bare = os.path.dirname(python) == "" and not path.exists()
    return (shutil.which(python) if bare else None) or str(path)
