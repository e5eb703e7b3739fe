"""The parts of an answer beside the share of the peak: attention, world, step, bytes."""

from collections.abc import Sequence
from fractions import Fraction

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from crossflops.hardware.rates.denominators import Peaks
from crossflops.hardware.rates.mfu import Layout, Pace, bubble, share
from crossflops.hardware.rates.numerators import Transfer
from crossflops.hardware.rates.question import Question
from crossflops.hardware.rates.terms import Piece, WorkTerm, terms
from crossflops.report.efficiency import (
    Attention,
    Efficiency,
    Moved,
    OtherPeak,
    Phase,
    TimedStep,
    World,
)


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, and how fast it ran on which devices; `units` are those of an example."""

    question: Question
    world: Layout
    pace: Pace | None = None
    units: int = 1
    tokens: int | None = None
    params: int | None = None
    transfer: Transfer | None = None


def attention(
    row: Efficiency, pieces: Sequence[Piece], run: MeasuredRun, against: Peaks | None
) -> Attention | UnsetType:
    """Score and value products with and without a causal mask, and the share either way."""
    if not any(piece.scores for piece in pieces):
        return UNSET
    question = run.question
    macs, ratios = {}, {}
    for kind in ("full", "half"):
        causality = replace(question.causality, causal=kind)
        parts = terms(pieces, question.training, causality, question.precisions)
        macs[kind] = round(sum((term.macs for term in parts if term.attention), Fraction(0)))
        ideal, speed = share(parts, against).ideal, row.examples_per_second
        ratios[kind] = None if ideal is None or speed is None else ideal * speed
    return Attention(
        counted=question.causality.causal,
        full_macs=macs["full"],
        half_macs=macs["half"],
        full_ratio=ratios["full"],
        half_ratio=ratios["half"],
    )


def world(row: Efficiency, run: MeasuredRun) -> World | UnsetType:
    """All devices together, where there are several."""
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
        bubble=bubble(lay.pp, micro) if lay.pp > 1 else UNSET,
    )


def step(
    parts: Sequence[WorkTerm], run: MeasuredRun, against: Peaks | None
) -> TimedStep | UnsetType:
    """A training step as DeepSpeed's profiler sums it up, of one device.

    forward  = 2 x MACs of the micro-batch, backward = 2 x MACs x (k - 1), over their latencies;
    the work of a replica is divided by the devices that share it.
    """
    pace = run.pace
    if pace is None or not run.question.training.train or len(pace.parts) < 2:
        return UNSET
    times = dict(pace.parts)
    examples = Fraction(pace.batch * run.units, run.world.split)
    forward = [replace(term, passes=Fraction(1), executed=Fraction(1)) for term in parts]
    backward = [replace(term, passes=term.passes - 1, executed=term.passes - 1) for term in parts]
    both = times["forward"] + times["backward"]
    phases = (
        _phase("forward", forward, times["forward"], examples, against),
        _phase("backward", backward, times["backward"], examples, against),
        _phase("forward + backward", parts, both, examples, against),
    )
    return TimedStep(
        batch=pace.batch,
        macs=round(sum((term.macs for term in parts), Fraction(0)) * examples),
        phases=phases,
        seconds=pace.seconds or both,
        examples_per_second=pace.per_second / run.units,
        params=run.params,
    )


def _phase(
    name: str, parts: Sequence[WorkTerm], seconds: float, examples: Fraction, against: Peaks | None
) -> Phase:
    split = share(parts, against)
    flops = split.work * examples
    ideal = None if split.ideal is None else split.ideal * float(examples)
    return Phase(
        name=name,
        seconds=seconds,
        flops=round(flops),
        rate=float(flops) / seconds,
        ratio=None if ideal is None else ideal / seconds,
    )


def moved(split: Sequence[WorkTerm], run: MeasuredRun, against: Peaks | None) -> Moved | UnsetType:
    """The bytes that a pass has to move on one device, and the use of its bandwidth.

    intensity = FLOPs / bytes; with a growing batch it nears FLOPs / bytes of one example alone.
    The pass is bound by memory left of the ridge, which is peak / bandwidth.
    """
    transfer, pace = run.transfer, run.pace
    if transfer is None or run.question.training.train:
        return UNSET
    batch = run.question.speed.batch or 1
    total = (transfer.weights + transfer.per_example * batch) // run.world.split
    of_unit = share(split, against)
    flops = of_unit.work * Fraction(batch * run.units, run.world.split)
    bandwidth = against.bandwidth if against else None
    seconds = None
    if pace is not None:
        seconds = pace.seconds or batch * run.units * run.world.dp / pace.per_second
    mbu = total / (seconds * bandwidth) if seconds and bandwidth else None
    transferred = Moved(
        model=transfer.model,
        bytes=total,
        weight_bytes=transfer.weights // run.world.split,
        flops=round(flops),
        bandwidth=bandwidth,
        seconds=seconds,
        mbu=mbu,
        intensity=float(flops / total) if total else None,
        intensity_limit=float(of_unit.work * run.units / transfer.per_example)
        if transfer.per_example
        else None,
    )
    return _bound(transferred, of_unit.peak)


def _bound(traffic: Moved, peak: float | None) -> Moved:
    """The same beneath the roofline, where peak and bandwidth are known."""
    if peak is None or traffic.bandwidth is None or traffic.intensity is None:
        return traffic
    computing, moving = traffic.flops / peak, traffic.bytes / traffic.bandwidth
    return replace(
        traffic,
        ridge=peak / traffic.bandwidth,
        bound="compute" if computing >= moving else "memory",
        bound_seconds=max(computing, moving),
    )


def tokens(row: Efficiency, run: MeasuredRun) -> float | UnsetType:
    """Tokens a second of one device, where examples are made of tokens."""
    per = row.examples_per_second
    if row.unit == "token" or run.tokens is None or per is None:
        return UNSET
    return per * run.tokens


def others(
    row: Efficiency, split: Sequence[WorkTerm], against: Peaks | None
) -> tuple[OtherPeak, ...] | UnsetType:
    """A second denominator: the best matrix product that somebody measured on the device."""
    device, per_second = (against.device if against else None), row.examples_per_second
    needed = {term.precision for term in split}
    if device is None or not split or not needed <= device.measured_matmul.keys():
        return UNSET
    reached = share(split, Peaks(given=device.measured_matmul))
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


def update_seconds(params: int, bandwidth: float) -> tuple[float, float]:
    """The least that an update of so many parameters takes, and what Adam takes, by the memory."""
    return params * LEAST / bandwidth, params * ADAM / bandwidth
