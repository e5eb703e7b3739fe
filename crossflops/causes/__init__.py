"""Named reasons for which two counts differ. Every module in this folder offers its `CAUSES`.

In: an id, or words that describe a cause. Out: causes, each with its page and its example.
May import: ir, errors.
"""

import functools
from importlib import import_module
from pkgutil import iter_modules

from crossflops.causes.words import WORDS
from crossflops.errors import UnknownNameError
from crossflops.ir.reconciliation import Cause


@functools.cache
def _by_id() -> dict[str, Cause]:
    by_id: dict[str, Cause] = {}
    for module in iter_modules(__path__):
        for cause in import_module(f"{__name__}.{module.name}").CAUSES:
            if cause.id in by_id:
                raise ValueError(f"two causes are called {cause.id!r}")
            by_id[cause.id] = cause
    return by_id


def causes() -> tuple[Cause, ...]:
    """All causes, by id."""
    return tuple(cause for _, cause in sorted(_by_id().items()))


def words() -> tuple[Cause, ...]:
    """Words of reports that are no causes, each with a page."""
    return WORDS


def cause(id: str) -> Cause:
    """The cause of that id. Raises UnknownNameError."""
    try:
        return _by_id()[id]
    except KeyError:
        family = id.partition(".")[0]
        near = [name for name in _by_id() if name.startswith(family)] or sorted(_by_id())
        raise UnknownNameError(
            f"no cause is called {id!r}", f"causes like it: {', '.join(near)}"
        ) from None
