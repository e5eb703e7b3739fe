"""Values that follow from others: they are written into JSON, and not read back."""

from collections.abc import Iterable
from typing import Any

import msgspec

from crossflops.core.against import Against
from crossflops.core.contrast import Contrast
from crossflops.core.reconciliation import ParamsReconciliation, Reconciliation

Plain = dict[str, Any]


def derive(rows: Iterable[Plain], found: Iterable[Reconciliation]) -> None:
    """`delta` and `residual` of accounts of tools."""
    for row, one in zip(rows, found, strict=True):
        row["delta"] = one.delta
        row["residual"] = one.residual
        if isinstance(one.params, ParamsReconciliation):
            row["params"] |= {"delta": one.params.delta, "residual": one.params.residual}


def derive_contrast(plain: Plain, found: Contrast) -> None:
    """`delta` and `residual` of a contrast, and the amount of each difference."""
    plain |= {"delta": found.delta, "residual": found.residual}
    for row, each in zip(plain["differences"], found.differences, strict=True):
        row["amount"] = each.amount


def derive_against(plain: Plain, found: Against) -> None:
    """Those of all that stands between two models."""
    derive(plain["reconciliations"], found.reconciliations)
    for row, one in zip(plain["tools"], found.tools, strict=True):
        derive_contrast(row, one)
    aligned = found.alignment
    plain["alignment"] |= {
        "delta": msgspec.to_builtins(aligned.delta),
        "residual": msgspec.to_builtins(aligned.residual),
        "same": aligned.same,
    }
