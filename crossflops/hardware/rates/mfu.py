"""The required rate of work from a count and a measured speed, and its share of a peak (MFU).

    work   = sum of 2 x MACs x k              FLOPs of one example (or token), k passes
    rate   = work x examples/s / devices      FLOP/s of one device
    ratio  = rate / peak                      in training the MFU; with recomputed work the HFU

k is 1 for inference and 3 for training: one forward pass, one for the gradients of the inputs
and one for those of the weights, since both are contractions as large as the forward one
(Kaplan et al., Scaling Laws for Neural Language Models, 2.1; DeepSpeed's flops profiler
multiplies the forward work by 3 as well). Of work in several precisions the ideal time is

    T0 = sum of FLOPs_i / peak(precision_i),   ratio = T0 / t,   peak = work / T0

so that the peak is the harmonic mean by work: half in BF16 at 989 and half in FP8 at 1979 TFLOP/s
has 1319, not 1484.

Beside that share an answer has other parts: attention, world, step, bytes.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from crossflops.errors import InputError
from crossflops.hardware.devices.peaks import Peaks
from crossflops.hardware.rates.numerators import Numerator, Transfer
from crossflops.hardware.rates.question import (
    RATES,
    WAYS,
    Parallel,
    Question,
    Speed,
    TrainingOptions,
)
from crossflops.hardware.rates.terms import Piece, WorkTerm, recomputation_terms, work_terms
from crossflops.report.efficiency import (
    Attention,
    Efficiency,
    MovedBytes,
    OtherPeak,
    Phase,
    PrecisionShare,
    Repeat,
    TimedStep,
    World,
)

# Devices and time: how many examples a second a measured run makes, on how many devices.
#
# world       = data x tensor x pipeline parallel
# examples/s  = micro-batch x accumulated micro-batches x data parallel / step
# step        = (micro-batches + pipeline - 1) x (forward + backward) + optimizer
# bubble      = (pipeline - 1) / (micro-batches + pipeline - 1)
#
# Only replicas of data parallelism see examples of their own: DeepSpeed's profiler multiplies by
# the world instead, which is too much with model parallelism. The bubble is that of GPipe and 1F1B
# without interleaving (Narayanan et al., Efficient Large-Scale Language Model Training, 2.2); the
# work of one device is that of a replica / (tensor x pipeline), as DeepSpeed has it the other way.


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The number of devices, and how a model is distributed over them: data, tensor and pipeline
    parallel.
    """

    devices: int
    dp: int
    tp: int
    pp: int

    @property
    def devices_per_replica(self) -> int:
        """The number of devices that together hold one replica of the model (tensor x pipeline
        parallel).
        """
        return self.tp * self.pp


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of all devices together in units (examples or tokens) per second, and the seconds
    of a pass or a step.

    `seconds` is None where only a rate was measured and the size of its batch is unknown.
    """

    per_second: float
    seconds: float | None = None
    batch: int = 1
    parts: tuple[tuple[str, float], ...] = ()


def device_layout(parallel: Parallel) -> Layout:
    """Return the number of devices and their data, tensor and pipeline parallel factors; raise
    InputError if the factors do not multiply to it.
    """
    split = parallel.tp * parallel.pp
    devices, dp = parallel.devices, parallel.dp
    if devices is None:
        devices = split * (1 if dp is None else dp)
    if dp is None:
        dp = devices // max(split, 1)
    if min(devices, dp, parallel.tp, parallel.pp) < 1 or dp * split != devices:
        raise InputError(
            f"--devices must be dp x tp x pp, got {devices} for {dp} x {parallel.tp} x "
            f"{parallel.pp}",
            "correct one of --devices, --dp, --tp and --pp, or leave out --devices",
        )
    return Layout(devices=devices, dp=dp, tp=parallel.tp, pp=parallel.pp)


def pipeline_idle_share(pipeline: int, micro_batches: int) -> float:
    """Return the share of a step in which a pipeline stage is idle: (p - 1) / (m + p - 1) for p
    stages and m micro-batches.
    """
    return (pipeline - 1) / (micro_batches + pipeline - 1)


def speed_of_all_devices(
    speed: Speed,
    training: TrainingOptions,
    world: Layout,
    *,
    tokens: int | None = None,
    by_token: bool = False,
) -> Pace | None:
    """Return the measured speed of all devices in units (examples or tokens) per second; None if
    none was given.

    A unit is an example, or a token where the work is that of one; `tokens` are those of an
    example, or None. Raises InputError for times that contradict each other.
    """
    provided = [name for name in WAYS if getattr(speed, name) is not None]
    if len(provided) > 1:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in provided)
        raise InputError(f"{flags} cannot be combined", "give only one of them")
    if not provided:
        _reject_pass_times(speed)
        return None
    batch, units = (
        speed.batch or 1,
        _units_per_example(tokens, by_token, "tokens_per_second" not in provided),
    )
    micro = training.accumulate if training.train else 1
    examples = batch * units * world.dp * micro
    if provided[0] in RATES:
        _reject_pass_times(speed)
        per_second = _units_per_second(speed, units, tokens, by_token) * (
            world.devices if speed.per_device else 1
        )
        return Pace(
            per_second=per_second,
            batch=batch,
            seconds=examples / per_second if speed.batch else None,
        )
    if speed.per_device is not None:
        raise InputError(
            "--per-device applies to a measured rate, but a time is given",
            "leave out --per-device",
        )
    parts = _pass_part_seconds(speed, training)
    step = dict(parts).get("step", 0.0)
    times = micro + world.pp - 1 if len(parts) > 1 else 1
    seconds = times * (sum(part for _, part in parts) - step) + step
    return Pace(per_second=examples / seconds, seconds=seconds, batch=batch, parts=parts)


def _units_per_example(tokens: int | None, by_token: bool, needed: bool) -> int:
    """Return the units of one example: its `tokens` if the work is counted per token, else 1."""
    if not by_token:
        return 1
    if tokens is None and needed:
        raise InputError(
            "the work is counted per token, but the number of tokens per example is unknown",
            "add --seq N, or give --tokens-per-second",
        )
    return tokens or 1


def _units_per_second(speed: Speed, units: int, tokens: int | None, by_token: bool) -> float:
    """Return the given rate in units per second: tokens if the work is counted per token, else
    examples.
    """
    if speed.examples_per_second is not None:
        return speed.examples_per_second * units
    assert speed.tokens_per_second is not None
    if by_token:
        return speed.tokens_per_second
    if tokens is None:
        raise InputError(
            "--tokens-per-second needs the number of tokens per example",
            "add --tokens N, or give --examples-per-second",
        )
    return speed.tokens_per_second / tokens


def _reject_pass_times(speed: Speed) -> None:
    """Raise InputError if --bwd-ms or --step-ms is given; called where there is no --fwd-ms."""
    if speed.bwd_ms is not None or speed.step_ms is not None:
        raise InputError("--bwd-ms and --step-ms require --fwd-ms", "add --fwd-ms")


def _pass_part_seconds(speed: Speed, training: TrainingOptions) -> tuple[tuple[str, float], ...]:
    """Return (part, its seconds): ("pass", ...) alone, or "forward", "backward" and, if given,
    "step" for the optimizer.
    """
    if speed.latency_ms is not None:
        _reject_pass_times(speed)
        return (("pass", speed.latency_ms / 1e3),)
    assert speed.fwd_ms is not None
    if not training.train:
        if speed.bwd_ms is not None or speed.step_ms is not None:
            raise InputError("--bwd-ms and --step-ms require --train", "add --train")
        return (("pass", speed.fwd_ms / 1e3),)
    if speed.bwd_ms is None:
        raise InputError(
            "--fwd-ms with --train requires --bwd-ms",
            "add --bwd-ms, or give --latency-ms, the time of forward and backward together",
        )
    parts = [("forward", speed.fwd_ms / 1e3), ("backward", speed.bwd_ms / 1e3)]
    if speed.step_ms is not None:
        parts.append(("step", speed.step_ms / 1e3))
    return tuple(parts)


ALONE = Layout(devices=1, dp=1, tp=1, pp=1)


def efficiency_of_terms(
    parts: Sequence[WorkTerm],
    numerator: Numerator,
    per_second: float | None,
    *,
    against: Peaks | None = None,
    world: Layout = ALONE,
) -> Efficiency:
    """Compute the required FLOP/s of the work at a speed, and its MFU against a peak.

    `per_second` are units (examples or tokens) of all devices. Raises InputError for a count, a
    speed or a peak that is none, and UnknownNameError for a precision that the device lacks.
    """
    _check_efficiency_inputs(numerator.macs, per_second, against)
    sums = total_ideal_time(parts, against)
    per_device = None if per_second is None else per_second / world.devices
    ratio = None if per_device is None or sums.ideal is None else sums.ideal * per_device
    spent = (
        None
        if per_device is None or sums.executed_ideal is None
        else sums.executed_ideal * per_device
    )
    macs = sum((term.macs for term in parts), Fraction(0))
    again = sums.executed != sums.work
    return Efficiency(
        numerator=numerator.label,
        macs=round(macs),
        multiplier=_mean_pass_factor(sums.work, macs, parts),
        examples_per_second=per_device,
        unit=numerator.unit,
        precision=_join_precision_names(parts),
        work=round(sums.work),
        rate=None if per_device is None else float(sums.work * Fraction(per_device)),
        device=against.device.label if against and against.device else None,
        peak=sums.peak,
        ratio=ratio,
        executed=round(sums.executed) if again else UNSET,
        hfu=spent if again else UNSET,
        precisions=_precision_shares(parts, against),
    )


class IdealTime(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one unit in FLOPs, and the seconds that it takes at the peaks."""

    work: Fraction
    executed: Fraction
    ideal: float | None
    executed_ideal: float | None
    peak: float | None


