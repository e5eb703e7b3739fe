"""The training of a model for some steps in this process: first without hooks, then with them."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median_low
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from crossflops.bench.timing import BenchLimits, time_warm_runs
from crossflops.errors import InputError, NormalizeError, error_words
from crossflops.frontends.pytorch.load.flexible_attention import FlexAttentionRunner
from crossflops.frontends.pytorch.load.model import suppressing_profiler_output
from crossflops.ir.measurement import Measurement, StepPhases
from crossflops.profiling.watch import Clock, Mark, StepTimes, Watch, clock_of, device_of

if TYPE_CHECKING:
    from torch import Tensor, nn

WATCHED = 3  # steps with hooks, of which the one with the median time is shown


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """The way a model is trained: the loss of its result, the optimizer, the examples of a step.

    `loss` is None for the sum of all float outputs; `optimizer` the name of a class of torch.optim
    (with its default options, a rate of 0.001), a function of the parameters, or "none".
    """

    loss: Callable[[Any], Any] | None = None
    optimizer: str | Callable[[Any], Any] = "adamw"
    examples: int = 1
    training: bool = False
    threads: int = 1
    limits: BenchLimits = BenchLimits(warmup=10, runs=20, fewest=2, seconds=3.0)


class MeasuredSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The measured steps: see `crossflops.report.profile`."""

    iterations: Measurement
    phases: StepPhases
    watched: StepTimes
    forward_bytes: int | None
    step_bytes: int | None
    device: str
    runtime: str
    has_gradients: bool


def train_and_measure(
    model: "nn.Module", args: tuple[Any, ...], kwargs: dict[str, Any], recipe: Recipe
) -> MeasuredSteps:
    """Train the model in place for some steps; return their times and memory. Raises
    NormalizeError if a step raises.
    """
    with _limiting_threads(recipe.threads):
        return _measure_training(model, args, kwargs, recipe)


def time_steps(
    model: "nn.Module", args: tuple[Any, ...], kwargs: dict[str, Any], recipe: Recipe
) -> tuple[Measurement, StepPhases]:
    """Train the model without hooks; return the times of its steps, and the phases of the median
    one. Raises what a step raises.
    """
    import torch

    with _limiting_threads(recipe.threads), torch.enable_grad():
        return _time_steps(_build_training_step(model, args, kwargs, recipe), recipe)


@contextmanager
def _limiting_threads(threads: int) -> Iterator[None]:
    """Limit torch to a number of threads inside the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _measure_training(
    model: "nn.Module", args: tuple[Any, ...], kwargs: dict[str, Any], recipe: Recipe
) -> MeasuredSteps:
    """Train the model for some steps; return the times of steps and modules, and the peak memory
    in bytes.
    """
    import torch

    step, device = _build_training_step(model, args, kwargs, recipe), device_of(model)
    try:
        with torch.enable_grad():
            iterations, phases = _time_steps(step, recipe)
            watched = sorted(
                (_time_step_with_hooks(model, step) for _ in range(WATCHED)),
                key=_whole_step_seconds,
            )
            inner, outer = _peak_bytes_of_forward_and_step(model, step, device)
    except Exception as error:  # whatever the model raises is its word
        what = f"a training step raised {error_words(error)}"
        raise NormalizeError(
            what, "check that the model can be trained on these inputs"
        ) from error
    return MeasuredSteps(
        iterations=iterations,
        phases=phases,
        watched=watched[WATCHED // 2],
        forward_bytes=inner,
        step_bytes=outer,
        device=device_name(device),
        runtime=f"torch {torch.__version__}",
        has_gradients=step.has_gradients,
    )


def device_name(device: Any) -> str:
    """Return the name of a CUDA device, or the type of another device, such as "cpu"."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device.type)


def _build_training_step(
    model: "nn.Module", args: tuple[Any, ...], kwargs: dict[str, Any], recipe: Recipe
) -> "_Step":
    """Build the training step of a model. Raises InputError for an unknown optimizer."""
    model.train(recipe.training)
    optimizer = _build_optimizer(model, recipe.optimizer)
    return _Step(model, args, kwargs, recipe, optimizer, clock_of(device_of(model).type))


