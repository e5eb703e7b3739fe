"""A profiler in a training loop, whose methods also bear the names that DeepSpeed's has.

It reads the `flops_profiler` block of a DeepSpeed configuration: what is profiled, and what is
shown.
"""

import os
import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.errors import CrossflopsError, CrossflopsWarning, InputError
from crossflops.files import write_file
from crossflops.profiling.compiled import explain_missing_model_call
from crossflops.profiling.ranks import Round, count_processes_sharing_batch
from crossflops.profiling.watch import StepTimes, Watch
from crossflops.report.profile import Latencies, Ranks, RankStep, ShownDepth, TrainingProfile
from crossflops.tools.registry import conventions_from_texts
from crossflops.training_loops.deepspeed_settings import (
    ProfilerSettings,
    read_flops_profiler_settings,
)
from crossflops.verbs.profile.account import RatedAgainst, Timing, build_training_profile
from crossflops.verbs.profile.observed import count_observed_step

if TYPE_CHECKING:
    from crossflops.facade import ShownProfile


class FlopsProfiler:
    """A profiler of one step of a training loop, which restores the model afterwards.

    Other steps are left as they are, apart from the call of `watch`, or of `start` and `stop`. If
    the model raises, it is restored and its own error goes on.

    Args:
        model: The model, a torch.nn.Module.
        ds_engine: Accepted as DeepSpeed's profiler takes it, and not used.
        recompute_fwd_factor: Accepted as DeepSpeed's profiler takes it, and not used:
            recomputation is observed.
        step: The step to profile, counted from 1.
        depth: The levels of modules that are printed; -1 for all.
        top: The modules that are printed at each level.
        detailed: Whether the tree of modules is printed.
        output_file: The file for the page; by default it goes to stdout.
        device: A device of the catalogue, whose peak the rates are compared with.
        peak_tflops: The peak in TFLOP/s; by default that of this machine is measured.
        precision: The precision of the run; by default that of the products.
        as_: Conventions that stand beside the count.

    Raises:
        UnknownNameError: A device, a precision or a convention is unknown.

    Example:
        >>> import torch
        >>> from crossflops import FlopsProfiler
        >>> model = torch.nn.Linear(8, 2, bias=False)
        >>> optimizer = torch.optim.SGD(model.parameters())
        >>> profiler = FlopsProfiler(model, step=2, peak_tflops=1, output_file="step.md")
        >>> for _ in range(3):
        ...     with profiler.watch():
        ...         model(torch.ones(4, 8)).sum().backward()
        ...         optimizer.step()
        >>> profiler.get_total_macs()
        64
    """

    def __init__(
        self,
        model: Any,
        ds_engine: Any = None,
        recompute_fwd_factor: float = 0.0,
        *,
        step: int = 1,
        depth: int = -1,
        top: int = 1,
        detailed: bool = True,
        output_file: str | Path | None = None,
        device: str | None = None,
        peak_tflops: float | str | None = None,
        precision: str | None = None,
        as_: str | tuple[str, ...] = (),
    ) -> None:
        provided = () if peak_tflops is None else (str(peak_tflops),)
        self._model, self._at, self._steps = model, step, 0
        self._choice = ShownDepth(depth=depth, top=top, detailed=detailed)
        self._file = output_file
        self._against = RatedAgainst(device=device, peak_tflops=provided, precision=precision)
        self._against.check_peak_options()
        conventions_from_texts([as_] if isinstance(as_, str) else as_)
        self._as = as_
        self.enabled = True
        self._reset_step_records()

    @classmethod
    def from_config(
        cls, model: Any, config: str | Path | Mapping[str, Any], **options: Any
    ) -> "FlopsProfiler":
        """Return a profiler with the settings of the `flops_profiler` block in a DeepSpeed
        configuration.

        Raises InputError for a block that is wrong.
        """
        block: ProfilerSettings = read_flops_profiler_settings(config)
        profiler = cls(
            model,
            step=block.profile_step,
            depth=block.module_depth,
            top=block.top_modules,
            detailed=block.detailed,
            output_file=block.output_file,
            **options,
        )
        profiler.enabled = block.enabled
        return profiler

    def _reset_step_records(self) -> None:
        """Reset the attributes that hold the hooks, times and profile of a step."""
        self._watch: Watch | None = None
        self._times: StepTimes | None = None
        self._profile: ShownProfile | None = None
        self._round: Round | None = None

    # In the loop.

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Run a block that is one training step; if it is the chosen one, profile it and print the
        profile.
        """
        self._steps += 1
        if not self.enabled or self._steps != self._at:
            yield
            return
        self.start()
        try:
            yield
        except BaseException as error:
            self._on_step_error(error)
            self.end()
            raise
        self.stop()
        try:
            self.print()
        except CrossflopsError as error:  # the training goes on
            warnings.warn(f"no profile: {error.message}", CrossflopsWarning, stacklevel=3)

    def start(self) -> None:
        """Add hooks to the model that observe its next step."""
        self.end()
        self._round = Round()
        self._watch = Watch(self._model, self._on_step_error)
        self._watch.start()

    def _on_step_error(self, error: BaseException) -> None:
        """Handle an error of the profiled step: report it to the other ranks, once."""
        meeting, self._round = self._round, None
        if meeting is not None:
            meeting.report_failure(error)

    def stop(self) -> None:
        """Remove the hooks, and keep the times and calls of the observed step."""
        if self._watch is not None and self._times is None:
            self._times = self._watch.stop()
            if self._round is not None:
                self._round.stop_listening()

    def end(self) -> None:
        """Remove all hooks from the model, and forget the times and calls of its step."""
        if self._watch is not None:
            self._watch.remove_hooks()
        if self._round is not None:
            self._round.stop_listening()
        self._reset_step_records()

    def reset(self) -> None:
        """Remove the hooks and forget the observed step; add new hooks if a step was being
        observed.
        """
        watching = self._watch is not None and self._watch.active
        self.end()
        if watching:
            self.start()

    @property
    def profile(self) -> "ShownProfile":
        """The profile of the observed step. Raises CrossflopsError if no step was observed."""
        if self._profile is None:
            self._profile = self._profile_of_observed_step()
        return self._profile

    @property
    def tokens(self) -> int:
        """The number of elements of `input_ids` in the observed calls; 0 if there are none."""
        calls = self._watch.calls if self._watch is not None else []
        own = [call for call in calls if call.path is not None]
        trained = [call for call in own if call.passes.passes] or own
        texts = (call.kwargs.get("input_ids") for call in trained)
        return sum(int(text.numel()) for text in texts if text is not None)

    def print(
        self, output_file: str | Path | None = None, choice: ShownDepth | None = None
    ) -> None:
        """Print the profile on stdout or write it to a file; in the process of rank 0 only."""
        self._exchange_profiles()
        if os.environ.get("RANK", "0") in ("", "0"):
            show_step_profile(self.profile, choice or self._choice, output_file or self._file)

    def _exchange_profiles(self) -> None:
        """Exchange the profile of the step with the other ranks; rank 0 keeps all of them in its
        profile.
        """
        meeting, self._round = self._round, None
        if meeting is None or meeting.size == 1:
            return
        try:
            profile = self.profile
        except CrossflopsError:
            meeting.send_step(b"")
            raise
        own = to_rank_step(profile, meeting.rank)
        if meeting.rank:
            meeting.send_step(msgspec.json.encode(own))
            return
        heard, missing = meeting.collect_steps()
        others = [msgspec.json.decode(step, type=RankStep) for step in heard.values()]
        ranks = Ranks(
            steps=(own, *others),
            missing=missing,
            sharing=count_processes_sharing_batch(self._model),
        )
        self._profile = msgspec.structs.replace(profile, ranks=ranks)

    def _profile_of_observed_step(self) -> "ShownProfile":
        """Return the profile of the observed step, which is counted now. Raises CrossflopsError
        without a step.
        """
        from crossflops.facade import ShownProfile

        watch, times = self._watch, self._times
        if watch is None or times is None:
            raise CrossflopsError(
                "no step was profiled", "call start() before a step and stop() after it"
            )
        if watch.failed:
            raise CrossflopsError(
                "the profiled step raised an exception",
                "profile a step that ends without an exception",
            )
        if all(call.path is None for call in watch.calls):
            raise CrossflopsError(*explain_missing_model_call())
        count = count_observed_step(self._model, watch, self._as)
        return ShownProfile.of(
            build_training_profile(count, to_step_timing(self._model, watch, times), self._against)
        )

    # The names that DeepSpeed's profiler has.

    def start_profile(self, ignore_list: Any = None) -> None:
        """Call `start`. Raises InputError if `ignore_list` is not empty, since all modules are
        counted.
        """
        if ignore_list:
            raise InputError(
                "ignore_list is not supported: a count includes every module",
                "leave out ignore_list",
            )
        self.start()

    stop_profile, end_profile, reset_profile = stop, end, reset

    def get_total_flops(self, as_string: bool = False) -> int | str:
        """Return the FLOPs of all operations in the observed forward passes, or a text such as
        "1.2 GFLOPs".
        """
        return _amount_or_text(self.profile.work.forward_flops, as_string, "FLOPs")

    def get_total_macs(self, as_string: bool = False) -> int | str:
        """Return the MACs of the observed forward passes, or a text such as "1.2 GMACs"."""
        return _amount_or_text(self.profile.work.forward_macs, as_string, "MACs")

    def get_total_params(self, as_string: bool = False) -> int | str:
        """Return the number of parameters, shared ones counted once, or a text such as "1.2 M"."""
        return _amount_or_text(self.profile.params, as_string, "")

    def get_total_duration(self, as_string: bool = False) -> float | str:
        """Return the seconds of the observed forward passes, or a text such as "1.2 ms"."""
        from crossflops.report.quantity import seconds_to_text

        if self._times is None:
            raise CrossflopsError(
                "no step was profiled",
                "call start_profile() before a step and stop_profile() after it",
            )
        seconds = self._times.forward
        return seconds_to_text(seconds) if as_string else seconds

    def print_model_profile(
        self,
        profile_step: int = 1,
        module_depth: int = -1,
        top_modules: int = 1,
        detailed: bool = True,
        output_file: str | Path | None = None,
    ) -> None:
        """Print the profile as `print` does, with the arguments that DeepSpeed's profiler has."""
        choice = ShownDepth(depth=module_depth, top=top_modules, detailed=detailed)
        self.print(output_file, choice)

    def print_model_aggregated_profile(self, module_depth: int = -1, top_modules: int = 1) -> None:
        """Print the profile without the tree of modules."""
        self.print(choice=ShownDepth(depth=module_depth, top=top_modules, detailed=False))


