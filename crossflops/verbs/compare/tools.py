"""The tools' half of a comparison: which tool is asked about what, where, and how it answers."""

import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec import UNSET

from crossflops.errors import CrossflopsWarning, print_traceback
from crossflops.frontends import Source, may_be_of_another, require
from crossflops.frontends.onnx import OnnxFile
from crossflops.ir.profile import Failure, Profile
from crossflops.ir.provenance import FAKE, META
from crossflops.ir.trace import Setting, Trace
from crossflops.plugins import discovery
from crossflops.plugins.adapter import on_fakes
from crossflops.plugins.choice import Choice
from crossflops.plugins.failures import failure
from crossflops.rebuild import REBUILT, rebuilt_in
from crossflops.rules.rule import Convention
from crossflops.targets import weights
from crossflops.targets.request import Request
from crossflops.targets.target import named_in_full
from crossflops.verbs.compare.native import (
    FileOfTools,
    Predicted,
    Study,
    by_mode,
    early_predictions,
)
from crossflops.verbs.count import CountedModel, observed
from crossflops.workers.jobs import Job
from crossflops.workers.observe import left_out, run_here
from crossflops.workers.pool import Still, Workers
from crossflops.workers.process import Background, can_be_cloned
from crossflops.workers.warm import beside, can_fork

_NO_STEP = "it counts no training step"
_REBUILT_STEP = "it counts training steps of models of its own framework alone"
_FORWARD = "leave --train out to compare the forward pass"
Answers = dict[str, Profile | Failure]
Progress = Callable[[str], None]  # a text that ends with a newline stays, others are replaced


class Limits(msgspec.Struct, frozen=True):
    """Where tools run: in workers with so many seconds and bytes, or in this process.

    `still` is there where this process runs nothing else: in this context it has one thread, and
    tools may be forked from it.
    """

    timeout: float
    memory: int | None
    isolate: bool
    still: Still | None = None


class Crew(msgspec.Struct, frozen=True):
    """Tools that are asked about the same thing.

    Those that see nodes get the file. The others get the target, or `model`: the object that the
    caller gave, or what was rebuilt in their framework from the ONNX graph. An object without
    values travels as it was given, and is made one that tools can run where they run it. Where
    two models are compared, `number` tells which.
    """

    choice: Choice
    request: Request
    model: Source | None = None
    file: FileOfTools | None = None
    number: int = 0

    def jobs(self) -> list[Job]:
        """What a worker is asked for each of the tools."""
        points = discovery.installed()
        return [self._job(tool, points) for tool in self.choice.conventions]

    def _job(self, tool: str, points: Mapping[str, EntryPoint]) -> Job:
        request = self.request
        adapter = None if tool in self.choice.elsewhere else points[tool].value
        job = Job(
            tool=tool,
            setting=request.setting,
            model=self.number,
            adapter=adapter,
            framework="torch",
            own_process=_own_process(self.choice, tool),
            weights=self._weights,
        )
        if self.file is not None and tool in readers(self.choice):
            return msgspec.structs.replace(job, onnx_path=str(self.file.path))
        if self.model is not None:
            return job  # the model goes by pickle
        return msgspec.structs.replace(
            job,
            target=request.target,
            arguments=request.arguments,
            inputs=request.specs,
            inputs_file=request.inputs_file,
            allow_pickle=request.allow_pickle,
            sizes=request.sizes,
        )

    @property
    def _weights(self) -> Literal["real", "fake"] | None:
        """Whether a worker gives the model values; a target may have it decided by its size."""
        if self.model is not None:
            return "fake" if self.model.weights == META else "real"
        return self.request.weights


def _own_process(choice: Choice, tool: str) -> bool:
    """Whether the tool cannot be forked: its framework has threads, or its adapter says so."""
    declared = getattr(choice.here.get(tool), "own_process", False)
    torch = choice.conventions[tool].framework == "torch"
    return declared or not torch or tool in choice.elsewhere or tool in readers(choice)


