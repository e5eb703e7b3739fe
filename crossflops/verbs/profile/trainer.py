"""A callback for transformers' Trainer: one step is profiled, and logs say what it came to."""

import time
import warnings
from typing import TYPE_CHECKING, Any

from crossflops.errors import CrossflopsError, CrossflopsWarning, MissingExtraError
from crossflops.verbs.profile.loop import FlopsProfiler

if TYPE_CHECKING:
    from crossflops.report.profile import TrainingProfile


class StepRates:
    """Steps against the clock, and what they come to by the profile of one of them."""

    def __init__(self) -> None:
        self.profile: TrainingProfile | None = None
        self.tokens = 0
        self._since, self._steps = time.perf_counter(), 0

    def count(self) -> None:
        """A step has ended."""
        self._steps += 1

    def restart(self) -> None:
        """What was until now is in no rate."""
        self._since, self._steps = time.perf_counter(), 0

    def take(self) -> dict[str, float]:
        """The rates since they were taken last; nothing before the profile, or without steps.

        A step is taken to be as the profiled one was, and its time is that of the whole loop, with
        loading and logging.
        """
        now = time.perf_counter()
        profile, steps, seconds = self.profile, self._steps, now - self._since
        self.restart()
        if profile is None or not steps or seconds <= 0:
            return {}
        rate = 2 * profile.model_macs * steps / seconds
        rates = {"tflops_per_second": rate / 1e12}
        if (share := profile.of_peak(rate)) is not None:
            rates["mfu"] = share
        if profile.examples:
            rates["samples_per_second"] = profile.examples * steps / seconds
        if self.tokens:
            rates["tokens_per_second"] = self.tokens * steps / seconds
        return rates


def trainer_callback(step: int = 5, **options: Any) -> Any:
    """A callback for `Trainer(..., callbacks=[trainer_callback(step=5)])` of transformers.

    The `step`-th step is profiled, as `FlopsProfiler` does, whose `options` these are: with
    `output_file="step.html"` its page goes there, else to stdout. Every log after it has `mfu`,
    `tflops_per_second`, `samples_per_second` and `tokens_per_second` of this process. `profile` of
    the callback is the profile. Raises MissingExtraError without transformers.
    """
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        message = "transformers is not installed"
        raise MissingExtraError(message, "pip install transformers accelerate") from error

    class StepCallback(TrainerCallback):  # type: ignore[misc]
        """What `trainer_callback` gives."""

        def __init__(self) -> None:
            self._profiler: FlopsProfiler | None = None
            self._rates = StepRates()

        @property
        def profile(self) -> "TrainingProfile | None":
            """That of the step, once it is over."""
            return self._rates.profile

        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            """Whatever another training left is forgotten."""
            self._forget()
            self._rates = StepRates()

        def on_step_begin(
            self, args: Any, state: Any, control: Any, model: Any = None, **more: Any
        ) -> None:
            """Watch the step that was chosen."""
            if state.global_step + 1 == step and self._profiler is None:
                self._profiler = FlopsProfiler(model, **options)
                self._profiler.start()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            """Count the step, and tell what was seen of the one that was watched."""
            profiler, self._profiler = self._profiler, None
            if profiler is None:
                self._rates.count()
                return
            profiler.stop()
            try:
                self._rates.profile = profiler.profile
                self._rates.tokens = profiler.tokens
                profiler.print()
            except CrossflopsError as error:  # the training goes on
                warnings.warn(f"no profile: {error.message}", CrossflopsWarning, stacklevel=2)
            finally:
                profiler.end()
                self._rates.restart()

        def on_log(
            self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any
        ) -> None:
            """The rates since the last log, for the history and for the callbacks that follow."""
            if logs is None or "loss" not in logs:  # an evaluation, or the end
                return
            rates = self._rates.take()
            logs.update(rates)
            if state.log_history:
                state.log_history[-1].update(rates)

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            """A training that ends sooner than the step says so."""
            self._forget()
            if self._rates.profile is None:
                message = f"the training ended before step {step}, which was to be profiled"
                warnings.warn(message, CrossflopsWarning, stacklevel=2)

        def _forget(self) -> None:
            if self._profiler is not None:
                self._profiler.end()
                self._profiler = None

    return StepCallback()
