"""Derived values of formulas over the architecture of a language model, for the JSON report."""

from typing import Any

from crossflops.ir.formula_account import FormulaReport


def derive_formulas(plain: dict[str, Any], report: FormulaReport) -> None:
    """Write difference, residual and amount per token of each formula into its JSON."""
    for row, account in zip(plain["accounts"], report.accounts, strict=True):
        row["delta"] = account.delta
        row["residual"] = account.residual
        row["per_token"] = None if account.obstacle else report.per_token(account.theirs)
