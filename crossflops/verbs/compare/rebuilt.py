"""Rebuild a model in another framework, for tools that cannot run it as it is."""

import msgspec

from crossflops.errors import print_traceback
from crossflops.ir.provenance import FAKE
from crossflops.plugins.choice import Choice
from crossflops.plugins.failures import tool_failure
from crossflops.rebuild import REBUILT, rebuild_in_framework
from crossflops.rules.rule import Convention
from crossflops.targets.request import Request
from crossflops.verbs.compare.answers import FORWARD, Answers, Progress
from crossflops.verbs.compare.counts import count_by_training_mode
from crossflops.verbs.compare.groups import ToolGroup, model_running_tools
from crossflops.verbs.count import CountedModel
from crossflops.workers.observe import fake_weights_error

_REBUILT_STEP = "it counts training steps only for models of its own framework"


class RebuiltGroups(msgspec.Struct, frozen=True):
    """Tool groups for a rebuilt model, its counts by tool, and failures."""

    groups: tuple[ToolGroup, ...]
    counted: dict[str, dict[bool, CountedModel]]
    failures: Answers

    @property
    def conventions(self) -> dict[str, Convention]:
        """The conventions of the tools that run on rebuilt models, as {tool: convention}."""
        return {
            tool: convention
            for group in self.groups
            for tool, convention in group.choice.conventions.items()
        }


def rebuild_for_tools(
    request: Request, choice: Choice, native: CountedModel, on_progress: Progress
) -> RebuiltGroups:
    """Return tool groups with the model rebuilt in their frameworks, the counts of the rebuilt
    models by tool, and failures by tool.

    Args:
        request: the model that was asked for.
        choice: all tools of the comparison.
        native: its count, with the ONNX model that is rebuilt.
        on_progress: gets a line for each step.
    """
    groups: list[ToolGroup] = []
    counts: dict[str, dict[bool, CountedModel]] = {}
    failures: Answers = {}
    origin = "the file" if request.is_file else "the model's ONNX graph"
    for framework, kind in REBUILT.items():
        tools = _tools_for_framework(framework, choice)
        if not tools or (native.trace.framework == framework and not request.is_file):
            continue
        if request.train:
            failures |= {
                tool: tool_failure(tool, "accept", _REBUILT_STEP, FORWARD) for tool in tools
            }
            continue
        if native.weights is not None and native.weights.kind == FAKE:
            failures |= {
                tool: tool_failure(tool, "build", fake_weights_error(tool)) for tool in tools
            }
            continue
        on_progress(f"rebuilding {kind} from {origin}")
        of_framework = choice.with_only_tools(tools)
        try:
            program = request.source().model if request.is_file else native.program
            model = rebuild_in_framework(framework, program, native.graph)
            counted = count_by_training_mode(model, request.setting, of_framework.conventions)
        except Exception as error:  # whatever it is, the tools that run the model go on
            print_traceback(error)
            failures |= {tool: tool_failure(tool, "build", error) for tool in tools}
            continue
        groups.append(ToolGroup(of_framework, request, model))
        counts |= dict.fromkeys(tools, counted)
    return RebuiltGroups(tuple(groups), counts, failures)


def _tools_for_framework(framework: str, choice: Choice) -> list[str]:
    """Return the names of the chosen tools that run models of this framework, such as "torch"."""
    return [
        tool
        for tool in model_running_tools(choice)
        if choice.conventions[tool].framework == framework
    ]
