"""Which tools are installed: the entry points of the group `crossflops.adapters`."""

from collections.abc import Sequence
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires

from crossflops.adapters.contract import Adapter
from crossflops.adapters.failures import failure
from crossflops.conventions import for_version
from crossflops.core.profile import Failure
from crossflops.errors import UnknownNameError, nearest

GROUP = "crossflops.adapters"
_MEMBERS = ("name", "convention", "distribution", "version", "load", "accepts", "profile")


def installed() -> dict[str, EntryPoint]:
    """Entry point by tool id, in alphabetical order. Nothing is imported.

    Raises UnknownNameError when two plugins bear one name, naming both distributions.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        other = found.setdefault(point.name, point)
        if other.value != point.value or _source(other) != _source(point):
            raise UnknownNameError(
                f"two plugins bear the name {point.name!r}: {_source(other)} ({other.value})"
                f" and {_source(point)} ({point.value})",
                "uninstall one of them",
            )
    return dict(sorted(found.items()))


def load(tool: str) -> Adapter | Failure:
    """The adapter of a tool; a plugin that cannot be loaded is a Failure.

    Raises UnknownNameError when no plugin bears that name.
    """
    points = installed()
    if tool not in points:
        raise unknown(tool, points)
    return load_point(tool, points[tool])


def ready(tools: Sequence[str] | None) -> tuple[dict[str, Adapter], dict[str, Failure]]:
    """The adapters of the tools (None: all that are installed), and the failures of the others.

    A plugin whose convention nobody knows is such a failure: nothing could be predicted. Raises
    UnknownNameError when no plugin bears a name.
    """
    found: dict[str, Adapter] = {}
    failures: dict[str, Failure] = {}
    chosen = [tools] if isinstance(tools, str) else tools
    for tool in chosen if chosen is not None else installed():
        adapter = load(tool)
        if isinstance(adapter, Failure):
            failures[tool] = adapter
            continue
        try:
            for_version(adapter.convention, adapter.version())
        except Exception as problem:  # a plugin may do anything, and the others go on
            failures[tool] = failure(tool, "load", problem)
        else:
            found[tool] = adapter
    return found, failures


def load_value(tool: str, value: str) -> Adapter | Failure:
    """The adapter that the value of an entry point ("module:attribute") names."""
    return load_point(tool, EntryPoint(name=tool, value=value, group=GROUP))


def load_point(tool: str, point: EntryPoint) -> Adapter | Failure:
    """The adapter of an entry point, or the Failure to load it."""
    try:
        adapter = point.load()()
    except Exception as problem:
        return failure(tool, "load", problem)
    missing = [member for member in _MEMBERS if not hasattr(adapter, member)]
    if missing:
        return failure(tool, "load", f"{point.value} is no adapter: it lacks {missing[0]}")
    if adapter.name != tool:
        return failure(tool, "load", f"{point.value} is the adapter of {adapter.name}")
    return adapter  # type: ignore[no-any-return]  # its members were looked at one by one


def unknown(tool: str, points: dict[str, EntryPoint]) -> UnknownNameError:
    """The error for a tool that no plugin offers, with the command that installs it."""
    plugins = _plugins()
    known = ", ".join(points) or "none"
    wanted = plugins.get(tool)
    if wanted:
        return UnknownNameError(
            f"the plugin of {tool} is not installed (installed: {known})", f"pip install {wanted}"
        )
    usual = " ".join(sorted(set(plugins.values()))) or "'crossflops[tools]'"
    more = f"choose one of them, or add the usual ones: pip install {usual}"
    return UnknownNameError(
        f"no installed plugin offers the tool {tool!r} (installed: {known})",
        nearest(tool, [*points, *plugins], more),
    )


def _source(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown distribution"


def _plugins() -> dict[str, str]:
    """Distribution by tool id, from crossflops' own extras, which bear the ids of tools."""
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
