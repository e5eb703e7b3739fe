"""Explain each answer of a tool: the causes that lead from the native count to its number."""

from collections.abc import Mapping
from functools import partial

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.profile import Failure, Lesson, Profile
from crossflops.ir.reconciliation import ParamsReconciliation, Reconciliation
from crossflops.ir.trace import Setting
from crossflops.ledger.training.rule_of_thumb import exact_step_differences_by_cause
from crossflops.reconcile.parameters import (
    Stock,
    reconcile_parameters,
    reconcile_stored_parameters,
)
from crossflops.reconcile.walk import (
    parameters_from_file,
    reconcile,
    reconciliation_from_file,
    residual_reconciliation,
    threefold_forward_reconciliation,
)
from crossflops.report.report import Report
from crossflops.rules.prediction import Prediction
from crossflops.rules.rule import Convention
from crossflops.verbs import count
from crossflops.verbs.compare.counts import ModelCounts
from crossflops.verbs.compare.failures import catch_tool_failure
from crossflops.verbs.compare.predictions import MissingPrediction, Predicted
from crossflops.verbs.count import CountedModel


def build_comparison_report(
    counts: ModelCounts,
    predictions: Mapping[str, Predicted],
    setting: Setting,
    answers: Mapping[str, Profile | Failure],
    lessons: Mapping[str, tuple[Lesson, ...]] = {},
) -> Report:
    """Return the report of a comparison: the native count, and each tool's answer with its
    explanation.

    `lessons` are the formulas that each tool was to be taught.
    """
    native = counts.counted[setting.training]
    reconciliations: list[Reconciliation] = []
    profiles: list[Profile | Failure] = []
    for tool, answer in answers.items():
        profile = answer
        if isinstance(answer, Profile):
            account = _explain_answer_or_failure(
                counts, predictions[tool], setting, answer, lessons.get(tool, ())
            )
            if isinstance(account, Failure):
                profile = account
            else:
                profile, reconciliation = account
                reconciliations.append(reconciliation)
        elif answer.stage == "run":
            profile = _with_predicted_failure_hint(answer, predictions.get(tool))
        profiles.append(profile)
    native_report = count.build_count_report(native)
    if counts.steps:
        trained = counts.steps[setting.training]
        native_report = count.with_training(native_report, trained.forward, trained.exact)
    return msgspec.structs.replace(
        native_report, profiles=tuple(profiles), reconciliations=tuple(reconciliations)
    )


def _with_predicted_failure_hint(failure: Failure, prediction: Predicted | None) -> Failure:
    """Return the failure of a tool; if it was predicted, with a hint that says so."""
    if not isinstance(prediction, MissingPrediction) or not prediction.foreseen:
        return failure
    hint = f"this was predicted ({prediction.foreseen}): leave the tool out for this model"
    return msgspec.structs.replace(failure, hint=hint)


def _explain_answer_or_failure(
    counts: ModelCounts,
    prediction: Predicted,
    requested: Setting,
    answer: Profile,
    lessons: tuple[Lesson, ...],
) -> tuple[Profile, Reconciliation] | Failure:
    """Return (answer of the tool, its explanation by causes), or a failure if it cannot be
    explained.
    """
    outcome: tuple[Profile, Reconciliation] | Failure
    if isinstance(prediction, Failure):
        outcome = prediction
    else:
        explain = partial(_explain_answer, counts, prediction, requested, lessons, answer)
        outcome = catch_tool_failure(answer.tool, "account", explain)
    if isinstance(outcome, Failure):
        message = f"it printed {answer.total} {answer.printed_as}: {outcome.message}"
        return msgspec.structs.replace(outcome, tool=answer.tool, message=message)
    return outcome


