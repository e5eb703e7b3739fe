"""Add derived values to the JSON of formulas over the architecture of a language model."""

from typing import Any

from crossflops.ir.formula_account import FormulaReport


def add_formula_differences(plain: dict[str, Any], report: FormulaReport) -> None:
    """Add the difference from the native count, the residual and the FLOPs per token of each
    formula to its JSON.
    """
    for row, account in zip(plain["accounts"], report.accounts, strict=True):
        row["delta"] = account.delta
        row["residual"] = account.residual
        row["per_token"] = None if account.obstacle else report.per_token(account.theirs)
