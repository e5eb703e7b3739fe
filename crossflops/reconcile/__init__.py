"""Every reason why the number of a tool, or the count of another model, differs from ours.

In: a prediction, the trace and the ledger that it was made from, and what the tool printed.
Out: an account of named causes with exact amounts.
May import: frontends, rules, ir, errors.
"""

from crossflops.reconcile.parameters import EXPORTED, Stock, reconcile_parameters, reconcile_stored
from crossflops.reconcile.walk import (
    OTHER_FILE,
    from_file,
    parameters_from_file,
    reconcile,
    thrice,
    unpredicted,
)

__all__ = [
    "EXPORTED",
    "OTHER_FILE",
    "Stock",
    "from_file",
    "parameters_from_file",
    "reconcile",
    "reconcile_parameters",
    "reconcile_stored",
    "thrice",
    "unpredicted",
]
