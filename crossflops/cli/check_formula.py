"""`crossflops check-formula`."""

from typing import Any

import click

from crossflops.cli.options import OUTPUT, command_options, verb
from crossflops.cli.output import showing_progress, write_verb_result


@verb("check-formula", example="crossflops check-formula formulas.py", first=("--cases", "-o"))
@click.argument("files", nargs=-1, required=True, metavar="FILE.py...")
@command_options(
    click.option("--cases", type=click.IntRange(1), default=20, show_default=True, metavar="N",
                 help="Number of random small shapes on which each formula is compared with its "
                      "reference."),
    *OUTPUT,
)  # fmt: skip
def check_formula(files: tuple[str, ...], cases: int, **fields: Any) -> int:
    """Check your own operator formulas against their references.

    The exit status is 1 where one differs, or has no reference.
    """
    from crossflops.report.formula_checks import FormulaChecks
    from crossflops.testing.formulas import check_formulas

    with showing_progress("checking formulas"):
        content = FormulaChecks(check_formulas(files, cases))
    write_verb_result(content, **fields)
    return 0 if content.holds else 1
