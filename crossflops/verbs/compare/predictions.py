"""Predict the number that each tool will print, before the tool runs."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import msgspec

from crossflops.frontends import Recording
from crossflops.ir.profile import Failure
from crossflops.ir.trace import Setting
from crossflops.rules.prediction import Prediction, PredictionError, WatchError, predict
from crossflops.rules.rule import Convention
from crossflops.verbs.compare.counts import ModelCounts
from crossflops.verbs.compare.failures import catch_tool_failure
from crossflops.verbs.count import predict_from_graph_nodes


class MissingPrediction(msgspec.Struct, frozen=True):
    """The reason for a missing prediction: without it, nothing of an answer is explained.

    `foreseen` is what the tool should fail on, where it should.
    """

    convention: Convention
    obstacle: str
    foreseen: str = ""


Predicted: TypeAlias = Prediction | MissingPrediction | Failure


def predict_from_calls(
    recording: Recording, setting: Setting, conventions: Mapping[str, Convention]
) -> dict[str, Predicted]:
    """Return {tool: prediction} for the tools that count calls, from a recorded run of the model.

    None of a tool that forces another mode than that of the recording, of one that sees nodes or
    weighs the cost of calls, and of a training step, in which calls of the backward pass come
    later; none at all where the calls are not known before the graph.
    """
    trace = recording.trace
    if trace is None or setting.step:
        return {}
    return {
        tool: predict_or_give_reason(
            tool, convention, partial(predict, convention, trace, setting)
        )
        for tool, convention in conventions.items()
        if convention.setting(setting).training == trace.setting.training
        and not (convention.sees == "node" or convention.has_native_cost_weights)
    }


def predict_from_counts(
    counts: ModelCounts, setting: Setting, conventions: Mapping[str, Convention]
) -> dict[str, Predicted]:
    """Return {tool: prediction, or the reason why there is none}, from the counts of the model."""
    return {
        tool: predict_or_give_reason(
            tool, convention, partial(_predict_tool_total, tool, convention, setting, counts)
        )
        for tool, convention in conventions.items()
    }


def _predict_tool_total(
    tool: str, convention: Convention, setting: Setting, counts: ModelCounts
) -> Prediction | Failure:
    """Return the number that a tool is predicted to print, or a failure if its input could not be
    counted.
    """
    own = counts.count_compared_with_tool(tool, convention, setting)
    if isinstance(own, Failure):
        return own
    if convention.sees == "node":
        return predict_from_graph_nodes(convention, own)
    return predict(convention, own.trace, setting, own.ledger)


def predict_or_give_reason(
    tool: str, convention: Convention, compute: Callable[[], Prediction | Failure]
) -> Predicted:
    """Return the result of `compute`, a tool's prediction, or the reason why there is none."""

    def prediction_or_missing_reason() -> Predicted:
        """Return the prediction, or a MissingPrediction with the reason why it is not possible."""
        try:
            return compute()
        except WatchError as error:
            return MissingPrediction(convention, error.message)
        except PredictionError as error:
            obstacle = f"it was predicted to fail: {error.message}"
            return MissingPrediction(convention, obstacle, error.message)

    outcome = catch_tool_failure(tool, "predict", prediction_or_missing_reason)
    return _with_tool_name(tool, outcome) if isinstance(outcome, Failure) else outcome


def _with_tool_name(tool: str, problem: Failure) -> Failure:
    """Return a copy of the failure with this tool name."""
    return msgspec.structs.replace(problem, tool=tool)
