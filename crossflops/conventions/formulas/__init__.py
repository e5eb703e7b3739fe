"""Named formulas. Every module in this folder offers its own in `FORMULAS`.

Those of graph nodes, which take a node instead of a call, stand in `nodes.NODE_FORMULAS`.
"""

import functools
from importlib import import_module
from pkgutil import iter_modules

from crossflops.conventions.formulas.contraction import Formula
from crossflops.conventions.formulas.nodes import NODE_FORMULAS, NodeFormula


@functools.cache
def formulas() -> dict[str, Formula]:
    """All formulas by name. A name that stands in two modules raises ValueError."""
    found: dict[str, Formula] = {}
    for module in iter_modules(__path__):
        offered = getattr(import_module(f"{__name__}.{module.name}"), "FORMULAS", {})
        for name, formula in offered.items():
            if name in found:
                raise ValueError(f"two formulas are called {name!r}")
            found[name] = formula
    return found


def node_formulas() -> dict[str, NodeFormula]:
    """All formulas of nodes by name."""
    return NODE_FORMULAS
