"""What is installed, and the exact command that installs what is not: here, or elsewhere."""

import re
import shlex
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

GROUP = "crossflops.adapters"
ROOT = Path(__file__).resolve().parents[2]
_PIP = re.compile(r"(?<!-m )\bpip (?=(un)?install )")


def installed_version(distribution: str) -> str | None:
    """The version of a distribution, or None when it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def to_install(
    tools: Iterable[str] | None = None, root: Path = ROOT, python: str | None = None
) -> str:
    """The command that installs the plugins of these tools, or of all; "" if there are none.

    In a source folder that holds the plugins it installs those; elsewhere the extras of
    crossflops, which bear the ids of the tools. Into another interpreter (`python`) this very
    crossflops comes with them.
    """
    folders = _folders(root)
    wanted = set(folders if tools is None else tools)
    sources = sorted({str(folders[tool]) for tool in wanted if tool in folders})
    if sources:
        own = [str(root)] if python is not None else []
        return _pip([part for folder in (*own, *sources) for part in ("-e", folder)], python)
    extras = _extras()
    names = ["tools"] if tools is None else sorted(wanted)
    names = [name for name in names if name in extras]
    return _pip([f"crossflops[{','.join(names)}]{_same(python)}"], python) if names else ""


def extra(name: str, root: Path = ROOT) -> str:
    """The command that installs an extra of crossflops."""
    if (root / "pyproject.toml").is_file():
        return _pip(["-e", f"{root}[{name}]"])
    return _pip([f"crossflops[{name}]"])


def itself(python: str, root: Path = ROOT) -> str:
    """The command that installs this very crossflops into another interpreter."""
    if (root / "pyproject.toml").is_file():
        return _pip(["-e", str(root)], python)
    return _pip([f"crossflops{_same(python)}"], python)


def into(python: str, hint: str) -> str:
    """A hint with its `pip install` and `pip uninstall` as lines that work on an interpreter."""
    return _PIP.sub(lambda match: f"{shlex.quote(python)} -m {match[0]}", hint)


def _same(python: str | None) -> str:
    own = installed_version("crossflops")
    return f"=={own}" if python is not None and own else ""


def _folders(root: Path) -> dict[str, Path]:
    """The plugins of a source folder, by the tools that they declare."""
    by_tool: dict[str, Path] = {}
    for file in sorted(root.glob("plugins/*/pyproject.toml")):
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
        for tool in project.get("entry-points", {}).get(GROUP, {}):
            by_tool[tool] = file.parent
    return by_tool


def _extras() -> list[str]:
    try:
        return metadata("crossflops").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return []


def _pip(arguments: list[str], python: str | None = None) -> str:
    return shlex.join([python or sys.executable or "python", "-m", "pip", "install", *arguments])
