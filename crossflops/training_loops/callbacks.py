"""Callbacks for the training loops of libraries, which profile one step and add rates to the
logs.
"""

import time
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from crossflops.errors import CrossflopsError, CrossflopsWarning, InputError, MissingExtraError
from crossflops.ir.trace import Setting
from crossflops.profiling.loops import Called, Undo, model_of_optimizer, record_called_modules
from crossflops.profiling.watch import device_of_keras
from crossflops.report.profile import Latencies, ShownDepth
from crossflops.targets.request import Request
from crossflops.training_loops.profiler import FlopsProfiler, show_step_profile
from crossflops.verbs.profile.account import (
    CountPart,
    RatedAgainst,
    StepCount,
    Timing,
    build_training_profile,
    count_profile_step,
)

if TYPE_CHECKING:
    from pathlib import Path

    from crossflops.report.profile import TrainingProfile


class StepRates:
    """The rates of training steps, computed from the profile of one of them.

    What is said to be no training (a validation, the writing of a checkpoint) is in no rate: from
    the end of the step before it to the begin of the next one.
    """

    def __init__(self) -> None:
        self.profile: TrainingProfile | None = None
        self.tokens = 0
        self._is_pause = False
        self.restart_clock()

    def count_finished_step(self) -> None:
        """Count a finished training step, and record its end time."""
        self._steps += 1
        self.record_batch_end()

    def record_batch_end(self) -> None:
        """Record the present time as the end of the latest batch."""
        self._latest = time.perf_counter()

    def pause_clock(self) -> None:
        """Exclude the time from the end of the latest batch to the begin of the next step from the
        rates.
        """
        self._is_pause = True

    def begin_step(self) -> None:
        """Begin a step: if there was a pause, exclude its time from the rates."""
        if self._is_pause:
            self._since += time.perf_counter() - self._latest
            self._is_pause = False

    def restart_clock(self) -> None:
        """Begin to measure rates now, with 0 steps."""
        self._since = self._latest = time.perf_counter()
        self._steps = 0

    def take_rates(self) -> dict[str, float]:
        """Return the rates of the steps since the last call by name, such as "mfu"; {} before
        there is a profile or a step.

        A step is taken to be as the profiled one was, and its time is that of the whole loop, with
        loading and logging. In a pause they are those until the latest batch.
        """
        now = self._latest if self._is_pause else time.perf_counter()
        profile, steps, seconds = self.profile, self._steps, now - self._since
        self.restart_clock()
        if profile is None or not steps or seconds <= 0:
            return {}
        rate = 2 * profile.step_macs * steps / seconds
        rates = {"tflops_per_second": rate / 1e12}
        if (share := profile.of_peak(rate)) is not None:
            rates["mfu"] = share
        if profile.examples:
            rates["samples_per_second"] = profile.examples * steps / seconds
        if self.tokens:
            rates["tokens_per_second"] = self.tokens * steps / seconds
        return rates


class ProfiledStep:
    """The one step of a training that is profiled, and the rates of the steps after it."""

    def __init__(self, step: int, options: dict[str, Any]) -> None:
        self.rates = StepRates()
        self._at, self._options = step, options
        FlopsProfiler(None, **options)  # which refuses what is wrong before the training begins
        self._profiler: FlopsProfiler | None = None
        self._is_over = False

    def is_due(self, step_number: int) -> bool:
        """Return True if step `step_number` (counted from 1) is to be profiled: it is the chosen
        one or later, and none was profiled yet.

        A training that goes on from a checkpoint may begin behind it, and one with two optimizers
        pass it by.
        """
        return step_number >= self._at and self._profiler is None and not self._is_over

    def start_profile(self, model: Any) -> None:
        """Begin to profile a step of this model."""
        self._profiler = FlopsProfiler(model, **self._options)
        self._profiler.start()

    def show_or_count_step(self) -> None:
        """Handle the end of a step: print the profile if it was profiled, else count the step for
        the rates.
        """
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            self.rates.count_finished_step()
            return
        self._is_over = True
        profiler.stop()
        try:
            profiler.print()
            self.rates.profile = profiler.profile
            self.rates.tokens = profiler.tokens
        except CrossflopsError as error:
            self.give_up_profile(error.message)
        finally:
            profiler.end()
            self.rates.restart_clock()

    def cancel_profile(self) -> None:
        """Stop to profile, if a step is being profiled, and remove the hooks from the model."""
        if self._profiler is not None:
            self._profiler.end()
            self._profiler = None

    def give_up_profile(self, reason: object) -> None:
        """Warn why there is no profile, and profile no later step; the training continues."""
        self._is_over = True
        warnings.warn(f"no profile: {reason}", CrossflopsWarning, stacklevel=3)

    def warn_if_not_profiled(self) -> None:
        """Handle the end of training: warn if it ended before the chosen step was profiled."""
        self.cancel_profile()
        if not self._is_over:
            self.give_up_profile(f"the training ended before the end of step {self._at}")


