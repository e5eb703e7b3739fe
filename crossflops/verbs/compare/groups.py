"""Group the tools of a comparison by their input: the model, its ONNX file, or a rebuilt model."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Literal

import msgspec

from crossflops.frontends import Source, may_be_of_other_framework, require_frontend
from crossflops.frontends.onnx import OnnxFile
from crossflops.ir.provenance import FAKE, META
from crossflops.plugins import discovery
from crossflops.plugins.adapter import on_fakes
from crossflops.plugins.choice import Choice
from crossflops.rebuild import REBUILT
from crossflops.rules.rule import Convention
from crossflops.targets.request import Request
from crossflops.targets.target import full_target_name
from crossflops.verbs.compare.tool_file import ToolInputFile
from crossflops.workers.jobs import Job


class ToolGroup(msgspec.Struct, frozen=True):
    """Tools that get the same input.

    Those that see nodes get the file. The others get the target, or `model`: the object that the
    caller gave, or what was rebuilt in their framework from the ONNX graph. An object without
    values travels as it was given, and is made one that tools can run where they run it. Where
    two models are compared, `number` tells which.
    """

    choice: Choice
    request: Request
    model: Source | None = None
    file: ToolInputFile | None = None
    number: int = 0

    @property
    def tool_count(self) -> int:
        """The number of tools."""
        return len(self.choice.conventions)

    def worker_jobs(self) -> list[Job]:
        """Return one job for each tool of the group; a job describes what a worker runs."""
        points = discovery.plugin_entry_points()
        return [self._make_job(tool, points) for tool in self.choice.conventions]

    def _make_job(self, tool: str, points: Mapping[str, EntryPoint]) -> Job:
        """Return the job with which a worker runs this tool on the group's model or file."""
        request = self.request
        adapter = None if tool in self.choice.elsewhere else points[tool].value
        job = Job(
            tool=tool,
            setting=request.setting,
            model=self.number,
            adapter=adapter,
            framework="torch",
            own_process=needs_own_process(self.choice, tool),
            weights=self._weights_to_build,
            taught=self.choice.formula_names_by_tool.get(tool, ()),
            formulas=self.choice.formulas if tool in self.choice.formula_names_by_tool else (),
        )
        if self.file is not None and tool in file_reading_tools(self.choice):
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
    def _weights_to_build(self) -> Literal["real", "fake"] | None:
        """How workers build the model's weights: "real", "fake", or None to decide by their
        size.
        """
        if self.model is not None:
            return "fake" if self.model.weights == META else "real"
        return self.request.weights


def needs_own_process(choice: Choice, tool: str) -> bool:
    """Return whether the tool must run in a newly started process instead of a forked one."""
    declared = getattr(choice.here.get(tool), "own_process", False)
    torch = choice.conventions[tool].framework == "torch"
    return declared or not torch or tool in choice.elsewhere or tool in file_reading_tools(choice)


def can_be_forked(request: Request, choice: Choice) -> bool:
    """Return whether at least one tool can run in a process forked from the one that builds the
    model.
    """
    if request.is_file or request.given is not None:
        return False
    shared = any(not needs_own_process(choice, tool) for tool in choice.conventions)
    return shared and not may_need_another_framework(request, choice)


def may_need_another_framework(request: Request, choice: Choice) -> bool:
    """Return whether the model may be of another framework than one of the tools that run a
    model.
    """
    requested = {choice.conventions[tool].framework for tool in model_running_tools(choice)}
    return len(requested) > 1 or may_be_of_other_framework(
        full_target_name(request.target or ""), requested
    )


def group_for_model(
    model_index: int,
    request: Request,
    choice: Choice,
    source: Source | None,
    file: ToolInputFile | None,
    isolate: bool,
) -> ToolGroup:
    """Return the group of tools that take the model as it is, without those that need it rebuilt
    in another framework.
    """
    natives = choice
    if request.is_file:
        natives = choice.with_only_tools(file_reading_tools(choice))
    elif source is not None:
        natives = choice.with_only_tools(_native_tools(choice, source))
    return ToolGroup(natives, request, request.given if isolate else source, file, model_index)


def conventions_of_native_tools(choice: Choice, source: Source) -> dict[str, Convention]:
    """Return {tool: convention} for the tools that take the model as it is, not rebuilt.

    Without values those alone that can do without.
    """
    if isinstance(source.model, OnnxFile):
        return choice.conventions
    natives = choice.with_only_tools(_native_tools(choice, source))
    if source.weights == FAKE:
        left_out = [tool for tool, value in natives.here.items() if not on_fakes(value)]
        natives = natives.with_only_tools(
            set(natives.conventions) - {*left_out, *file_reading_tools(natives)}
        )
    return natives.conventions


def file_reading_tools(choice: Choice) -> tuple[str, ...]:
    """Return the names of the tools that count the nodes of an ONNX file."""
    return tuple(
        tool for tool, convention in choice.conventions.items() if convention.sees == "node"
    )


def model_running_tools(choice: Choice) -> set[str]:
    """Return the names of the tools that run a model instead of reading an ONNX file."""
    return set(choice.conventions) - set(file_reading_tools(choice))


def _native_tools(choice: Choice, source: Source) -> set[str]:
    """Return the names of the tools that take the model as it is: in its own framework, or as an
    ONNX file.
    """
    framework, running = require_frontend(source.model).name, model_running_tools(choice)
    return {
        tool
        for tool, convention in choice.conventions.items()
        if tool not in running
        or convention.framework == framework
        or convention.framework not in REBUILT
    }