def total_ideal_time(parts: Iterable[WorkTerm], against: Peaks | None) -> IdealTime:
    """Return the FLOPs of all terms, and the seconds that they take at the peaks (None if
    unknown), each with and without recomputed work.
    """
    parts = tuple(parts)
    total = sum((term.flops for term in parts), Fraction(0))
    executed = sum((term.hardware_flops for term in parts), Fraction(0))
    if against is None or not (against.given or against.device):
        return IdealTime(work=total, executed=executed, ideal=None, executed_ideal=None, peak=None)
    tops = [Fraction(against.peak_of_precision(term.precision)) for term in parts]
    pairs = tuple(zip(parts, tops, strict=True))
    ideal = sum((term.flops / top for term, top in pairs), Fraction(0))
    spent = sum((term.hardware_flops / top for term, top in pairs), Fraction(0))
    single = len(set(tops)) == 1 or not total
    peak = float(tops[0]) if single else float(total / ideal)
    return IdealTime(
        work=total, executed=executed, ideal=float(ideal), executed_ideal=float(spent), peak=peak
    )


def _precision_shares(
    parts: Sequence[WorkTerm], against: Peaks | None
) -> tuple[PrecisionShare, ...] | UnsetType:
    """Return for each precision its FLOPs and its peak in FLOP/s; UNSET if there is only one."""
    flops: dict[str, Fraction] = {}
    for term in parts:
        flops[term.precision] = flops.get(term.precision, Fraction(0)) + term.flops
    if len(flops) < 2:
        return UNSET
    known = against is not None and (against.given or against.device)
    return tuple(
        PrecisionShare(
            precision=name,
            flops=round(value),
            peak=against.peak_of_precision(name) if known and against else None,
        )
        for name, value in flops.items()
    )