def trainer_callback(step: int = 5, **options: Any) -> Any:
    """Return a callback for the Trainer of transformers, which profiles one step.

    It profiles the `step`-th step, or the first one after it in a resumed training. Every later
    log has `mfu`, `tflops_per_second`, `samples_per_second` and `tokens_per_second` of this
    process, without the time of evaluations and checkpoints.

    Args:
        step: The step to profile, counted from 1.
        options: Keywords of `FlopsProfiler`: with `output_file="step.html"` its page goes there.

    Returns:
        The callback for `Trainer(..., callbacks=[...])`. Its `profile` is None until the step is
        over.

    Raises:
        MissingExtraError: transformers is not installed.

    Example:
        >>> from crossflops import trainer_callback
        >>> callback = trainer_callback(step=5, peak_tflops=312, output_file="step.html")
        >>> callback.profile is None
        True
    """
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        message = "transformers is not installed"
        raise MissingExtraError(message, "pip install transformers accelerate") from error

    class StepCallback(TrainerCallback):  # type: ignore[misc]
        """The callback of `trainer_callback`."""

        def __init__(self) -> None:
            self._step = ProfiledStep(step, options)

        @property
        def profile(self) -> "TrainingProfile | None":
            """The profile of the chosen step, None until that step is over."""
            return self._step.rates.profile

        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            """Handle the begin of training: forget the state of an earlier training."""
            self._step.cancel_profile()
            self._step = ProfiledStep(step, options)

        def on_step_begin(
            self, args: Any, state: Any, control: Any, model: Any = None, **more: Any
        ) -> None:
            """Handle the begin of a step: begin to profile it if it is the chosen one."""
            self._step.rates.begin_step()
            if self._step.is_due(state.global_step + 1):
                self._step.start_profile(model)

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            """Handle the end of a step: print the profile if it was profiled, else count it."""
            self._step.show_or_count_step()

        def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            """Handle an evaluation: leave its time out of the rates."""
            self._step.rates.pause_clock()

        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            """Handle the writing of a checkpoint: leave its time out of the rates."""
            self._step.rates.pause_clock()

        def on_log(
            self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any
        ) -> None:
            """Handle a log: add the rates since the last log to `logs` and to the history."""
            if logs is None or "loss" not in logs:  # an evaluation, or the end
                return
            rates = self._step.rates.take_rates()
            logs.update(rates)
            if state.log_history:
                state.log_history[-1].update(rates)

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            """Handle the end of training: warn if it ended before the chosen step was profiled."""
            self._step.warn_if_not_profiled()

    return StepCallback()


