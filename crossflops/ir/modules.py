"""The tree of modules: what lies beneath each one, and how often a tool that walks it meets it."""

from collections.abc import Callable, Mapping

import msgspec

from crossflops.ir.trace import Module, Parameter

Modules = tuple[Module, ...]


class Times(msgspec.Struct, frozen=True):
    """How often a tool books one call of a module.

    `of` gives it by module, of the module table. `within` gives, by module, how often it stands in
    the number of each module around, for a tool that shows a module under each of its parents;
    None where a module stands once, under its first name.
    """

    of: Callable[[Modules], Mapping[int, int]]
    within: Callable[[Modules], Mapping[int, Mapping[int, int]]] | None = None


def subtree(module: int, modules: Modules) -> tuple[Parameter, ...]:
    """The parameters of a module and of all beneath it, each storage once: `.parameters()`."""
    parameters: dict[int, Parameter] = {}
    todo, reached = [module], {module}
    while todo:
        row = modules[todo.pop()]
        for parameter in row.params:
            parameters.setdefault(parameter.storage, parameter)
        fresh = {child for _, child in row.children} - reached
        reached |= fresh
        todo.extend(fresh)
    return tuple(parameters.values())


def chains(modules: Modules, ends: frozenset[str] = frozenset()) -> dict[int, dict[int, int]]:
    """By module, the number of chains to it from itself and from each module around it.

    A child stands once in each parent. No chain goes on beneath a module of a class in `ends`.
    """
    parents: dict[int, list[int]] = {}
    for row in modules:
        if row.bases[0] in ends:
            continue
        for child in {child for _, child in row.children}:
            parents.setdefault(child, []).append(row.id)
    known: dict[int, dict[int, int]] = {}

    def around(module: int) -> dict[int, int]:
        if module not in known:
            counts = {module: 1}
            for parent in parents.get(module, ()):
                for outer, count in around(parent).items():
                    counts[outer] = counts.get(outer, 0) + count
            known[module] = counts
        return known[module]

    return {row.id: around(row.id) for row in modules}


def child_paths(modules: Modules, ends: frozenset[str] = frozenset()) -> dict[int, int]:
    """By module: the number of chains from the root to it, a child counted once in each parent.

    0 for a module that is registered nowhere. No chain goes on beneath a module of a class in
    `ends`.
    """
    return {module: counts.get(0, 0) for module, counts in chains(modules, ends).items()}


def child_paths_squared(modules: Modules) -> dict[int, int]:
    """Hooks are registered once per chain, and the tree is summed along every chain."""
    return {module: count**2 for module, count in child_paths(modules).items()}


def chains_squared(modules: Modules) -> dict[int, dict[int, int]]:
    """By module, the chains to it from each module around it, times those from the root."""
    return {
        module: {outer: count * counts.get(0, 0) for outer, count in counts.items()}
        for module, counts in chains(modules).items()
    }


def registered(modules: Modules) -> dict[int, int]:
    """Once for a module that is registered, however often and under how many parents."""
    return {module: min(count, 1) for module, count in child_paths(modules).items()}


def contained(modules: Modules) -> dict[int, dict[int, int]]:
    """By module, one for itself and for each module around it, under whatever name."""
    return {module: dict.fromkeys(counts, 1) for module, counts in chains(modules).items()}


ONCE = Times(registered)
ONCE_IN_EACH = Times(registered, contained)
ALONG_CHAINS = Times(child_paths, chains)
ALONG_CHAINS_SQUARED = Times(child_paths_squared, chains_squared)
