"""Combine the count of a training step with its times in one profile."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import find_device
from crossflops.hardware.devices.peaks import ANY, attainable_peak, parse_peak_tflops
from crossflops.hardware.rates.remarks import fast_update_warnings, module_profile_remarks
from crossflops.hardware.rates.terms import precision_of_stored_type
from crossflops.ir.ledger import ModelInfo
from crossflops.ir.measurement import Measurement
from crossflops.ir.training import Training
from crossflops.profiling.watch import ModuleTimes, StepTimes
from crossflops.report.profile import (
    BesideProfile,
    ConventionProfile,
    Latencies,
    ModuleProfile,
    ProfileDifference,
    ProfilePeak,
    StepMemory,
    TrainingProfile,
)
from crossflops.report.report import ModuleRow, Report, UncountedRow
from crossflops.targets.request import Request
from crossflops.tools.registry import find_convention as convention_named
from crossflops.verbs.bench import machine_peak_or_reason
from crossflops.verbs.count import native_count
from crossflops.verbs.devices import additional_devices, look_up_device
from crossflops.verbs.efficiency.work import with_convention_explanations

# The count: of every call of the model in the step, added up.


class CountPart(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one kind of call, how often it ran, and the path of the called module in the
    model.

    `repeats` of them took the same examples. `has_backward` says whether a backward pass ran
    through them, `is_again` that they ran within one, whose forward work is done again: that of
    the modules that `finished`, where the calls did not.
    """

    report: Report
    times: int = 1
    repeats: int = 1
    path: str = ""
    has_backward: bool = True
    is_again: bool = False
    finished: frozenset[str] | None = None

    def recompute_macs_and_flops(self, path: str, single: Training) -> tuple[int, int]:
        """Return (MACs, FLOPs) of the work in a module that one recomputed call does again."""
        if self.finished is None:
            return single.forward_macs, single.forward_flops
        within = {name for name in self.finished if not path or f"{name}.".startswith(f"{path}.")}
        own = [
            work
            for name, work in _own_macs_flops_bytes_by_module(self.report).items()
            if name in within
        ]
        return sum(macs for macs, _, _ in own), sum(flops for _, flops, _ in own)


class OuterModule(msgspec.Struct, frozen=True, kw_only=True):
    """A module that was not called itself, but encloses modules that were."""

    path: str
    class_: str
    params: int


class StepCount(msgspec.Struct, frozen=True, kw_only=True):
    """The reports of the calls of one step, and those of modules outside of the model (`beside`).

    `outer` are the modules around parts of the model that the loop calls, from the outside,
    `order` the paths of its modules. `warnings` say what is in no sum.
    """

    parts: tuple[CountPart, ...]
    beside: tuple[BesideProfile, ...] = ()
    outer: tuple[OuterModule, ...] = ()
    order: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def first_call_report(self) -> Report:
        """The report of the first kind of call."""
        return self.parts[0].report

    @property
    def model_call_count(self) -> int:
        """The number of calls of the model; if only parts of it are called, the largest number for
        one part.
        """
        first = [part for part in self.parts if not part.is_again]
        return max(_sum_by_path(first, lambda part: part.times).values())


def _sum_by_path(parts: Iterable[CountPart], amount: Callable[[CountPart], int]) -> dict[str, int]:
    """Return {module path: sum of `amount` over the parts at this path}."""
    sums: dict[str, int] = {}
    for part in parts:
        sums[part.path] = sums.get(part.path, 0) + amount(part)
    return sums


def count_profile_step(request: Request) -> Report:
    """Return the report of a training step, with the explained totals of the requested
    conventions.
    """
    report, native = native_count(msgspec.structs.replace(request, train=True))
    return with_convention_explanations(report, native, request.setting)


_SUMMED = Training.__struct_fields__


def _scale_training_work(work: Training, times: int) -> Training:
    """Return the work of a training step with every amount multiplied by `times`."""
    return Training(**{name: times * getattr(work, name) for name in _SUMMED})


def _sum_training_work(works: Iterable[Training]) -> Training:
    """Return the sum of the work of several training steps, amount by amount."""
    sums = dict.fromkeys(_SUMMED, 0)
    for work in works:
        for name in _SUMMED:
            sums[name] += getattr(work, name)
    return Training(**sums)


