"""A comparison's own half: the counts and predictions before the tools, the report after."""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.core.convention import Convention
from crossflops.core.profile import Failure, Profile
from crossflops.core.reconciliation import ParamsReconciliation, Reconciliation
from crossflops.core.report import Report
from crossflops.core.trace import Setting
from crossflops.normalize import Source
from crossflops.pipeline import counting
from crossflops.pipeline.counting import Counted, counted, observed
from crossflops.reconcile import (
    Prediction,
    PredictionError,
    predict,
    reconcile,
    reconcile_parameters,
    unpredicted,
)

Progress = Callable[[str], None]


class Study(msgspec.Struct, frozen=True):
    """A model counted in every mode that is needed, and what each tool should print.

    `counted` is keyed by training mode: a tool may force another than was asked for.
    """

    counted: dict[bool, Counted]
    predictions: dict[str, Prediction | Convention]


def study(
    source: Source, asked: Setting, conventions: Mapping[str, Convention], tell: Progress
) -> Study:
    """Count in every mode that a tool needs, and write down what each tool should print."""
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
    predictions: dict[str, Prediction | Convention] = {}
    for tool, convention in conventions.items():
        mine = by_mode[convention.setting(asked).training]
        try:
            predictions[tool] = predict(convention, mine.trace, asked, mine.ledger)
        except PredictionError:
            # The tool itself should fail here. Should it answer, nothing is explained.
            predictions[tool] = convention
    tell("predictions are fixed; the tools run")
    return Study(by_mode, predictions)


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
        profile = msgspec.structs.replace(
            answer, digest=own.graph.digest, verified=answer.version in convention.verified
        )
        profiles.append(profile)
        found = (
            unpredicted(convention, own.ledger, profile)
            if isinstance(prediction, Convention)
            else reconcile(prediction, mine.trace, mine.ledger, profile, base=own.ledger)
        )
        # Several tools may share one convention: a reconciliation is that of the tool.
        params = _parameters(convention, mine, profile)
        reconciliations.append(msgspec.structs.replace(found, tool=tool, params=params))
    return msgspec.structs.replace(
        counting.report(own),
        profiles=tuple(profiles),
        reconciliations=tuple(reconciliations),
    )


def _parameters(
    convention: Convention, counted: Counted, profile: Profile
) -> ParamsReconciliation | UnsetType:
    """Why the tool counts other parameters, where it counts any and it is known how."""
    if convention.parameters is None or profile.params is None or not counted.trace.modules:
        return UNSET
    return reconcile_parameters(convention.parameters, counted.trace, profile.params)
