"""How a speed came from what was measured, in words, and what no measurement can have."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from crossflops.hardware.rates.assumptions import REASONS
from crossflops.hardware.rates.breakdown import MeasuredRun
from crossflops.hardware.rates.denominators import Peaks
from crossflops.report.efficiency import Attention, Efficiency, Moved, TimedStep

# Figures that no run can have: what is faster than the machine, or does not add up.
#
# Used on what was measured, never to change it. Every check gives sentences to print as warnings.

# The least that an update moves per parameter, in bytes, and what the usual one does:
# SGD in float32 reads a gradient and a weight and writes the weight (3 x 4); Adam in mixed
# precision reads and writes a float32 weight and two moments, reads a 16-bit gradient and writes
# a 16-bit weight (6 x 4 + 2 + 2). Source of the latter: Rajbhandari et al., ZeRO, 3.1.
LEAST, ADAM = 12, 28
COVERED = 0.9  # of a parent's time that its children should account for


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """A module or a node with its work in FLOPs and its time; a module's include its children."""

    path: str
    flops: int
    seconds: float

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops / self.seconds if self.seconds > 0 else float("inf")


def optimizer_step(seconds: float, params: int, bandwidth: float) -> tuple[str, ...]:
    """A step that is too short to have read and written every parameter of one device."""
    least, adam = (params * size / bandwidth for size in (LEAST, ADAM))
    if seconds >= least:
        return ()
    return (
        f"a step of {1e3 * seconds:.3g} ms cannot be an update of {params / 1e6:.1f} M "
        f"parameters: reading and writing them takes {1e3 * least:.2g} ms at "
        f"{bandwidth / 1e9:.0f} GB/s ({LEAST} bytes each, SGD; {1e3 * adam:.2g} ms with Adam): "
        "a micro-step of gradient accumulation, or timing that did not wait",
    )


def above_peak(rows: Iterable[Timed], peak: float) -> tuple[str, ...]:
    """Rows that are faster than the device."""
    return tuple(
        f"{row.path or '(the model)'} at {row.rate / 1e12:.4g} TFLOP/s is above the peak of "
        f"{peak / 1e12:.4g}: its time was taken without waiting for the device"
        for row in rows
        if row.flops and row.rate > peak
    )


def uncovered(rows: Iterable[Timed], least: float = COVERED) -> tuple[str, ...]:
    """Parents whose children leave much of their time unexplained, or take more than all of it.

    The children of a path are the rows one level below it, or the next level that has any.
    """
    times = {row.path: row.seconds for row in rows}
    sentences = []
    for path, seconds in times.items():
        inside = _children(path, times)
        total = sum(times[child] for child in inside)
        if not inside or seconds <= 0 or least <= total / seconds <= 1 / least:
            continue
        name = path or "(the model)"
        left = 1e3 * (seconds - total)
        remainder = (
            f"leave {left:.4g} ms of it unexplained" if left > 0 else f"take {-left:.4g} ms more"
        )
        sentences.append(
            f"{name} took {1e3 * seconds:.4g} ms, and what is in it {1e3 * total:.4g} ms: the "
            f"{len(inside)} parts {remainder}"
        )
    return tuple(sentences)


def _children(path: str, times: Mapping[str, float]) -> tuple[str, ...]:
    """The rows directly within a path: those with no other row between."""
    inside = [row for row in times if row != path and (not path or row.startswith(f"{path}."))]
    return tuple(
        row
        for row in inside
        if not any(row != other and row.startswith(f"{other}.") for other in inside)
    )


def speed_and_attention(row: Efficiency, run: MeasuredRun) -> tuple[str, ...]:
    """What the speed and the attention of an efficiency rest on."""
    return (*_speed(run), *_attention(row.attention, run))


def _speed(run: MeasuredRun) -> Iterator[str]:
    pace, world, training = run.pace, run.world, run.question.training
    if pace is not None and pace.parts and pace.seconds:
        micro = training.accumulate if training.train else 1
        count = "1 example" if pace.batch == 1 else f"{pace.batch} examples"
        count += f" x {micro} micro-batches" if micro > 1 else ""
        count += f" x {world.dp} replicas" if world.dp > 1 else ""
        yield f"the speed is {count} in {1e3 * pace.seconds:.6g} ms"
        if len(pace.parts) > 1 and world.pp > 1:
            yield (
                f"a step is ({micro} micro-batches + {world.pp} stages - 1) x (forward + "
                "backward), and the optimizer's step once"
            )
    elif pace is not None and world.devices > 1:
        whose = "one device" if run.question.speed.per_device else f"all {world.devices} devices"
        yield f"the speed that was given is that of {whose}"
    if world.tp * world.pp > 1:
        yield f"{world.tp * world.pp} devices share the work of one replica, each an equal part"


def _attention(attention: object, run: MeasuredRun) -> Iterator[str]:
    asked = run.question.causality
    if not isinstance(attention, Attention):
        if asked.causal == "half" or asked.window:
            yield "--causal and --window change nothing: there is no attention in what is counted"
        return
    if attention.full_macs == attention.half_macs:
        if attention.counted == "half":
            yield "--causal half changes nothing: no attention of the graph may be causal"
        return
    if attention.counted == "half":
        yield (
            f"of {attention.full_macs} MACs of attention those behind a causal mask are left out: "
            f"{attention.full_macs - attention.half_macs}"
        )
    else:
        yield "attention counts the full square: --causal half leaves out what a mask hides"


def doubts(
    run: MeasuredRun, against: Peaks | None, step: object, moved: object
) -> tuple[str, ...]:
    """What is too fast to be true, beside the share of the peak itself."""
    return (*_short_step(run, against), *_phases(step), *_bandwidth(moved))


def _short_step(run: MeasuredRun, against: Peaks | None) -> tuple[str, ...]:
    """An optimizer's step that is too short for the parameters, even in shards."""
    seconds = dict(run.pace.parts).get("step") if run.pace else None
    if seconds is None or run.params is None or against is None or not against.bandwidth:
        return ()
    return optimizer_step(seconds, run.params // run.world.devices, against.bandwidth)


def _phases(step: object) -> Iterator[str]:
    if not isinstance(step, TimedStep):
        return
    above = [phase for phase in step.phases if (phase.ratio or 0) > 1]
    for phase in above:
        yield f"{phase.name} at {100 * (phase.ratio or 0):.1f} % of the peak is impossible"
    if above:
        yield REASONS


def _bandwidth(moved: object) -> Iterator[str]:
    if isinstance(moved, Moved) and (moved.mbu or 0) > 1:
        yield (
            f"{100 * (moved.mbu or 0):.1f} % of the bandwidth: bytes stay in a cache from pass "
            "to pass, or the bandwidth is that of another device"
        )
