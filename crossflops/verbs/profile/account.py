"""The count of a step beside its times: one profile."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import find
from crossflops.hardware.devices.peaks import ANY, attainable, given_peak
from crossflops.hardware.rates.terms import as_stored
from crossflops.ir.measurement import Measurement
from crossflops.ir.training import Training
from crossflops.profiling.watch import ModuleTimes, StepTimes
from crossflops.render.pages.rates import of_profile, short_step
from crossflops.report.profile import (
    ConventionProfile,
    Latencies,
    ModuleProfile,
    ProfileDifference,
    ProfilePeak,
    StepMemory,
    TrainingProfile,
)
from crossflops.report.report import Report
from crossflops.targets.request import Request
from crossflops.tools.registry import find as convention_named
from crossflops.verbs.bench import own_peak
from crossflops.verbs.count import native_count
from crossflops.verbs.devices import known, look
from crossflops.verbs.efficiency.work import explained

# The count: of every call of the model in the step, added up.


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """The reports of a step: one for each kind of input, and how often the model had such."""

    parts: tuple[tuple[Report, int], ...]

    @property
    def report(self) -> Report:
        """That of the first inputs."""
        return self.parts[0][0]

    @property
    def calls(self) -> int:
        """How often the model was called."""
        return sum(times for _, times in self.parts)


def counted(request: Request) -> Report:
    """The count of a training step, with its explanation where a convention is asked for."""
    report, native = native_count(msgspec.structs.replace(request, train=True))
    return explained(report, native, request.setting)


_SUMMED = Training.__struct_fields__


def _times(work: Training, times: int) -> Training:
    return Training(**{name: times * getattr(work, name) for name in _SUMMED})


def _sum(works: Iterable[Training]) -> Training:
    sums = dict.fromkeys(_SUMMED, 0)
    for work in works:
        for name in _SUMMED:
            sums[name] += getattr(work, name)
    return Training(**sums)


def work_of(count: Count) -> Training:
    """All of the step."""
    return _sum(_times(report.training, times) for report, times in count.parts if report.training)


def modules(count: Count, times: Mapping[str, ModuleTimes]) -> tuple[ModuleProfile, ...]:
    """Every module with its work and its time, in the order of the model."""
    rows: list[ModuleProfile] = []
    reports = [(_own(report), report, often) for report, often in count.parts]
    by_path = [{row.path: row for row in report.modules} for _, report, _ in reports]
    depths: dict[str, int] = {}
    for row in count.report.modules:
        works, macs, flops, nbytes = [], 0, 0, 0
        for (counted, _, often), table in zip(reports, by_path, strict=True):
            other = table.get(row.path)
            if other is not None and other.training:
                works.append(_times(other.training, often))
            macs += often * counted[row.path][0]
            flops += often * counted[row.path][1]
            nbytes += often * counted[row.path][2]
        depths[row.path] = _depth(row.path, depths)
        rows.append(
            ModuleProfile(
                path=row.path,
                class_=row.class_,
                depth=depths[row.path],
                params=row.params,
                training=_sum(works),
                own_macs=macs,
                own_flops=flops,
                bytes=nbytes,
                **_seconds(row.path, times),
            )
        )
    return tuple(rows)


def _own(report: Report) -> dict[str, tuple[int, int, int]]:
    """By module: MACs and FLOPs of its own nodes, and bytes of all that is in it."""
    work: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    known_paths = {row.path for row in report.modules}
    for node in report.nodes:
        path = node.path
        while path and path not in known_paths:
            path = path.rpartition(".")[0]
        work[path][0] += node.macs
        work[path][1] += node.flops
        while True:
            work[path][2] += node.bytes_read + node.bytes_written
            if not path:
                break
            path = path.rpartition(".")[0]
    return defaultdict(lambda: (0, 0, 0), {k: (v[0], v[1], v[2]) for k, v in work.items()})


def _depth(path: str, depths: Mapping[str, int]) -> int:
    """How many of the modules that are listed lie around this one."""
    outer = path
    while outer:
        outer = outer.rpartition(".")[0]
        if outer in depths:
            return depths[outer] + 1
    return 0


def _seconds(path: str, times: Mapping[str, ModuleTimes]) -> dict[str, Any]:
    """What was seen of a module. One that is only a list has the times of what is in it."""
    if not times:
        return {}
    spent = times.get(path)
    if spent is None or not (spent.calls or spent.repeats):
        inside = [time for other, time in times.items() if _directly(path, other, times)]
        if not inside:
            return {"forward_seconds": None, "backward_seconds": None}
        return {
            "forward_seconds": sum(time.forward for time in inside),
            "backward_seconds": sum(time.backward for time in inside),
            "again_seconds": sum(time.again for time in inside),
        }
    return {
        "calls": spent.calls,
        "forward_seconds": spent.forward,
        "backward_seconds": spent.backward,
        "again_seconds": spent.again,
    }


def _directly(path: str, other: str, times: Mapping[str, ModuleTimes]) -> bool:
    """Whether a module that was called lies within the path, and in no other such module."""
    if not other.startswith(f"{path}.") or not times[other].calls:
        return False
    outer = other.rpartition(".")[0]
    while outer != path:
        if outer in times and times[outer].calls:
            return False
        outer = outer.rpartition(".")[0]
    return True


def least_again(rows: Iterable[ModuleProfile], times: Mapping[str, ModuleTimes]) -> int:
    """The forward MACs that were seen to run again at least.

    A module's own products ran again as often as its forward pass did to its end, as a share of
    its calls. Of a pass that ended early it is not known what had run.
    """
    return sum(
        row.own_macs * times[row.path].repeats // times[row.path].calls
        for row in rows
        if row.path in times and times[row.path].calls
    )


# The peak.


class RatedAgainst(msgspec.Struct, frozen=True, kw_only=True):
    """What the rates are set against: a device of the catalogue, or given peaks, see `efficiency`.

    `precision` is the one that ran, by default that of the weights or of autocast.
    """

    device: str | None = None
    peak_tflops: tuple[str, ...] = ()
    precision: str | None = None

    def check(self) -> None:
        """Before anything runs. Raises UnknownNameError, and InputError for what is no peak."""
        peaks = [given_peak(text) for text in self.peak_tflops]
        if self.precision is not None and peaks and all(name == ANY for name, _ in peaks):
            raise InputError(
                "--precision changes nothing: --peak-tflops is that of all precisions",
                f"write --peak-tflops {self.precision}=X, or leave it out",
            )
        if self.device is not None:
            device = look(self.device)
            if self.precision is not None and not self.peak_tflops:
                attainable(device, self.precision)


def peak_of(
    rated: RatedAgainst, stored: str, device: str, threads: int
) -> tuple[ProfilePeak | None, tuple[str, ...]]:
    """The peak, or None and a sentence that says why there is none.

    `stored` is the element type of the products, `device` the name of the one that ran, "cpu" for
    this machine. Raises UnknownNameError for a device or a precision that was asked for and is not
    known: no other is taken for it.
    """
    precision = rated.precision or as_stored(stored)
    given = dict(map(given_peak, rated.peak_tflops))
    if given:
        rate = given.get(precision, given.get(ANY))
        if rate is None:
            raise UnknownNameError(
                f"no peak is given for {precision}", f"add --peak-tflops {precision}=X"
            )
        return ProfilePeak(rate=rate, precision=precision, source="given"), ()
    if rated.device is None and device == "cpu":
        return _of_this_machine(precision, stored, threads)
    name = rated.device or device
    if not name:
        return None, ("no MFU: it is not known what ran; give --device or --peak-tflops",)
    try:
        known_device = find(name, known(name))
        rate = attainable(known_device, precision)
    except UnknownNameError as error:
        if rated.device is not None:
            raise
        return None, (f"no MFU: {error.message}; give --device or --peak-tflops",)
    source = f"{known_device.label}, dense {precision}"
    return ProfilePeak(rate=rate, precision=precision, source=source), ()


def _of_this_machine(
    precision: str, stored: str, threads: int
) -> tuple[ProfilePeak | None, tuple[str, ...]]:
    try:
        measured = own_peak(threads)
    except CrossflopsError as error:
        measured = error.message
    if isinstance(measured, str):
        return None, (f"no MFU: this machine's peak was not measured: {measured}",)
    rate = measured.rates.get(stored)
    if rate is None:
        return None, (f"no MFU: this machine has no measured peak for {precision}",)
    return ProfilePeak(rate=rate, precision=precision, source=measured.source), ()


# Everything together.


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of a step, and where. `stored` is the type in which products ran."""

    latencies: Latencies
    watched: StepTimes | None = None
    iterations: Measurement | None = None
    device: str = "cpu"
    runtime: str = ""
    threads: int = 1
    autocast: str = ""
    forward_bytes: int | None = None
    step_bytes: int | None = None
    memory_how: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    world_size: int = 1
    sharing: int = 1  # processes that compute the batch together