def to_rank_step(profile: TrainingProfile, rank: int) -> RankStep:
    """Return the examples, MACs and times of a rank's step, which the page of rank 0 shows."""
    return RankStep(
        rank=rank,
        examples=profile.examples,
        forward_macs=profile.work.forward_macs,
        backward_macs=profile.backward_macs,
        latencies=profile.latencies,
    )


def show_step_profile(
    profile: TrainingProfile, choice: ShownDepth, target: str | Path | None
) -> None:
    """Print the profile on stdout, or write it to the file `target`. Raises CrossflopsError if it
    cannot.
    """
    from crossflops.render.pages.profile import ProfileView

    state = random.getstate()  # rich draws a number when it is imported: the training's next one
    try:
        _write_profile_content(ProfileView(profile, choice), target)
    finally:
        random.setstate(state)


def _write_profile_content(content: Any, target: str | Path | None) -> None:
    """Write a page to the file `target` in the format of its suffix, or to stdout as text if it is
    None.
    """
    from crossflops.render.formats import content_file_bytes, file_suffixes, format_suffix
    from crossflops.render.terminal import terminal_page_text

    if target is None:
        sys.stdout.write(f"{terminal_page_text(content)}\n")
        return
    path = Path(target)
    text = (
        content_file_bytes(content, path)
        if format_suffix(path) in file_suffixes()
        else f"{terminal_page_text(content)}\n".encode()
    )
    write_file(path, text, "give another output_file")


