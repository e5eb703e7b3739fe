"""What is installed, and the exact command that installs what is not."""

import shlex
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

GROUP = "crossflops.adapters"
ROOT = Path(__file__).resolve().parents[2]


def installed_version(distribution: str) -> str | None:
    """The version of a distribution, or None when it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def to_install(tools: Iterable[str] | None = None, root: Path = ROOT) -> str:
    """The command that installs the plugins of these tools, or of all; "" if there are none.

    In a source folder that holds the plugins it installs those; elsewhere the extras of
    crossflops, which bear the ids of the tools.
    """
    folders = _folders(root)
    wanted = set(folders if tools is None else tools)
    found = sorted({str(folders[tool]) for tool in wanted if tool in folders})
    if found:
        return _pip([part for folder in found for part in ("-e", folder)])
    extras = _extras()
    names = ["tools"] if tools is None else sorted(wanted)
    names = [name for name in names if name in extras]
    return _pip([f"crossflops[{','.join(names)}]"]) if names else ""


def extra(name: str, root: Path = ROOT) -> str:
    """The command that installs an extra of crossflops."""
    if (root / "pyproject.toml").is_file():
        return _pip(["-e", f"{root}[{name}]"])
    return _pip([f"crossflops[{name}]"])


def _folders(root: Path) -> dict[str, Path]:
    """The plugins of a source folder, by the tools that they declare."""
    found: dict[str, Path] = {}
    for file in sorted(root.glob("plugins/*/pyproject.toml")):
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
        for tool in project.get("entry-points", {}).get(GROUP, {}):
            found[tool] = file.parent
    return found


def _extras() -> list[str]:
    try:
        return metadata("crossflops").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return []


def _pip(arguments: list[str]) -> str:
    return shlex.join([sys.executable or "python", "-m", "pip", "install", *arguments])
