"""Build the page of `check-formula`: which formulas agree with their references, which not."""

from crossflops.render.page import (
    Column,
    Page,
    Row,
    Table,
    Text,
    Title,
    Tone,
    number_columns,
)
from crossflops.report.formula_checks import FormulaCheck, FormulaChecks
from crossflops.report.quantity import count_with_noun


def formula_checks_page(content: FormulaChecks) -> Page:
    """Return the page of checked formulas: a table of their cases, then every problem."""
    rows = tuple(
        Row.from_cells(
            check.formula, str(check.cases), _formula_verdict(check), tone=_verdict_tone(check)
        )
        for check in content.checks
    )
    columns = (
        Column(head="formula", flows=True),
        *number_columns("cases"),
        Column(head="verdict"),
    )
    problems = [
        Text(f"{check.formula}: {problem}", " ", "bad")
        for check in content.checks
        for problem in (*check.problems, *([check.unchecked] if check.unchecked else ()))
    ]
    title = Title(("Formulas against their references in plain PyTorch",))
    return Page((title, Table(columns=columns, rows=rows), *problems))


def _formula_verdict(check: FormulaCheck) -> str:
    """Return the verdict on a formula: "holds", "not checked", or its number of problems."""
    if check.unchecked:
        return "not checked"
    return count_with_noun(len(check.problems), "problem") if check.problems else "holds"


def _verdict_tone(check: FormulaCheck) -> Tone:
    """Return the colour name of a formula's row: "good", "bad", or "warn" if not checked."""
    return "warn" if check.unchecked else "bad" if check.problems else "good"
