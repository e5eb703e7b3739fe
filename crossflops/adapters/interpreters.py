"""Which Python runs which tool: from the command line, and from a table in a file.

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

_NAME = "crossflops.toml"
_PROJECT = "pyproject.toml"
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
    found: dict[str, str] = {}
    for text in texts:
        tool, equals, python = text.partition("=")
        tool, python = tool.strip(), python.strip()
        if not equals or not tool or not python:
            raise InputError(
                f"--python {text!r} is not TOOL=INTERPRETER",
                "write for example --python thop=/venvs/thop/bin/python",
            )
        if found.setdefault(tool, python) != python:
            raise InputError(f"--python names two interpreters for {tool}", "give one of them")
    return found


def _configured(folder: Path) -> dict[str, str]:
    for place in (folder, *folder.parents):
        for name in (_NAME, _PROJECT):
            file = place / name
            if file.is_file() and (settings := _settings(file)) is not None:
                return _table(settings, file)
    return {}


def _settings(file: Path) -> Any:
    """What a file sets for crossflops; None where it is about other things."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}", "make it readable") from error
    except ValueError as error:  # no UTF-8, or no TOML
        raise InputError(f"{file} is no TOML file: {error}", "mend that line") from error
    if file.name == _NAME:
        return content
    tools = content.get("tool")
    return tools.get("crossflops") if isinstance(tools, dict) else None


def _table(settings: Any, file: Path) -> dict[str, str]:
    title = "[python]" if file.name == _NAME else "[tool.crossflops.python]"
    strays = sorted(set(settings) - {"python"}) if isinstance(settings, dict) else ["a value"]
    if strays:
        raise InputError(f"{file} sets {strays[0]}, which means nothing", f"it may set {title}")
    table = settings.get("python", {})
    if not isinstance(table, dict):
        raise InputError(f"python in {file} is no table", f"write {title}, and a line per tool")
    for tool, python in table.items():
        if not isinstance(python, str) or not python:
            raise InputError(f"{tool} in {title} of {file} is no path", _EXAMPLE)
    return {tool: _absolute(python, file.parent) for tool, python in table.items()}


def _absolute(python: str, folder: Path) -> str:
    """The interpreter: of a venv where a folder is named, on PATH where a bare name is.

    Links are not followed: a venv is told by the path of the link. What is not there stays as
    it was written.
    """
    path = folder / Path(os.path.expanduser(python))
    if path.is_dir():
        return next((str(path / one) for one in _IN_VENV if (path / one).is_file()), str(path))
    bare = os.path.dirname(python) == "" and not path.exists()
    return (shutil.which(python) if bare else None) or str(path)
