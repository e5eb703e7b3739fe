"""Counts a model's FLOPs exactly, runs other counters on it, explains every difference.

>>> import crossflops  # doctest: +SKIP
>>> report = crossflops.compare(model, inputs, tools=["thop", "fvcore"])  # doctest: +SKIP
"""

from crossflops.core.cost import Cost
from crossflops.core.reconciliation import Explanation, Reconciliation
from crossflops.core.report import Report
from crossflops.core.trace import Setting
from crossflops.errors import CrossflopsError
from crossflops.pipeline import bench, compare, count, efficiency

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
