"""Compute formulas over an architecture for a model that was counted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crossflops.errors import InputError
from crossflops.frontends import Source, require_frontend
from crossflops.ir.architecture import LanguageArchitecture
from crossflops.ir.formula_account import FormulaReport
from crossflops.ir.profile import ConventionCount
from crossflops.reconcile.formulas import reconcile_formulas
from crossflops.report.report import Report

if TYPE_CHECKING:
    from crossflops.rules.rule import Convention

TOKEN_IDS, _TARGET_IDS = "input_ids", "decoder_input_ids"  # the inputs that take tokens
_COUNT_HINT = "leave out --llm and --as, and count the model"
_TEXT_HINT = "give the tokens of a text alone: --input input_ids=1x128:int64"


def read_source_architecture(source: Source) -> LanguageArchitecture:
    """Return the architecture of a language model; raise InputError for another model."""
    return require_frontend(source.model).language_architecture(source.model)


def evaluate_formulas(
    conventions: Sequence["Convention"], architecture: LanguageArchitecture, report: Report
) -> FormulaReport:
    """Return the numbers of the formulas for a language model, with the causes of their
    differences from the native count.

    Raises InputError where the inputs are no sequences of tokens, and where the closed form of
    the architecture is not the count of the graph: then its sizes are not understood.
    """
    sequences, tokens = _token_shape(report, TOKEN_IDS)
    target = _token_shape(report, _TARGET_IDS)[1] if architecture.encoder else None
    answers = reconcile_formulas(
        conventions, architecture, tokens, sequences, report.macs, target_tokens=target
    )
    if answers.closed_form_macs != answers.native_macs:
        raise InputError(
            "the published FLOP formulas for language models do not support "
            f"{architecture.model_type} with this input: its graph has {answers.native_macs} "
            f"MACs, and the closed form of its config {answers.closed_form_macs}",
            _TEXT_HINT if _has_other_inputs(report) else _COUNT_HINT,
        )
    return answers


def _has_other_inputs(report: Report) -> bool:
    """Return whether the model got other inputs than the ids of tokens, such as an image."""
    return any(spec.name not in (TOKEN_IDS, _TARGET_IDS) for spec in report.model.inputs)


def _token_shape(report: Report, name: str) -> tuple[int, int]:
    """Return (number of sequences, tokens in each), the shape of the token ids with this name in
    the report; raise InputError without token ids.
    """
    for spec in report.model.inputs:
        if spec.name == name and len(spec.shape) == 2:
            return spec.shape[0], spec.shape[1]
    raise InputError(
        f"formulas require tokens, but the model has no input with the name {name}",
        f"give the tokens as {name}: --input {name}=1x128:int64",
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