def _time_steps(step: "_Step", recipe: Recipe) -> tuple[Measurement, StepPhases]:
    """Return the times of whole steps, and the seconds of the phases of the step with the median
    time.

    Medians of each phase by itself would not add up, and be of no number of passes.
    """
    iterations = time_warm_runs(
        step.run_whole_step,
        recipe.examples,
        step.seconds,
        recipe.limits,
        "forward, backward, step",
    )
    last = step.marks[-iterations.runs :]
    full = median_low(step.step_seconds(marks) for marks in last)
    marks = next(marks for marks in last if step.step_seconds(marks) == full)
    forward, backward, optimizer = step.forward_backward_optimizer_seconds(marks)
    phases = StepPhases(
        whole=full,
        forward=forward,
        backward=backward if step.has_gradients else None,
        optimizer=optimizer if step.optimizer_name else None,
        optimizer_name=step.optimizer_name,
        passes=len(marks.passes),
        note=step.attending.operator_run_note,
    )
    return iterations, phases


def _whole_step_seconds(times: StepTimes) -> float:
    """Return the seconds of the whole step, from its start to its end."""
    return times.whole


def _build_optimizer(model: "nn.Module", optimizer: str | Callable[[Any], Any]) -> Any:
    """Build the optimizer of the trainable parameters, by its name in torch.optim or by a
    function; return None for "none" or without such parameters.
    """
    import torch

    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if optimizer == "none" or not weights:
        return None
    if callable(optimizer):
        return optimizer(weights)
    kind = next(
        (value for name, value in vars(torch.optim).items() if name.lower() == optimizer.lower()),
        None,
    )
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise InputError(
            f"torch.optim has no {optimizer!r}", "give, for example, adamw, sgd or none"
        )
    return kind(weights, lr=1e-3)


class _PassMarks(NamedTuple):
    """The time marks of a pass: its begin, the end of its loss, the end of its backward pass."""

    begin: Mark
    loss: Mark
    end: Mark


class _StepMarks(NamedTuple):
    """The time marks of a step: its begin, its passes, and begin and end of the optimizer, which
    may enclose the passes.
    """

    start: Mark
    passes: list[_PassMarks]
    begin: Mark
    end: Mark
    is_around: bool


