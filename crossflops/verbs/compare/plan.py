"""Plan a comparison before anything is built or started; every request that cannot be met is
rejected here.
"""

import warnings
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import UNSET

from crossflops.errors import CrossflopsWarning, InputError
from crossflops.frontends import Source, require_frontend
from crossflops.ir.profile import Failure
from crossflops.ir.trace import StepSetting
from crossflops.limits import TIMEOUT
from crossflops.plugins import elsewhere
from crossflops.plugins.choice import Choice, choose_tools, teach_tools
from crossflops.plugins.failures import tool_failure
from crossflops.targets.request import Request, build_second_request
from crossflops.tools.registry import all_conventions as known_conventions
from crossflops.verbs.compare.answers import FORWARD
from crossflops.verbs.compare.groups import can_be_forked, file_reading_tools
from crossflops.verbs.compare.questions import (
    naming_second_model_in_errors,
    reject_second_model_options,
    select_tools_per_model,
)
from crossflops.verbs.count import (
    ModelBuild,
    collecting_warnings,
    outputs_reaching_loss,
    reject_training_options,
)

_NO_STEP = "it cannot count a training step"


class Limits(msgspec.Struct, frozen=True):
    """Where tools run: in workers with limits of seconds and bytes, or in this process."""

    timeout: float
    memory: int | None
    isolate: bool


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a comparison beside the model: see `crossflops.compare`."""

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
    teach_tools: bool = False

    @property
    def tool_limits(self) -> Limits:
        """The limits of the tools: timeout in seconds, memory in bytes, and whether they run in
        workers.
        """
        return Limits(self.timeout, self.memory, self.isolate)


class PlannedModel(msgspec.Struct, frozen=True):
    """A model to compare, and the tools that support it.

    `number` tells two models apart. `onnx` is the file that tools of graph nodes get in place of
    that of the model. `is_shared` says that this process builds the model for tools too, which are
    forked from it. `warnings` are those of the plan.
    """

    number: int
    request: Request
    choice: Choice
    onnx: str | None = None
    is_shared: bool = False
    warnings: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """A possible comparison: its models, and the jobs of their tools."""

    models: tuple[PlannedModel, ...]
    comparison: Comparison


def with_training_step(request: Request, comparison: Comparison) -> Request:
    """Return the request; with --train, a copy whose setting has the training step. Raise
    InputError for options that do not fit.

    A loss of the caller is run on the model, to see which outputs it takes. Raises InputError for
    what does not go together, and what running the loss raises.
    """
    reject_training_options(request)
    request.refuse_unused_options(run_by_tools=True)
    if not request.train:
        return request
    for name in ("against", "module", "consensus", "onnx"):
        if getattr(comparison, name):
            raise InputError(
                f"--{name} cannot be combined with --train",
                "leave out one of the two",
            )
    step = StepSetting(
        frozen=request.frozen,
        trainable=request.trainable,
        reached=outputs_reaching_loss(request, ModelBuild(request)) if request.loss else UNSET,
    )
    return msgspec.structs.replace(
        request, setting=msgspec.structs.replace(request.setting, step=step)
    )


def plan_comparison(request: Request, comparison: Comparison, can_fork: bool) -> Plan:
    """Return the plan of a comparison: for each model the tools to run and whether they share one
    build. Raise an error for invalid options.

    Args:
        request: the first model.
        comparison: what is asked beside it.
        can_fork: whether tools may be forked from this process.

    Raises:
        UnknownNameError: for a tool that there is not.
        InputError: for questions that do not go together.
    """
    two = comparison.against is not None
    of_first, of_second = select_tools_per_model(comparison.tools, comparison.between, two)
    interpreters = elsewhere.interpreters_by_tool(comparison.python)
    choice = choose_tools(of_first, interpreters)
    _refuse_options_of_other_tools(comparison, choice)
    models = [_plan_model(0, request, choice, comparison, can_fork)]
    if two:
        same = of_first == of_second
        others = choice if same else choose_tools(of_second, interpreters)
        reject_second_model_options(comparison.module, comparison.consensus, comparison.onnx)
        with naming_second_model_in_errors():
            other = build_second_request(comparison.against, comparison.against_options, request)
            models.append(_plan_model(1, other, others, comparison, can_fork))
    return Plan(tuple(models), comparison)


def _plan_model(
    model_index: int, request: Request, choice: Choice, comparison: Comparison, can_fork: bool
) -> PlannedModel:
    """Return the plan of one model: which tools run, and whether they share one build of the
    model.
    """
    with collecting_warnings() as sentences:
        choice = _without_tools_of_other_interpreters(choice, comparison.isolate)
        if request.train:
            choice = _keep_training_tools(choice)
        if comparison.teach_tools:
            choice = teach_tools(choice)
    is_shared = can_fork and comparison.isolate and can_be_forked(request, choice)
    return PlannedModel(model_index, request, choice, comparison.onnx, is_shared, tuple(sentences))


def refuse_steps_of_other_frameworks(source: Source, choice: Choice) -> None:
    """Raise InputError if none of the chosen tools counts training steps of the model's
    framework.
    """
    frontend = require_frontend(source.model)
    asked = choice.conventions.values() or (rules for rules in known_conventions() if rules.step)
    if all(rules.framework != frontend.name for rules in asked):
        raise InputError(
            f"none of the chosen tools can count a training step of a model of {frontend.title}",
            "leave out --train, or count the step with `crossflops count --train`",
        )


def _refuse_options_of_other_tools(comparison: Comparison, choice: Choice) -> None:
    """Raise InputError if --python names a tool that was not chosen, or if no chosen tool reads
    the file of --onnx.
    """
    if comparison.tools is None or comparison.against is not None:
        return
    asked = {*(comparison.tools or ()), *(comparison.between or ())}
    for tool in comparison.python:
        if not any(fnmatchcase(tool, name) for name in asked):
            raise InputError(
                f"--python {tool}=... names a tool that is not chosen",
                f"add --tool {tool}, or leave out --python",
            )
    if comparison.onnx is not None and not file_reading_tools(choice):
        raise InputError(
            "--onnx has no effect: none of the chosen tools reads an ONNX file",
            "add --tool onnx-tool, or leave out --onnx",
        )


def _without_tools_of_other_interpreters(choice: Choice, isolate: bool) -> Choice:
    """Return the choice of tools; without worker processes, tools of other interpreters are
    failures in it.
    """
    if isolate:
        return choice
    failures = {tool: _other_interpreter_failure(tool) for tool in choice.elsewhere}
    return msgspec.structs.replace(choice.without_failures(failures), named=choice.named)


def _other_interpreter_failure(tool: str) -> Failure:
    """Return the failure of a tool that has its own interpreter, although all tools must run in
    this process.
    """
    return Failure(
        tool=tool,
        stage="load",
        message=f"{tool} has its own interpreter, but isolate=False runs all tools in this "
        "process",
        hint="leave out isolate=False",
    )


def _keep_training_tools(choice: Choice) -> Choice:
    """Return the choice with only the tools that count a training step; warn about the others if
    none was named.
    """
    others = [tool for tool, rules in choice.conventions.items() if not rules.step]
    if others and not choice.named:
        warnings.warn(
            f"skipped, since they cannot count a training step: {', '.join(sorted(others))}",
            CrossflopsWarning,
            stacklevel=2,
        )
    failures = {tool: tool_failure(tool, "accept", _NO_STEP, FORWARD) for tool in others}
    return msgspec.structs.replace(choice.without_failures(failures), named=choice.named)