RULE = "rates are 2 x MACs / seconds; MFU leaves out what is computed again, HFU does not"


def profile_of(count: Count, timing: Timing, against: RatedAgainst) -> TrainingProfile:
    """The profile: see `crossflops.report.profile`."""
    watched = timing.watched
    times = watched.modules if watched is not None else {}
    rows = modules(count, times)
    report = count.report
    stored = timing.autocast or _stored(report)
    peak, doubts = peak_of(against, stored, timing.device, timing.threads)
    if peak is not None and timing.sharing > 1:
        source = f"{timing.sharing} x {peak.source}, which share the batch"
        peak = msgspec.structs.replace(peak, rate=timing.sharing * peak.rate, source=source)
    unseen = watched.unseen if watched is not None else ()
    memory = report.memory
    notes = [RULE, *timing.notes]
    if peak is not None:
        notes.append(f"peak: {peak.source}")
    above, left = of_profile(rows, peak.rate if peak is not None else None, unseen)
    warnings = [*report.warnings, *doubts, *timing.warnings, *left]
    warnings += [_hidden(path) for path in unseen]
    work = work_of(count)
    more = least_again(rows, times) - work.recomputed_macs
    if more > 0:
        warnings.append(
            f"{more} MACs more were run again than the graph of the model has: HFU lacks them"
        )
    warnings += [
        f"{fold.tool} counts no MACs: it is not shown beside the step"
        for fold in report.folds
        if not convention_named(fold.tool, fold.edition).unit
    ]
    if len(count.parts) > 1 and report.folds:
        warnings.append("the step had inputs of several kinds: no convention is shown beside it")
    uncounted = report.training.uncounted if report.training else ()
    if report.uncounted or uncounted:
        warnings.append(
            f"{len({row.node for row in (*report.uncounted, *uncounted)})} nodes have no count "
            "and are in no sum: see uncounted"
        )
    return TrainingProfile(
        model=report.model,
        runtime=timing.runtime,
        device=timing.device,
        examples=_examples(count),
        forward_calls=count.calls,
        params=report.params,
        work=work,
        latencies=timing.latencies,
        watched=_watched(watched),
        iterations=timing.iterations,
        world_size=timing.world_size,
        peak=peak,
        memory=StepMemory(
            params=memory.param_bytes if memory else 0,
            by_liveness=memory.peak_activation_bytes if memory else 0,
            forward=timing.forward_bytes,
            step=timing.step_bytes,
            how=timing.memory_how,
        ),
        modules=rows,
        conventions=tuple(_conventions(count)),
        uncounted=(*report.uncounted, *uncounted),
        assumptions=tuple(notes),
        warnings=tuple(dict.fromkeys((*warnings, *_short_step(timing, report, against)))),
        errors=above,
        request=report.request,
        made_with=report.made_with,
    )