def start(
    crews: Sequence[Crew],
    limits: Limits,
    tell: Progress,
    built: Mapping[int, Source] | None = None,
) -> AbstractContextManager["StartedTools"]:
    """Workers that load their tools and build their models, until they are let go.

    They are forked from this process where it has `built` models of targets for them, by number.
    """
    if not limits.isolate:
        return nullcontext(InProcess({crew.number: crew for crew in crews}))
    given = {crew.number: crew.model for crew in crews if crew.model}
    return Workers(
        [job for crew in crews for job in crew.jobs()],
        contents={number: (it.model, it.args, it.kwargs) for number, it in given.items()},
        timeout=limits.timeout,
        memory=limits.memory,
        interpreters={
            tool: path for crew in crews for tool, path in crew.choice.elsewhere.items()
        },
        tell=tell,
        built=built,
        still=limits.still or nullcontext,
    )


class StartedTools(Protocol):
    """Tools that were started: workers, or this process."""

    def go(self, model: int = 0) -> Iterator[tuple[str, Profile | Failure]]:
        """Let the tools run on a model, and give tool and answer as they finish."""
        ...

    def let(self, model: int, tools: Collection[str]) -> None:
        """Let these tools run before that, where they run beside this process."""
        ...

    def drop(self, model: int) -> None:
        """Let the tools of a model go unasked."""
        ...


class InProcess(msgspec.Struct, frozen=True):
    """The tools of crews, on copies in this process; crews by the number of their model."""

    crews: Mapping[int, Crew]

    def go(self, model: int = 0) -> Iterator[tuple[str, Profile | Failure]]:
        """Run one tool after the other."""
        crew = self.crews[model]
        setting = crew.request.setting
        for tool, adapter in crew.choice.here.items():
            if crew.file is not None and tool in readers(crew.choice):
                yield tool, run_here(adapter, crew.file.path, (), {}, setting)
            elif crew.model is not None:
                source = crew.model
                held = msgspec.structs.replace(setting, fake=source.weights == FAKE or UNSET)
                yield tool, run_here(adapter, source.model, source.args, source.kwargs, held)

    def let(self, model: int, tools: Collection[str]) -> None:
        """They run when they are asked."""

    def drop(self, model: int) -> None:
        """Nothing was started for them."""


def built(request: Request) -> tuple[Source, str]:
    """The model that is counted, and why it has values where it should have none.

    One that the caller gave without values is one that can be run, as for tools.
    """
    if request.given is None and not request.is_file:
        return weights.built(request.source, request.weights)
    source = request.source()
    return require(source.model).hollowed(source), ""


def early(
    request: Request, choice: Choice, isolate: bool, shared: bool
) -> tuple[Source, str] | None:
    """What `built` gives, before workers start: for this process, or to see of what framework.

    Or as it is `shared` with them. None where it may as well be built while they start.
    """
    if request.is_file:
        return None
    there = request.given is not None or not isolate
    return built(request) if there or shared or _is_foreign(request, choice) else None


def forked_here(request: Request, choice: Choice, isolate: bool, still: Still | None) -> bool:
    """Whether tools are to be forked from this process, which builds their model."""
    if still is None or not isolate or not can_fork():
        return False
    if request.is_file or request.given is not None:
        return False
    tools = choice.conventions
    forked = any(not _own_process(choice, tool) for tool in tools)
    return forked and not _is_foreign(request, choice)


def _is_foreign(request: Request, choice: Choice) -> bool:
    """Whether the model may be of a framework that not all of its tools have."""
    wanted = {choice.conventions[tool].framework for tool in _runners(choice)}
    return len(wanted) > 1 or may_be_of_another(named_in_full(request.target or ""), wanted)


def first_crew(
    number: int,
    request: Request,
    choice: Choice,
    source: Source | None,
    file: FileOfTools | None,
    isolate: bool,
) -> Crew:
    """The tools that are asked about the model itself, and those that get its file."""
    natives = choice
    if request.is_file:
        natives = choice.only(readers(choice))
    elif source is not None:
        natives = choice.only(_natives(choice, source))
    return Crew(natives, request, request.given if isolate else source, file, number)