def _training_work_of_part(part: CountPart, single: Training, path: str = "") -> Training:
    """Return the training work of all calls of a part, from `single`, the work of one call; a
    recomputed call has only recomputed work.
    """
    if not part.is_again:
        return _scale_training_work(single, part.times)
    macs, flops = part.recompute_macs_and_flops(path, single)
    work = msgspec.structs.replace(
        single,
        forward_macs=0,
        forward_flops=0,
        recomputed_macs=single.recomputed_macs + macs,
        recomputed_flops=single.recomputed_flops + flops,
    )
    return _scale_training_work(work, part.times)


def training_work_of_count(count: StepCount) -> Training:
    """Return the training work of all calls of a step."""
    return _sum_training_work(
        _training_work_of_part(part, part.report.training)
        for part in count.parts
        if part.report.training
    )


class _PartTable(NamedTuple):
    """The modules of one part of the count, by their paths in the part."""

    part: CountPart
    rows: dict[str, ModuleRow]
    own: dict[str, tuple[int, int, int]]

    @classmethod
    def from_part(cls, part: CountPart) -> "_PartTable":
        """Return the table of a part: its modules and their own work, by path."""
        rows = {row.path: row for row in part.report.modules}
        return cls(part, rows, _own_macs_flops_bytes_by_module(part.report))

    def path_in_part(self, path: str) -> str | None:
        """Return the path of a module relative to the part: "" for the part and its ancestors,
        None for a module outside of it.
        """
        index = self.part.path
        if path == index or not path or index.startswith(f"{path}."):
            return ""
        if not index:
            return path
        return path.removeprefix(f"{index}.") if path.startswith(f"{index}.") else None

    def is_outside(self, path: str) -> bool:
        """Return whether the path is shorter than that of the part, so that it can only be an
        ancestor.
        """
        return len(path) < len(self.part.path)


def module_profiles(
    count: StepCount, times: Mapping[str, ModuleTimes]
) -> tuple[ModuleProfile, ...]:
    """Return a row for each module with its MACs, FLOPs, bytes and seconds in the step, in the
    order of the model.
    """
    tables = [_PartTable.from_part(part) for part in count.parts]
    depths: dict[str, int] = {}
    rows: list[ModuleProfile] = []
    for path, (class_name, params) in _class_and_params_by_path(count).items():
        works, own, nbytes = [], [0, 0], 0
        for table in tables:
            index, often = table.path_in_part(path), table.part.times
            row = table.rows.get(index) if index is not None else None
            if index is None or row is None:
                continue
            works += (
                [_training_work_of_part(table.part, row.training, index)] if row.training else []
            )
            if table.part.is_again:
                continue
            nbytes += often * table.own[index][2]
            if not table.is_outside(path):
                own = [own[at] + often * table.own[index][at] for at in (0, 1)]
        depths[path] = _module_depth(path, depths)
        rows.append(
            ModuleProfile(
                path=path,
                class_=class_name,
                depth=depths[path],
                params=params,
                training=_sum_training_work(works),
                own_macs=own[0],
                own_flops=own[1],
                bytes=nbytes,
                **_module_time_fields(path, times),
            )
        )
    return tuple(rows)


def _class_and_params_by_path(count: StepCount) -> dict[str, tuple[str, int]]:
    """Return {module path: (class, number of parameters)}, in the order of the model."""
    rows = {row.path: (row.class_, row.params) for row in count.outer}
    for part in count.parts:
        for row in part.report.modules:
            path = f"{part.path}.{row.path}".strip(".")
            rows.setdefault(path, (row.class_, row.params))
    if len({part.path for part in count.parts}) == 1 and not count.outer:
        return rows
    indices = {path: index for index, path in enumerate(count.order)}
    last = len(indices)
    return dict(sorted(rows.items(), key=lambda item: indices.get(item[0], last)))


def _own_macs_flops_bytes_by_module(report: Report) -> dict[str, tuple[int, int, int]]:
    """Return {module path: (MACs of its own nodes, FLOPs of its own nodes, bytes including
    submodules)}.
    """
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


def _module_depth(path: str, depths: Mapping[str, int]) -> int:
    """Return the depth of a module: 1 more than that of its nearest ancestor in `depths`, 0
    without one.
    """
    outer = path
    while outer:
        outer = outer.rpartition(".")[0]
        if outer in depths:
            return depths[outer] + 1
    return 0


