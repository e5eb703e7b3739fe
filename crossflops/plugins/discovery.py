"""Find the installed tools, and the command that installs a missing one.

They are the entry points of the group `crossflops.adapters`, here or in another environment.
"""

import base64
import hashlib
import importlib.util
import re
import shlex
import sys
import tomllib
from collections.abc import Iterable, Sequence
from importlib.metadata import (
    Distribution,
    EntryPoint,
    PackageNotFoundError,
    PackagePath,
    distribution,
    entry_points,
    metadata,
    requires,
    version,
)
from pathlib import Path

from crossflops.errors import MissingExtraError, UnknownNameError, nearest_name_hint
from crossflops.ir.profile import Failure
from crossflops.plugins.adapter import Adapter
from crossflops.plugins.failures import tool_failure
from crossflops.tools.registry import GROUP, convention_for_prediction

ROOT = Path(__file__).resolve().parents[2]
_PLUGIN_OF = {"tensorflow": "crossflops-tensorflow"}  # the extra of its id is the framework
_PIP = re.compile(r"(?<!-m )\bpip (?=(un)?install )")


def find_distribution_version(distribution: str) -> str | None:
    """Return the version of a distribution, or None if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def plugin_install_command(
    tools: Iterable[str] | None = None, root: Path = ROOT, python: str | None = None
) -> str:
    """Return the pip command that installs the plugins of these tools (None: all plugins); "" if
    there are none.

    In a source folder that holds the plugins it installs those; elsewhere the extras of
    crossflops, which bear the ids of the tools. Into another interpreter (`python`) this very
    crossflops comes with them.
    """
    folders = _plugin_source_folders(root)
    requested = set(folders if tools is None else tools)
    sources = sorted({str(folders[tool]) for tool in requested if tool in folders})
    if sources:
        paths = [str(root)] if python is not None else []
        return _pip_install_command(
            [part for folder in (*paths, *sources) for part in ("-e", folder)], python
        )
    extras = _names_of_extras()
    names = ["tools"] if tools is None else sorted(requested)
    plugins = [_PLUGIN_OF[name] for name in names if extras and name in _PLUGIN_OF]
    names = [name for name in names if name in extras and name not in _PLUGIN_OF]
    own = [f"crossflops[{','.join(names)}]{_version_requirement(python)}"] if names else []
    return _pip_install_command([*own, *plugins], python) if own or plugins else ""


def extra_install_command(name: str, root: Path = ROOT) -> str:
    """Return the pip command that installs an extra of crossflops."""
    if (root / "pyproject.toml").is_file():
        return _pip_install_command(["-e", f"{root}[{name}]"])
    return _pip_install_command([f"crossflops[{name}]"])


def crossflops_install_command(python: str, root: Path = ROOT) -> str:
    """Return the pip command that installs the same crossflops into another Python interpreter."""
    if (root / "pyproject.toml").is_file():
        return _pip_install_command(["-e", str(root)], python)
    return _pip_install_command([f"crossflops{_version_requirement(python)}"], python)


def with_pip_interpreter(python: str, hint: str) -> str:
    """Return the hint with "PYTHON -m" before each pip command."""
    return _PIP.sub(lambda match: f"{shlex.quote(python)} -m {match[0]}", hint)


def _version_requirement(python: str | None) -> str:
    """Return "==VERSION" of crossflops if `python` is given and the version is known, else ""."""
    version = find_distribution_version("crossflops")
    return f"=={version}" if python is not None and version else ""


def _plugin_source_folders(root: Path) -> dict[str, Path]:
    """Return the source folder of each tool's plugin, by tool id; {} outside of the source of
    crossflops.
    """
    by_tool: dict[str, Path] = {}
    for file in sorted(root.glob("plugins/*/pyproject.toml")):
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
        for tool in project.get("entry-points", {}).get(GROUP, {}):
            by_tool[tool] = file.parent
    return by_tool


def _names_of_extras() -> list[str]:
    """Return the names of the extras that the installed crossflops declares."""
    try:
        return metadata("crossflops").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return []


def _pip_install_command(arguments: list[str], python: str | None = None) -> str:
    """Return the shell command "PYTHON -m pip install ARGUMENTS"."""
    return shlex.join([python or sys.executable or "python", "-m", "pip", "install", *arguments])


_MEMBERS = ("name", "convention", "distribution", "version", "load", "accepts", "profile")


def plugin_entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of the installed plugins by tool id, sorted, without importing them.

    Raises UnknownNameError when two plugins bear one name, naming both distributions.
    """
    by_name: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        other = by_name.setdefault(point.name, point)
        if other.value != point.value or _entry_point_distribution(
            other
        ) != _entry_point_distribution(point):
            raise UnknownNameError(
                f"two plugins have the name {point.name!r}: "
                f"{_entry_point_distribution(other)} ({other.value}) and "
                f"{_entry_point_distribution(point)} ({point.value})",
                "uninstall one of them",
            )
    return dict(sorted(by_name.items()))


def load_plugin_adapter(tool: str) -> Adapter | Failure:
    """Return the adapter of a tool, or the failure if its plugin cannot be loaded.

    Raises UnknownNameError when no plugin bears that name.
    """
    return _load_entry_point(tool, plugin_entry_points())


def _load_entry_point(tool: str, points: dict[str, EntryPoint]) -> Adapter | Failure:
    """Return the adapter of a tool, or its failure. Raises UnknownNameError if no plugin has the
    tool.
    """
    if tool not in points:
        raise unknown_tool_error(tool, points)
    return load_adapter_from_entry_point(tool, points[tool])