def _join_precision_names(parts: Sequence[WorkTerm]) -> str:
    """Return the names of the precisions of the work, joined by " + "."""
    return " + ".join(dict.fromkeys(term.precision for term in parts))


def _mean_pass_factor(total: Fraction, macs: Fraction, parts: Sequence[WorkTerm]) -> int | float:
    """Return total FLOPs / (2 x forward MACs): the mean number of passes over the MACs."""
    mean = total / (2 * macs) if macs else parts[0].passes if parts else Fraction(1)
    return mean.numerator if mean.denominator == 1 else float(mean)


def _check_efficiency_inputs(macs: int, per_second: float | None, against: Peaks | None) -> None:
    """Raise InputError if the MACs are negative, or a speed or a given peak is not positive."""
    if macs < 0:
        raise InputError(f"MACs must be at least 0, got {macs}", "give a count of at least 0")
    tops = against.given.values() if against else ()
    rates = (("examples per second", per_second), *(("FLOP/s of peak", top) for top in tops))
    for name, value in rates:
        if value is not None and not 1e-30 <= value <= 1e30:
            raise InputError(f"{name} must be positive, got {value}", "give a positive number")


# The other parts of an answer: attention, world, step, bytes.


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """A question with the measured speed and the devices of its run; `units` is the number of
    units in an example.

    `published_by` is the numerator of a published MFU from which the speed follows, else "".
    """

    question: Question
    world: Layout
    pace: Pace | None = None
    units: int = 1
    tokens: int | None = None
    params: int | None = None
    transfer: Transfer | None = None
    published_by: str = ""


