"""Find all that the number of a tool for a model depends on: the key of its row in the store.

The case, the tool, and the versions of all that makes the number: crossflops, the tool and its
plugin, Python and the system, the installed frameworks, the library of the model, and the content
of its file. A row is used again only where all of these are the same.
"""

import functools
import hashlib
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from crossflops.errors import CrossflopsError
from crossflops.files import read_file_bytes
from crossflops.frontends import FRONTENDS, library_of_target
from crossflops.operators.formula_sources import formula_locations_for_workers
from crossflops.plugins.choice import Choice, choose_tools
from crossflops.plugins.discovery import plugin_entry_points
from crossflops.plugins.elsewhere import Offer, ask_interpreters_for_tools, interpreters_by_tool
from crossflops.report.sweep import NATIVE, Kind, SweepCase
from crossflops.targets import is_onnx_target
from crossflops.targets.target import full_target_name
from crossflops.verbs.model_numbers import choose_conventions
from crossflops.verbs.provenance import distribution_version
from crossflops.verbs.sweep.store import hash_key
from crossflops.verbs.sweep.suite import SuiteItem

_OF_FILES = ("crossflops", "numpy", "onnx")  # what counts an ONNX file
_CONFIGS = ("config.json", "model_index.json", "saved_model.pb")  # what a folder is known by


class RowKey(msgspec.Struct, frozen=True):
    """A row that a sweep must have: its tool, and the hash of all that its number depends on.

    `versions` are those in the hash; `tool` may have the edition of a convention behind an "@".
    """

    tool: str
    kind: Kind
    digest: str
    versions: dict[str, str]


class ToolVersions:
    """The versions of installed tools; each is asked for once."""

    def __init__(self) -> None:
        self._interpreters = interpreters_by_tool()
        self._installed: tuple[str, ...] | None = None
        self._by_tool: dict[str, dict[str, str]] = {}

    def available_tools(self) -> tuple[str, ...]:
        """Return the ids of all tools that are installed, or have an interpreter of their own."""
        if self._installed is None:
            self._installed = tuple(dict.fromkeys([*plugin_entry_points(), *self._interpreters]))
        return self._installed

    def versions_of(self, tool: str) -> dict[str, str]:
        """Return the versions of a tool: of its distribution, its plugin, its interpreter.

        Raises UnknownNameError for a tool that is not installed.
        """
        if tool not in self._by_tool:
            self._by_tool[tool] = self._find_versions(tool)
        return self._by_tool[tool]

    def _find_versions(self, tool: str) -> dict[str, str]:
        """Return the versions of a tool: see `versions_of`."""
        choice = choose_tools([tool], self._interpreters)
        if tool in choice.here:
            return {
                choice.here[tool].distribution: choice.here[tool].version(),
                **_plugin_version(tool),
            }
        if tool in choice.elsewhere:
            offer = ask_interpreters_for_tools(choice.elsewhere)[tool]
            version = offer.version if isinstance(offer, Offer) else ""
            return {tool: version, "interpreter": choice.elsewhere[tool]}
        return _failure_reason_by_tool(choice, tool)


def _failure_reason_by_tool(choice: Choice, tool: str) -> dict[str, str]:
    """Return {tool: reason} for a tool that cannot be loaded: when that changes, it is tried
    again.
    """
    failure = choice.failures.get(tool)
    return {tool: f"{failure.stage}: {failure.message}" if failure else ""}


def _plugin_version(tool: str) -> dict[str, str]:
    """Return {distribution: version} of the plugin of a tool."""
    plugin = plugin_entry_points()[tool].dist
    return {plugin.name: plugin.version} if plugin is not None else {}


def find_row_keys(item: SuiteItem, tools: ToolVersions) -> tuple[RowKey, ...]:
    """Return the keys of the rows of an item: the native count, its tools, its conventions."""
    shared = {**_machine_versions(), **_model_versions(item.case.target), **_formula_digests()}
    chosen = tools.available_tools() if item.tools is None else item.tools
    rows: list[tuple[str, Kind, dict[str, str]]] = [(NATIVE, "native", {})]
    rows += [(tool, "run", tools.versions_of(tool)) for tool in chosen]
    rows += [(name, "predicted", {}) for name in _convention_names(item.conventions)]
    return tuple(
        RowKey(
            tool, kind, _row_digest(item.case, tool, kind, {**shared, **own}), {**shared, **own}
        )
        for tool, kind, own in rows
    )