def _amount_or_text(amount: int, as_string: bool, unit: str) -> int | str:
    """Return the amount as it is, or as text with its unit."""
    from crossflops.report.quantity import short_amount

    return short_amount(amount, unit) if as_string else amount


def to_step_timing(model: Any, watch: Watch, times: StepTimes) -> Timing:
    """Return the times, the device, and notes and warnings of one observed training step."""
    from crossflops.profiling.watch import model_run_place

    where = model_run_place(model)
    warnings = []
    if times.backward is None:
        warnings.append("the profiled step had no backward pass")
    if times.optimizer is None:
        warnings.append("the profiled step had no optimizer step")
    notes = ["one step with hooks; the time of the hooks is left out if the host clock is used"]
    notes += [f"the optimizer is {name}" for name in times.optimizers]
    own = [call for call in watch.calls if call.path is not None]
    autocast = next((call.autocast for call in own if call.passes.passes), own[0].autocast)
    if autocast:
        notes.append(f"autocast was on: matrix products are assumed to run in {autocast}")
    return Timing(
        latencies=Latencies(
            forward=times.forward,
            backward=times.backward,
            optimizer=times.optimizer,
            iteration=times.whole,
            beside=sum(row.forward + row.backward for row in times.beside) or None,
            how="one step of the training loop",
        ),
        watched=times,
        device=where.device,
        runtime=where.runtime,
        threads=where.threads,
        autocast=autocast,
        step_bytes=times.peak_bytes,
        memory_how="PyTorch's allocator, in addition to what was allocated before",
        notes=tuple(notes),
        warnings=tuple(warnings),
        sharing=count_processes_sharing_batch(model),
        world_size=int(os.environ.get("WORLD_SIZE", "1") or 1),
    )
