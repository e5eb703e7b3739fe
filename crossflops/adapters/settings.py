"""What a user sets for a folder and all beneath it: tables of `crossflops.toml`.

Or `[tool.crossflops.*]` of `pyproject.toml`: the nearest file upwards that has something to say.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossflops.errors import InputError

NAME = "crossflops.toml"
_PROJECT = "pyproject.toml"
_TABLES = ("python", "devices")


def settings(table: str, folder: Path | None = None) -> tuple[Path, Mapping[str, Any]]:
    """A table of the nearest file upwards of `folder` (the current one), and that file.

    The table is empty where nothing is set. Raises InputError on a file that cannot be understood.
    """
    here = folder or Path.cwd()
    for place in (here, *here.parents):
        for name in (NAME, _PROJECT):
            file = place / name
            if file.is_file() and (found := _content(file)) is not None:
                return file, _table(found, table, file)
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


def _table(found: Any, table: str, file: Path) -> Mapping[str, Any]:
    strays = sorted(set(found) - set(_TABLES)) if isinstance(found, dict) else ["a value"]
    if strays:
        known = " and ".join(title(one, file) for one in _TABLES)
        raise InputError(f"{file} sets {strays[0]}, which means nothing", f"it may set {known}")
    rows = found.get(table, {})
    if not isinstance(rows, dict):
        said = f"{table} in {file} is no table"
        raise InputError(said, f"write {title(table, file)}, and a line for each")
    return rows
