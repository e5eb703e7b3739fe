"""Own what runs next to this process in a comparison: its workers, its forks and its files."""

import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from crossflops.errors import ValuesNeededError
from crossflops.frontends import Source, require_frontend
from crossflops.ir.profile import Failure, Profile
from crossflops.ir.provenance import FAKE
from crossflops.plugins.choice import Choice
from crossflops.targets import weights
from crossflops.targets.request import Request
from crossflops.verbs.compare.answers import Answers, Progress, collect_answers
from crossflops.verbs.compare.groups import (
    ToolGroup,
    conventions_of_native_tools,
    file_reading_tools,
    group_for_model,
    may_need_another_framework,
)
from crossflops.verbs.compare.plan import Limits, PlannedModel
from crossflops.verbs.compare.questions import naming_model_in_errors
from crossflops.verbs.compare.tool_file import tool_input_file
from crossflops.verbs.count import collecting_warnings, views_to_observe
from crossflops.workers.observe import run_tool_in_process
from crossflops.workers.pool import SingleThreadContext, Workers
from crossflops.workers.process import Background, can_fork_this_process
from crossflops.workers.warm import (
    can_use_fork_servers,
    fork_background_computation,
    import_numpy_without_threads,
    limiting_pytorch_to_one_thread,
    unfreeze_inherited_objects,
)

_LARGE = 250_000_000  # bytes of weights that are held once while tools run, and looked for after


class PreparedModel(msgspec.Struct, frozen=True):
    """A model whose tools are loaded, have built it, and wait for their release.

    `group` are the tools that are asked about the model itself, or get its file; `warnings` are
    those until then.
    """

    plan: PlannedModel
    group: ToolGroup
    warnings: tuple[str, ...]

    @property
    def comparison_index(self) -> int:
        """The index of the model in the comparison, 0 for the first."""
        return self.plan.number

    @property
    def request(self) -> Request:
        """The request of the model."""
        return self.plan.request

    @property
    def all_requested_tools(self) -> Choice:
        """All tools that were requested, also those for a rebuilt model."""
        return self.plan.choice


class _StartedTools(Protocol):
    """Tools that were started, in workers or in this process."""

    def iterate_results(self, model: int = 0) -> Iterator[tuple[str, Profile | Failure]]:
        """Run the tools on a model; yield (tool, answer) as each ends."""
        ...

    def release_tools(self, model: int, tools: Collection[str]) -> None:
        """Let these tools begin to run on the model; they must have been started."""
        ...

    def cancel_tools(self, model: int) -> None:
        """Stop all tools that run on a model."""
        ...


class _LocalTools(msgspec.Struct, frozen=True):
    """Tools that run on copies of a model in this process; `groups` are by index of the model."""

    groups: Mapping[int, ToolGroup]

    def iterate_results(self, model: int = 0) -> Iterator[tuple[str, Profile | Failure]]:
        """Run the tools on a model one after the other in this process; yield (tool, answer) for
        each.
        """
        group = self.groups[model]
        setting = group.request.setting
        for tool, adapter in group.choice.here.items():
            if group.file is not None and tool in file_reading_tools(group.choice):
                yield tool, run_tool_in_process(adapter, group.file.path, (), {}, setting)
            elif group.model is not None:
                source = group.model
                stored = msgspec.structs.replace(setting, fake=source.weights == FAKE or UNSET)
                yield (
                    tool,
                    run_tool_in_process(adapter, source.model, source.args, source.kwargs, stored),
                )

    def release_tools(self, model: int, tools: Collection[str]) -> None:
        """Do nothing: in this process, a tool runs when its result is read."""

    def cancel_tools(self, model: int) -> None:
        """Do nothing: no process was started for them."""


