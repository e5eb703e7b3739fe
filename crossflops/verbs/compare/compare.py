"""Run the verb `compare`: count a model, let tools count it, and explain every difference."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from crossflops.errors import ValuesNeededError
from crossflops.frontends import record_model
from crossflops.ir.provenance import FAKE, REAL
from crossflops.plugins.failures import tool_failure
from crossflops.report.report import Report
from crossflops.rules.rule import Convention
from crossflops.targets.request import Request
from crossflops.targets.target import restoring_imports
from crossflops.targets.weights import real_weights_error
from crossflops.verbs.compare.accounts import build_comparison_report
from crossflops.verbs.compare.answers import Answers, Progress, answers_to_show
from crossflops.verbs.compare.counts import (
    ModelCounts,
    collect_counts,
    settings_with_runs_to_observe,
)
from crossflops.verbs.compare.groups import conventions_of_native_tools, file_reading_tools
from crossflops.verbs.compare.plan import (
    Comparison,
    Plan,
    plan_comparison,
    refuse_steps_of_other_frameworks,
    with_training_step,
)
from crossflops.verbs.compare.predictions import (
    Predicted,
    predict_from_calls,
    predict_from_counts,
)
from crossflops.verbs.compare.questions import (
    answer_report_questions,
    naming_model_in_errors,
    with_second_model,
)
from crossflops.verbs.compare.rebuilt import rebuild_for_tools
from crossflops.verbs.compare.runner import PreparedModel, ToolRunner
from crossflops.verbs.count import (
    CountedModel,
    checking_formula_matches,
    collecting_warnings,
    count_recording,
    training_option_values,
)
from crossflops.verbs.provenance import (
    build_request_record,
    framework_versions,
    non_default_options,
)
from crossflops.workers.observe import fake_weights_error
from crossflops.workers.pool import SingleThreadContext

__all__ = ["Comparison", "compare_with_tools"]


class _ComparedModel(msgspec.Struct, frozen=True):
    native: CountedModel
    report: Report


class _Outcome(msgspec.Struct, frozen=True):
    """The counts of a model, and the predicted number and the answer of each tool."""

    counts: ModelCounts
    predictions: dict[str, Predicted]
    answers: Answers


@restoring_imports()
def compare_with_tools(
    request: Request,
    comparison: Comparison,
    on_progress: Progress,
    single_threaded: SingleThreadContext | None = None,
) -> Report:
    """Return the report of a comparison: the native count, each tool's number and its explanation;
    if requested, also of a second model.

    Args:
        request: the model.
        comparison: what is asked beside it.
        on_progress: gets a line for each step, and for each tool as it ends.
        single_threaded: a context in which this process has one thread: see `ToolRunner`.

    Raises:
        UnknownNameError: for a tool that there is not, before any model is built.
        InputError: for questions that do not go together.
    """
    runner = ToolRunner(comparison.tool_limits, on_progress, single_threaded)
    request = with_training_step(request, comparison)
    plan = plan_comparison(request, comparison, runner.can_fork)
    with runner:
        models = runner.prepare_models(plan.models)
        results = [_compare_model(model, runner, on_progress) for model in models]
    return _join_model_reports(plan, results)


def _compare_model(
    model: PreparedModel, runner: ToolRunner, on_progress: Progress
) -> _ComparedModel:
    """Return the native count and the report of one model, after its tools were run."""
    setting = model.request.setting
    with (
        naming_model_in_errors(model.comparison_index),
        collecting_warnings() as sentences,
        checking_formula_matches() as warn_of_unmatched,
    ):
        attempt = _count_and_run_with_values_if_needed(model, runner, on_progress)
        warn_of_unmatched(attempt.counts.counted[setting.training])
    answers = answers_to_show(attempt.answers, model.all_requested_tools)
    compared = msgspec.structs.replace(
        build_comparison_report(
            attempt.counts,
            attempt.predictions,
            setting,
            answers,
            model.all_requested_tools.lessons,
        ),
        made_with=framework_versions(model.request.is_file),
        warnings=tuple(dict.fromkeys((*model.warnings, *sentences))),
    )
    return _ComparedModel(attempt.counts.counted[setting.training], compared)


def _count_and_run_with_values_if_needed(
    model: PreparedModel, runner: ToolRunner, on_progress: Progress
) -> _Outcome:
    """Return counts, predictions and answers of a model; if its weights need values, it is built
    again with real weights.

    Raises InputError where it cannot have any.
    """
    request, reason = model.request, ""
    try:
        attempt = _count_and_run_tools(model, runner, on_progress)
    except ValuesNeededError as error:
        if request.weights == FAKE or request.given is not None:
            raise real_weights_error(error.reason, request.weights) from error
        reason = error.reason
    if reason:  # outside of the handler, whose traceback holds the first model
        on_progress(f"building the model with its weights: {reason}\n")
        again = msgspec.structs.replace(request, weights=REAL)
        model = runner.restart_for_request(model, again)
        attempt = _count_and_run_tools(model, runner, on_progress, reason)
    runner.clean_up_model(model)
    return attempt


def _count_and_run_tools(
    model: PreparedModel, runner: ToolRunner, on_progress: Progress, reason: str = ""
) -> _Outcome:
    """Return counts, predictions and answers of a model: it is counted, each tool's number is
    predicted, then the tools run.
    """
    setting = model.request.setting
    counts, conventions, early = _count_in_tool_modes(model, runner, on_progress, reason)
    native = counts.counted[setting.training]
    rebuilt = rebuild_for_tools(model.request, model.all_requested_tools, native, on_progress)
    counts = msgspec.structs.replace(counts, rebuilt=rebuilt.counted)
    failures = {**rebuilt.failures, **_write_onnx_for_tools(counts, model, native)}
    later = {tool: entry for tool, entry in conventions.items() if tool not in early}
    predictions = early | predict_from_counts(counts, setting, {**later, **rebuilt.conventions})
    counts = counts.without_programs()
    del native
    runner.free_counted_model(model)
    on_progress("predictions are fixed; running the tools")
    answers = runner.run_tools(model, failures)
    for group in rebuilt.groups:
        answers |= runner.run_rebuilt_group(group, failures)
    return _Outcome(counts, predictions, {**answers, **failures})


class _CountsInModes(NamedTuple):
    """The counts in each mode that a tool needs, the conventions of the tools that take the model
    as it is, and the predictions of those that were released, by tool.
    """

    counts: ModelCounts
    conventions: Mapping[str, Convention]
    predictions: dict[str, Predicted]


def _count_in_tool_modes(
    model: PreparedModel, runner: ToolRunner, on_progress: Progress, reason: str
) -> _CountsInModes:
    """Return the counts in each mode that a tool needs; tools that count calls are predicted and
    released meanwhile.
    """
    source, obstacle = runner.take_source_and_reason_for_values(model)
    setting = model.request.setting
    if model.request.train:
        refuse_steps_of_other_frameworks(source, model.all_requested_tools)
    conventions = conventions_of_native_tools(model.group.choice, source)
    on_progress("exporting the model to ONNX")
    counts: dict[bool, CountedModel] = {}
    predictions: dict[str, Predicted] = {}
    for mode, views in settings_with_runs_to_observe(setting, conventions):
        recording = record_model(source, mode, views, runner.waiter_for_observed_runs(model))
        if runner.can_run_tools_while_converting(model):
            ready = predict_from_calls(recording, setting, conventions)
            predictions |= ready
            runner.release_model_tools(model, ready)  # these tools run while the graph is made
        counts[mode.training] = count_recording(recording)
    file = model.group.file
    return _CountsInModes(
        collect_counts(source, setting, counts, conventions, file, reason or obstacle),
        conventions,
        predictions,
    )


def _write_onnx_for_tools(
    counts: ModelCounts, model: PreparedModel, native: CountedModel
) -> Answers:
    """Write the ONNX file for tools that read one; return {tool: failure} if it cannot be written,
    else {}.
    """
    group = model.group
    if group.file is None:
        return {}
    tools = file_reading_tools(group.choice)
    if native.weights is not None and native.weights.kind == FAKE:
        return {tool: tool_failure(tool, "build", fake_weights_error(tool)) for tool in tools}
    if counts.file is None:
        return {}
    try:
        group.file.write_onnx_file(counts.file)
    except Exception as problem:  # whatever stands in the way, the other tools go on
        return {tool: tool_failure(tool, "build", problem) for tool in tools}
    return {}


def _join_model_reports(plan: Plan, results: list[_ComparedModel]) -> Report:
    """Return the report of the compared model, or of two models compared with each other."""
    comparison, (first, *_) = plan.comparison, plan.models
    flags = {
        **training_option_values(first.request),
        **non_default_options(comparison, exclude=("against_options",)),
    }
    report = _with_request_record(results[0].report, first.request, flags)
    if len(results) == 1:
        return answer_report_questions(
            report,
            between=comparison.between,
            module=comparison.module,
            consensus=comparison.consensus,
        )
    other = _with_request_record(results[1].report, plan.models[1].request, {})
    counts = [model.native for model in results]
    return with_second_model(report, other, counts, comparison.between)


def _with_request_record(compared: Report, request: Request, flags: Mapping[str, Any]) -> Report:
    """Return a copy of the report with a record of the request that it answers."""
    typed = build_request_record("compare", request, compared.model, flags)
    return msgspec.structs.replace(compared, request=typed)