def native_conventions(choice: Choice, source: Source) -> dict[str, Convention]:
    """The conventions of the tools that are asked about the model itself, or get its file.

    Without values those alone that can do without.
    """
    if isinstance(source.model, OnnxFile):
        return choice.conventions
    natives = choice.only(_natives(choice, source))
    if source.weights == FAKE:
        left_out = [tool for tool, value in natives.here.items() if not on_fakes(value)]
        natives = natives.only(set(natives.conventions) - {*left_out, *readers(natives)})
    return natives.conventions


def watched(
    choice: Choice, source: Source | None, setting: Setting, limits: Limits
) -> Background | None:
    """The runs of a model that are watched for predictions, in a fork of this process.

    None where nothing is to be seen in them, or this process has more than one thread.
    """
    if source is None or limits.still is None:
        return None
    views = observed(native_conventions(choice, source).values(), setting)
    with limits.still():
        if not views or not can_be_cloned():
            return None
        return beside(partial(require(source.model).watched, source, views))


class Early:
    """The tools that see calls, which go as soon as these are recorded and they are predicted.

    `fixed` are their predictions, `began` is when the first went; None while none did.
    """

    def __init__(
        self, crew: Crew, conventions: Mapping[str, Convention], started: StartedTools
    ) -> None:
        self.fixed: dict[str, Predicted] = {}
        self.began: float | None = None
        self._crew = crew
        self._conventions = conventions
        self._started = started

    def let(self, trace: Trace) -> None:
        """Predict the tools whose calls these are, and let them go."""
        fixed = early_predictions(trace, self._crew.request.setting, self._conventions)
        self.fixed |= fixed
        if fixed:
            self.began = self.began or time.monotonic()
            self._started.let(self._crew.number, fixed)


def answers(
    crew: Crew,
    started: StartedTools,
    failures: Answers,
    tell: Progress,
    began: float | None = None,
) -> Answers:
    """What the tools of a crew say, in the order in which they finish. Of each a line is told.

    `began` is when the first of them was let go, where that was before.
    """
    outcomes: Answers = {}
    begin, number = began or time.monotonic(), len(crew.choice.conventions)
    for tool, answer in started.go(crew.number):
        outcomes[tool] = failures.get(tool, answer)
        word = "failed" if isinstance(outcomes[tool], Failure) else "done"
        rest = _time_left(time.monotonic() - begin, len(outcomes), number)
        tell(f"{tool} {word}, {len(outcomes)} of {number}{rest}\n")
    return outcomes


def _time_left(passed: float, ended: int, number: int) -> str:
    """How long the other tools take at the pace of those that ended, in words; "" after the last.

    >>> _time_left(20.0, 2, 3), _time_left(0.1, 1, 2), _time_left(9.0, 3, 3)
    (', about 10 s left', ', about 1 s left', '')
    """
    left = passed / ended * (number - ended)
    return f", about {max(1, round(left))} s left" if left else ""


def written(study: Study, crew: Crew, source: Source) -> Answers:
    """Write the file of the tools; the failures of those that would read it."""
    if crew.file is None:
        return {}
    if source.weights == FAKE:
        return {tool: failure(tool, "build", left_out(tool)) for tool in readers(crew.choice)}
    if study.file is None:
        return {}
    try:
        crew.file.write(study.file)
    except Exception as problem:  # whatever stands in the way, the other tools go on
        return {tool: failure(tool, "build", problem) for tool in readers(crew.choice)}
    return {}


class Rebuilt(msgspec.Struct, frozen=True):
    """Crews about what was rebuilt for them, the counts of it by tool, and what failed."""

    crews: tuple[Crew, ...]
    counted: dict[str, dict[bool, CountedModel]]
    failures: Answers

    @property
    def conventions(self) -> dict[str, Convention]:
        """Those of the tools that are asked."""
        return {
            tool: convention
            for crew in self.crews
            for tool, convention in crew.choice.conventions.items()
        }