def _module_time_fields(path: str, times: Mapping[str, ModuleTimes]) -> dict[str, Any]:
    """Return the calls and seconds of a module by field name; a container that is not called has
    the sums of its submodules.
    """
    if not times:
        return {}
    spent = times.get(path)
    if spent is None or not (spent.calls or spent.repeats):
        inside = [
            time
            for other, time in times.items()
            if _is_nearest_called_descendant(path, other, times)
        ]
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


def _is_nearest_called_descendant(path: str, other: str, times: Mapping[str, ModuleTimes]) -> bool:
    """Return whether the module `other` was called and is below `path`, without another called
    module between them.
    """
    if other == path or not times[other].calls:
        return False
    if path and not other.startswith(f"{path}."):
        return False
    outer = other.rpartition(".")[0]
    while outer != path:
        if outer in times and times[outer].calls:
            return False
        outer = outer.rpartition(".")[0]
    return True


def least_recomputed_macs(count: StepCount, times: Mapping[str, ModuleTimes]) -> int:
    """Return the least number of forward MACs that were recomputed, derived from the repeated
    calls of modules.

    A module's own products ran again as often as its forward pass did to its end, as a share of
    its calls that a backward pass ran through. Of a pass that ended early it is not known what had
    run.
    """
    graded = [part for part in count.parts if part.has_backward and not part.is_again]
    tables = list(map(_PartTable.from_part, graded))
    least = 0
    for path, spent in times.items():
        indices = [
            (table, table.path_in_part(path)) for table in tables if not table.is_outside(path)
        ]
        own = [t.part.times * t.own[index][0] for t, index in indices if index is not None]
        least += sum(own) * spent.repeats // spent.graded if spent.graded else 0
    return least


# The peak.


class RatedAgainst(msgspec.Struct, frozen=True, kw_only=True):
    """The peak with which rates are compared: a device of the catalogue, or given peaks; see
    `efficiency`.

    `precision` is the one that ran, by default that of the weights or of autocast.
    """

    device: str | None = None
    peak_tflops: tuple[str, ...] = ()
    precision: str | None = None

    def check_peak_options(self) -> None:
        """Raise an error if the device, the peak or the precision is invalid, or the precision has
        no effect.
        """
        peaks = [parse_peak_tflops(text) for text in self.peak_tflops]
        if self.precision is not None and peaks and all(name == ANY for name, _ in peaks):
            raise InputError(
                "--precision has no effect: --peak-tflops is given for all precisions",
                f"write --peak-tflops {self.precision}=X, or leave out --peak-tflops",
            )
        if self.device is not None:
            device = look_up_device(self.device)
            if self.precision is not None and not self.peak_tflops:
                attainable_peak(device, self.precision)


def find_profile_peak(
    rated: RatedAgainst, stored: str, device: str, threads: int
) -> tuple[ProfilePeak | None, tuple[str, ...]]:
    """Return (peak with which the profile is compared, notes); the peak is None if it is unknown,
    and a note says why.

    `stored` is the element type of the products, `device` the name of the one that ran, "cpu" for
    this machine. Raises UnknownNameError for a device or a precision that was asked for and is not
    known: no other is taken for it.
    """
    precision = rated.precision or precision_of_stored_type(
        stored, "give --precision, such as --precision fp16"
    )
    provided = dict(map(parse_peak_tflops, rated.peak_tflops))
    if provided:
        rate = provided.get(precision, provided.get(ANY))
        if rate is None:
            raise UnknownNameError(
                f"no peak is given for {precision}", f"add --peak-tflops {precision}=X"
            )
        return ProfilePeak(rate=rate, precision=precision, source="given"), ()
    if rated.device is None and device == "cpu":
        return _this_machine_peak(precision, stored, threads)
    name = rated.device or device
    if not name:
        return None, ("no MFU: the device is unknown; give --device or --peak-tflops",)
    try:
        known_device = find_device(name, additional_devices(name))
        rate = attainable_peak(known_device, precision)
    except UnknownNameError as error:
        if rated.device is not None:
            raise
        return None, (f"no MFU: {error.message}; give --device or --peak-tflops",)
    source = f"{known_device.label}, dense {precision}"
    return ProfilePeak(rate=rate, precision=precision, source=source), ()


def _this_machine_peak(
    precision: str, stored: str, threads: int
) -> tuple[ProfilePeak | None, tuple[str, ...]]:
    """Return (measured peak of this CPU for a precision, notes); the peak is None if it is
    unknown, and a note says why.
    """
    try:
        measured = machine_peak_or_reason(threads)
    except CrossflopsError as error:
        measured = error.message
    if isinstance(measured, str):
        return None, (f"no MFU: the peak of this machine could not be measured: {measured}",)
    rate = measured.rates.get(stored)
    if rate is None:
        return None, (f"no MFU: this machine has no measured peak for {precision}",)
    return ProfilePeak(rate=rate, precision=precision, source=measured.source), ()


