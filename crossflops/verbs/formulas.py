"""Compute formulas over an architecture for a model that was counted."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crossflops.errors import CrossflopsWarning, InputError
from crossflops.frontends import Source, require_frontend
from crossflops.ir.architecture import LanguageArchitecture
from crossflops.ir.formula_account import FormulaReport
from crossflops.ir.profile import ConventionCount
from crossflops.reconcile.formulas import reconcile_formulas
from crossflops.report.report import Report

if TYPE_CHECKING:
    from crossflops.rules.rule import Convention

TOKEN_IDS = "input_ids"  # the input of a model that takes tokens


def read_source_architecture(source: Source) -> LanguageArchitecture:
    """Return the architecture of a language model; raise InputError for another model."""
    return require_frontend(source.model).language_architecture(source.model)


def evaluate_formulas(
    conventions: Sequence["Convention"], architecture: LanguageArchitecture, report: Report
) -> FormulaReport:
    """Return the numbers of the formulas for a language model, with the causes of their
    differences from the native count.

    Raises InputError where the inputs are no sequences of tokens.
    """
    sequences, tokens = _token_shape(report)
    answers = reconcile_formulas(conventions, architecture, tokens, sequences, report.macs)
    if answers.closed_form_macs != answers.native_macs:
        warnings.warn(
            f"the graph has {answers.native_macs} MACs, and the formula over its config gives "
            f"{answers.closed_form_macs}, so each residual contains this difference",
            CrossflopsWarning,
            stacklevel=2,
        )
    return answers


def _token_shape(report: Report) -> tuple[int, int]:
    """Return (number of sequences, tokens in each), the shape of the token ids in the report;
    raise InputError without token ids.
    """
    for spec in report.model.inputs:
        if spec.name == TOKEN_IDS and len(spec.shape) == 2:
            return spec.shape[0], spec.shape[1]
    raise InputError(
        f"formulas require tokens, but the model has no input with the name {TOKEN_IDS}",
        f"give the tokens as {TOKEN_IDS}: --input {TOKEN_IDS}=1x128:int64",
    )


def formula_convention_counts(answers: FormulaReport) -> tuple[ConventionCount, ...]:
    """Return the totals of the formulas as totals by convention; formulas without a number are
    left out.
    """
    return tuple(
        ConventionCount(
            tool=account.tool,
            edition=account.edition,
            total=account.theirs,
            assumed=False,
            sees="architecture",
        )
        for account in answers.accounts
        if not account.obstacle
    )
