"""The verbs, in order: load, normalize, count, predict, ask the tools, reconcile, report."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops import tabulate
from crossflops.conventions import for_version, parse
from crossflops.core.convention import Convention
from crossflops.core.graph import Graph
from crossflops.core.ledger import Ledger
from crossflops.core.profile import Failure, Profile
from crossflops.core.reconciliation import Reconciliation
from crossflops.core.report import Folded, Report
from crossflops.core.trace import Setting, Trace
from crossflops.count import count as count_graph
from crossflops.errors import InputError
from crossflops.normalize import Source, normalize
from crossflops.normalize.request import Request, asked_for
from crossflops.reconcile import (
    Prediction,
    PredictionError,
    predict,
    reconcile,
    unpredicted,
)

if TYPE_CHECKING:  # what runs tools is imported when tools run: counting a file is a blink
    from crossflops.adapters.contract import Adapter
    from crossflops.adapters.job import Job

Progress = Callable[[str], None]


class Counted(msgspec.Struct, frozen=True):
    """A model that was normalized and counted in one mode."""

    graph: Graph
    trace: Trace
    ledger: Ledger


def count(
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    as_: str | None = None,
    allow_pickle: bool = False,
) -> Report:
    """Count a model. With `as_` ("thop@0.0.31") also as a tool does, without the tool.

    `target` is a model object or a target string, `inputs` tensors (one, a tuple, a dict of
    keyword arguments, or `(args, kwargs)`) or texts such as "1x3x224x224". Of an ONNX file `dims`
    binds named dimensions, and `trips` says how often a Loop runs where the graph does not.
    """
    request = asked_for(
        target,
        inputs,
        inputs_file,
        setting,
        arguments,
        allow_pickle=allow_pickle,
        dims=dims,
        trips=trips,
    )
    convention = parse(as_) if as_ else None
    observed = _observed([convention] if convention else [], setting)
    own = [one for one in observed if one.training == setting.training]
    counted = _count(request.source(), setting, own)
    folded = None
    if convention is not None:
        forced = convention.setting(setting)
        same = forced.training == setting.training
        mode = counted if same else _count(request.source(), forced, observed)
        folded = _fold(convention, mode, setting)
    return tabulate.report(counted.graph, counted.trace, counted.ledger, folded)


def compare(
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    tools: Sequence[str] | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    timeout: float = 300.0,
    isolate: bool = True,
    allow_pickle: bool = False,
    on_progress: Progress | None = None,
) -> Report:
    """Count a model, let tools count it, and account for every difference.

    Each tool runs in a worker process; with `isolate=False` on a copy in this process, where
    nothing bounds its time and memory, and whatever it patches stays patched. The prediction of
    every tool is fixed before it starts.
    """
    from crossflops.adapters import discovery
    from crossflops.adapters.observe import run_here
    from crossflops.adapters.pool import Workers

    tell = on_progress or (lambda _: None)
    request = asked_for(
        target,
        inputs,
        inputs_file,
        setting,
        arguments,
        allow_pickle=allow_pickle,
        dims=dims,
        trips=trips,
    )
    ready, failures = discovery.ready(tools)
    if request.is_file:
        failures |= {tool: _refused(tool) for tool in ready}
        ready = {}
    answers: dict[str, Profile | Failure] = {**failures}
    if isolate:
        given = request.given
        contents = (given.model, given.args, given.kwargs) if given else None
        with Workers(_jobs(request, ready), contents=contents, timeout=timeout) as workers:
            study = _study(request, request.source(), ready, tell)
            for tool, answer in workers.go():
                tell(f"{tool} {'failed' if isinstance(answer, Failure) else 'done'}")
                answers[tool] = answer
    else:
        source = request.source()
        study = _study(request, source, ready, tell)
        for tool, adapter in ready.items():
            answers[tool] = run_here(
                adapter, source.model, source.args, source.kwargs, request.setting
            )
    return _report(study, request.setting, dict(sorted(answers.items())))


def _refused(tool: str) -> Failure:
    return Failure(
        tool=tool,
        stage="accept",
        message=f"{tool} needs the model in its framework, and an ONNX file does not hold that",
        hint="give the model as file.py:callable; `crossflops count` counts the file",
    )


class Study(msgspec.Struct, frozen=True):
    """A model counted in every mode that is needed, and what each tool should print.

    `counted` is keyed by training mode: a tool may force another than was asked for.
    """

    counted: dict[bool, Counted]
    predictions: dict[str, Prediction | Convention]


def _study(
    request: Request, source: Source, ready: Mapping[str, "Adapter"], tell: Progress
) -> Study:
    asked = request.setting
    conventions = {
        tool: for_version(adapter.convention, adapter.version()) for tool, adapter in ready.items()
    }
    tell("exporting the model to ONNX")
    modes = {asked.training} | {one.setting(asked).training for one in conventions.values()}
    observed = _observed(conventions.values(), asked)
    counted = {
        training: _count(
            source,
            msgspec.structs.replace(asked, training=training),
            [one for one in observed if one.training == training],
        )
        for training in modes
    }
    predictions: dict[str, Prediction | Convention] = {}
    for tool, convention in conventions.items():
        mine = counted[convention.setting(asked).training]
        try:
            predictions[tool] = predict(convention, mine.trace, asked, mine.ledger)
        except PredictionError:
            # The tool itself should fail here. Should it answer, nothing is explained.
            predictions[tool] = convention
    tell("predictions are fixed; the tools run")
    return Study(counted, predictions)


def _report(study: Study, asked: Setting, answers: dict[str, Profile | Failure]) -> Report:
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
        reconciliations.append(msgspec.structs.replace(found, tool=tool))
    return msgspec.structs.replace(
        tabulate.report(own.graph, own.trace, own.ledger),
        profiles=tuple(profiles),
        reconciliations=tuple(reconciliations),
    )


def _jobs(request: Request, ready: Mapping[str, "Adapter"]) -> "list[Job]":
    from crossflops.adapters import discovery
    from crossflops.adapters.job import Job

    points = discovery.installed()
    return [
        Job(
            tool=tool,
            setting=request.setting,
            adapter=points[tool].value,
            target=request.target,
            arguments=request.arguments,
            inputs=request.specs,
            inputs_file=request.inputs_file,
            allow_pickle=request.allow_pickle,
        )
        for tool in ready
    ]


def _count(source: Source, setting: Setting, observed: Sequence[Setting]) -> Counted:
    graph, trace = normalize(source, setting, observed)
    return Counted(graph, trace, count_graph(graph))


def _observed(conventions: Iterable[Convention], asked: Setting) -> list[Setting]:
    """The settings in which fused kernels matter to some clause."""
    return sorted(
        {
            one.setting(asked)
            for one in conventions
            if any(clause.match.fused for clause in one.clauses)
        },
        key=lambda setting: setting.id,
    )


def _fold(convention: Convention, counted: Counted, asked: Setting) -> Folded:
    if not counted.trace.calls:
        raise InputError(
            f"{convention.tool} looks at calls of modules and functions, which no file records",
            "give the model as file.py:callable to count it as a tool does",
        )
    prediction = predict(convention, counted.trace, asked, counted.ledger)
    return Folded(
        tool=convention.tool,
        edition=convention.edition,
        total=prediction.total,
        assumed=any(call.assumed for call in counted.trace.calls),
    )
