"""Named formulas. Every module in this folder offers its own in `FORMULAS`.

It may also offer `TIMES` (how often a module's calls are booked), `WITHIN` (how often in the
number of each module around), `BATCHES` (what a tool divides by), `SUMS` (how it adds up),
`READINGS` (how it reads what was recorded) and `VIEWS` (a graph with the shapes that it infers).
Those of graph nodes, which take a node instead of a call, stand in `NODE_FORMULAS`.
"""

import functools
from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from crossflops.ir.trace import Call, Trace
from crossflops.tools.formulas.contraction import Formula
from crossflops.tools.formulas.nodes import NodeFormula, View

Reading = Callable[[Sequence[Call], Trace], Sequence[Call]]


@functools.cache
def formulas() -> dict[str, Formula]:
    """All formulas by name. A name that stands in two modules raises ValueError."""
    return offered("FORMULAS")


def offered(table: str) -> dict[str, Any]:
    """What the modules of this folder have in this table. A name in two raises ValueError."""
    found: dict[str, Any] = {}
    for module in iter_modules(__path__):
        own = getattr(import_module(f"{__name__}.{module.name}"), table, {})
        for name, formula in own.items():
            if name in found:
                raise ValueError(f"two formulas are called {name!r}")
            found[name] = formula
    return found


@functools.cache
def readings() -> dict[str, Reading]:
    """How a tool reads the calls of a run that was watched for it, by name."""
    return offered("READINGS")


@functools.cache
def views() -> dict[str, View]:
    """What gives a graph the shapes that a tool infers, by name."""
    return offered("VIEWS")


@functools.cache
def node_formulas() -> dict[str, NodeFormula]:
    """All formulas of nodes by name. A name that stands in two modules raises ValueError."""
    return offered("NODE_FORMULAS")
