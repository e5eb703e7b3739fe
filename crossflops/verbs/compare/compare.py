"""The verb `compare`: count a model, let tools count it, and account for every difference."""

import gc
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
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
from crossflops.verbs.compare.files import file_of_tools
from crossflops.verbs.compare.native import Predicted, Study, predictions, report, study
from crossflops.verbs.compare.questions import (
    about_the_second,
    answered,
    of_models,
    refuse,
    set_against,
)
from crossflops.verbs.compare.tools import Limits, Progress
from crossflops.verbs.count import (
    CountedModel,
    flags_of_training,
    heard,
    reached,
    refuse_training,
)
from crossflops.verbs.provenance import asked as told
from crossflops.verbs.provenance import changed, made_with
from crossflops.workers.pool import Still
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
    wanted, wanted_of_second = of_models(comparison.tools, comparison.between, two)
    where = elsewhere.chosen(comparison.python)
    choice = choose(wanted, where)
    choice_of_second = choice if wanted == wanted_of_second else choose(wanted_of_second, where)
    shared = crews.forked_here(request, choice, comparison.isolate, comparison.still)
    with one_thread() if shared else nullcontext():
        return _all_compared(request, comparison, choice, choice_of_second, tell)


def _all_compared(
    request: Request,
    comparison: Comparison,
    choice: Choice,
    choice_of_second: Choice,
    tell: Progress,
) -> Report:
    other = None if comparison.against is None else _second(request, comparison)
    native, first = _compared(request, choice, comparison, tell)
    flags = {**flags_of_training(request), **changed(comparison, but=("against_options", "still"))}
    first = _told(first, request, flags)
    if other is None:
        return answered(
            first,
            between=comparison.between,
            module=comparison.module,
            consensus=comparison.consensus,
        )
    with about_the_second():
        native_of_second, second_report = _compared(other, choice_of_second, comparison, tell)
    second_report = _told(second_report, other, {})
    return set_against(first, second_report, (native, native_of_second), comparison.between)


def _compared(
    request: Request, choice: Choice, comparison: Comparison, tell: Progress
) -> tuple[CountedModel, Report]:
    """One model: the native count in the setting that was asked for, and what tools make of it."""
    choice = crews.able(choice, comparison.isolate)
    with heard() as sentences:
        if request.train:
            choice = crews.trainers(choice)
        counts, fixed, answers = _with_values_if_needed(request, choice, comparison, tell)
    compared = report(counts, fixed, request.setting, crews.shown(answers, choice))
    compared = msgspec.structs.replace(
        compared, made_with=made_with(request.is_file), warnings=tuple(sentences)
    )
    return counts.counted[request.setting.training], compared


Answered = tuple[Study, dict[str, Predicted], crews.Answers]


def _with_values_if_needed(
    request: Request, choice: Choice, comparison: Comparison, tell: Progress
) -> Answered:
    """What `_answered` gives, of a model with values where counting it without turns out to fail.

    Raises InputError where it cannot have any.
    """
    with _scratch() as scratch:
        try:
            return _answered(request, choice, comparison, scratch, tell)
        except ValuesNeededError as error:
            reason = error.message
    if request.weights == FAKE or request.given is not None:
        raise refused(reason)
    tell(f"the model is built with its weights: {reason}\n")
    again = msgspec.structs.replace(request, weights=REAL)
    with _scratch() as scratch:
        return _answered(again, choice, comparison, scratch, tell, reason)


def _scratch() -> AbstractContextManager[str]:
    return tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True)


def _answered(
    request: Request,
    choice: Choice,
    comparison: Comparison,
    scratch: str,
    tell: Progress,
    reason: str = "",
) -> Answered:
    """What was counted, what each tool should print, and then what it did.

    Tools that see nodes are given a file: `onnx`, or that of the target, or the normalized model.
    The others run the model; of a file, or of a model of another framework, what is rebuilt from
    its ONNX graph. What a tool cannot be asked about is its Failure.
    """
    setting, asked = request.setting, comparison
    limits = Limits(asked.timeout, asked.memory, asked.isolate, asked.still)
    file = file_of_tools(request, comparison.onnx, scratch) if crews.readers(choice) else None
    shared = crews.forked_here(request, choice, limits.isolate, limits.still)
    early = crews.early(request, choice, limits.isolate, shared)
    built = early and early[0]
    crew = crews.first_crew(request, choice, built, file, limits.isolate)
    with ExitStack() as starting:  # the tools load and build while this process counts
        watched = crews.watched(crew.choice, built, setting, limits) if shared else None
        if watched is not None:
            starting.callback(watched.close)
        started = starting.enter_context(crew.start(limits, tell, built if shared else None))
        source, why = early or crews.built(request)
        source = msgspec.structs.replace(source, watched=watched and watched.result)
        if request.train:
            _require_steps(source, choice)
        conventions = crews.native_conventions(crew.choice, source)
        tell("exporting the model to ONNX")
        counts = study(source, setting, conventions, file, reason or why)
        rebuilt = crews.rebuilt(request, choice, counts.counted[setting.training], tell)
        counts = msgspec.structs.replace(counts, rebuilt=rebuilt.counted)
        failures = {**rebuilt.failures, **crews.written(counts, crew, source)}
        running = starting.pop_all()  # should what follows raise, a worker ends with its pipe
    fixed = predictions(counts, setting, {**conventions, **rebuilt.conventions})
    counts, large = counts.without_programs(), source.stored > _WORTHWHILE
    del source, early, built
    gc.unfreeze()  # see `Cloned`
    if large:
        gc.collect()  # what is left of the model holds its weights, which the tools have as well
    tell("predictions are fixed; the tools run")
    with running:
        answers = crews.answers(crew, started, failures, tell)
    for other in rebuilt.crews:
        with other.start(limits, tell) as started:
            answers |= crews.answers(other, started, failures, tell)
    return counts, fixed, {**answers, **failures}


def _of_step(request: Request, comparison: Comparison) -> Request:
    """The request with the training step in its setting, where one is asked for.

    Raises InputError for what does not go together, and what running the loss raises.
    """
    refuse_training(request)
    if not request.train:
        return request
    if not request.setting.grad:
        raise InputError("a training step has gradients", "leave --no-grad out, or --train")
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