def _convention_names(texts: Sequence[str]) -> list[str]:
    """Return the conventions that texts name as TOOL@EDITION. Raises UnknownNameError for one
    that there is not.
    """
    chosen = choose_conventions(texts) if texts else ()
    return [f"{convention.tool}@{convention.edition}" for convention in chosen]


def _row_digest(case: SweepCase, tool: str, kind: str, versions: Mapping[str, str]) -> str:
    """Return the hash of all that a row depends on."""
    return hash_key(
        {"case": msgspec.to_builtins(case), "tool": tool, "kind": kind, "versions": dict(versions)}
    )


@functools.cache
def _machine_versions() -> dict[str, str]:
    """Return the versions of Python and of the system."""
    return {
        "python": platform.python_version(),
        "system": f"{sys.platform} {platform.machine()}",
    }


def _model_versions(target: str) -> dict[str, str]:
    """Return the versions on which the count of a model depends, and the hash of its file."""
    names = list(_OF_FILES)
    digests: dict[str, str] = {}
    if not is_onnx_target(target):
        names += [name for frontend in FRONTENDS for _, name in frontend.versions]
        package = _package_of_target(target)
        names += _distributions_of_package(package)
        digests |= _package_source_digest(package) if package else {}
    digests |= _file_digest(target)
    folders = tuple(sys.path)
    versions = {name: distribution_version(name, folders) for name in dict.fromkeys(names)}
    return {**{name: version for name, version in versions.items() if version}, **digests}


def _package_of_target(target: str) -> str:
    """Return the name of the top-level package of a target such as `timm:resnet50` or
    `pkg.module:callable`, "" for others.
    """
    try:
        full = full_target_name(target)
    except CrossflopsError:  # ambiguous: counting will say so
        return ""
    library = library_of_target(full)
    path, colon, _ = full.partition(":")
    module = library.package if library is not None else path if colon else ""
    top = module.partition(".")[0]
    return top if top.isidentifier() else ""


@functools.cache
def _distributions_of_package(package: str) -> tuple[str, ...]:
    """Return the names of the distributions that install a package."""
    return tuple(dict.fromkeys(_distributions_by_package().get(package, ())))


@functools.cache
def _distributions_by_package() -> Mapping[str, list[str]]:
    """Return the names of the distributions by the package that they install."""
    from importlib.metadata import packages_distributions

    return packages_distributions()


@functools.cache
def _package_source_digest(package: str) -> dict[str, str]:
    """Return {package: hash} of the source of a package that no distribution has installed."""
    if _distributions_of_package(package):
        return {}
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return {}
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return {}
    folders = spec.submodule_search_locations or ()
    files = [file for folder in folders for file in sorted(Path(folder).rglob("*.py"))]
    texts = [file.read_bytes() for file in files or [Path(spec.origin)]]
    return {package: hashlib.sha256(b"\0".join(texts)).hexdigest()}


def _file_digest(target: str) -> dict[str, str]:
    """Return {"file": hash} of the file that a target names, {} where it names none."""
    before, _, _ = target.rpartition(":")  # file.py:callable
    _, _, after = target.partition(":")  # hf:folder
    for path in map(Path, filter(None, (target, before, after))):
        files = [path, *(path / name for name in _CONFIGS)] if str(path) != "." else []
        for file in files:
            if file.is_file():
                return {"file": _hash_file(file)}
    return {}


def _hash_file(file: Path) -> str:
    """Return the SHA-256 of the content of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _formula_digests() -> dict[str, str]:
    """Return the hashes of the files of formulas that are in force, by name."""
    return {
        f"formulas {file.name}": hashlib.sha256(read_file_bytes(file)).hexdigest()
        for file in map(Path, formula_locations_for_workers())
        if file.is_file()
    }
