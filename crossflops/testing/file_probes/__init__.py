"""Small ONNX files, each of which shows one thing that tools which count files treat differently.

In: nothing. Out: probes; every module in this folder offers its own in `FILES`. They are what no
exporter writes: operators of other frameworks, functions, control flow, what is left out.
May import: testing; onnx only when a file is made.
"""

import functools
from importlib import import_module
from pkgutil import iter_modules

from crossflops.testing.file_probes.probe import FileProbe

__all__ = ["FileProbe", "file_probes"]


@functools.cache
def file_probes() -> dict[str, FileProbe]:
    """All probes by name. Two of one name raise ValueError."""
    by_name: dict[str, FileProbe] = {}
    for module in iter_modules(__path__):
        for probe in getattr(import_module(f"{__name__}.{module.name}"), "FILES", ()):
            if probe.name in by_name:
                raise ValueError(f"two probes are called {probe.name!r}")
            by_name[probe.name] = probe
    return by_name