class ToolRunner:
    """The owner of all that runs next to the counts of a comparison.

    ::

        with ToolRunner(limits, tell) as runner:
            for model in runner.prepare_models(plan.models):  # their tools load and build
                source, reason = runner.take_source_and_reason_for_values(model)
                ...                                     # record, count, predict
                runner.release_model_tools(model, predicted)  # these may run already
                answers = runner.run_tools(model, failures)

    It has the worker processes and the process that forks them, the fork that watches runs of a
    model, temporary files, and the number of threads of this process. Whatever is left when the
    block ends is ended.
    """

    def __init__(
        self,
        limits: Limits,
        on_progress: Progress,
        single_threaded: SingleThreadContext | None = None,
    ) -> None:
        """Record the limits.

        Args:
            limits: where the tools run, for how long, and in how much memory.
            on_progress: gets a line for each tool as it ends.
            single_threaded: a context in which this process has one thread, so that tools may be
                forked from it; None if it runs something else.
        """
        self._limits = limits
        self._on_progress = on_progress
        self._single_threaded = single_threaded
        self._kept = ExitStack()
        self._of_model: dict[int, ExitStack] = {}
        self._started: dict[int, _StartedTools] = {}
        self._sources: dict[int, tuple[Source, str]] = {}
        self._watches: dict[int, Background] = {}
        self._large: set[int] = set()
        self._released: dict[int, float] = {}  # when the first tool of a model was
        if self.can_fork:
            import_numpy_without_threads()

    @property
    def can_fork(self) -> bool:
        """Whether tools can be forked from this process."""
        return self._single_threaded is not None and can_use_fork_servers()

    def __enter__(self) -> "ToolRunner":
        """Return the runner itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close what is kept for each model."""
        with self._kept:  # ended last: workers, before them what is of one model
            for kept in self._of_model.values():
                kept.close()

    def prepare_models(self, models: Sequence[PlannedModel]) -> list[PreparedModel]:
        """Start the workers of all models and return the prepared models; the workers load tools
        and models, then wait for a release.
        """
        if models[0].is_shared:
            self._kept.enter_context(limiting_pytorch_to_one_thread())
        prepared = []
        for model in models:
            with naming_model_in_errors(model.number):
                prepared.append(self._prepare_model(model))
        self._start_workers(prepared, self._kept)
        return prepared

    def restart_for_request(self, model: PreparedModel, request: Request) -> PreparedModel:
        """Stop the workers of a model and start new ones for another request; return the newly
        prepared model.
        """
        self._started[model.comparison_index].cancel_tools(model.comparison_index)
        self.clean_up_model(model)
        again = self._prepare_model(msgspec.structs.replace(model.plan, request=request))
        self._start_workers([again], self._of_model[again.comparison_index])
        return again

    def clean_up_model(self, model: PreparedModel) -> None:
        """Stop the observation of a model's runs and remove its temporary files."""
        self._watches.pop(model.comparison_index, None)
        self._of_model.pop(model.comparison_index).close()

    def take_source_and_reason_for_values(self, model: PreparedModel) -> tuple[Source, str]:
        """Return (built model to count, why its weights needed values); the reason is "" if they
        did not.

        It is given away: nothing here holds its weights any longer.
        """
        built = (
            self._sources.pop(model.comparison_index)
            if model.comparison_index in self._sources
            else None
        )
        source, reason = built or _build_source_and_reason_for_values(model.request)
        if source.weights != FAKE and source.stored > _LARGE:
            self._large.add(model.comparison_index)
        return source, reason

    def waiter_for_observed_runs(self, model: PreparedModel) -> Callable[[], Any] | None:
        """Return a function that waits for the runs observed in a forked process and returns them;
        None without such runs.
        """
        watch = self._watches.get(model.comparison_index)
        return watch.result if watch else None

    def can_run_tools_while_converting(self, model: PreparedModel) -> bool:
        """Return whether there is memory enough for tools to run while the model is converted.

        Large weights are held once while tools run.
        """
        return model.comparison_index not in self._large

    def release_model_tools(self, model: PreparedModel, tools: Collection[str]) -> None:
        """Let these tools begin to run on the model; call this when their numbers are
        predicted.
        """
        if tools:
            self._released.setdefault(model.comparison_index, time.monotonic())
            self._started[model.comparison_index].release_tools(model.comparison_index, tools)

    def free_counted_model(self, model: PreparedModel) -> None:
        """Free the memory of a model that was counted."""
        unfreeze_inherited_objects(collect=model.comparison_index in self._large)

    def run_tools(self, model: PreparedModel, failures: Answers) -> Answers:
        """Run all tools on a model; return {tool: answer} in the order in which they end.

        Args:
            model: the model.
            failures: of tools that cannot be asked, whose answers these are.
        """
        begin = self._released.pop(model.comparison_index, time.monotonic())
        answers = self._started[model.comparison_index].iterate_results(model.comparison_index)
        return collect_answers(answers, model.group.tool_count, failures, self._on_progress, begin)

    def run_rebuilt_group(self, group: ToolGroup, failures: Answers) -> Answers:
        """Run the tools of a group on its rebuilt model, in new workers; return {tool: answer}."""
        with self._open_workers([group]) as started:
            answers = started.iterate_results(group.number)
            return collect_answers(
                answers, group.tool_count, failures, self._on_progress, time.monotonic()
            )

    def _prepare_model(self, model: PlannedModel) -> PreparedModel:
        """Return a prepared model: build it if this process needs it now, choose its tools, and
        begin to observe its runs.

        Tools that see nodes are given a file: that of `--onnx`, or of the target, or the
        normalized model. The others run the model; of a file, or of a model of another framework,
        what is rebuilt from its ONNX graph.
        """
        model_index, request, choice = model.number, model.request, model.choice
        kept = self._of_model[model_index] = ExitStack()
        with collecting_warnings() as sentences:
            scratch = kept.enter_context(
                tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True)
            )
            file = (
                tool_input_file(request, model.onnx, scratch)
                if file_reading_tools(choice)
                else None
            )
            source = self._build_before_workers(model)
            group = group_for_model(
                model_index, request, choice, source, file, self._limits.isolate
            )
            watch = self._fork_observed_runs(group, source) if model.is_shared and source else None
            if watch is not None:
                kept.callback(watch.close)
                self._watches[model_index] = watch
        return PreparedModel(model, group, (*model.warnings, *sentences))

    def _build_before_workers(self, model: PlannedModel) -> Source | None:
        """Build the model before workers start, if this process needs it then, and return it;
        return None otherwise.

        Return None where it may as well be built while they start.
        """
        request = model.request
        if request.is_file:
            return None
        is_here = request.given is not None or not self._limits.isolate
        if not (is_here or model.is_shared or may_need_another_framework(request, model.choice)):
            return None
        try:
            built = _build_source_and_reason_for_values(request)
        except ValuesNeededError as error:  # of a model that the caller gave
            raise weights.real_weights_error(error.reason, request.weights) from error
        self._sources[model.number] = built
        return built[0]

    def _fork_observed_runs(self, group: ToolGroup, source: Source) -> Background | None:
        """Fork a process that runs the model in all modes to observe; return its pending result,
        None if there is nothing to observe.

        Return None where nothing is to be seen, or this process has more than one thread.
        """
        if self._single_threaded is None:
            return None
        setting = group.request.setting
        views = views_to_observe(
            conventions_of_native_tools(group.choice, source).values(), setting
        )
        with self._single_threaded():
            if not views or not can_fork_this_process():
                return None
            return fork_background_computation(
                partial(require_frontend(source.model).observe_runs, source, views)
            )

    def _start_workers(self, models: Sequence[PreparedModel], kept: ExitStack) -> None:
        """Start workers for the models; `kept` ends them when it is closed."""
        built = {
            model.comparison_index: self._sources[model.comparison_index][0]
            for model in models
            if model.plan.is_shared and model.comparison_index in self._sources
        }
        workers = self._open_workers([model.group for model in models], built)
        started = kept.enter_context(workers)
        self._started |= dict.fromkeys([model.comparison_index for model in models], started)

    def _open_workers(
        self, groups: Sequence[ToolGroup], built: Mapping[int, Source] | None = None
    ) -> AbstractContextManager[_StartedTools]:
        """Return a context manager that runs the tools of the groups in workers, or in this
        process without isolation.

        They are forked from this process where it has `built` models of targets for them, by
        number.
        """
        limits = self._limits
        if not limits.isolate:
            return nullcontext(_LocalTools({group.number: group for group in groups}))
        provided = {group.number: group.model for group in groups if group.model}
        return Workers(
            [job for group in groups for job in group.worker_jobs()],
            contents={
                model_index: (entry.model, entry.args, entry.kwargs)
                for model_index, entry in provided.items()
            },
            timeout=limits.timeout,
            memory=limits.memory,
            interpreters={
                tool: path for group in groups for tool, path in group.choice.elsewhere.items()
            },
            on_progress=self._on_progress,
            built=built,
            single_threaded=self._single_threaded or nullcontext,
        )


def _build_source_and_reason_for_values(request: Request) -> tuple[Source, str]:
    """Return (model to count, why its weights needed values); the reason is "" if they did not.

    One that the caller gave without values is one that can be run, as for tools.
    """
    if request.given is None and not request.is_file:
        return weights.build_source_and_reason_for_values(request.source, request.weights)
    source = request.source()
    return require_frontend(source.model).to_fake_source(source), ""
