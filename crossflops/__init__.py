"""Counts a model's FLOPs exactly, runs other counters on it, explains every difference.

>>> import crossflops  # doctest: +SKIP
>>> report = crossflops.compare(model, inputs, tools=["thop", "fvcore"])  # doctest: +SKIP

In: what a Python caller asks for. Out: reports, as values. The public names are imported from the
room that defines each when they are first used, so that a part of the package needs no other.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from crossflops.errors import CrossflopsError
    from crossflops.facade import ShownReport as Report
    from crossflops.ir.ledger import Cost
    from crossflops.ir.reconciliation import Explanation, Reconciliation
    from crossflops.ir.trace import Setting
    from crossflops.operators.formula import OperatorCall, operator
    from crossflops.operators.gradient import Gradient
    from crossflops.training_loops.callbacks import (
        keras_callback,
        lightning_callback,
        trainer_callback,
    )
    from crossflops.training_loops.profiler import FlopsProfiler
    from crossflops.verbs.api import (
        audit,
        bench,
        check,
        compare,
        count,
        devices,
        diff,
        efficiency,
        explain,
        export,
        identify,
        profile,
        render,
        sweep,
        table,
    )

__all__ = [
    "Cost",
    "CrossflopsError",
    "Explanation",
    "FlopsProfiler",
    "Gradient",
    "OperatorCall",
    "Reconciliation",
    "Report",
    "Setting",
    "audit",
    "bench",
    "check",
    "compare",
    "count",
    "devices",
    "diff",
    "efficiency",
    "explain",
    "export",
    "identify",
    "keras_callback",
    "lightning_callback",
    "operator",
    "profile",
    "render",
    "sweep",
    "table",
    "trainer_callback",
]
_PLACES = {  # the names that are no verbs: where they are defined
    "Cost": "ir.ledger:Cost",
    "CrossflopsError": "errors:CrossflopsError",
    "Explanation": "ir.reconciliation:Explanation",
    "FlopsProfiler": "training_loops.profiler:FlopsProfiler",
    "Gradient": "operators.gradient:Gradient",
    "OperatorCall": "operators.formula:OperatorCall",
    "Reconciliation": "ir.reconciliation:Reconciliation",
    "Report": "facade:ShownReport",
    "Setting": "ir.trace:Setting",
    "keras_callback": "training_loops.callbacks:keras_callback",
    "lightning_callback": "training_loops.callbacks:lightning_callback",
    "operator": "operators.formula:operator",
    "trainer_callback": "training_loops.callbacks:trainer_callback",
}


def __getattr__(name: str) -> Any:
    """Return a public name of the package, imported at its first use. Raises AttributeError."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room, _, own_name = _PLACES.get(name, f"verbs.api:{name}").partition(":")
    return getattr(import_module(f"{__name__}.{room}"), own_name)


def __dir__() -> list[str]:
    """Return the names of the package, with those that are not imported yet."""
    return sorted({*globals(), *__all__})


class _PackageWithVerbs(ModuleType):
    """The package, whose `bench`, `export` and `render` are the verbs, whether or not the rooms of
    these names are imported.

    Python sets a room here when it is first imported: that is ignored, and the function stays.
    """

    @property
    def bench(self) -> "Callable[..., Any]":
        """The function `crossflops.bench`."""
        function: Callable[..., Any] = __getattr__("bench")
        return function

    @bench.setter
    def bench(self, module: ModuleType) -> None:
        """Ignore the module `crossflops.bench`."""

    @property
    def export(self) -> "Callable[..., Any]":
        """The function `crossflops.export`."""
        function: Callable[..., Any] = __getattr__("export")
        return function

    @export.setter
    def export(self, module: ModuleType) -> None:
        """Ignore the module `crossflops.export`."""

    @property
    def render(self) -> "Callable[..., Any]":
        """The function `crossflops.render`."""
        function: Callable[..., Any] = __getattr__("render")
        return function

    @render.setter
    def render(self, module: ModuleType) -> None:
        """Ignore the module `crossflops.render`."""


sys.modules[__name__].__class__ = _PackageWithVerbs
