"""Small models, each of which shows one thing that counters treat differently.

In: nothing. Out: probes; every module in this folder offers its own in `PROBES`.
May import: testing, frontends, ir; a framework only when a probe is built.
"""

import functools
from importlib import import_module
from pkgutil import iter_modules

from crossflops.testing.probes.probe import Probe

__all__ = ["Probe", "probes"]


@functools.cache
def probes() -> dict[str, Probe]:
    """All probes by name. Two of one name raise ValueError."""
    by_name: dict[str, Probe] = {}
    for module in iter_modules(__path__):
        for probe in getattr(import_module(f"{__name__}.{module.name}"), "PROBES", ()):
            if probe.name in by_name:
                raise ValueError(f"two probes are called {probe.name!r}")
            by_name[probe.name] = probe
    return by_name
