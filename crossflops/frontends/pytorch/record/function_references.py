"""References to functions in all imported modules, replaced for a while.

`from torch.compiler import is_compiling` makes a second reference to a function: whoever replaces
the function must find them all. Modules of installed packages are searched once, and again when
they have another number of names; the user's own modules are searched each time.
"""

import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from crossflops.patches import inventory
from crossflops.patches.patching import patching_items


class _SearchedModule(NamedTuple):
    """A module's dictionary, the number of its names, and those that refer to the functions."""

    namespace: Mapping[str, Any]  # kept, so that no other dictionary gets its identity
    name_count: int
    names: tuple[str, ...]


_SEARCHED: dict[frozenset[int], dict[int, _SearchedModule]] = {}
_KEPT_SEARCHES = 8
_INSTALLED = (
    str(Path(__file__).parents[3]),  # crossflops
    *{sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)


@contextmanager
def replacing_functions_everywhere(wrappers: Mapping[int, Callable[..., Any]]) -> Iterator[None]:
    """Replace functions, by id, by wrappers in all imported modules, in this context.

    Functions that were imported by name are found in the modules that hold them.
    """
    with ExitStack() as undo:
        for namespace, names in _references_by_module(wrappers):
            instead = {
                name: wrappers[id(value)]
                for name in names
                if id(value := namespace.get(name)) in wrappers
            }
            undo.enter_context(patching_items(namespace, instead, inventory.QUESTIONS))
        yield


def _references_by_module(
    wrappers: Mapping[int, Callable[..., Any]],
) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
    """Return the dictionary of each module that refers to the functions, and under what names."""
    if len(_SEARCHED) >= _KEPT_SEARCHES:  # wrappers that are wrapped have new ids each time
        _SEARCHED.clear()
    searched = _SEARCHED.setdefault(frozenset(wrappers), {})
    references = []
    for module in list(sys.modules.values()):
        namespace = getattr(module, "__dict__", None)
        if not isinstance(namespace, dict):
            continue
        known = searched.get(id(namespace))
        if known is None or known.name_count != len(namespace):
            known = _SearchedModule(
                namespace, len(namespace), _names_of_functions(namespace, wrappers)
            )
            if str(namespace.get("__file__")).startswith(_INSTALLED):
                searched[id(namespace)] = known
        if known.names:
            references.append((namespace, known.names))
    return references


def _names_of_functions(
    namespace: Mapping[str, Any], wrappers: Mapping[int, Callable[..., Any]]
) -> tuple[str, ...]:
    """Return the names in a module's dictionary that refer to a function of `wrappers`."""
    if wrappers.keys().isdisjoint(map(id, namespace.values())):
        return ()
    return tuple(name for name, value in list(namespace.items()) if id(value) in wrappers)
