"""Hold the profile of a training step: its count and its times, in total and by module."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.measurement import Measurement
from crossflops.ir.profile import Amount
from crossflops.ir.provenance import RequestRecord, report_title
from crossflops.ir.training import Training
from crossflops.report.report import SCHEMA, ModelInfo, UncountedRow

COVERED = 0.9  # of a module's time that its parts should account for
WORTH = 0.05  # of the time: what takes less is not looked at


class ProfilePeak(msgspec.Struct, frozen=True, kw_only=True):
    """The FLOP/s that the device can reach in the `precision` that ran, and the source."""

    rate: float
    precision: str
    source: str


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """The phases of one step in seconds, the median one of `runs`. None is an unseen phase.

    `beside` is that of modules beside the model. `iteration` is the whole step; of a run with
    hooks their own time is left out. It is `undivided` where a backward pass is in it that was not
    timed apart. `how` says what was timed, by which clock.
    """

    forward: float | None = None
    backward: float | None = None
    optimizer: float | None = None
    iteration: float | None = None
    beside: float | None = None
    undivided: bool = False
    runs: int = 1
    how: str = ""


class ModuleProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A module with all that is in it, over one step.

    `training` is its work; `own_macs` are the forward MACs that no module within it has, `bytes`
    what its nodes read and write in the forward pass. Seconds are None where nothing was timed;
    `again_seconds` are forward passes that the backward pass repeated.
    """

    path: str
    class_: str = msgspec.field(name="class")
    depth: int
    params: int
    training: Training
    own_macs: int
    own_flops: int
    bytes: int
    calls: int = 0
    forward_seconds: float | None = None
    backward_seconds: float | None = None
    again_seconds: float = 0.0

    @property
    def macs(self) -> int:
        """The MACs of the forward pass through the module."""
        return self.training.forward_macs

    @property
    def backward_macs(self) -> int:
        """The MACs of the backward pass through the module, with recomputed work."""
        work = self.training
        return work.backward_input_macs + work.backward_weight_macs + work.recomputed_macs

    @property
    def rate(self) -> float | None:
        """The FLOP/s of the forward pass: 2 x MACs / seconds; None if its time is unknown."""
        return 2 * self.macs / self.forward_seconds if self.forward_seconds else None

    @property
    def backward_rate(self) -> float | None:
        """The FLOP/s of the backward pass, with recomputed work: 2 x MACs / seconds; None if its
        time is unknown.
        """
        seconds = (self.backward_seconds or 0.0) + self.again_seconds
        return 2 * self.backward_macs / seconds if self.backward_seconds else None


class BesideProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A module that ran in the step beside the model, such as a teacher, over all its calls.

    `training` is its work, None where it has no count, and `reason` says why.
    """

    class_: str = msgspec.field(name="class")
    params: int
    calls: int
    training: Training | None = None
    reason: str = ""
    forward_seconds: float = 0.0
    backward_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds of the module's forward and backward pass together."""
        return self.forward_seconds + self.backward_seconds


class ProfileDifference(msgspec.Struct, frozen=True):
    """The amount by which a convention differs from the native count, for one cause."""

    cause: str
    amount: Amount


class ConventionProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The same step under a tool's convention: `macs` forward, twice as many backward.

    `differences` lead from the native MACs to those of the convention. `by_module` are its MACs.
    `printed` is what the tool itself printed, where it was run, in the version `edition`: the
    `differences` lead to that.
    """

    tool: str
    edition: str
    macs: Amount
    differences: tuple[ProfileDifference, ...]
    residual: Amount
    by_module: dict[str, int]
    printed: Amount | UnsetType = UNSET


class StepMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a step. `by_liveness` is the peak of a forward pass without a backward one.

    `forward` and `step` were measured: the most that was held above what was there before, in such
    a forward pass, and in a whole step. None is what was not measured; `how` says by what.
    """

    params: int
    by_liveness: int
    forward: int | None = None
    step: int | None = None
    how: str = ""


class RankStep(msgspec.Struct, frozen=True, kw_only=True):
    """The step of one process: the work of its batch on the whole model, and its times."""

    rank: int
    examples: int | None
    forward_macs: int
    backward_macs: int
    latencies: Latencies

    @property
    def seconds(self) -> float | None:
        """The seconds of the whole step of this process; None if unknown."""
        return self.latencies.iteration


class Ranks(msgspec.Struct, frozen=True, kw_only=True):
    """The step of all processes of a training; nothing is known of the `missing` ones.

    So many as `sharing` compute one batch together, by tensor parallelism: each of them has the
    work of the whole batch here.
    """

    steps: tuple[RankStep, ...]
    missing: tuple[int, ...] = ()
    sharing: int = 1

    @property
    def macs(self) -> int | None:
        """The MACs of the batches of all ranks; a batch that several ranks share counts once. None
        if one is unknown.
        """
        total = sum(step.forward_macs + step.backward_macs for step in self.steps)
        return None if self.missing or total % self.sharing else total // self.sharing

    @property
    def examples(self) -> int | None:
        """The examples in the batches of all ranks; a batch that several ranks share counts once.
        None if one is unknown.
        """
        known = [step.examples for step in self.steps if step.examples is not None]
        full = len(known) == len(self.steps) and not self.missing
        return sum(known) // self.sharing if full else None

    @property
    def seconds(self) -> float | None:
        """The seconds of the step of the slowest rank; None if unknown."""
        return max((step.seconds for step in self.steps if step.seconds is not None), default=None)


class TrainingProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A training step: its work, its duration, and their distribution over modules.

    `work` is that of the model, what attention kernels and checkpoints compute again apart in it.
    `examples` are those of one step, `beside` other modules that ran in it. `latencies` are those
    of the model without hooks, where it was run so; `watched` of the step from which the modules
    have their times. `errors` are what cannot be true of a sound measurement, `warnings` what
    should be known.
    """

    schema: str = SCHEMA
    model: ModelInfo
    runtime: str
    device: str
    examples: int | None
    forward_calls: int
    params: int
    work: Training
    latencies: Latencies
    watched: Latencies | None = None
    iterations: Measurement | None = None
    world_size: int = 1
    ranks: Ranks | None = None
    peak: ProfilePeak | None = None
    memory: StepMemory
    modules: tuple[ModuleProfile, ...]
    conventions: tuple[ConventionProfile, ...] = ()
    uncounted: tuple[UncountedRow, ...] = ()
    beside: tuple[BesideProfile, ...] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    request: RequestRecord | UnsetType = UNSET
    made_with: dict[str, str] | UnsetType = UNSET

    @property
    def name(self) -> str:
        """The name of the model in titles, with its digest or target."""
        return report_title(self.model.name, self.model.digest, self.request)

    @property
    def backward_macs(self) -> int:
        """The MACs of the gradients, without recomputation."""
        return self.work.backward_input_macs + self.work.backward_weight_macs

    @property
    def backward_flops(self) -> int:
        """The FLOPs of the gradients, without recomputation: a number of operations, not a
        rate.
        """
        return self.work.backward_input_flops + self.work.backward_weight_flops

    @property
    def model_macs(self) -> int:
        """The MACs of forward and, if it ran, backward pass, without recomputation."""
        return self.work.forward_macs + (self.backward_macs if self.has_backward else 0)

    @property
    def executed_macs(self) -> int:
        """The MACs of forward and, if it ran, backward pass, with recomputation."""
        return self.model_macs + (self.work.recomputed_macs if self.has_backward else 0)

    @property
    def step_macs(self) -> int:
        """The MACs of the step with modules outside the model, without recomputation."""
        return self.model_macs + sum(
            work.macs - work.recomputed_macs for work in self._extra_module_works
        )

    @property
    def executed_step_macs(self) -> int:
        """The MACs of the step with modules outside the model, with recomputation."""
        return self.executed_macs + sum(work.macs for work in self._extra_module_works)

    @property
    def _extra_module_works(self) -> list[Training]:
        """The training work of each module outside of the model whose work is known."""
        return [row.training for row in self.beside if row.training is not None]

    @property
    def has_backward(self) -> bool:
        """Whether a backward pass was timed, by itself or with the rest of the step."""
        return self.latencies.backward is not None or self.latencies.undivided

    @property
    def seconds(self) -> float | None:
        """The seconds of the whole step, or else the sum of its timed phases; None without
        times.
        """
        times = self.latencies
        if times.iteration is not None:
            return times.iteration
        parts = [
            part for part in (times.forward, times.backward, times.optimizer) if part is not None
        ]
        return sum(parts) if parts else None

    def rate(self, macs: Amount, seconds: float | None) -> float | None:
        """Return the FLOP/s of this number of MACs in these seconds, 2 x MACs / seconds; None
        without seconds.
        """
        return 2 * macs / seconds if seconds else None

    def of_peak(self, rate: float | None) -> float | None:
        """Return a rate in FLOP/s divided by the peak; None if one of the two is unknown."""
        return None if rate is None or self.peak is None else rate / self.peak.rate

    @property
    def rest(self) -> float | None:
        """The seconds of a step outside forward, backward and optimizer.

        None where the step or its forward pass was not timed, or not apart.
        """
        times = self.latencies
        if times.iteration is None or times.forward is None or times.undivided:
            return None
        parts = (times.forward, times.backward, times.optimizer, times.beside)
        return max(times.iteration - sum(part or 0.0 for part in parts), 0.0)

    @property
    def mfu(self) -> float | None:
        """The model FLOPs utilization, 1 for the peak: rate without recomputation / peak; None
        without a time or a peak.
        """
        return self.of_peak(self.rate(self.step_macs, self.seconds))

    @property
    def hfu(self) -> float | None:
        """The hardware FLOPs utilization, 1 for the peak: rate with recomputation / peak; None
        without a time or a peak.
        """
        return self.of_peak(self.rate(self.executed_step_macs, self.seconds))

    @property
    def examples_per_second(self) -> float | None:
        """The number of examples that this process handles in a second; None if it is unknown."""
        return self.examples / self.seconds if self.examples and self.seconds else None

    def module(self, path: str) -> ModuleProfile:
        """Return the row of the module at this path; raise KeyError if there is none."""
        return next(
            (row for row in self.modules if row.path == path), None
        ) or _reject_missing_module(path)

    def to_json(self) -> str:
        """Return the profile as indented JSON, with counts as exact integers and with derived
        numbers such as rates.
        """
        plain = msgspec.to_builtins(self)
        plain["rest_seconds"] = self.rest
        plain["rates"] = {
            "forward": self.rate(self.work.forward_macs, self.latencies.forward),
            "backward": self.rate(self.backward_macs, self.latencies.backward),
            "step": self.rate(self.step_macs, self.seconds),
            "mfu": self.mfu,
            "hfu": self.hfu,
            "examples_per_second": self.examples_per_second,
        }
        for row, module in zip(plain["modules"], self.modules, strict=True):
            row |= {"rate": module.rate, "backward_rate": module.backward_rate}
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "TrainingProfile":
        """Return the profile that `to_json` wrote; raise msgspec.ValidationError for another
        text.
        """
        return msgspec.json.decode(text, type=cls)


def _reject_missing_module(path: str) -> ModuleProfile:
    """Raise KeyError for a module path that the profile does not have; nothing is returned."""
    raise KeyError(path)


# What no sound measurement has.


def children_by_path(modules: Iterable[ModuleProfile]) -> dict[str, list[ModuleProfile]]:
    """Return {module path: rows of its direct submodules}."""
    rows = list(modules)
    known = {row.path for row in rows}
    inside: dict[str, list[ModuleProfile]] = {path: [] for path in known}
    for row in rows:
        outer = row.path
        while outer:
            outer = outer.rpartition(".")[0]
            if outer in known:
                inside[outer].append(row)
                break
    return inside


class FastPass(NamedTuple):
    """A pass of a module ("forward" or "backward") with its rate in FLOP/s."""

    module: ModuleProfile
    phase: str
    rate: float


class UnexplainedTime(NamedTuple):
    """A module whose submodules take another time, in seconds, than the module."""

    module: ModuleProfile
    submodules: int
    submodule_seconds: float


def modules_above_peak(modules: Iterable[ModuleProfile], peak: float) -> tuple[FastPass, ...]:
    """Return each pass of a module that was faster than the peak, with its rate."""
    return tuple(
        FastPass(row, word, rate)
        for row in modules
        for word, rate in (("forward", row.rate), ("backward", row.backward_rate))
        if rate is not None and rate > peak
    )


def modules_with_time_gap(
    modules: Iterable[ModuleProfile], unseen: Iterable[str] = ()
) -> tuple[UnexplainedTime, ...]:
    """Return the modules whose forward time differs from that of their submodules by more than
    10 %, each with the number of its submodules and their seconds.

    Looked at are modules with 5 % of the time. One with work of its own accounts for the rest of
    its time by that; what is in it may not take longer than it does.
    """
    rows = list(modules)
    inside, hidden = children_by_path(rows), set(unseen)
    forward = max((row.forward_seconds or 0.0 for row in rows if not row.path), default=0.0)
    left = []
    for row in rows:
        parts, seconds = inside[row.path], row.forward_seconds
        if not parts or not seconds or seconds < WORTH * forward or row.path in hidden:
            continue
        least = 0.0 if row.own_flops else COVERED
        total = sum(part.forward_seconds or 0.0 for part in parts)
        if not least * seconds <= total <= seconds / COVERED:
            left.append(UnexplainedTime(row, len(parts), total))
    return tuple(left)


class ShownDepth(msgspec.Struct, frozen=True, kw_only=True):
    """The shown part of a profile: -1 are all levels, `top` modules at each of them."""

    depth: int = -1
    top: int = 3
    detailed: bool = True


class ClassesAtDepth(msgspec.Struct, frozen=True):
    """All modules of one class at one depth."""

    class_: str
    params: int
    macs: int
    seconds: float


def classes_by_depth(modules: Iterable[ModuleProfile]) -> Mapping[int, tuple[ClassesAtDepth, ...]]:
    """Return {depth: one entry for each module class at that depth}, with sums of parameters, MACs
    and seconds.
    """
    sums: dict[int, dict[str, ClassesAtDepth]] = {}
    for row in modules:
        level = sums.setdefault(row.depth, {})
        before = level.get(row.class_, ClassesAtDepth(row.class_, 0, 0, 0.0))
        level[row.class_] = ClassesAtDepth(
            row.class_,
            before.params + row.params,
            before.macs + row.macs,
            before.seconds + (row.forward_seconds or 0.0),
        )
    return {depth: tuple(level.values()) for depth, level in sorted(sums.items())}
