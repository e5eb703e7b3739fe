"""What is known of the tools. Every module in this folder offers its editions in `CONVENTIONS`."""

import functools
from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib import import_module
from pkgutil import iter_modules

from crossflops.errors import UnknownNameError, nearest
from crossflops.rules.rule import Convention
from crossflops.tools.legacy import convention_of


@functools.cache
def conventions() -> tuple[Convention, ...]:
    """All conventions, a tool's newest edition before its older ones."""
    found: list[Convention] = []
    for module in iter_modules(__path__):
        offered = getattr(import_module(f"{__name__}.{module.name}"), "CONVENTIONS", ())
        found.extend(map(convention_of, offered))
    return tuple(found)


def find(tool: str, edition: str | None = None) -> Convention:
    """The convention of a tool: the edition asked for, or the newest.

    Raises UnknownNameError when there is none.
    """
    editions = [one for one in conventions() if one.tool == tool]
    if not editions:
        known = sorted({one.tool for one in conventions()})
        raise UnknownNameError(
            f"no convention is known for the tool {tool!r}", nearest(tool, known)
        )
    for one in editions:
        if edition in {None, one.edition}:
            return one
    raise UnknownNameError(
        f"{tool} has no edition {edition!r}",
        f"known: {', '.join(f'{one.tool}@{one.edition}' for one in editions)}",
    )


def parse(text: str) -> Convention:
    """The convention of `TOOL` or `TOOL@EDITION`."""
    tool, at, edition = text.partition("@")
    return find(tool, edition if at else None)


def named(texts: Iterable[str]) -> list[Convention]:
    """The conventions of these texts, each once: `TOOL`, `TOOL@EDITION`, or a pattern with "*".

    A pattern stands for the newest edition of every tool that it matches. Raises
    UnknownNameError.
    """
    found: dict[tuple[str, str], Convention] = {}
    for text in texts:
        for one in _matching(text) if "*" in text else [parse(text)]:
            found[one.tool, one.edition] = one
    return list(found.values())


def _matching(pattern: str) -> list[Convention]:
    known = list(dict.fromkeys(one.tool for one in conventions()))
    matched = [find(tool) for tool in known if fnmatchcase(tool, pattern)]
    if not matched:
        raise UnknownNameError(
            f"no convention matches {pattern!r}", f"known: {', '.join(sorted(known))}"
        )
    return matched


def for_version(tool: str, version: str) -> Convention:
    """The edition for an installed version: verified on it, of the same release, or the newest."""
    editions = [one for one in conventions() if one.tool == tool]
    for one in editions:
        if version in one.verified:
            return one
    for one in editions:
        if f"{version}.".startswith(f"{one.edition}."):
            return one
    return find(tool)
