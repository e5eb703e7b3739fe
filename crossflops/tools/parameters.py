"""Counting parameters: what lies beneath a module, and the formulas of tools that are odd."""

from collections.abc import Callable, Iterator

from crossflops.ir.modules import subtree
from crossflops.ir.trace import Module, Parameter, Trace

_SCRIPTED = "torch.jit._script.ScriptModule"


def leaves_and_leftovers(trace: Trace) -> dict[str, int]:
    """What torchinfo counts beside each parameter once: weights that layers share.

    Of a pruned weight it counts what the mask keeps (`get_param_count`).

    torchinfo/model_statistics.py: each leaf that was called gives all of its parameters, each
    other module what its descendants did not give, if that is not negative (`leftover_params`).
    So a tied weight counts twice, less what stands in no leaf.
    """
    rows = _summary(trace)
    sizes: dict[int, int] = {}
    for module, _, _ in rows:
        if module not in sizes:
            sizes[module] = sum(map(_kept, subtree(module, trace.modules)))
    own = [0] * len(rows)
    total = 0
    for place in reversed(range(len(rows))):
        module, _, again = rows[place]
        own[place] = sizes[module]
        if trace.modules[module].children:
            own[place] -= sum(own[below] for below in _beneath(rows, place) if not rows[below][2])
        total += 0 if again else max(own[place], 0)
    masked = sum(_kept(one) - one.numel for one in subtree(0, trace.modules))
    return {"params.pruned": masked, "params.counted-again": total - sizes.get(0, 0)}


def _kept(parameter: Parameter) -> int:
    return parameter.numel if parameter.kept is None else parameter.kept


Line = tuple[int, int, bool]  # a module, its depth, and whether it stands further up as well


def _beneath(rows: list[Line], place: int) -> Iterator[int]:
    for below in range(place + 1, len(rows)):
        if rows[below][1] <= rows[place][1]:
            return
        yield below


def _summary(trace: Trace) -> list[Line]:
    """The lines of the summary; a container that is put in twice is marked at both places.

    Its lines are one object (`add_missing_container_layers`), unlike those of calls.
    """
    lines = list(_lines(trace))
    twice = {line[0] for line, inserted in lines if inserted and line[2]}
    return [
        (line[0], line[1], line[2] or (inserted and line[0] in twice)) for line, inserted in lines
    ]


def _lines(trace: Trace) -> Iterator[tuple[Line, bool]]:
    """Modules as they are called, with containers around them, which are put in afterwards.

    TorchScript takes no hooks: those modules are there before anything is called.
    torchinfo/torchinfo.py: `apply_hooks` (`WRAPPER_MODULES`), `add_missing_container_layers`.
    """
    chains = dict(_chains(trace.modules))
    scripted = [module for module in chains if _SCRIPTED in trace.modules[module].bases]
    called = [
        *scripted,
        *(
            call.module
            for call in trace.calls
            if call.level == "module" and call.via == "call" and call.module in chains
            if call.module not in scripted
        ),
    ]
    begun: set[int] = set()
    listed = set(called)  # containers are added when the model has run
    current: dict[int, int] = {}
    for module in called:
        chain = chains[module]
        for depth in range(1, len(chain)):
            if current.get(depth) != chain[depth]:
                yield (chain[depth], depth, chain[depth] in listed), True
                listed.add(chain[depth])
                current[depth] = chain[depth]
        yield (module, len(chain), module in begun), False
        begun.add(module)
        current = {d: one for d, one in current.items() if d < len(chain)} | {len(chain): module}


def _chains(modules: tuple[Module, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The modules around each one, the root first; of several chains the last one counts."""
    todo: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    while todo:
        module, around = todo.pop()
        yield module, around
        inside = (*around, module)
        todo += [(child, inside) for _, child in reversed(modules[module].children)]


Formula = Callable[[Trace], dict[str, int]]
EXTRA: dict[str, Formula] = {"leaves_and_leftovers": leaves_and_leftovers}
