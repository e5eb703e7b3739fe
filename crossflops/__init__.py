"""Counts a model's FLOPs exactly, runs other counters on it, explains every difference.

>>> import crossflops  # doctest: +SKIP
>>> report = crossflops.compare(model, inputs, tools=["thop", "fvcore"])  # doctest: +SKIP
"""

import crossflops.bench  # noqa: F401 - the room first: a later import would replace the verb
from crossflops.errors import CrossflopsError
from crossflops.facade import ShownReport as Report
from crossflops.ir.cost import Cost
from crossflops.ir.reconciliation import Explanation, Reconciliation
from crossflops.ir.trace import Setting
from crossflops.verbs.api import bench, compare, count, efficiency

__all__ = [
    "Cost",
    "CrossflopsError",
    "Explanation",
    "Reconciliation",
    "Report",
    "Setting",
    "bench",
    "compare",
    "count",
    "efficiency",
]