def rebuilt(request: Request, choice: Choice, mine: CountedModel, tell: Progress) -> Rebuilt:
    """What tools are asked about that cannot run the model itself, which was counted as `mine`."""
    crews: list[Crew] = []
    counts: dict[str, dict[bool, CountedModel]] = {}
    failures: Answers = {}
    origin = "the file" if request.is_file else "the model's ONNX graph"
    for framework, kind in REBUILT.items():
        conventions = choice.conventions
        tools = [tool for tool in _runners(choice) if conventions[tool].framework == framework]
        if not tools or (mine.trace.framework == framework and not request.is_file):
            continue
        if request.train:
            failures |= {tool: failure(tool, "accept", _REBUILT_STEP, _FORWARD) for tool in tools}
            continue
        if mine.weights is not None and mine.weights.kind == FAKE:
            failures |= {tool: failure(tool, "build", left_out(tool)) for tool in tools}
            continue
        tell(f"rebuilding {kind} from {origin}")
        of_framework = choice.only(tools)
        try:
            program = request.source().model if request.is_file else mine.program
            model = rebuilt_in(framework, program, mine.graph)
            counted = by_mode(model, request.setting, of_framework.conventions)
        except Exception as error:  # whatever it is, the tools that run the model go on
            print_traceback(error)
            failures |= {tool: failure(tool, "build", error) for tool in tools}
            continue
        crews.append(Crew(of_framework, request, model))
        counts |= dict.fromkeys(tools, counted)
    return Rebuilt(tuple(crews), counts, failures)


def shown(answers: Answers, choice: Choice) -> Answers:
    """The answers by the names of the tools, each with the interpreter that gave it.

    A tool of another framework is no failure where the caller did not name it.
    """
    return {
        tool: _placed(answer, choice.elsewhere.get(tool))
        for tool, answer in sorted({**choice.failures, **answers}.items())
        if choice.named or not _declined(answer)
    }


def able(choice: Choice, isolate: bool) -> Choice:
    """The choice without the tools that have an interpreter of their own, unless it may run."""
    if isolate:
        return choice
    failures = {tool: _too_far(tool) for tool in choice.elsewhere}
    return msgspec.structs.replace(choice.without(failures), named=choice.named)


def trainers(choice: Choice) -> Choice:
    """The choice without the tools that count no training step; a warning names these."""
    others = [tool for tool, rules in choice.conventions.items() if not rules.step]
    if others and not choice.named:
        warnings.warn(
            f"no training step is counted by {', '.join(sorted(others))}: they are left out",
            CrossflopsWarning,
            stacklevel=2,
        )
    failures = {tool: failure(tool, "accept", _NO_STEP, _FORWARD) for tool in others}
    return msgspec.structs.replace(choice.without(failures), named=choice.named)


def readers(choice: Choice) -> tuple[str, ...]:
    """The tools that count a file: those that see its nodes."""
    return tuple(
        tool for tool, convention in choice.conventions.items() if convention.sees == "node"
    )


def _runners(choice: Choice) -> set[str]:
    """The other tools: they run a model."""
    return set(choice.conventions) - set(readers(choice))


def _natives(choice: Choice, source: Source) -> set[str]:
    """The tools without those that get what is rebuilt in their own framework."""
    framework, runners = require(source.model).name, _runners(choice)
    return {
        tool
        for tool, convention in choice.conventions.items()
        if tool not in runners
        or convention.framework == framework
        or convention.framework not in REBUILT
    }


def _declined(answer: Profile | Failure) -> bool:
    return isinstance(answer, Failure) and answer.stage == "accept"


def _placed(answer: Profile | Failure, python: str | None) -> Profile | Failure:
    """The answer with the interpreter that gave it, where that is another one.

    One in the current folder is named from there: a report does not say where the folder is.
    """
    if python is None or isinstance(answer, Failure):
        return answer
    place, folder = Path(python), Path.cwd()
    inside = place.relative_to(folder) if place.is_relative_to(folder) else place
    return msgspec.structs.replace(answer, python=str(inside))


def _too_far(tool: str) -> Failure:
    return Failure(
        tool=tool,
        stage="load",
        message=f"{tool} has an interpreter of its own, and isolate=False runs tools in this one",
        hint="leave isolate=False out",
    )