def _hidden(path: str) -> str:
    name = path or "the model"
    return f"torch.compile hides what is in {name}: its modules have work and no time"


def _watched(times: StepTimes | None) -> Latencies | None:
    if times is None:
        return None
    return Latencies(
        forward=times.forward,
        backward=times.backward,
        optimizer=times.optimizer,
        iteration=times.whole,
        how="one step with hooks, whose own time is left out",
    )


def _stored(report: Report) -> str:
    """The type of most products."""
    kinds = report.macs_by_precision
    return max(kinds, key=kinds.__getitem__) if kinds else "float32"


def _examples(count: Count) -> int | None:
    """The first axis of the first input, of all calls: None where there is none."""
    total = 0
    for report, times in count.parts:
        sizes = [spec.shape[0] for spec in report.model.inputs if spec.shape]
        if not sizes:
            return None
        total += times * sizes[0]
    return total


def _short_step(timing: Timing, report: Report, against: RatedAgainst) -> tuple[str, ...]:
    """An optimizer's step that is faster than the memory of a named device."""
    seconds = timing.latencies.optimizer
    if seconds is None or against.device is None:
        return ()
    device = look(against.device)
    if not device.bandwidth:
        return ()
    return short_step(seconds, report.params, device.bandwidth)


def _conventions(count: Count) -> Iterable[ConventionProfile]:
    """Each convention that was asked for, with the way there from the native count."""
    accounts: Sequence[Any] = count.report.reconciliations or ()
    if len(count.parts) > 1:
        return
    calls = count.calls
    for fold in count.report.folds:
        same = (a for a in accounts if (a.tool, a.edition) == (fold.tool, fold.edition))
        account = next(same, None)
        unit = convention_named(fold.tool, fold.edition).unit
        if not unit:
            continue  # which a warning says
        by_module: dict[str, int] = defaultdict(int)
        for row in fold.rows:
            path = row.path
            by_module[""] += calls * row.amount // unit
            while path:
                by_module[path] += calls * row.amount // unit
                path = path.rpartition(".")[0]
        steps = account.explanations if account is not None else ()
        ours = calls * count.report.macs
        total = calls * fold.total
        causes = tuple(ProfileDifference(step.cause, calls * step.amount) for step in steps)
        yield ConventionProfile(
            tool=fold.tool,
            edition=fold.edition,
            macs=total // unit if unit > 1 else total,
            differences=causes,
            residual=total - ours - sum(cause.amount for cause in causes),
            by_module=dict(by_module),
        )
