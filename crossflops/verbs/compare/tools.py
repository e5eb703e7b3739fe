"""The tools' half of a comparison: each is asked about its model or its file, once."""

import tempfile
from pathlib import Path

import msgspec

from crossflops.errors import CrossflopsError
from crossflops.frontends import Source, may_be_of_another, require
from crossflops.frontends.onnx import OnnxFile
from crossflops.ir.profile import Failure, Profile
from crossflops.load.payload import filled
from crossflops.plugins import discovery
from crossflops.plugins.choice import Choice
from crossflops.plugins.failures import failure
from crossflops.rebuild import REBUILT, rebuilt_in
from crossflops.targets.request import Request
from crossflops.verbs.compare.files import FileOfTools, file_of_tools
from crossflops.verbs.compare.native import Progress, Study, study
from crossflops.verbs.count import Counted
from crossflops.workers.jobs import Job
from crossflops.workers.observe import run_here
from crossflops.workers.pool import Workers

Answers = dict[str, Profile | Failure]


class _Models(msgspec.Struct, frozen=True):
    """What tools are given in the place of the target: a file, or what was rebuilt from one."""

    file: FileOfTools | None
    rebuilt: Source | None

    def obstacles(self, own: Study, choice: Choice) -> dict[str, Failure]:
        """Write the file; the failures of the tools for which there is nothing to ask about."""
        readers, found = _readers(choice), {}
        if own.obstacle is not None:
            runners = [tool for tool in choice.conventions if tool not in readers]
            found = {tool: failure(tool, "build", own.obstacle) for tool in runners}
        if self.file is None or own.file is None:
            return found
        try:
            self.file.write(own.file)
        except Exception as problem:  # whatever stands in the way, the other tools go on
            found |= {tool: failure(tool, "build", problem) for tool in readers}
        return found


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of which tools, and under which conditions.

    Tools that see nodes are given a file: `onnx`, or that of the target, or the normalized model.
    The others run the model; of a file, or of a model of another framework, what is rebuilt from
    its ONNX graph.
    """

    request: Request
    choice: Choice
    tell: Progress
    onnx: str | None = None
    timeout: float
    memory: int | None
    isolate: bool

    def answers(self) -> tuple[Study, Answers]:
        """Predict, then ask. What a tool cannot be asked about is its Failure."""
        choice = self.choice
        if not self.isolate:
            choice = choice.without({tool: _too_far(tool) for tool in choice.elsewhere})
        source = self._early(choice)
        asked = choice
        if self.request.is_file:
            asked = choice.only(_readers(choice))
        elif source is not None:
            asked = choice.only(_native(choice, source))
        with tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True) as own:
            file = file_of_tools(self.request, self.onnx, own) if _readers(choice) else None
            own_half, found = self._ask(asked, _Models(file, None), source)
        for framework in REBUILT:
            own_half, more = self._foreign(framework, choice, own_half)
            found |= more
        found = {**choice.failures, **found}
        if not self.choice.named:
            # a tool of another framework is no failure where nobody asked for it
            found = {tool: one for tool, one in found.items() if not _declined(one)}
        told = {tool: _placed(found[tool], choice.elsewhere.get(tool)) for tool in sorted(found)}
        return own_half, told

    def _early(self, choice: Choice) -> Source | None:
        """The model, before workers start, where it may be of another framework than a tool."""
        request = self.request
        if request.is_file:
            return None
        wanted = {choice.conventions[tool].framework for tool in _runners(choice)}
        foreign = len(wanted) > 1 or may_be_of_another(request.target or "", wanted)
        if request.given is None and not foreign:
            return None
        return request.source()

    def _foreign(self, framework: str, choice: Choice, own: Study) -> tuple[Study, Answers]:
        """What the tools of a framework say of a file or a model of another, rebuilt in it."""
        mine, is_file = own.counted[self.request.setting.training], self.request.is_file
        runners = _runners(choice)
        tools = [one for one in runners if choice.conventions[one].framework == framework]
        if not tools or (mine.trace.framework == framework and not is_file):
            return own, {}
        origin = "the file" if is_file else "the model's ONNX graph"
        self.tell(f"rebuilding {REBUILT[framework]} from {origin}")
        try:
            program = self.request.source().model if is_file else mine.program
            if isinstance(program, bytes):
                program = filled(program)
            rebuilt = rebuilt_in(framework, program, mine.graph)
        except CrossflopsError as error:
            return own, {tool: failure(tool, "build", error) for tool in tools}
        models = _Models(None, rebuilt)
        theirs, found = self._ask(choice.only(tools), models, rebuilt, own.counted)
        return own.joined(theirs), found

    def _ask(
        self,
        choice: Choice,
        models: _Models,
        source: Source | None,
        known: dict[bool, Counted] | None = None,
    ) -> tuple[Study, Answers]:
        ask = self._in_workers if self.isolate else self._here
        return ask(choice, models, source, known)

    def _in_workers(
        self,
        choice: Choice,
        models: _Models,
        source: Source | None,
        known: dict[bool, Counted] | None,
    ) -> tuple[Study, Answers]:
        """Workers load and build while this process predicts; the file is there when they go."""
        given = models.rebuilt or self.request.given
        found: Answers = {}
        with Workers(
            [self._job(tool, choice, models) for tool in choice.conventions],
            contents=(given.model, given.args, given.kwargs) if given else None,
            timeout=self.timeout,
            memory=self.memory,
            interpreters=choice.elsewhere,
        ) as workers:
            own = self._study(source or self.request.source(), choice, models, known)
            obstacles = models.obstacles(own, choice)
            for tool, answer in workers.go():
                found[tool] = obstacles.get(tool, answer)
                failed = isinstance(found[tool], Failure)
                self.tell(f"{tool} {'failed' if failed else 'done'}")
        return own, found

    def _here(
        self,
        choice: Choice,
        models: _Models,
        source: Source | None,
        known: dict[bool, Counted] | None,
    ) -> tuple[Study, Answers]:
        source, setting = source or self.request.source(), self.request.setting
        own = self._study(source, choice, models, known)
        found: Answers = dict(models.obstacles(own, choice))
        run = models.rebuilt or source
        for tool, adapter in choice.here.items():
            if tool in found:
                continue
            if models.file is not None and tool in _readers(choice):
                found[tool] = run_here(adapter, models.file.path, (), {}, setting)
            else:
                found[tool] = run_here(adapter, run.model, run.args, run.kwargs, setting)
        return own, found

    def _study(
        self, source: Source, choice: Choice, models: _Models, known: dict[bool, Counted] | None
    ) -> Study:
        asked, tools = self.request.setting, choice.conventions
        if not isinstance(source.model, OnnxFile):
            tools = choice.only(_native(choice, source)).conventions
        return study(source, asked, tools, self.tell, models.file, models.rebuilt, known)

    def _job(self, tool: str, choice: Choice, models: _Models) -> Job:
        request, there = self.request, tool in choice.elsewhere
        adapter = None if there else discovery.installed()[tool].value
        job = Job(tool=tool, setting=request.setting, adapter=adapter)
        if models.file is not None and tool in _readers(choice):
            return msgspec.structs.replace(job, onnx_path=str(models.file.path))
        if models.rebuilt is not None:
            return job  # the model goes by pickle
        return msgspec.structs.replace(
            job,
            target=request.target,
            arguments=request.arguments,
            inputs=request.specs,
            inputs_file=request.inputs_file,
            allow_pickle=request.allow_pickle,
        )


def _readers(choice: Choice) -> tuple[str, ...]:
    """The tools that count a file: those that see its nodes."""
    return tuple(tool for tool, one in choice.conventions.items() if one.sees == "node")


def _runners(choice: Choice) -> set[str]:
    """The other tools: they run a model."""
    return set(choice.conventions) - set(_readers(choice))


def _native(choice: Choice, source: Source) -> set[str]:
    """The tools without those that get what is rebuilt in their own framework."""
    own, runners = require(source.model).name, _runners(choice)
    return {
        tool
        for tool, one in choice.conventions.items()
        if tool not in runners or one.framework == own or one.framework not in REBUILT
    }


def _declined(answer: Profile | Failure) -> bool:
    return isinstance(answer, Failure) and answer.stage == "accept"


def _placed(answer: Profile | Failure, python: str | None) -> Profile | Failure:
    """The answer with the interpreter that gave it, where that is another one.

    One in the current folder is named from there: a report tells nobody where the folder is.
    """
    if python is None or isinstance(answer, Failure):
        return answer
    place, here = Path(python), Path.cwd()
    inside = place.relative_to(here) if place.is_relative_to(here) else place
    return msgspec.structs.replace(answer, python=str(inside))


def _too_far(tool: str) -> Failure:
    return Failure(
        tool=tool,
        stage="load",
        message=f"{tool} has an interpreter of its own, and isolate=False runs tools in this one",
        hint="leave isolate=False out",
    )
