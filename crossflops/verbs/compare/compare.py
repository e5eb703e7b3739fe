"""The verb `compare`: count a model, let tools count it, and account for every difference."""

import gc
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import UNSET

from crossflops.errors import InputError, ValuesNeededError
from crossflops.frontends import Source, require
from crossflops.ir.provenance import FAKE, REAL
from crossflops.ir.trace import StepSetting
from crossflops.limits import TIMEOUT
from crossflops.plugins import elsewhere
from crossflops.plugins.choice import Choice, choose
from crossflops.report.report import Report
from crossflops.targets.request import Request, second
from crossflops.targets.target import imports_restored
from crossflops.targets.weights import refused
from crossflops.tools.registry import conventions as known_conventions
from crossflops.verbs.compare import tools as crews
from crossflops.verbs.compare.native import (
    Predicted,
    Study,
    file_of_tools,
    predictions,
    report,
    study,
)
from crossflops.verbs.compare.questions import (
    about_the_second,
    answered,
    of_models,
    refuse,
    set_against,
)
from crossflops.verbs.compare.tools import Limits, Progress
from crossflops.verbs.count import CountedModel, flags_of_training, heard, reached, refuse_training
from crossflops.verbs.provenance import asked as told
from crossflops.verbs.provenance import changed, made_with
from crossflops.workers.pool import Still
from crossflops.workers.process import Background
from crossflops.workers.warm import can_fork, import_numpy, one_thread

