"""Devices and time: how many examples a second a measured run makes, on how many devices.

    world       = data x tensor x pipeline parallel
    examples/s  = micro-batch x accumulated micro-batches x data parallel / step
    step        = (micro-batches + pipeline - 1) x (forward + backward) + optimizer
    bubble      = (pipeline - 1) / (micro-batches + pipeline - 1)

Only replicas of data parallelism see examples of their own: DeepSpeed's profiler multiplies by
the world instead, which is too much with model parallelism. The bubble is that of GPipe and 1F1B
without interleaving (Narayanan et al., Efficient Large-Scale Language Model Training, 2.2); the
work of one device is that of a replica / (tensor x pipeline), as DeepSpeed has it the other way.
"""

import msgspec

from crossflops.errors import InputError
from crossflops.hardware.rates.question import Parallel, Speed, Training

_WAYS = ("examples_per_second", "tokens_per_second", "latency_ms", "fwd_ms")


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How many devices, and how a model lies on them."""

    devices: int
    dp: int
    tp: int
    pp: int

    @property
    def split(self) -> int:
        """Devices that share one replica of the model."""
        return self.tp * self.pp


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Units (examples or tokens) a second of all devices, and the seconds of a pass or a step.

    `seconds` is None where only a rate was measured and nobody knows of how large a batch.
    """

    per_second: float
    seconds: float | None = None
    batch: int = 1
    parts: tuple[tuple[str, float], ...] = ()


def layout(asked: Parallel) -> Layout:
    """Raises InputError where the parts do not multiply to the devices."""
    split = asked.tp * asked.pp
    devices, dp = asked.devices, asked.dp
    if devices is None:
        devices = split * (1 if dp is None else dp)
    if dp is None:
        dp = devices // max(split, 1)
    if min(devices, dp, asked.tp, asked.pp) < 1 or dp * split != devices:
        raise InputError(
            f"--dp {dp} x --tp {asked.tp} x --pp {asked.pp} is not --devices {devices}",
            "world = data x tensor x pipeline parallel: leave one of them out",
        )
    return Layout(devices=devices, dp=dp, tp=asked.tp, pp=asked.pp)


def bubble(pipeline: int, micro_batches: int) -> float:
    """The share of a step in which a stage of the pipeline has nothing to do."""
    return (pipeline - 1) / (micro_batches + pipeline - 1)


def pace(
    speed: Speed,
    training: Training,
    world: Layout,
    *,
    tokens: int | None = None,
    by_token: bool = False,
) -> Pace | None:
    """Units a second from what was measured; None where nothing was.

    A unit is an example, or a token where the work is that of one; `tokens` are those of an
    example, or None. Raises InputError for times that contradict each other.
    """
    given = [name for name in _WAYS if getattr(speed, name) is not None]
    if len(given) > 1:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(f"{flags} contradict each other", "leave one out")
    if not given:
        _refuse_parts(speed)
        return None
    batch, units = speed.batch or 1, _units(tokens, by_token, "tokens_per_second" not in given)
    micro = training.accumulate if training.train else 1
    whole = batch * units * world.dp * micro
    if given[0] in ("examples_per_second", "tokens_per_second"):
        _refuse_parts(speed)
        found = _rate(speed, units, tokens, by_token) * (world.devices if speed.per_device else 1)
        return Pace(per_second=found, batch=batch, seconds=whole / found if speed.batch else None)
    if speed.per_device:
        raise InputError("--per-device is about a rate, and a time was given", "leave it out")
    parts = _parts(speed, training)
    step = dict(parts).get("step", 0.0)
    times = micro + world.pp - 1 if len(parts) > 1 else 1
    seconds = times * (sum(one for _, one in parts) - step) + step
    return Pace(per_second=whole / seconds, seconds=seconds, batch=batch, parts=parts)


def _units(tokens: int | None, by_token: bool, needed: bool) -> int:
    if not by_token:
        return 1
    if tokens is None and needed:
        raise InputError(
            "the work is that of a token, and nobody knows how many an example has",
            "add --seq N, or give --tokens-per-second",
        )
    return tokens or 1


def _rate(speed: Speed, units: int, tokens: int | None, by_token: bool) -> float:
    """Units a second as they were measured."""
    if speed.examples_per_second is not None:
        return speed.examples_per_second * units
    assert speed.tokens_per_second is not None
    if by_token:
        return speed.tokens_per_second
    if tokens is None:
        raise InputError(
            "nobody knows how many tokens an example has",
            "add --tokens N, those of one example, or give --examples-per-second",
        )
    return speed.tokens_per_second / tokens


def _refuse_parts(speed: Speed) -> None:
    if speed.bwd_ms is not None or speed.step_ms is not None:
        raise InputError("--bwd-ms and --step-ms are parts of a step", "give --fwd-ms beside them")


def _parts(speed: Speed, training: Training) -> tuple[tuple[str, float], ...]:
    """The seconds of a pass, or of the parts of a step."""
    if speed.latency_ms is not None:
        _refuse_parts(speed)
        return (("pass", speed.latency_ms / 1e3),)
    assert speed.fwd_ms is not None
    if not training.train:
        if speed.bwd_ms is not None or speed.step_ms is not None:
            raise InputError("a backward pass is part of training", "add --train")
        return (("pass", speed.fwd_ms / 1e3),)
    if speed.bwd_ms is None:
        raise InputError(
            "a step in training has a backward pass", "add --bwd-ms, or give --latency-ms for both"
        )
    parts = [("forward", speed.fwd_ms / 1e3), ("backward", speed.bwd_ms / 1e3)]
    if speed.step_ms is not None:
        parts.append(("step", speed.step_ms / 1e3))
    return tuple(parts)
