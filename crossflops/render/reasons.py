"""Causes and calls in few words."""

from crossflops.causes import cause
from crossflops.errors import UnknownNameError

NAMED = 1  # calls that are named before the rest is only numbered


def title(id: str) -> str:
    """What a cause is; nothing for one that another release knew."""
    try:
        return cause(id).title
    except UnknownNameError:
        return ""


def named(calls: tuple[str, ...]) -> str:
    """The first call, and how many more there are."""
    rest = len(calls) - NAMED
    return ", ".join([*calls[:NAMED], *([f"and {rest} more"] if rest > 0 else [])])
