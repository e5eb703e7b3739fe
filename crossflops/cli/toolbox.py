"""Which tools are known, and which of them are installed and work: here, or elsewhere."""

import sys
from collections.abc import Iterable, Mapping

from crossflops.adapters.discovery import installed, load
from crossflops.adapters.elsewhere import offers
from crossflops.adapters.installation import to_install
from crossflops.adapters.inventory import Offer
from crossflops.conventions import conventions
from crossflops.core.convention import Convention
from crossflops.core.profile import Failure
from crossflops.render.inventory import State, ToolRow


def toolbox(interpreters: Mapping[str, str]) -> tuple[ToolRow, ...]:
    """A row for every tool that has a convention, a plugin, or an interpreter of its own."""
    known: dict[str, list[Convention]] = {}
    for convention in conventions():
        known.setdefault(convention.tool, []).append(convention)
    plugins = installed()
    far = offers(interpreters)
    names = dict.fromkeys([*known, *plugins, *interpreters])
    return tuple(
        _elsewhere(name, known.get(name, []), far[name], interpreters[name])
        if name in far
        else _here(name, known.get(name, []), name in plugins)
        for name in names
    )


def _here(tool: str, editions: list[Convention], there: bool) -> ToolRow:
    version: str | None = None
    state: State = "missing" if _verified(editions) else "no tool"
    message = ""
    if there:
        version, state, message = _look(tool, _verified(editions))
    return _row(
        tool,
        editions,
        python=sys.executable if there else "",
        version=version,
        state=state,
        message=message,
        install=to_install([tool]) if state in ("missing", "broken") else "",
    )


def _elsewhere(
    tool: str, editions: list[Convention], found: Offer | Failure, python: str
) -> ToolRow:
    if isinstance(found, Failure):
        mends = "-m pip " in found.hint
        message = found.message if mends else f"{found.message}; {found.hint}"
        install = found.hint if mends else ""
        return _row(
            tool, editions, python=python, state="broken", message=message, install=install
        )
    state = _state(found.version, _verified(editions))
    return _row(tool, editions, python=python, version=found.version, state=state)


def _row(
    tool: str,
    editions: list[Convention],
    *,
    python: str,
    version: str | None = None,
    state: State,
    message: str = "",
    install: str = "",
) -> ToolRow:
    return ToolRow(
        tool=tool,
        editions=tuple(one.edition for one in editions),
        verified=_verified(editions),
        version=version,
        python=python,
        state=state,
        message=message,
        install=install,
    )


def _verified(editions: Iterable[Convention]) -> tuple[str, ...]:
    return tuple(version for one in editions for version in one.verified)


def _look(tool: str, verified: Iterable[str]) -> tuple[str | None, State, str]:
    try:
        adapter = load(tool)
        if isinstance(adapter, Failure):
            return None, "broken", adapter.message
        version = adapter.version()
    except Exception as error:  # a tool may die of anything when it is imported
        return None, "broken", " ".join(f"{type(error).__name__}: {error}".split())
    return version, _state(version, verified), ""


def _state(version: str, verified: Iterable[str]) -> State:
    return "ok" if {version, version.split("+")[0]} & set(verified) else "unverified"