_WORTHWHILE = 250_000_000  # bytes of weights from which on it is looked for what still holds them


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a comparison beside the model: see `crossflops.compare`.

    `still` says that this process runs nothing else: see `Limits`.
    """

    tools: Sequence[str] | None = None
    onnx: str | None = None
    timeout: float = TIMEOUT
    memory: int | None = None
    isolate: bool = True
    python: Mapping[str, str] = {}
    between: tuple[str, str] | None = None
    module: str | None = None
    consensus: bool = False
    against: Any = None
    against_options: Mapping[str, Any] = {}
    still: Still | None = None


@imports_restored()
def compare(request: Request, comparison: Comparison, tell: Progress) -> Report:
    """The report of one model and its tools; with `against` also of what is between two models.

    Raises UnknownNameError for a tool that there is not, before any model is built, and InputError
    for questions that do not go together.
    """
    if comparison.still and can_fork():
        import_numpy()
    request = _of_step(request, comparison)
    two = comparison.against is not None
    of_first, of_second = of_models(comparison.tools, comparison.between, two)
    where = elsewhere.chosen(comparison.python)
    choice = choose(of_first, where)
    _refuse_of_others(comparison, choice)
    choices = [choice, choice if of_first == of_second else choose(of_second, where)]
    shared = crews.forked_here(request, choice, comparison.isolate, comparison.still)
    with one_thread() if shared else nullcontext():
        requests = [request, _second(request, comparison)] if two else [request]
        compared = _all_compared(list(zip(requests, choices, strict=False)), comparison, tell)
    flags = {**flags_of_training(request), **changed(comparison, but=("against_options", "still"))}
    first = _told(compared[0].report, request, flags)
    if not two:
        return answered(
            first,
            between=comparison.between,
            module=comparison.module,
            consensus=comparison.consensus,
        )
    counts = [model.native for model in compared]
    second_report = _told(compared[1].report, requests[1], {})
    return set_against(first, second_report, counts, comparison.between)


class _Prepared(msgspec.Struct):
    """A model that is compared, and what was made ready for it before any is counted.

    `early` has the model, and why it has values where it should have none, if it was built by
    then: what counts it takes it from here, so that nothing else holds its weights. `shared` says
    that tools are forked from this process with it. `sentences` are the warnings until then.
    """

    request: Request
    choice: Choice
    crew: crews.Crew
    early: tuple[Source, str] | None
    shared: bool
    watched: Background | None
    sentences: list[str]


class _Compared(msgspec.Struct, frozen=True):
    native: CountedModel
    report: Report


def _all_compared(
    asked: Sequence[tuple[Request, Choice]], comparison: Comparison, tell: Progress
) -> list[_Compared]:
    """Each model: the native count in the setting that was asked for, and what tools make of it.

    All tools load and build while the first model is counted; two models share their parent.
    """
    with ExitStack() as kept:
        models: list[_Prepared] = []
        for request, choice in asked:
            with _about(len(models)):
                ready = _ready(len(models), request, choice, comparison, kept)
            models.append(ready)
        started = _started(models, comparison, kept, tell)
        compared = []
        for number, model in enumerate(models):
            with _about(number):
                compared.append(_compared(model, started, comparison, tell))
        return compared


def _about(number: int) -> AbstractContextManager[None]:
    """Errors within say which model they are about, where it is not the first."""
    return about_the_second() if number else nullcontext()


def _ready(
    number: int, request: Request, choice: Choice, comparison: Comparison, kept: ExitStack
) -> _Prepared:
    """A model with the tools that are asked about it, and a fork of this process that watches it.

    Tools that see nodes are given a file: `onnx`, or that of the target, or the normalized model.
    The others run the model; of a file, or of a model of another framework, what is rebuilt from
    its ONNX graph. `kept` ends the fork, and removes the file.
    """
    limits = _limits(comparison)
    with heard() as sentences:
        choice = crews.able(choice, limits.isolate)
        if request.train:
            choice = crews.trainers(choice)
        scratch = kept.enter_context(
            tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True)
        )
        file = file_of_tools(request, comparison.onnx, scratch) if crews.readers(choice) else None
        shared = crews.forked_here(request, choice, limits.isolate, limits.still)
        try:
            early = crews.early(request, choice, limits.isolate, shared)
        except ValuesNeededError as error:  # of a model that the caller gave
            raise refused(error.message) from error
        built = early and early[0]
        crew = crews.first_crew(number, request, choice, built, file, limits.isolate)
        watched = crews.watched(crew.choice, built, request.setting, limits) if shared else None
        if watched is not None:
            kept.callback(watched.close)
    return _Prepared(request, choice, crew, early, shared, watched, sentences)


def _started(
    models: Sequence[_Prepared], comparison: Comparison, kept: ExitStack, tell: Progress
) -> crews.StartedTools:
    """The tools of all models: they load and build, and wait until they are let go."""
    built = {model.crew.number: model.early[0] for model in models if model.shared and model.early}
    ready = [model.crew for model in models]
    return kept.enter_context(crews.start(ready, _limits(comparison), tell, built))


def _limits(comparison: Comparison) -> Limits:
    return Limits(comparison.timeout, comparison.memory, comparison.isolate, comparison.still)


def _compared(
    model: _Prepared, started: crews.StartedTools, comparison: Comparison, tell: Progress
) -> _Compared:
    setting = model.request.setting
    with heard() as sentences:
        counts, fixed, answers = _with_values_if_needed(model, started, comparison, tell)
    compared = report(counts, fixed, setting, crews.shown(answers, model.choice))
    compared = msgspec.structs.replace(
        compared,
        made_with=made_with(model.request.is_file),
        warnings=tuple(dict.fromkeys((*model.sentences, *sentences))),
    )
    return _Compared(counts.counted[setting.training], compared)


Answered = tuple[Study, dict[str, Predicted], crews.Answers]


def _with_values_if_needed(
    model: _Prepared, started: crews.StartedTools, comparison: Comparison, tell: Progress
) -> Answered:
    """What `_answered` gives, of a model with values where counting it without turns out to fail.

    Raises InputError where it cannot have any.
    """
    request = model.request
    try:
        return _answered(model, started, comparison, tell)
    except ValuesNeededError as error:
        reason = error.message
    if request.weights == FAKE or request.given is not None:
        raise refused(reason)
    tell(f"the model is built with its weights: {reason}\n")
    number = model.crew.number
    started.drop(number)
    again = msgspec.structs.replace(request, weights=REAL)
    with ExitStack() as kept:
        model = _ready(number, again, model.choice, comparison, kept)
        started = _started([model], comparison, kept, tell)
        return _answered(model, started, comparison, tell, reason)


def _answered(
    model: _Prepared,
    started: crews.StartedTools,
    comparison: Comparison,
    tell: Progress,
    reason: str = "",
) -> Answered:
    """What was counted, what each tool should print, and then what it did.

    What a tool cannot be asked about is its Failure.
    """
    request, setting, crew = model.request, model.request.setting, model.crew
    source, why = model.early or crews.built(request)
    model.early = None
    if request.train:
        _require_steps(source, model.choice)
    conventions = crews.native_conventions(crew.choice, source)
    large = source.weights != FAKE and source.stored > _WORTHWHILE
    early = crews.Early(crew, conventions, started)
    source = msgspec.structs.replace(
        source,
        watched=model.watched and model.watched.result,
        recorded=None if large else early.let,  # whose weights are held once while tools run
    )
    tell("exporting the model to ONNX")
    counts = study(source, setting, conventions, crew.file, reason or why)
    rebuilt = crews.rebuilt(request, model.choice, counts.counted[setting.training], tell)
    counts = msgspec.structs.replace(counts, rebuilt=rebuilt.counted)
    failures = {**rebuilt.failures, **crews.written(counts, crew, source)}
    later = {tool: it for tool, it in conventions.items() if tool not in early.fixed}
    fixed = early.fixed | predictions(counts, setting, {**later, **rebuilt.conventions})
    counts = counts.without_programs()
    del source
    gc.unfreeze()  # see `Cloned`
    if large:
        gc.collect()  # what is left of the model holds its weights, which the tools have as well
    tell("predictions are fixed; the tools run")
    answers = crews.answers(crew, started, failures, tell, early.began)
    for other in rebuilt.crews:
        with crews.start([other], _limits(comparison), tell) as started_other:
            answers |= crews.answers(other, started_other, failures, tell)
    return counts, fixed, {**answers, **failures}


def _of_step(request: Request, comparison: Comparison) -> Request:
    """The request with the training step in its setting, where one is asked for.

    Raises InputError for what does not go together, and what running the loss raises.
    """
    refuse_training(request)
    request.refuse_unused(run_by_tools=True)
    if not request.train:
        return request
    for name in ("against", "module", "consensus", "onnx"):
        if getattr(comparison, name):
            raise InputError(
                f"--{name} is about forward passes, and --train about a training step",
                "leave one of them out",
            )
    step = StepSetting(
        frozen=request.frozen,
        trainable=request.trainable,
        reached=reached(request) if request.loss else UNSET,
    )
    return msgspec.structs.replace(
        request, setting=msgspec.structs.replace(request.setting, step=step)
    )


def _refuse_of_others(comparison: Comparison, choice: Choice) -> None:
    """Raises InputError for an option of tools of which none was asked for."""
    if comparison.tools is None or comparison.against is not None:
        return
    asked = {*(comparison.tools or ()), *(comparison.between or ())}
    for tool in comparison.python:
        if not any(fnmatchcase(tool, name) for name in asked):
            raise InputError(
                f"--python {tool}=... is of a tool that was not asked for",
                f"add --tool {tool}, or leave it out",
            )
    if comparison.onnx is not None and not crews.readers(choice):
        raise InputError(
            "--onnx is for tools that count an ONNX file, and none was asked for",
            "add --tool onnx-tool, or leave it out",
        )


def _require_steps(source: Source, choice: Choice) -> None:
    """Raises InputError for a model whose training steps no tool of the comparison runs."""
    frontend = require(source.model)
    asked = choice.conventions.values() or (rules for rules in known_conventions() if rules.step)
    if all(rules.framework != frontend.name for rules in asked):
        raise InputError(
            f"no tool that was asked counts training steps of a model of {frontend.title}",
            "leave --train out, or count the step with `crossflops count --train`",
        )


def _second(first: Request, comparison: Comparison) -> Request:
    """The request for the model to compare with, refused before any tool runs."""
    refuse(comparison.module, comparison.consensus, comparison.onnx)
    with about_the_second():
        return second(comparison.against, comparison.against_options, first)


def _told(compared: Report, request: Request, flags: Mapping[str, Any]) -> Report:
    """The report with its request."""
    asked = told("compare", request, compared.model, flags)
    return msgspec.structs.replace(compared, request=asked)