def lightning_callback(step: int = 5, **options: Any) -> Any:
    """Return a callback for the Trainer of Lightning, which profiles one step.

    It profiles the `step`-th step of the optimizer, with all batches whose gradients it takes.
    Every later step that Lightning logs has the rates since the last, as with `trainer_callback`.
    The model is the outermost module that the step before called and that has most of the
    optimizer's parameters.

    Args:
        step: The step to profile, 2 or more, since its model must be known.
        options: Keywords of `FlopsProfiler`: with `output_file="step.html"` its page goes there.

    Returns:
        The callback for `Trainer(callbacks=[...])`. Its `profile` is None until the step is over.

    Raises:
        InputError: `step` is below 2.
        MissingExtraError: Lightning is not installed.

    Example:
        >>> from crossflops import lightning_callback
        >>> callback = lightning_callback(step=5, peak_tflops=312)
        >>> callback.profile is None
        True
    """
    if step < 2:
        what = "the first step cannot be profiled, because its model is not yet known"
        raise InputError(what, "give step=2 or higher")
    callback_class = _lightning_callback_class()

    class StepCallback(callback_class):  # type: ignore[misc,valid-type]
        """The callback of `lightning_callback`."""

        def __init__(self) -> None:
            self._step = ProfiledStep(step, options)
            self._called: Called = {}
            self._stop_keeping: Undo | None = None
            self._done = 0

        @property
        def profile(self) -> "TrainingProfile | None":
            """The profile of the chosen step, None until that step is over."""
            return self._step.rates.profile

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            """Handle the begin of training: forget the state of an earlier training."""
            self._remove_hooks_and_records()
            self._step, self._done = ProfiledStep(step, options), trainer.global_step

        def on_train_batch_start(self, trainer: Any, *batch: Any) -> None:
            """Handle the begin of a batch: record the called modules in the step before the chosen
            one, and begin to profile the chosen one.
            """
            self._step.rates.begin_step()
            number = trainer.global_step + 1
            if self._stop_keeping is None and self._step.is_due(number + 1):
                self._stop_keeping = record_called_modules(self._called)
            elif self._called and self._step.is_due(number):
                self._stop_recording_calls()
                try:
                    self._step.start_profile(
                        model_of_optimizer(trainer.optimizers[0], self._called)
                    )
                except LookupError as error:
                    self._step.give_up_profile(error)
                self._called = {}

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
            """Handle the end of a batch: if the optimizer stepped, count the step or print its
            profile.
            """
            if trainer.global_step == self._done:
                self._step.rates.record_batch_end()
                return  # a batch whose gradients are kept for the next
            self._done = trainer.global_step
            self._step.show_or_count_step()
            if self._done % trainer.log_every_n_steps == 0:
                pl_module.log_dict(self._step.rates.take_rates())

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            """Handle the begin of a validation: leave its time out of the rates."""
            self._step.rates.pause_clock()

        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
            """Handle the writing of a checkpoint: leave its time out of the rates."""
            self._step.rates.pause_clock()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            """Handle the end of training: warn if it ended before the chosen step was profiled."""
            self._stop_recording_calls()
            self._step.warn_if_not_profiled()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            """Handle an error of the training: remove the profiler's hooks from the model."""
            self._remove_hooks_and_records()

        def _remove_hooks_and_records(self) -> None:
            """Stop to profile and to record called modules, and remove the hooks."""
            self._stop_recording_calls()
            self._called = {}
            self._step.cancel_profile()

        def _stop_recording_calls(self) -> None:
            """Stop recording which modules are called."""
            if self._stop_keeping is not None:
                self._stop_keeping()
                self._stop_keeping = None

    return StepCallback()


def _lightning_callback_class() -> Any:
    """Return the Callback class of Lightning, of the package that is already imported if there are
    two.
    """
    import sys
    from importlib import import_module

    names = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(names, key=lambda name: name not in sys.modules):
        try:
            return import_module(name).Callback
        except ImportError:
            continue
    raise MissingExtraError("Lightning is not installed", "pip install lightning")