def _needs_closure(optimizer: Any) -> bool:
    """Return True if the optimizer's step requires a closure, a function that runs the model."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


class _Step:
    """A training step that can be repeated; it keeps the time marks of each run."""

    def __init__(
        self,
        model: "nn.Module",
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        recipe: Recipe,
        optimizer: Any,
        clock: Clock,
    ) -> None:
        self._call: Callable[[], Any] = lambda: model(*args, **kwargs)
        self.attending = FlexAttentionRunner(model)
        self._model, self._recipe = model, recipe
        self._optimizer, self._clock = optimizer, clock
        self._needs_closure = optimizer is not None and _needs_closure(optimizer)
        self.optimizer_name = type(optimizer).__name__ if optimizer is not None else ""
        self.marks: list[_StepMarks] = []
        self.has_gradients = True

    def run_whole_step(self) -> None:
        """Run one training step (forward pass and loss, backward pass, optimizer) and keep its
        time marks.
        """
        passes: list[_PassMarks] = []

        def run_and_return_loss() -> Any:
            """Run forward and backward pass, keep their time marks, and return the loss."""
            self._model.zero_grad(set_to_none=True)
            loss, marks = self._run_forward_and_backward()
            passes.append(marks)
            return loss

        start = begin = self._clock.mark()
        if self._needs_closure:
            self._optimizer.step(run_and_return_loss)
        else:
            run_and_return_loss()
            begin = self._clock.mark()
            if self._optimizer is not None:
                self._optimizer.step()
        end = self._clock.mark()
        self._clock.wait_for_device()
        self.marks.append(_StepMarks(start, passes, begin, end, self._needs_closure))

    def _run_forward_and_backward(self) -> tuple[Any, _PassMarks]:
        """Run forward pass, loss and backward pass; return the loss and the time marks."""
        begin = self._clock.mark()
        with self.attending.running_as_operators():
            loss = _output_loss(self._call(), self._recipe.loss)
        forward = self._clock.mark()
        self.has_gradients = loss is not None and loss.requires_grad
        if loss is not None and self.has_gradients:
            loss.backward()
        return loss, _PassMarks(begin, forward, self._clock.mark())

    def run_forward_only(self) -> None:
        """Run a forward pass without gradients, and wait for the device."""
        import torch

        with torch.no_grad():
            self._call()
        self._clock.wait_for_device()

    def clear_gradients(self) -> None:
        """Set all gradients of the model to None."""
        self._model.zero_grad(set_to_none=True)

    def seconds(self) -> float:
        """Return the seconds of a monotonic clock of this process."""
        import time

        return time.perf_counter()

    def step_seconds(self, marks: _StepMarks) -> float:
        """Return the seconds of the step with these time marks, from its begin to its end."""
        return self._clock.seconds_between(marks.start, marks.end)

    def forward_backward_optimizer_seconds(self, marks: _StepMarks) -> tuple[float, float, float]:
        """Return the seconds of forward pass, backward pass and optimizer in the step with these
        time marks.
        """
        between = self._clock.seconds_between
        forward = sum(between(stored.begin, stored.loss) for stored in marks.passes)
        backward = sum(between(stored.loss, stored.end) for stored in marks.passes)
        optimizer = between(marks.begin, marks.end)
        if marks.is_around:
            optimizer = max(optimizer - forward - backward, 0.0)
        return forward, backward, optimizer


def _output_loss(output: Any, loss_function: Callable[[Any], Any] | None) -> "Tensor | None":
    """Return `loss_function(output)`; without a loss function the sum of the output's tensors
    with gradients, or None if there are none.
    """
    from crossflops.profiling.watch import tensors_of_value

    if loss_function is not None:
        loss: Tensor = loss_function(output)
        return loss
    sums = [t.float().sum() for t in tensors_of_value(output) if t.requires_grad]
    return sum(sums[1:], sums[0]) if sums else None


def _time_step_with_hooks(model: "nn.Module", step: _Step) -> StepTimes:
    """Run one training step with hooks; return the times of its modules and phases."""
    watch = Watch(model)
    watch.start()
    try:
        step.run_whole_step()
        return watch.stop()
    finally:
        watch.remove_hooks()


# Memory: what the allocator hands out, above what was held before.


def _peak_bytes_of_forward_and_step(
    model: "nn.Module", step: _Step, device: Any
) -> tuple[int | None, int | None]:
    """Return the peak bytes of a forward pass and of a whole step, each above those held before;
    None if unknown.
    """
    step.clear_gradients()
    if device.type == "cuda":
        return _cuda_peak_bytes(step.run_forward_only, device), _cuda_peak_bytes(
            step.run_whole_step, device
        )
    if device.type == "cpu":
        return _host_peak_bytes(step.run_forward_only), _host_peak_bytes(step.run_whole_step)
    return None, None


def _cuda_peak_bytes(run: Callable[[], None], device: Any) -> int:
    """Return the most bytes that a run holds on the CUDA device above those held before it."""
    import torch

    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    return int(torch.cuda.max_memory_allocated(device) - before)


def _host_peak_bytes(run: Callable[[], None]) -> int | None:
    """Return the most bytes that PyTorch's CPU allocator holds above those before a run; None if
    unknown.
    """
    from torch import profiler

    with (
        suppressing_profiler_output(),
        profiler.profile(
            activities=[profiler.ProfilerActivity.CPU], profile_memory=True
        ) as memory,
    ):
        run()
    stored = peak = 0
    events = memory.profiler.kineto_results.events()
    changes = [event for event in events if event.name() == "[memory]"]
    for event in sorted(changes, key=lambda event: event.start_ns()):
        stored += event.nbytes()
        peak = max(peak, stored)
    return peak if changes else None
