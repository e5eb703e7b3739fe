"""`crossflops doctor` and `crossflops tools`: what is installed here, and whether it works."""

import platform
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crossflops.cli.options import OUTPUT, PYTHON, command_options, verb
from crossflops.cli.output import showing_progress, write_verb_result
from crossflops.ir.profile import Failure
from crossflops.operators.formula_sources import STATE, formulas_in_force
from crossflops.patches.installed import patch_targets
from crossflops.plugins.discovery import (
    extra_install_command,
    find_distribution_version,
    load_plugin_adapter,
    plugin_entry_points,
    plugin_install_command,
)
from crossflops.plugins.elsewhere import Offer, ask_interpreters_for_tools, interpreters_by_tool
from crossflops.render.pages.inventory import (
    Component,
    FormulaRow,
    Health,
    PatchRow,
    State,
    ToolList,
    ToolRow,
)
from crossflops.rules.rule import Convention
from crossflops.tools.registry import all_conventions

# Which tools are known, and which of them are installed and work: here, or elsewhere.


def list_tool_rows(interpreters: Mapping[str, str]) -> tuple[ToolRow, ...]:
    """Return a row for each tool that is known, installed or configured, with the state of its
    installation.
    """
    known: dict[str, list[Convention]] = {}
    for convention in all_conventions():
        known.setdefault(convention.tool, []).append(convention)
    plugins = plugin_entry_points()
    far = ask_interpreters_for_tools(interpreters)
    names = dict.fromkeys([*known, *plugins, *interpreters])
    return tuple(
        _external_tool_row(name, known.get(name, []), far[name], interpreters[name])
        if name in far
        else _local_tool_row(name, known.get(name, []), name in plugins)
        for name in names
    )


def _local_tool_row(tool: str, editions: list[Convention], is_installed: bool) -> ToolRow:
    """Return the row of a tool in this Python: its version, and whether it is missing, broken or
    verified.
    """
    version: str | None = None
    install = plugin_install_command([tool])  # "" for a convention that no plugin runs
    state: State = "missing" if _all_verified_versions(editions) and install else "no tool"
    message = ""
    if is_installed:
        version, state, message = _inspect_tool(tool, _all_verified_versions(editions))
    return _doctor_tool_row(
        tool,
        editions,
        python=sys.executable if is_installed else "",
        version=version,
        state=state,
        message=message,
        install=install if state in ("missing", "broken") else "",
    )


def _external_tool_row(
    tool: str, editions: list[Convention], offer: Offer | Failure, python: str
) -> ToolRow:
    """Return the row of a tool that another Python runs, from what that Python offers."""
    if isinstance(offer, Failure):
        mends = "-m pip " in offer.hint
        message = offer.message if mends else f"{offer.message}; {offer.hint}"
        install = offer.hint if mends else ""
        return _doctor_tool_row(
            tool, editions, python=python, state="broken", message=message, install=install
        )
    state = _verification_state(offer.version, _all_verified_versions(editions))
    return _doctor_tool_row(tool, editions, python=python, version=offer.version, state=state)


def _doctor_tool_row(
    tool: str,
    editions: list[Convention],
    *,
    python: str,
    version: str | None = None,
    state: State,
    message: str = "",
    install: str = "",
) -> ToolRow:
    """Return the row of a tool: its conventions, its version and Python, and its state."""
    return ToolRow(
        tool=tool,
        editions=tuple(convention.edition for convention in editions),
        verified=_all_verified_versions(editions),
        version=version,
        python=python,
        state=state,
        message=message,
        install=install,
    )


def _all_verified_versions(editions: Iterable[Convention]) -> tuple[str, ...]:
    """Return the tool versions with which these conventions were verified."""
    return tuple(version for convention in editions for version in convention.verified)


def _inspect_tool(tool: str, verified: Iterable[str]) -> tuple[str | None, State, str]:
    """Return (version, state, error text) of an installed tool: version None if it is broken, text
    "" if it is not.
    """
    try:
        adapter = load_plugin_adapter(tool)
        if isinstance(adapter, Failure):
            return None, "broken", adapter.message
        version = adapter.version()
    except Exception as error:  # a tool may die of anything when it is imported
        return None, "broken", " ".join(f"{type(error).__name__}: {error}".split())
    return version, _verification_state(version, verified), ""


def _verification_state(version: str, verified: Iterable[str]) -> State:
    """Return "ok" if the conventions were verified with this version of the tool, else
    "unverified".
    """
    return "ok" if {version, version.split("+")[0]} & set(verified) else "unverified"


CORE = ("crossflops", "onnx", "numpy", "msgspec")
# a distribution, the extra that brings it
EXTRAS = {
    "torch": "torch",
    "onnxscript": "torch",
    "onnx2torch": "rebuild",
    "onnxruntime": "runtime",
    "nvidia-ml-py": "hw",
}