def keras_callback(
    batch_size: int,
    step: int = 5,
    *,
    output_file: "str | Path | None" = None,
    device: str | None = None,
    peak_tflops: float | str | None = None,
    precision: str | None = None,
) -> Any:
    """Return a callback for `model.fit` of Keras, which counts and times a training step.

    The training step of `batch_size` examples is counted, and the `step`-th is timed as a whole:
    Keras does not show its parts. The logs of every later epoch have `mfu`, `tflops_per_second`
    and `samples_per_second` since the last, without validations.

    Args:
        batch_size: The examples of a step. A batch of another size counts as this one.
        step: The step to time, counted from 1.
        output_file: The file for the page; by default it goes to stdout.
        device: A device of the catalogue, whose peak the rates are compared with.
        peak_tflops: The peak in TFLOP/s; by default that of this machine is measured.
        precision: The precision of the run; by default that of the products.

    Returns:
        The callback for `model.fit(..., callbacks=[...])`. Its `profile` is None until the step is
        over.

    Raises:
        MissingExtraError: Keras is not installed.

    Example:
        >>> from crossflops import keras_callback
        >>> callback = keras_callback(batch_size=32, peak_tflops=1)
        >>> callback.profile is None
        True
    """
    try:
        from keras.callbacks import Callback
    except ImportError as error:
        raise MissingExtraError("Keras is not installed", "pip install keras") from error
    provided = () if peak_tflops is None else (str(peak_tflops),)
    against = RatedAgainst(device=device, peak_tflops=provided, precision=precision)
    against.check_peak_options()

    class StepCallback(Callback):  # type: ignore[misc]
        """The callback of `keras_callback`."""

        def __init__(self) -> None:
            super().__init__()
            self._rates = StepRates()
            self._done, self._began = 0, 0.0

        @property
        def profile(self) -> "TrainingProfile | None":
            """The profile of the chosen step, None until that step is over."""
            return self._rates.profile

        def on_train_begin(self, logs: Any = None) -> None:
            """Handle the begin of training: forget the state of an earlier training."""
            self._rates, self._done = StepRates(), 0

        def on_test_begin(self, logs: Any = None) -> None:
            """Handle the begin of a validation: leave its time out of the rates."""
            self._rates.pause_clock()

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            """Handle the begin of a batch: record its start time."""
            self._rates.begin_step()
            self._began = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """Handle the end of a batch: count its steps, and print the profile if the chosen step
            is one of them.
            """
            seconds = time.perf_counter() - self._began
            together = max(1, int(getattr(self.model, "steps_per_execution", 1)))
            before, self._done = self._done, self._done + together
            for _ in range(together):
                self._rates.count_finished_step()
            if before < step <= self._done:
                self._count_and_show_step(seconds / together)
                self._rates.restart_clock()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            """Handle the end of an epoch: add the rates since the last epoch to `logs`."""
            if logs is not None:
                logs.update(self._rates.take_rates())
            self._rates.pause_clock()  # what writes checkpoints does so now

        def on_train_end(self, logs: Any = None) -> None:
            """Handle the end of training: warn if it ended before the chosen step."""
            if self._done < step:
                message = f"the training ended before step {step}, which was to be profiled"
                warnings.warn(message, CrossflopsWarning, stacklevel=2)

        def _count_and_show_step(self, seconds: float) -> None:
            """Count a training step of the Keras model, rate it by its measured `seconds`, and
            print the profile; warn if that fails.
            """
            try:
                profile = _keras_step_profile(self.model, batch_size, seconds, against)
                self._rates.profile = profile
                show_step_profile(profile, ShownDepth(), output_file)
            except CrossflopsError as error:  # the training goes on
                warnings.warn(f"no profile: {error.message}", CrossflopsWarning, stacklevel=2)

    return StepCallback()


def _keras_step_profile(
    model: Any, batch_size: int, seconds: float, against: RatedAgainst
) -> "TrainingProfile":
    """Return the profile of a training step of a Keras model that took `seconds` for `batch_size`
    examples.
    """
    from crossflops.facade import ShownProfile

    if not getattr(model, "inputs", None):
        what = "the input shapes of the model are unknown"
        raise InputError(what, "build it with keras.Input, or call it once before fit")
    shapes = [(batch_size, *tensor.shape[1:]) for tensor in model.inputs]
    written = tuple("x".join("?" if n is None else str(n) for n in shape) for shape in shapes)
    request = Request.from_arguments(model, written, setting=Setting(training=True))
    timing = Timing(
        latencies=Latencies(
            iteration=seconds, undivided=True, how="one step of the training loop"
        ),
        device=device_of_keras(),
        runtime=f"keras {version('keras')}",
        notes=(f"the step has {batch_size} examples, as given",),
    )
    return ShownProfile.of(
        build_training_profile(
            StepCount(parts=(CountPart(report=count_profile_step(request)),)), timing, against
        )
    )
