"""A comparison's own half: the counts and predictions before the tools, the report after."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.errors import CrossflopsError
from crossflops.frontends import Source
from crossflops.ir.profile import Failure, Profile
from crossflops.ir.reconciliation import ParamsReconciliation, Reconciliation
from crossflops.ir.trace import Setting
from crossflops.reconcile import (
    Stock,
    from_file,
    parameters_from_file,
    reconcile,
    reconcile_parameters,
    reconcile_stored,
    unpredicted,
)
from crossflops.report.report import Report
from crossflops.rules.prediction import (
    Prediction,
    PredictionError,
    as_given,
    predict,
    predict_nodes,
)
from crossflops.rules.rule import Convention
from crossflops.verbs import count
from crossflops.verbs.compare.files import FileOfTools
from crossflops.verbs.count import Counted, counted, observed, seen_by

Progress = Callable[[str], None]


class Unpredicted(msgspec.Struct, frozen=True):
    """Why there is no prediction: should the tool answer, nothing is explained."""

    convention: Convention
    error: PredictionError


Predicted: TypeAlias = Prediction | Unpredicted


class Study(msgspec.Struct, frozen=True):
    """A model counted in every mode that is needed, and what each tool should print.

    `counted` is keyed by training mode: a tool may force another than was asked for. `file` is
    what is in the file of the tools that see nodes, `stock` what is stored there; None where there
    are none. `rebuilt` is, by tool, what was rebuilt in the tool's framework from a file or from a
    model of another one, counted in the same way, and `obstacle` why that cannot be counted.
    """

    counted: dict[bool, Counted]
    predictions: dict[str, Predicted]
    file: Counted | None = None
    stock: Stock | None = None
    rebuilt: dict[str, dict[bool, Counted]] = {}
    obstacle: CrossflopsError | None = None

    def run(self, tool: str, training: bool) -> Counted:
        """What a tool that runs a model has before it, in a mode."""
        return self.rebuilt.get(tool, self.counted)[training]

    def joined(self, other: "Study") -> "Study":
        """This study, and what another one says of what was rebuilt from the same model."""
        return msgspec.structs.replace(
            self,
            predictions={**self.predictions, **other.predictions},
            rebuilt={**self.rebuilt, **other.rebuilt},
        )


def study(
    source: Source,
    asked: Setting,
    conventions: Mapping[str, Convention],
    tell: Progress,
    file: FileOfTools | None = None,
    rebuilt: Source | None = None,
    known: dict[bool, Counted] | None = None,
) -> Study:
    """Count in every mode that a tool needs, and write down what each tool should print.

    `file` is what the tools are given that see nodes; it is not written yet. `rebuilt` is what
    the tools run in place of the source, and `known` the source as it was counted.
    """
    if rebuilt is not None and known is not None:
        try:
            found = _by_mode(rebuilt, asked, conventions)
        except CrossflopsError as error:
            return Study(known, {}, obstacle=error)  # nobody will be asked
        own = Study(known, {}, rebuilt=dict.fromkeys(conventions, found))
    else:
        tell("exporting the model to ONNX")
        own = Study(_by_mode(source, asked, conventions), {})
    in_file = file.counted(own.counted[asked.training], asked) if file else None
    stock = file.stock(in_file) if file is not None and in_file is not None else None
    own = msgspec.structs.replace(own, file=in_file, stock=stock)
    predictions: dict[str, Predicted] = {}
    for tool, convention in conventions.items():
        reads = convention.sees == "node"
        if file is not None and in_file is not None and reads:
            mine = in_file
            if convention.shapes is as_given:
                mine = msgspec.structs.replace(mine, graph=file.told(mine))
        else:
            mine = own.run(tool, convention.setting(asked).training)
        predictions[tool] = _predicted(convention, asked, mine)
    tell("predictions are fixed; the tools run")
    return msgspec.structs.replace(own, predictions=predictions)


def _by_mode(
    source: Source, asked: Setting, conventions: Mapping[str, Convention]
) -> dict[bool, Counted]:
    """The model counted as it was asked for, and in every mode that a tool forces."""
    modes = {asked.training} | {one.setting(asked).training for one in conventions.values()}
    watched = observed(conventions.values(), asked)
    return {
        training: counted(
            source,
            msgspec.structs.replace(asked, training=training),
            [one for one in watched if one.training == training],
        )
        for training in modes
    }


def _predicted(convention: Convention, asked: Setting, mine: Counted) -> Predicted:
    try:
        if convention.sees == "node":
            return predict_nodes(convention, mine.graph, seen_by(convention, mine))
        return predict(convention, mine.trace, asked, mine.ledger)
    except PredictionError as error:
        return Unpredicted(convention, error)


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
        convention = prediction.convention
        reads = convention.sees == "node"
        mine = own if reads else study.run(tool, convention.setting(asked).training)
        seen = study.file if reads and study.file else study.run(tool, asked.training)
        profile = msgspec.structs.replace(
            answer,
            digest=seen.graph.digest,
            verified=answer.version in convention.verified,
            kernels=mine.trace.kernels.get(convention.setting(asked).id, UNSET),
        )
        profiles.append(profile)
        base = own if reads else study.run(tool, asked.training)
        found = _reconciled(prediction, base, mine, profile)
        if base is not own:
            found = from_file(found, own.ledger, base.ledger, convention.framework)
        # Several tools may share one convention: a reconciliation is that of the tool.
        params = _parameters(convention, mine, profile, study.stock)
        if base is not own and not isinstance(params, UnsetType):
            params = parameters_from_file(params, own.graph.params, convention.framework)
        reconciliations.append(msgspec.structs.replace(found, tool=tool, params=params))
    return msgspec.structs.replace(
        count.report(own),
        profiles=tuple(profiles),
        reconciliations=tuple(reconciliations),
    )


def _reconciled(
    prediction: Predicted, own: Counted, mine: Counted, profile: Profile
) -> Reconciliation:
    if isinstance(prediction, Unpredicted):
        return unpredicted(prediction.convention, own.ledger, profile, prediction.error)
    return reconcile(prediction, mine.trace, mine.ledger, profile, base=own.ledger)


def _parameters(
    convention: Convention, counted: Counted, profile: Profile, stock: Stock | None
) -> ParamsReconciliation | UnsetType:
    """Why the tool counts other parameters, where it counts any and it is known how."""
    rules, theirs = convention.parameters, profile.params
    if rules is None or theirs is None:
        return UNSET
    if rules.stored and stock is not None:
        return reconcile_stored(rules, counted.graph.params, stock, theirs)
    if rules.stored or not counted.trace.modules:
        return UNSET
    return reconcile_parameters(rules, counted.trace, theirs)