def speed_at_mfu(
    parts: Sequence[WorkTerm], share: float, against: Peaks, devices: int
) -> float | None:
    """Return the units per second of all devices at an MFU: MFU x peak x devices / work.

    None where no peak is known, or the work is zero.
    """
    ideal = total_ideal_time(parts, against).ideal
    return share * devices / ideal if ideal else None


def attention_efficiency(
    row: Efficiency, pieces: Sequence[Piece], run: MeasuredRun, against: Peaks | None
) -> Attention | UnsetType:
    """Return the attention MACs and the MFU with all attention scores, and with those that a
    causal mask leaves; UNSET without attention.
    """
    if not any(piece.scores for piece in pieces):
        return UNSET
    question = run.question
    macs, ratios = {}, {}
    for kind in ("full", "half"):
        causality = replace(question.causality, causal=kind)
        parts = work_terms(pieces, question.training, causality, question.precisions)
        macs[kind] = round(sum((term.macs for term in parts if term.attention), Fraction(0)))
        ideal, speed = total_ideal_time(parts, against).ideal, row.examples_per_second
        ratios[kind] = None if ideal is None or speed is None else ideal * speed
    return Attention(
        counted=question.causality.causal,
        full_macs=macs["full"],
        half_macs=macs["half"],
        full_ratio=ratios["full"],
        half_ratio=ratios["half"],
    )


def recompute_by_reason(
    row: Efficiency, pieces: Sequence[Piece], question: Question, against: Peaks | None
) -> tuple[Repeat, ...] | UnsetType:
    """Return for each reason the FLOPs that are recomputed, and their share of the peak; UNSET if
    there are none.
    """
    groups = recomputation_terms(
        pieces, question.training, question.causality, question.precisions
    )
    speed = row.examples_per_second
    parts = []
    for reason, work in groups.items():
        ideal = total_ideal_time(work, against).ideal
        flops = round(sum((term.flops for term in work), Fraction(0)))
        ratio = None if ideal is None or speed is None else ideal * speed
        parts.append(Repeat(reason=reason, flops=flops, ratio=ratio))
    return tuple(parts) or UNSET


def all_devices_figures(row: Efficiency, run: MeasuredRun) -> World | UnsetType:
    """Return the layout, the FLOP/s and examples/s of all devices together, and the pipeline
    bubble; UNSET for one device.
    """
    lay, per = run.world, row.examples_per_second
    if lay.devices == 1:
        return UNSET
    micro = run.question.training.accumulate
    return World(
        devices=lay.devices,
        data_parallel=lay.dp,
        tensor_parallel=lay.tp,
        pipeline_parallel=lay.pp,
        rate=None if row.rate is None else row.rate * lay.devices,
        examples_per_second=None if per is None else per * lay.devices,
        bubble=pipeline_idle_share(lay.pp, micro) if lay.pp > 1 else UNSET,
    )


def training_step_phases(
    parts: Sequence[WorkTerm], run: MeasuredRun, against: Peaks | None
) -> TimedStep | UnsetType:
    """Return the FLOPs, seconds and FLOP/s of the forward and the backward pass on one device;
    UNSET if they were not timed.

    forward  = 2 x MACs of the micro-batch, backward = 2 x MACs x (k - 1), over their latencies;
    the work of a replica is divided by the devices that share it.
    """
    pace = run.pace
    if pace is None or not run.question.training.train or len(pace.parts) < 2:
        return UNSET
    times = dict(pace.parts)
    examples = Fraction(pace.batch * run.units, run.world.devices_per_replica)
    forward = [replace(term, passes=Fraction(1), executed=Fraction(1)) for term in parts]
    backward = [replace(term, passes=term.passes - 1, executed=term.passes - 1) for term in parts]
    both = times["forward"] + times["backward"]
    phases = (
        _build_step_phase("forward", forward, times["forward"], examples, against),
        _build_step_phase("backward", backward, times["backward"], examples, against),
        _build_step_phase("forward + backward", parts, both, examples, against),
    )
    return TimedStep(
        batch=pace.batch,
        macs=round(sum((term.macs for term in parts), Fraction(0)) * examples),
        phases=phases,
        seconds=pace.seconds or both,
        examples_per_second=pace.per_second / run.units,
        params=run.params,
    )


def _build_step_phase(
    name: str, parts: Sequence[WorkTerm], seconds: float, examples: Fraction, against: Peaks | None
) -> Phase:
    """Build a phase of a step: its seconds, the FLOPs of `examples`, FLOP/s, and share of the
    peak.
    """
    split = total_ideal_time(parts, against)
    flops = split.work * examples
    ideal = None if split.ideal is None else split.ideal * float(examples)
    return Phase(
        name=name,
        seconds=seconds,
        flops=round(flops),
        rate=float(flops) / seconds,
        ratio=None if ideal is None else ideal / seconds,
    )


