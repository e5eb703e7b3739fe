"""Run a tool in this process."""

import contextlib
import copy
import time
from typing import Any

import msgspec

from crossflops.errors import InputError, ValuesNeededError, print_traceback
from crossflops.frontends import frontend_of
from crossflops.frontends.pytorch.load.tool_replacements import restoring_torch_functions
from crossflops.ir.profile import Failure, Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import Adapter, on_fakes
from crossflops.plugins.failures import tool_failure
from crossflops.threads import silence_streams


def observe_tool(
    adapter: Adapter, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
) -> Profile:
    """Run a tool on a model, and return its profile with the seconds that it took.

    Raises what the tool raises, and TypeError or ValueError on an answer that is no profile of
    this tool. Of a model without values, as `setting.fake` says, InputError where the tool does
    not declare that it prints the same, and ValuesNeededError where it turns out to need them.
    """
    if not setting.fake:
        return _time_tool(adapter, model, args, kwargs, setting)
    if not on_fakes(adapter):
        raise fake_weights_error(adapter.name)
    frontend = frontend_of(model)
    with (
        frontend.watching_value_reads(model) if frontend else contextlib.nullcontext(str) as needed
    ):
        try:
            answer = _time_tool(adapter, model, args, kwargs, setting)
        except Exception as problem:
            if needed():
                raise ValuesNeededError(needed()) from problem
            raise
    if needed():  # also where the model caught what that raises, and took another path
        raise ValuesNeededError(needed())
    return answer


def fake_weights_error(tool: str) -> InputError:
    """Return the error which says that a tool was skipped, since it needs real weight values."""
    return InputError(
        f"{tool} was skipped: it needs the values of the weights",
        "use --weights real, if the weights fit in memory",
    )


def _time_tool(
    adapter: Adapter, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
) -> Profile:
    """Run a tool on a model and return its profile with the seconds that it took; check that it is
    a profile of this tool.
    """
    frontend = frontend_of(model)
    begin = time.perf_counter()
    with frontend.running_code_as_counted(model) if frontend else contextlib.nullcontext():
        answer: object = adapter.profile(model, args, kwargs, setting)
    seconds = time.perf_counter() - begin
    if not isinstance(answer, Profile):
        raise TypeError(f"the adapter returned a {type(answer).__name__}, not a Profile")
    if answer.tool != adapter.name:
        raise ValueError(f"the adapter returned a profile of the tool {answer.tool!r}")
    timed = msgspec.structs.replace(answer, seconds=seconds)
    return msgspec.json.decode(msgspec.json.encode(timed), type=Profile)


def run_tool_in_process(
    adapter: Adapter, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
) -> Profile | Failure:
    """Run a tool in this process on a copy of the model; return its profile, or its failure.

    What the tool prints past Python's own streams is not held back; functions of PyTorch that it
    replaces are put back. A tool that crashes takes this process along. Use
    `crossflops.workers.pool` instead wherever the model can be built or pickled.
    """
    try:
        model, args, kwargs = _copy_model_and_inputs(model, args, kwargs)
    except Exception as problem:
        print_traceback(problem)
        return tool_failure(
            adapter.name,
            "build",
            problem,
            "give a target string, which needs no copy of the model",
        )
    try:
        if not adapter.accepts(model):
            return model_kind_failure(adapter, model)
        with (
            restoring_torch_functions(),
            silence_streams(),
        ):
            return observe_tool(adapter, model, args, kwargs, setting)
    except (Exception, SystemExit) as problem:
        print_traceback(problem)
        return tool_failure(adapter.name, "run", problem)


def _copy_model_and_inputs(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return copies of a model and its inputs that share nothing which a tool could change."""
    frontend = frontend_of(model)
    if frontend is None:
        return copy.deepcopy((model, args, kwargs))
    return frontend.copy_for_tool(model, args, kwargs)


def model_kind_failure(adapter: Adapter, model: object) -> Failure:
    """Return the failure of a tool that does not accept models of this class."""
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    return tool_failure(adapter.name, "accept", f"{adapter.name} does not accept a {kind}")