# Everything together.


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of a step, and its device. `stored` is the type in which products ran."""

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


RULE = "rates are 2 x MACs / seconds; MFU leaves out recomputed work, HFU includes it"


def build_training_profile(
    count: StepCount, timing: Timing, against: RatedAgainst
) -> TrainingProfile:
    """Return the profile of a training step, from its count, its times and a peak."""
    watched = timing.watched
    times = watched.modules if watched is not None else {}
    rows = module_profiles(count, times)
    report = count.first_call_report
    stored = timing.autocast or _main_product_dtype(report)
    peak, doubts = find_profile_peak(against, stored, timing.device, timing.threads)
    if peak is not None and timing.sharing > 1:
        source = f"{timing.sharing} x {peak.source}, because they share the batch"
        peak = msgspec.structs.replace(peak, rate=timing.sharing * peak.rate, source=source)
    unseen = watched.unseen if watched is not None else ()
    memory = report.memory
    notes = [RULE, *timing.notes]
    if peak is not None:
        notes.append(f"peak: {peak.source}")
    above, left = module_profile_remarks(rows, peak.rate if peak is not None else None, unseen)
    warnings = [*report.warnings, *count.warnings, *doubts, *timing.warnings, *left]
    warnings += [_opaque_module_warning(path) for path in unseen]
    work = training_work_of_count(count)
    more = least_recomputed_macs(count, times) - work.recomputed_macs
    if more > 0:
        warnings.append(f"{more} recomputed MACs are not in the graph of the model and not in HFU")
    warnings += [
        f"{fold.tool} counts no MACs and is not shown"
        for fold in report.folds
        if not convention_named(fold.tool, fold.edition).unit
    ]
    if len(count.parts) > 1 and report.folds:
        warnings.append(
            "the step had inputs of several shapes or types, so no convention is shown"
        )
    uncounted = _rows_without_count(count)
    if uncounted:
        warnings.append(
            f"{len({row.node for row in uncounted})} nodes are not counted and in no sum; see "
            "the key uncounted"
        )
    additional = _with_module_seconds(count.beside, watched)
    warnings += [
        f"{row.class_} ran in addition to the model and is not counted: {row.reason}"
        for row in additional
        if row.reason
    ]
    notes += _coverage_share_notes(work, additional, timing)
    return TrainingProfile(
        model=_model_info_of_count(count),
        runtime=timing.runtime,
        device=timing.device,
        examples=_examples_per_step(count),
        forward_calls=count.model_call_count,
        params=_parameter_count(count),
        work=work,
        latencies=timing.latencies,
        watched=_latencies_of_step(watched),
        iterations=timing.iterations,
        world_size=timing.world_size,
        peak=peak,
        memory=StepMemory(
            params=_parameter_bytes(count),
            by_liveness=memory.peak_activation_bytes if memory else 0,
            forward=timing.forward_bytes,
            step=timing.step_bytes,
            how=timing.memory_how,
        ),
        modules=rows,
        conventions=tuple(_convention_profiles(count)),
        uncounted=uncounted,
        beside=additional,
        assumptions=tuple(notes),
        warnings=tuple(
            dict.fromkeys((*warnings, *_fast_optimizer_warnings(timing, report, against)))
        ),
        errors=above,
        request=report.request,
        made_with=report.made_with,
    )


def _opaque_module_warning(path: str) -> str:
    """Return the warning that torch.compile hides the submodules of this module."""
    name = path or "the model"
    return f"torch.compile hides the modules in {name}, so they have work, but no time"


def _latencies_of_step(times: StepTimes | None) -> Latencies | None:
    """Return the seconds of each phase of the step that ran with hooks; None without such a
    step.
    """
    if times is None:
        return None
    return Latencies(
        forward=times.forward,
        backward=times.backward,
        optimizer=times.optimizer,
        iteration=times.whole,
        how="one step with hooks; the time of the hooks is left out",
    )


def _main_product_dtype(report: Report) -> str:
    """Return the element type in which most MACs are computed, "float32" if there are no MACs."""
    kinds = report.macs_by_precision
    return max(kinds, key=kinds.__getitem__) if kinds else "float32"


def _model_info_of_count(count: StepCount) -> ModelInfo:
    """Return the name and the inputs of the model; if only parts of it are called, with the class
    of the whole model as its name.
    """
    model = count.first_call_report.model
    return msgspec.structs.replace(model, name=count.outer[0].class_) if count.outer else model


def _parameter_count(count: StepCount) -> int:
    """Return the number of parameters of the whole model."""
    return count.outer[0].params if count.outer else count.first_call_report.params


def _parameter_bytes(count: StepCount) -> int:
    """Return the bytes of the parameters of the model; if only parts of it are called, of these
    parts.
    """
    parts = {part.path: part.report.memory for part in reversed(count.parts)}
    if not count.outer:
        parts = {"": count.first_call_report.memory}
    return sum(memory.param_bytes for memory in parts.values() if memory)


def _rows_without_count(count: StepCount) -> tuple[UncountedRow, ...]:
    """Return all nodes without a count, each once, over all kinds of calls of the step."""
    rows: dict[UncountedRow, None] = {}
    for part in count.parts:
        rows |= dict.fromkeys(part.report.uncounted)
        if part.report.training:
            rows |= dict.fromkeys(part.report.training.uncounted)
    return tuple(rows)


def _with_module_seconds(
    additional: Iterable[BesideProfile], watched: StepTimes | None
) -> tuple[BesideProfile, ...]:
    """Return the rows of the modules outside of the model, with their forward and backward
    seconds.
    """
    seen = watched.beside if watched is not None else ()
    return tuple(
        msgspec.structs.replace(row, forward_seconds=time.forward, backward_seconds=time.backward)
        for row, time in zip(additional, seen, strict=False)
    )


def _coverage_share_notes(
    work: Training, additional: Iterable[BesideProfile], timing: Timing
) -> Iterable[str]:
    """Yield one note that says in which share of the step's time the counted work ran, if the
    times are known.
    """
    times, rows = timing.latencies, tuple(additional)
    if timing.watched is None or not times.iteration or times.forward is None:
        return
    seconds = times.forward + (times.backward or 0.0)
    seconds += sum(row.seconds for row in rows if row.training is not None)
    also = sum(row.training is not None for row in rows)
    more = f" and of {also} module{'s' if also > 1 else ''} beside it" if also else ""
    yield (
        f"the rates of the step cover only the passes of the model{more}, which took "
        f"{min(seconds / times.iteration, 1.0):.0%} of its time"
    )


def _examples_per_step(count: StepCount) -> int | None:
    """Return the number of examples of the step, over all calls that have a backward pass; None if
    a call has no batch dimension.

    Of a model whose parts the loop calls, that of the part that had most.
    """
    first = [part for part in count.parts if not part.is_again]
    trained = [part for part in first if part.has_backward] or first
    firsts = [
        [spec.shape[0] for spec in part.report.model.inputs if spec.shape][:1] for part in trained
    ]
    if not all(firsts):
        return None
    sizes = {id(part): first[0] for part, first in zip(trained, firsts, strict=True)}
    return max(
        _sum_by_path(trained, lambda part: part.times // part.repeats * sizes[id(part)]).values()
    )


def _fast_optimizer_warnings(
    timing: Timing, report: Report, against: RatedAgainst
) -> tuple[str, ...]:
    """Return a tuple with one warning if the optimizer's step is faster than the memory of the
    device allows, else ().
    """
    seconds = timing.latencies.optimizer
    if seconds is None or against.device is None:
        return ()
    device = look_up_device(against.device)
    if not device.bandwidth:
        return ()
    return fast_update_warnings(seconds, report.params, device.bandwidth)


def _convention_profiles(count: StepCount) -> Iterable[ConventionProfile]:
    """Yield for each requested convention its MACs in the step, and the causes of its difference
    from the native count.
    """
    accounts: Sequence[Any] = count.first_call_report.reconciliations or ()
    if len(count.parts) > 1:
        return
    calls = count.model_call_count
    for fold in count.first_call_report.folds:
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
        native = calls * count.first_call_report.macs
        total = calls * fold.total
        causes = tuple(ProfileDifference(step.cause, calls * step.amount) for step in steps)
        yield ConventionProfile(
            tool=fold.tool,
            edition=fold.edition,
            macs=total // unit if unit > 1 else total,
            differences=causes,
            residual=total - native - sum(cause.amount for cause in causes),
            by_module=dict(by_module),
        )