def adapters_and_failures(
    tools: Sequence[str] | None,
) -> tuple[dict[str, Adapter], dict[str, Failure]]:
    """Load the adapters of these tools (None: of all installed ones); return the adapters and the
    failures, by tool.

    A plugin whose convention is not known is such a failure: nothing could be predicted. Raises
    UnknownNameError when no plugin bears a name.
    """
    adapters: dict[str, Adapter] = {}
    failures: dict[str, Failure] = {}
    chosen = [tools] if isinstance(tools, str) else tools
    points = plugin_entry_points()  # once: that reads the metadata of all that is installed
    for tool in chosen if chosen is not None else points:
        adapter = _load_entry_point(tool, points)
        if isinstance(adapter, Failure):
            failures[tool] = adapter
            continue
        try:
            convention_for_prediction(adapter.convention, adapter.version())
        except Exception as problem:  # a plugin may do anything, and the others go on
            failures[tool] = tool_failure(tool, "load", problem)
        else:
            adapters[tool] = adapter
    return adapters, failures


def load_adapter_from_path(tool: str, value: str) -> Adapter | Failure:
    """Return the adapter that "module:attribute" names, or the failure if it cannot be loaded."""
    return load_adapter_from_entry_point(tool, EntryPoint(name=tool, value=value, group=GROUP))


def load_adapter_from_entry_point(tool: str, point: EntryPoint) -> Adapter | Failure:
    """Return the adapter that an entry point names, or the failure if it cannot be loaded."""
    try:
        adapter = point.load()()
    except Exception as problem:
        return tool_failure(tool, "load", problem)
    missing = [member for member in _MEMBERS if not hasattr(adapter, member)]
    if missing:
        return tool_failure(
            tool, "load", f"{point.value} is not an adapter: it has no {missing[0]}"
        )
    if adapter.name != tool:
        return tool_failure(
            tool, "load", f"{point.value} is the adapter of {adapter.name}, not of {tool}"
        )
    return adapter  # type: ignore[no-any-return]  # its members were looked at one by one


def unknown_tool_error(tool: str, points: dict[str, EntryPoint]) -> UnknownNameError:
    """Return the error for a tool that no installed plugin has, with a command or similar names as
    the hint.
    """
    plugins = _plugin_distribution_by_extra()
    known = ", ".join(points) or "none"
    requested = plugins.get(tool) or _PLUGIN_OF.get(tool)
    if requested:
        return UnknownNameError(
            f"the plugin of {tool} is not installed (installed: {known})",
            f"pip install {requested}",
        )
    usual = " ".join(sorted(set(plugins.values()))) or "'crossflops[tools]'"
    more = f"write one of the installed tools, or install all: pip install {usual}"
    return UnknownNameError(
        f"no installed plugin has the tool {tool!r} (installed: {known})",
        nearest_name_hint(tool, [*points, *plugins, *_PLUGIN_OF], more),
    )


def _entry_point_distribution(point: EntryPoint) -> str:
    """Return the name of the distribution that declares an entry point."""
    return point.dist.name if point.dist is not None else "an unknown distribution"


def _plugin_distribution_by_extra() -> dict[str, str]:
    """Return the plugin distribution that crossflops requires for each extra, by the name of the
    extra.
    """
    try:
        requirements = requires("crossflops") or []
    except PackageNotFoundError:  # run from a source tree
        return {}
    pairs = (requirement.partition(";") for requirement in requirements)
    return {
        marker.partition("extra ==")[2].strip(" '\""): name.strip()
        for name, _, marker in pairs
        if name.startswith("crossflops-")
    }


# Which installed distribution an import really comes from.


def distribution_of_package(package: str, candidates: Sequence[str]) -> Distribution:
    """Return the installed distribution that the files of an importable package come from.

    Two distributions may install the same package, and the later one overwrites the earlier
    without a word from pip: both are then listed as installed. So the files on disk are held
    against the hashes in the distributions' records. `candidates` starts with the one that is
    wanted, which a message names. The package is not imported.

    Raises MissingExtraError when none is installed, or when it cannot be told whose they are.
    """
    requested = candidates[0]
    folder = _package_folder(package)
    distributions = [
        distribution
        for distribution in map(_find_distribution, candidates)
        if distribution is not None
    ]
    if folder is None or not distributions:
        raise MissingExtraError(f"{requested} is not installed", f"pip install {requested}")
    intact = [
        distribution
        for distribution in distributions
        if _has_all_files_in_folder(distribution, folder)
    ]
    if len(intact) == 1:
        return intact[0]
    if len(distributions) == 1:
        return distributions[0]  # no record to hold against, as in an editable installation
    names = " and ".join(distribution.name for distribution in distributions)
    raise MissingExtraError(
        f"{names} both install the package {package}, so it is unknown which one is in use",
        f"pip uninstall {names.replace(' and ', ' ')}, then pip install {requested}",
    )


def _package_folder(package: str) -> Path | None:
    """Return the folder of an importable package, or None if there is no such package."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve().parent


def _find_distribution(name: str) -> Distribution | None:
    """Return the installed distribution with this name, or None."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _has_all_files_in_folder(candidate: Distribution, folder: Path) -> bool:
    """Return whether the distribution has Python files in this folder, all with the hashes that it
    recorded.
    """
    files = [
        (recorded, path)
        for recorded in candidate.files or ()
        if recorded.suffix == ".py"
        and (path := Path(str(candidate.locate_file(recorded))).resolve()).is_relative_to(folder)
    ]
    return bool(files) and all(_has_recorded_hash(recorded, path) for recorded, path in files)


def _has_recorded_hash(recorded: PackagePath, path: Path) -> bool:
    """Return whether a file has the hash that its distribution recorded for it."""
    if recorded.hash is None or not path.is_file():
        return False
    digest = hashlib.new(recorded.hash.mode, path.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == recorded.hash.value
