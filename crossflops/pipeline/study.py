"""A comparison's own half: the counts and predictions before the tools, the report after."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.core.convention import Convention
from crossflops.core.profile import Failure, Profile
from crossflops.core.reconciliation import ParamsReconciliation, Reconciliation
from crossflops.core.report import Report
from crossflops.core.trace import Setting
from crossflops.normalize import Source
from crossflops.pipeline import counting
from crossflops.pipeline.counting import Counted, counted, observed, seen_by
from crossflops.pipeline.files import FileOfTools
from crossflops.reconcile import (
    NodePrediction,
    Prediction,
    PredictionError,
    predict,
    predict_nodes,
    reconcile,
    reconcile_nodes,
    reconcile_parameters,
    unpredicted,
)

Progress = Callable[[str], None]
Predicted: TypeAlias = Prediction | NodePrediction | Convention


class Study(msgspec.Struct, frozen=True):
    """A model counted in every mode that is needed, and what each tool should print.

    `counted` is keyed by training mode: a tool may force another than was asked for. `file` is
    what is in the file of the tools that see nodes; None where there are none.
    """

    counted: dict[bool, Counted]
    predictions: dict[str, Predicted]
    file: Counted | None = None


def study(
    source: Source,
    asked: Setting,
    conventions: Mapping[str, Convention],
    tell: Progress,
    file: FileOfTools | None = None,
) -> Study:
    """Count in every mode that a tool needs, and write down what each tool should print.

    `file` is what the tools are given that see nodes; it is not written yet.
    """
    tell("exporting the model to ONNX")
    modes = {asked.training} | {one.setting(asked).training for one in conventions.values()}
    watched = observed(conventions.values(), asked)
    by_mode = {
        training: counted(
            source,
            msgspec.structs.replace(asked, training=training),
            [one for one in watched if one.training == training],
        )
        for training in modes
    }
    in_file = file.counted(by_mode[asked.training], asked) if file else None
    predictions: dict[str, Predicted] = {}
    for tool, convention in conventions.items():
        mine = (
            in_file if convention.sees == "node" else by_mode[convention.setting(asked).training]
        )
        predictions[tool] = _predicted(convention, asked, mine)
    tell("predictions are fixed; the tools run")
    return Study(by_mode, predictions, in_file)


def _predicted(convention: Convention, asked: Setting, mine: Counted | None) -> Predicted:
    """The convention itself where the tool should fail: should it answer, nothing is explained."""
    assert mine is not None  # whoever asks a tool that sees nodes has a file for it
    try:
        if convention.sees == "node":
            return predict_nodes(convention, mine.graph, seen_by(convention, mine))
        return predict(convention, mine.trace, asked, mine.ledger)
    except PredictionError:
        return convention


def report(study: Study, asked: Setting, answers: dict[str, Profile | Failure]) -> Report:
    """What the tools answered, each reconciled with what it was predicted to."""
    own = study.counted[asked.training]
    profiles: list[Profile | Failure] = []
    reconciliations: list[Reconciliation] = []
    for tool, answer in answers.items():
        if isinstance(answer, Failure):
            profiles.append(answer)
            continue
        prediction = study.predictions[tool]
        convention = prediction if isinstance(prediction, Convention) else prediction.convention
        mine = study.counted[convention.setting(asked).training]
        seen = study.file if convention.sees == "node" and study.file else own
        profile = msgspec.structs.replace(
            answer, digest=seen.graph.digest, verified=answer.version in convention.verified
        )
        profiles.append(profile)
        found = _reconciled(prediction, own, mine, profile)
        # Several tools may share one convention: a reconciliation is that of the tool.
        params = _parameters(convention, mine, profile)
        reconciliations.append(msgspec.structs.replace(found, tool=tool, params=params))
    return msgspec.structs.replace(
        counting.report(own),
        profiles=tuple(profiles),
        reconciliations=tuple(reconciliations),
    )


def _reconciled(
    prediction: Predicted, own: Counted, mine: Counted, profile: Profile
) -> Reconciliation:
    if isinstance(prediction, Convention):
        return unpredicted(prediction, own.ledger, profile)
    if isinstance(prediction, NodePrediction):
        return reconcile_nodes(prediction, own.trace, profile, base=own.ledger)
    return reconcile(prediction, mine.trace, mine.ledger, profile, base=own.ledger)


def _parameters(
    convention: Convention, counted: Counted, profile: Profile
) -> ParamsReconciliation | UnsetType:
    """Why the tool counts other parameters, where it counts any and it is known how."""
    if convention.parameters is None or profile.params is None or not counted.trace.modules:
        return UNSET
    return reconcile_parameters(convention.parameters, counted.trace, profile.params)
