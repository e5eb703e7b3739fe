"""The tools' half of a comparison: each is asked about its model or its file, once."""

import tempfile
from collections.abc import Mapping

import msgspec

from crossflops.adapters import discovery
from crossflops.adapters.choice import Choice
from crossflops.adapters.failures import failure
from crossflops.adapters.job import Job
from crossflops.adapters.observe import run_here
from crossflops.adapters.pool import Workers
from crossflops.core.convention import Convention
from crossflops.core.profile import Failure, Profile
from crossflops.normalize.request import Request
from crossflops.pipeline.files import FileOfTools, file_of_tools
from crossflops.pipeline.study import Progress, Study, study

Answers = dict[str, Profile | Failure]


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of which tools, and under which conditions.

    Tools that see nodes are given a file: `onnx`, or that of the target, or the normalized model.
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
        if self.request.is_file:
            runners = set(choice.conventions) - set(_readers(choice.conventions))
            choice = choice.without({tool: _refused(tool) for tool in runners})
        if not self.isolate:
            choice = choice.without({tool: _too_far(tool) for tool in choice.elsewhere})
        with tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True) as own:
            readers = _readers(choice.conventions)
            file = file_of_tools(self.request, self.onnx, own) if readers else None
            ask = self._in_workers if self.isolate else self._here
            own_half, found = ask(choice, file)
        found = {**choice.failures, **found}
        told = {tool: _placed(found[tool], choice.elsewhere.get(tool)) for tool in sorted(found)}
        return own_half, told

    def _in_workers(self, choice: Choice, file: FileOfTools | None) -> tuple[Study, Answers]:
        """Workers load and build while this process predicts; the file is there when they go."""
        given = self.request.given
        found: Answers = {}
        with Workers(
            [self._job(tool, choice, file) for tool in choice.conventions],
            contents=(given.model, given.args, given.kwargs) if given else None,
            timeout=self.timeout,
            memory=self.memory,
            interpreters=choice.elsewhere,
        ) as workers:
            request = self.request
            own = study(request.source(), request.setting, choice.conventions, self.tell, file)
            obstacles = _written(file, own, choice.conventions)
            for tool, answer in workers.go():
                found[tool] = obstacles.get(tool, answer)
                failed = isinstance(found[tool], Failure)
                self.tell(f"{tool} {'failed' if failed else 'done'}")
        return own, found

    def _here(self, choice: Choice, file: FileOfTools | None) -> tuple[Study, Answers]:
        source, setting = self.request.source(), self.request.setting
        own = study(source, setting, choice.conventions, self.tell, file)
        found: Answers = dict(_written(file, own, choice.conventions))
        readers = _readers(choice.conventions)
        for tool, adapter in choice.here.items():
            if tool in found:
                continue
            if file is not None and tool in readers:
                found[tool] = run_here(adapter, file.path, (), {}, setting)
            else:
                found[tool] = run_here(adapter, source.model, source.args, source.kwargs, setting)
        return own, found

    def _job(self, tool: str, choice: Choice, file: FileOfTools | None) -> Job:
        request, there = self.request, tool in choice.elsewhere
        adapter = None if there else discovery.installed()[tool].value
        job = Job(tool=tool, setting=request.setting, adapter=adapter)
        if file is not None and tool in _readers(choice.conventions):
            return msgspec.structs.replace(job, onnx_path=str(file.path))
        return msgspec.structs.replace(
            job,
            target=request.target,
            arguments=request.arguments,
            inputs=request.specs,
            inputs_file=request.inputs_file,
            allow_pickle=request.allow_pickle,
        )


def _readers(conventions: Mapping[str, Convention]) -> tuple[str, ...]:
    """The tools that count a file: those that see its nodes."""
    return tuple(tool for tool, one in conventions.items() if one.sees == "node")


def _written(
    file: FileOfTools | None, own: Study, conventions: Mapping[str, Convention]
) -> dict[str, Failure]:
    """Write the file that some tools count; where that fails, so do they."""
    if file is None or own.file is None:
        return {}
    try:
        file.write(own.file)
    except Exception as problem:  # whatever stands in the way, the other tools go on
        return {tool: failure(tool, "build", problem) for tool in _readers(conventions)}
    return {}


def _placed(answer: Profile | Failure, python: str | None) -> Profile | Failure:
    """The answer with the interpreter that gave it, where that is another one."""
    if python is None or isinstance(answer, Failure):
        return answer
    return msgspec.structs.replace(answer, python=python)


def _refused(tool: str) -> Failure:
    return Failure(
        tool=tool,
        stage="accept",
        message=f"{tool} needs the model in its framework, and an ONNX file does not hold that",
        hint="give the model as file.py:callable; `crossflops count` counts the file",
    )


def _too_far(tool: str) -> Failure:
    return Failure(
        tool=tool,
        stage="load",
        message=f"{tool} has an interpreter of its own, and isolate=False runs tools in this one",
        hint="leave isolate=False out",
    )
