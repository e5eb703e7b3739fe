"""How a speed came from what was measured, in words, and what no measurement can have."""

from collections.abc import Iterator

from crossflops.core.efficiency import Attention, Efficiency, Moved, Step
from crossflops.hardware.rates.denominators import Peaks
from crossflops.hardware.rates.parts import Run
from crossflops.hardware.rates.sanity import optimizer_step
from crossflops.hardware.rates.saying import REASONS


def said(found: Efficiency, run: Run) -> tuple[str, ...]:
    """What the speed and the attention of an efficiency rest on."""
    return (*_speed(run), *_attention(found.attention, run))


def _speed(run: Run) -> Iterator[str]:
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


def _attention(one: object, run: Run) -> Iterator[str]:
    asked = run.question.causality
    if not isinstance(one, Attention):
        if asked.causal == "half" or asked.window:
            yield "--causal and --window change nothing: there is no attention in what is counted"
        return
    if one.full_macs == one.half_macs:
        if one.counted == "half":
            yield "--causal half changes nothing: no attention of the graph may be causal"
        return
    if one.counted == "half":
        yield (
            f"of {one.full_macs} MACs of attention those behind a causal mask are left out: "
            f"{one.full_macs - one.half_macs}"
        )
    else:
        yield "attention counts the full square: --causal half leaves out what a mask hides"


def doubts(run: Run, against: Peaks | None, step: object, moved: object) -> tuple[str, ...]:
    """What is too fast to be true, beside the share of the peak itself."""
    return (*_short_step(run, against), *_phases(step), *_bandwidth(moved))


def _short_step(run: Run, against: Peaks | None) -> tuple[str, ...]:
    """An optimizer's step that is too short for the parameters, even in shards."""
    seconds = dict(run.pace.parts).get("step") if run.pace else None
    if seconds is None or run.params is None or against is None or not against.bandwidth:
        return ()
    return optimizer_step(seconds, run.params // run.world.devices, against.bandwidth)


def _phases(step: object) -> Iterator[str]:
    if not isinstance(step, Step):
        return
    above = [one for one in step.phases if (one.ratio or 0) > 1]
    for one in above:
        yield f"{one.name} at {100 * (one.ratio or 0):.1f} % of the peak is impossible"
    if above:
        yield REASONS


def _bandwidth(moved: object) -> Iterator[str]:
    if isinstance(moved, Moved) and (moved.mbu or 0) > 1:
        yield (
            f"{100 * (moved.mbu or 0):.1f} % of the bandwidth: bytes stay in a cache from pass "
            "to pass, or the bandwidth is that of another device"
        )
