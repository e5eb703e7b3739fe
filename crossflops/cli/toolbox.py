"""Which tools are known, and which of them are installed and work."""

from collections.abc import Iterable

from crossflops.adapters.discovery import installed, load
from crossflops.cli.installation import to_install
from crossflops.conventions import conventions
from crossflops.core.convention import Convention
from crossflops.core.profile import Failure
from crossflops.render.inventory import State, ToolRow


def toolbox() -> tuple[ToolRow, ...]:
    """A row for every tool that has a convention or a plugin."""
    known: dict[str, list[Convention]] = {}
    for convention in conventions():
        known.setdefault(convention.tool, []).append(convention)
    plugins = installed()
    names = [*known, *(name for name in plugins if name not in known)]
    return tuple(_row(name, known.get(name, []), name in plugins) for name in names)


def _row(tool: str, editions: list[Convention], there: bool) -> ToolRow:
    verified = tuple(version for one in editions for version in one.verified)
    absent: State = "no tool" if all(one.sees == "node" for one in editions) else "missing"
    version, state, message = _look(tool, verified) if there else (None, absent, "")
    return ToolRow(
        tool=tool,
        editions=tuple(one.edition for one in editions),
        verified=verified,
        version=version,
        state=state,
        message=message,
        install=to_install([tool]) if state in ("missing", "broken") else "",
    )


def _look(tool: str, verified: Iterable[str]) -> tuple[str | None, State, str]:
    try:
        adapter = load(tool)
        if isinstance(adapter, Failure):
            return None, "broken", adapter.message
        version = adapter.version()
    except Exception as error:  # a tool may die of anything when it is imported
        return None, "broken", " ".join(f"{type(error).__name__}: {error}".split())
    local = version.split("+")[0]
    return version, "ok" if {version, local} & set(verified) else "unverified", ""
