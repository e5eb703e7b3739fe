"""How often a tool books one call: formulas of the module table."""

import functools
from collections.abc import Callable

from crossflops.ir.modules import (
    chains,
    chains_squared,
    child_paths,
    child_paths_squared,
    registered,
)
from crossflops.ir.trace import Module
from crossflops.tools.formulas import offered

Times = Callable[[tuple[Module, ...]], dict[int, int]]
Within = Callable[[tuple[Module, ...]], dict[int, dict[int, int]]]


def contained(modules: tuple[Module, ...]) -> dict[int, dict[int, int]]:
    """By module, one for itself and for each module around it, under whatever name."""
    return {module: dict.fromkeys(counts, 1) for module, counts in chains(modules).items()}


def among_modules(modules: tuple[Module, ...]) -> dict[int, int]:
    """Once for a module that is registered, and so in every module that contains it.

    deepspeed/profiling/flops_profiler/profiler.py: get_module_flops sums over `modules()`.
    """
    return registered(modules)


def _replaced(modules: tuple[Module, ...]) -> dict[str, int]:
    """The classes of registered modules without children, in the order in which they come."""
    found: dict[str, int] = {}
    for row in modules:
        if row.names and not row.children:
            found.setdefault(row.bases[0], len(found))
    return found


def wrapped(modules: tuple[Module, ...]) -> dict[int, int]:
    """Once for a module of a class that a registered module without children has.

    torchstat/model_hook.py: wrap_call stands in the place of such a class's `__call__`.
    """
    classes = _replaced(modules)
    return {row.id: int(row.bases[0] in classes) for row in modules}


def wrapped_base(modules: tuple[Module, ...]) -> dict[int, int]:
    """Once for a module with a base whose `__call__` was replaced, and its own later or never.

    torchstat/model_hook.py: wrap_call takes what it finds at the class for the original.
    """
    places = _replaced(modules)
    never = len(places)
    return {
        row.id: int(
            any(
                places.get(base, never) < places.get(row.bases[0], never) for base in row.bases[1:]
            )
        )
        for row in modules
    }


TIMES: dict[str, Times] = {
    "child_paths": child_paths,
    "child_paths_squared": child_paths_squared,
    "among_modules": among_modules,
    "registered": registered,
    "torchstat.wrapped": wrapped,
    "torchstat.wrapped_base": wrapped_base,
}
# of tools that show a module's number under each of its parents
WITHIN: dict[str, Within] = {
    "child_paths": chains,
    "child_paths_squared": chains_squared,
    "among_modules": contained,
}


@functools.cache
def multiplicities() -> dict[str, Times]:
    """All of them by name, those that tools' formulas offer too."""
    return TIMES | offered("TIMES")


@functools.cache
def within() -> dict[str, Within]:
    """How often a call is booked in the number of each module around its own, by the same names.

    What the root has of it is what the formula of that name in `multiplicities` gives. One that is
    not here stands once under the first name of the module alone.
    """
    return WITHIN | offered("WITHIN")