@verb("doctor", example="crossflops doctor")
@command_options(PYTHON, *OUTPUT)
def doctor(python: dict[str, str], **fields: Any) -> int:
    """Check the installation and list what is missing."""
    interpreters = interpreters_by_tool(python)
    with showing_progress("checking the installation"):
        content = Health(
            _installation_components(),
            list_tool_rows(interpreters),
            _patch_rows(),
            _formula_rows(),
        )
    write_verb_result(content, **fields)
    return 0


@verb("tools", example="crossflops tools")
@command_options(PYTHON, *OUTPUT)
def tools(python: dict[str, str], **fields: Any) -> int:
    """List all known tools and show which are installed."""
    interpreters = interpreters_by_tool(python)
    with showing_progress("checking the tools"):
        content = ToolList(list_tool_rows(interpreters))
    write_verb_result(content, **fields)
    return 0


def _formula_rows() -> tuple[FormulaRow, ...]:
    """Return a row for each distribution that contains formulas, with the operators they count or
    the error.
    """
    by_origin: dict[tuple[str, str], list[str]] = {}
    for formula in formulas_in_force():
        if formula.origin.kind in ("distribution", "crossflops"):
            key = formula.origin.name, formula.origin.version
            by_origin.setdefault(key, []).append(formula.name)
    rows = [
        FormulaRow(distribution=name, version=version, operators=tuple(names))
        for (name, version), names in by_origin.items()
    ]
    broken = (
        FormulaRow(distribution=name, version="", message=reason)
        for name, reason in STATE.broken.items()
    )
    return (*rows, *broken)


def _patch_rows() -> tuple[PatchRow, ...]:
    """Return a row for each library attribute that crossflops replaces, with its state in the
    installed release.
    """
    rows = [
        PatchRow(
            library=target.patch.library,
            attribute=target.path,
            why=target.patch.why,
            verified=target.patch.verified,
            version=target.version,
            state=target.state,
            signature=target.signature,
            message=target.message,
        )
        for target in patch_targets()
    ]
    return tuple(sorted(rows, key=lambda row: row.library))


def _installation_components() -> tuple[Component, ...]:
    """Return the state of Python, of the core packages, of the optional packages, and of
    torchvision.
    """
    python = Component(
        name="Python", version=platform.python_version(), python=sys.executable, state="ok"
    )
    core = [_package_component(name) for name in CORE]
    extras = [
        _package_component(name, extra_install_command(brings)) for name, brings in EXTRAS.items()
    ]
    return (python, *core, *extras, _torchvision_component())


def _package_component(name: str, install: str = "") -> Component:
    """Return the state of a package: its version, or the command that installs it."""
    version = find_distribution_version(name)
    if version is None:
        return Component(name=name, version=None, state="missing", install=install)
    return Component(name=name, version=version, state="ok")


def _torchvision_component() -> Component:
    """Return the state of torchvision: ok, missing, or broken because it requires
    another torch.
    """
    version, torch = find_distribution_version("torchvision"), find_distribution_version("torch")
    if version is None:
        install = f"{sys.executable} -m pip install --no-deps torchvision"
        return Component(name="torchvision", version=None, state="missing", install=install)
    requested = _torch_version_required_by("torchvision")
    if torch is not None and requested not in (None, torch.split("+")[0]):
        message = f"requires torch {requested}, but torch {torch} is installed"
        return Component(name="torchvision", version=version, state="broken", message=message)
    if "+cu" in _package_build_version("torchvision") and "+cu" not in _package_build_version(
        "torch"
    ):
        message = (
            "was built for another torch; it can be imported only by crossflops, which replaces "
            "the missing parts"
        )
        return Component(name="torchvision", version=version, state="ok", message=message)
    return Component(name="torchvision", version=version, state="ok")


def _torch_version_required_by(distribution: str) -> str | None:
    """Return the torch version that a distribution requires by "==", or None if it
    requires none.
    """
    pins = (re.match(r"torch \(?==([\d.]+)", pin) for pin in requires(distribution) or ())
    return next((pin[1] for pin in pins if pin), None)


def _package_build_version(package: str) -> str:
    """Return the version in the file version.py of a package, such as "0.28.0+cu130"; "" if there
    is none.

    PyPI's metadata leaves that label out. "" where the package does not say.
    """
    spec = find_spec(package)
    file = Path(spec.origin).with_name("version.py") if spec and spec.origin else Path()
    if not file.is_file():
        return ""
    version = re.search(
        r"^__version__ = '([^']+)'", file.read_text(encoding="utf-8"), re.MULTILINE
    )
    return version[1] if version else ""