def _explain_answer(
    counts: ModelCounts,
    prediction: Prediction | MissingPrediction,
    requested: Setting,
    lessons: tuple[Lesson, ...],
    answer: Profile,
) -> tuple[Profile, Reconciliation]:
    """Return (answer of the tool, its explanation): the causes that lead from the native count to
    its number.
    """
    tool, convention = answer.tool, prediction.convention
    native, setting = counts.counted[requested.training], convention.setting(requested)
    if convention.sees == "node":
        base = own = native
        graph = (counts.file or counts.count_of_tool_run(tool, requested.training)).graph
    else:
        base, own = (
            counts.count_of_tool_run(tool, requested.training),
            counts.count_of_tool_run(tool, setting.training),
        )
        graph = base.graph
    profile = msgspec.structs.replace(
        answer,
        digest=graph.digest,
        verified=answer.version in convention.verified,
        kernels=own.trace.kernels.get(setting.id, UNSET),
        taught=_with_lesson_call_counts(prediction, lessons),
    )
    if counts.steps:
        reconciliation = _reconcile_step(
            counts, prediction, setting.training, requested.training, profile
        )
    else:
        reconciliation = _reconcile_tool(prediction, base, own, profile)
    params = _reconcile_parameters(convention, own, profile, counts.stock)
    if base is not native:
        reconciliation = reconciliation_from_file(
            reconciliation, native.ledger, base.ledger, convention.framework
        )
        if not isinstance(params, UnsetType):
            params = parameters_from_file(params, native.graph.params, convention.framework)
    # Several tools may share one convention: a reconciliation is that of the tool.
    return profile, msgspec.structs.replace(reconciliation, tool=tool, params=params)


def _with_lesson_call_counts(
    prediction: Prediction | MissingPrediction, lessons: tuple[Lesson, ...]
) -> tuple[Lesson, ...] | UnsetType:
    """Return the formulas of the user that the tool was given, each with the number of calls that
    it counted by it; UNSET if it was given none.
    """
    if not lessons:
        return UNSET
    if isinstance(prediction, MissingPrediction):
        return lessons
    from crossflops.tools.teaching import count_taught_calls

    return tuple(
        msgspec.structs.replace(
            lesson, calls=count_taught_calls(prediction.bookings, lesson.formula)
        )
        for lesson in lessons
    )


def _reconcile_step(
    counts: ModelCounts,
    prediction: Prediction | MissingPrediction,
    is_tool_in_training: bool,
    is_training_requested: bool,
    profile: Profile,
) -> Reconciliation:
    """Return the explanation of a tool's number for a training step, from the native count of the
    step.
    """
    native, own = counts.steps[is_training_requested], counts.steps[is_tool_in_training]
    if isinstance(prediction, MissingPrediction) or prediction.convention.step == "runs":
        return _reconcile_tool(prediction, native.whole, own.whole, profile)
    forward = reconcile(
        prediction, own.forward.trace, own.forward.ledger, base=native.forward.ledger
    )
    counted = native.forward
    rows = exact_step_differences_by_cause(counted.graph, counted.trace, native.exact)
    by_cause = {row.cause: row.by_key for row in rows}
    return threefold_forward_reconciliation(
        forward, counted.trace, counted.ledger, by_cause, profile
    )


def _reconcile_tool(
    prediction: Prediction | MissingPrediction,
    native: CountedModel,
    own: CountedModel,
    profile: Profile,
) -> Reconciliation:
    """Return the explanation of a tool's number; without a prediction, all of the difference is
    residual.
    """
    if isinstance(prediction, MissingPrediction):
        return residual_reconciliation(
            prediction.convention, native.ledger, profile, prediction.obstacle
        )
    return reconcile(prediction, own.trace, own.ledger, profile, base=native.ledger)


def _reconcile_parameters(
    convention: Convention,
    counted: CountedModel,
    profile: Profile,
    stock: Stock | Failure | None,
) -> ParamsReconciliation | UnsetType:
    """Return the explanation of a tool's number of parameters; UNSET if it prints none or its
    rules are unknown.
    """
    rules, other = convention.parameters, profile.params
    if rules is None or other is None:
        return UNSET
    if rules.stored and stock is not None:
        if isinstance(stock, Failure):
            raise RuntimeError(stock.message)
        return reconcile_stored_parameters(rules, counted.graph.params, stock, other)
    if rules.stored or not counted.trace.modules:
        return UNSET
    return reconcile_parameters(rules, counted.trace, other)
