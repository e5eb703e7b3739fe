"""Run the verb `profile`: train a model for some steps, and combine its count with the times.

Beside them stands what tools print for the model, and by which causes, where it is asked for.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from crossflops.errors import InputError
from crossflops.frontends import frontend_of
from crossflops.ir.profile import Failure
from crossflops.profiling.run import MeasuredSteps, Recipe, train_and_measure
from crossflops.report.profile import (
    ConventionProfile,
    Latencies,
    ProfileDifference,
    TrainingProfile,
)
from crossflops.report.report import Report
from crossflops.targets.request import Request
from crossflops.targets.target import restoring_imports
from crossflops.verbs.bench import default_thread_count
from crossflops.verbs.compare.compare import Comparison, compare_with_tools
from crossflops.verbs.profile.account import (
    CountPart,
    RatedAgainst,
    StepCount,
    Timing,
    build_training_profile,
    count_profile_step,
)
from crossflops.verbs.provenance import build_request_record, framework_versions

Progress = Callable[[str], None]


class GivenTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times in milliseconds that were measured elsewhere: with them nothing is run."""

    fwd_ms: float | None = None
    bwd_ms: float | None = None
    step_ms: float | None = None

    @property
    def has_times(self) -> bool:
        """Whether times are given as options; raises InputError if --fwd-ms is missing."""
        if self.fwd_ms is None and (self.bwd_ms is not None or self.step_ms is not None):
            raise InputError("--bwd-ms and --step-ms require --fwd-ms", "add --fwd-ms")
        return self.fwd_ms is not None

    @property
    def latencies_in_seconds(self) -> Latencies:
        """The given times in seconds; raises InputError for an invalid time."""
        values = (self.fwd_ms, self.bwd_ms, self.step_ms)
        for value in values:
            if value is not None and not 1e-9 <= value <= 1e12:
                raise InputError(
                    f"a time must be positive, got {value} ms", "give a positive number"
                )
        forward, backward, step = (None if value is None else value / 1e3 for value in values)
        return Latencies(
            forward=forward, backward=backward, optimizer=step, runs=1, how="given, not run here"
        )


class ProfileConditions(msgspec.Struct, frozen=True, kw_only=True):
    """How to profile a model: its training and its peak, or times from elsewhere.

    `tools` are run on the same model and inputs, and stand beside it.
    """

    recipe: Recipe = Recipe()
    against: RatedAgainst = RatedAgainst()
    given: GivenTimes = GivenTimes()
    threads: int | None = None
    tools: tuple[str, ...] = ()


@restoring_imports()
def profile_training(
    request: Request, conditions: ProfileConditions, on_progress: Progress
) -> TrainingProfile:
    """Return the profile of a training step of a PyTorch model: the model is trained, or the given
    times are used.
    """
    provided = conditions.given.has_times
    conditions.against.check_peak_options()
    if not provided:
        _check_trainable_request(request)
    compared = (
        compare_forward_pass(request, conditions.tools, on_progress) if conditions.tools else None
    )
    on_progress("counting")
    report = count_profile_step(request)
    passes = 1
    if provided:
        device = conditions.against.device or ""
        timing = Timing(
            latencies=conditions.given.latencies_in_seconds,
            device=device,
            notes=("the times were given, and nothing was run",),
        )
    else:
        on_progress("training some steps")
        timing, passes = _time_training_of_copy(request, conditions, report.model.inputs)
    count = StepCount(parts=(CountPart(report=report, times=passes, repeats=passes),))
    profile = build_training_profile(count, timing, conditions.against)
    if compared is not None:
        profile = with_tool_rows(profile, compared)
    flags = {
        "as_": request.as_ or None,
        "device": conditions.against.device,
        "peak_tflops": list(conditions.against.peak_tflops) or None,
        "precision": conditions.against.precision,
        "fwd_ms": conditions.given.fwd_ms,
        "bwd_ms": conditions.given.bwd_ms,
        "step_ms": conditions.given.step_ms,
        "threads": conditions.threads,
        "tools": list(conditions.tools) or None,
    }
    return msgspec.structs.replace(
        profile,
        request=build_request_record("profile", request, report.model, flags),
        made_with=framework_versions(request.is_file),
    )


def _check_trainable_request(request: Request) -> None:
    """Raise InputError if the request cannot be trained: an ONNX file, or --frozen or
    --trainable.
    """
    if request.is_file:
        raise InputError(
            "`crossflops profile` cannot train an ONNX file",
            "give a PyTorch model, or the measured times with --fwd-ms and --bwd-ms",
        )
    if request.frozen or request.trainable:
        which = "--frozen" if request.frozen else "--trainable"
        raise InputError(
            f"{which} cannot be used, because `crossflops profile` runs the model"
            " with its own settings",
            "set requires_grad of the parameters in the model, or give the times with --fwd-ms",
        )


