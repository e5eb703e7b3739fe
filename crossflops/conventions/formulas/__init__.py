"""Named formulas. Every module in this folder offers its own in `FORMULAS`."""

import functools
from importlib import import_module
from pkgutil import iter_modules

from crossflops.conventions.formulas.contraction import Formula


@functools.cache
def formulas() -> dict[str, Formula]:
    """All formulas by name. A name that stands in two modules raises ValueError."""
    found: dict[str, Formula] = {}
    for module in iter_modules(__path__):
        for name, formula in import_module(f"{__name__}.{module.name}").FORMULAS.items():
            if name in found:
                raise ValueError(f"two formulas are called {name!r}")
            found[name] = formula
    return found
