"""Which Python runs which tool: from the command line, and from a table in a file.

The table is `[python]` of `crossflops.toml`, or `[tool.crossflops.python]` of `pyproject.toml`,
in the nearest folder upwards that has one of them. It names an interpreter, or the folder of a
virtual environment, for each tool::

    [python]
    thop = "/venvs/thop"
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from crossflops.adapters.settings import settings, title
from crossflops.errors import InputError

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
        return next((str(path / one) for one in _IN_VENV if (path / one).is_file()), str(path))
    bare = os.path.dirname(python) == "" and not path.exists()
    return (shutil.which(python) if bare else None) or str(path)