def pass_memory_traffic(
    split: Sequence[WorkTerm], run: MeasuredRun, against: Peaks | None
) -> MovedBytes | UnsetType:
    """Return the bytes that a forward pass moves on one device, and its memory bandwidth
    utilization (MBU); UNSET in training or if unknown.

    intensity = FLOPs / bytes; with a growing batch it nears FLOPs / bytes of one example alone.
    The pass is bound by memory left of the ridge, which is peak / bandwidth.
    """
    transfer, pace = run.transfer, run.pace
    if transfer is None or run.question.training.train:
        return UNSET
    batch = run.question.speed.batch or 1
    total = (transfer.weights + transfer.per_example * batch) // run.world.devices_per_replica
    of_unit = total_ideal_time(split, against)
    flops = of_unit.work * Fraction(batch * run.units, run.world.devices_per_replica)
    bandwidth = against.bandwidth if against else None
    seconds = None
    if pace is not None:
        seconds = pace.seconds or batch * run.units * run.world.dp / pace.per_second
    mbu = total / (seconds * bandwidth) if seconds and bandwidth else None
    transferred = MovedBytes(
        model=transfer.model,
        bytes=total,
        weight_bytes=transfer.weights // run.world.devices_per_replica,
        flops=round(flops),
        bandwidth=bandwidth,
        seconds=seconds,
        mbu=mbu,
        intensity=float(flops / total) if total else None,
        intensity_limit=float(of_unit.work * run.units / transfer.per_example)
        if transfer.per_example
        else None,
    )
    return _with_roofline_bound(transferred, of_unit.peak)


def _with_roofline_bound(traffic: MovedBytes, peak: float | None) -> MovedBytes:
    """Return the memory traffic with the ridge point (FLOP/byte) and the least seconds by the
    roofline added; unchanged if the peak or the bandwidth is unknown.
    """
    if peak is None or traffic.bandwidth is None or traffic.intensity is None:
        return traffic
    computing, moving = traffic.flops / peak, traffic.bytes / traffic.bandwidth
    return replace(
        traffic,
        ridge=peak / traffic.bandwidth,
        bound="compute" if computing >= moving else "memory",
        bound_seconds=max(computing, moving),
    )


def device_token_rate(row: Efficiency, run: MeasuredRun) -> float | UnsetType:
    """Return the tokens per second of one device; UNSET if unknown or already in tokens."""
    per = row.examples_per_second
    if row.unit == "token" or run.tokens is None or per is None:
        return UNSET
    return per * run.tokens


def ratios_to_measured_product_peak(
    row: Efficiency, split: Sequence[WorkTerm], against: Peaks | None
) -> tuple[OtherPeak, ...] | UnsetType:
    """Return the share of the best measured matrix product of the device that a run reaches; UNSET
    if that was not measured for each precision.
    """
    device, per_second = (against.device if against else None), row.examples_per_second
    needed = {term.precision for term in split}
    if device is None or not split or not needed <= device.measured_matmul.keys():
        return UNSET
    reached = total_ideal_time(split, Peaks(given=device.measured_matmul))
    assert reached.peak is not None
    assert reached.ideal is not None
    return (
        OtherPeak(
            name="best matrix product measured",
            peak=reached.peak,
            ratio=None if per_second is None else reached.ideal * per_second,
            source=device.measured_matmul_source or "the catalogue",
        ),
    )


# The least that an update moves per parameter, in bytes, and what the usual one does:
# SGD in float32 reads a gradient and a weight and writes the weight (3 x 4); Adam in mixed
# precision reads and writes a float32 weight and two moments, reads a 16-bit gradient and writes
# a 16-bit weight (6 x 4 + 2 + 2). Source of the latter: Rajbhandari et al., ZeRO, 3.1.
LEAST, ADAM = 12, 28


class UpdateSeconds(NamedTuple):
    """The least seconds of an update of the parameters: by any optimizer, and by Adam."""

    any_optimizer: float
    adam: float


def optimizer_update_seconds(params: int, bandwidth: float) -> UpdateSeconds:
    """Return the least seconds that an update of the parameters takes at a bandwidth (bytes/s): by
    any optimizer, and by Adam.
    """
    return UpdateSeconds(params * LEAST / bandwidth, params * ADAM / bandwidth)