class _TimedTraining(NamedTuple):
    """The times of a training step, and the number of forward passes in it."""

    timing: Timing
    forward_passes: int


def _time_training_of_copy(
    request: Request, conditions: ProfileConditions, inputs: Any
) -> _TimedTraining:
    """Train a copy of the model, and return the times of a step."""
    source = request.source()
    frontend = frontend_of(source.model)
    if frontend is None or frontend.name != "torch":
        title = frontend.title if frontend is not None else "an unknown framework"
        raise InputError(
            f"`crossflops profile` can train only PyTorch models, but this is a model of {title}",
            "count it with `crossflops count --train`, or give its times with --fwd-ms and "
            "--bwd-ms",
        )
    model, args, kwargs = frontend.copy_for_tool(source.model, source.args, source.kwargs)
    threads = conditions.threads or default_thread_count()
    examples = next((spec.shape[0] for spec in inputs if spec.shape), 1)
    recipe = msgspec.structs.replace(
        conditions.recipe, examples=examples, training=request.setting.training, threads=threads
    )
    steps = train_and_measure(model, args, kwargs, recipe)
    return _TimedTraining(_timing_with_notes(steps, recipe, threads), steps.phases.passes)


def _timing_with_notes(steps: MeasuredSteps, recipe: Recipe, threads: int) -> Timing:
    """Return the times of a training run, with the notes and warnings that describe them."""
    iterations, phases = steps.iterations, steps.phases
    mode = "train" if recipe.training else "eval"
    notes = [
        f"the model ran in {mode}(), {threads} thread{'s' if threads > 1 else ''}, as a copy",
        "the loss is the sum of all float outputs"
        if recipe.loss is None
        else "the loss is given by the user",
        f"latencies are the median of {iterations.runs} steps without hooks, after "
        f"{iterations.warmup} warm-up steps; module times are from one more step with hooks",
    ]
    if phases.optimizer_name:
        notes.append(f"the optimizer is {phases.optimizer_name}")
    notes += filter(None, [phases.note])
    if phases.passes > 1:
        notes.append(f"it ran the model {phases.passes} times in each step")
    warnings = []
    if not iterations.settled:
        warnings.append("the step times were not yet stable when they were timed")
    if not steps.has_gradients:
        warnings.append("no output requires a gradient, so there was no backward pass")
    return Timing(
        latencies=Latencies(
            forward=phases.forward,
            backward=phases.backward,
            optimizer=phases.optimizer,
            iteration=phases.whole,
            runs=iterations.runs,
            how=iterations.how,
        ),
        watched=steps.watched,
        iterations=iterations,
        device=steps.device,
        runtime=steps.runtime,
        threads=threads,
        forward_bytes=steps.forward_bytes,
        step_bytes=steps.step_bytes,
        memory_how="PyTorch's allocator, in addition to what was allocated before",
        notes=tuple(notes),
        warnings=tuple(warnings),
    )


# What tools print for the model: a comparison beside the profile.


def compare_forward_pass(
    request: Request, tools: tuple[str, ...], on_progress: Progress
) -> Report:
    """Return the comparison of these tools on one forward pass of the model."""
    forward = msgspec.structs.replace(request, train=False, as_=(), frozen=(), trainable=())
    return compare_with_tools(forward, Comparison(tools=tools), on_progress)


def with_tool_rows(profile: TrainingProfile, compared: Report) -> TrainingProfile:
    """Return a copy of the profile with a row for each tool, or a warning why a tool has none."""
    return msgspec.structs.replace(
        profile,
        conventions=(*profile.conventions, *_tool_profiles(compared)),
        warnings=(*profile.warnings, *_missing_tool_row_sentences(compared)),
    )


def _tool_profiles(compared: Report) -> Iterable[ConventionProfile]:
    """Yield for each tool its total in MACs, the causes of its difference from the native count,
    and its MACs by module.
    """
    answers = [answer for answer in compared.profiles or () if not isinstance(answer, Failure)]
    versions = {answer.tool: answer.version for answer in answers}
    for account in compared.reconciliations or ():
        unit, printed, steps = account.unit, account.theirs, account.explanations
        if unit:
            yield ConventionProfile(
                tool=account.tool,
                edition=versions[account.tool],
                macs=printed / unit if printed % unit else int(printed) // unit,
                printed=printed,
                differences=tuple(ProfileDifference(step.cause, step.amount) for step in steps),
                residual=account.residual,
                by_module={
                    row.path: int(row.predicted if row.theirs is None else row.theirs) // unit
                    for row in account.by_path
                },
            )


def _missing_tool_row_sentences(compared: Report) -> Iterable[str]:
    """Yield a sentence for each tool that failed or that counts no MACs."""
    for answer in compared.profiles or ():
        if isinstance(answer, Failure):
            yield f"{answer.tool} gave no number: {answer.message}; {answer.hint}"
    for account in compared.reconciliations or ():
        if not account.unit:
            yield f"{account.tool} counts no MACs and is not shown"
