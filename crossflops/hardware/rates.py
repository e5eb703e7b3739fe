"""From a count and a measured speed to a required rate, and its share of a peak.

    work   = 2 x MACs x k             FLOPs for one example, k passes
    rate   = work x examples/s        FLOP/s
    ratio  = rate / peak

k is 1 for inference and 3 for training: one forward pass, one for the gradients of the inputs
and one for those of the weights, since both are contractions as large as the forward one
(Kaplan et al., Scaling Laws for Neural Language Models, 2.1; DeepSpeed's flops profiler
multiplies the forward work by 3 as well).
"""

from crossflops.core.device import Device
from crossflops.core.efficiency import Efficiency
from crossflops.errors import InputError
from crossflops.hardware.catalogue import clock_of, derived, deviation, peak

FLOPS_PER_MAC = 2
TOLERATED = 0.02  # by how much a sheet may differ from its own arithmetic, as sheets round
REASONS = (
    "likely reasons: the peak of another device or precision (float32 convolutions that ran as "
    "tf32), the speed of several devices against the peak of one, timing that did not wait for "
    "the device, structured sparsity, work that was counted and not done"
)


def multiplier(training: bool) -> int:
    """Passes as large as the forward one: k = 3 in training, 1 in inference."""
    return 3 if training else 1


def work(macs: int, training: bool) -> int:
    """FLOPs of one example: 2 x MACs x k."""
    return FLOPS_PER_MAC * macs * multiplier(training)


def required_rate(macs: int, examples_per_second: float, training: bool) -> float:
    """FLOP/s that the speed needs: work x examples/s."""
    return work(macs, training) * examples_per_second


def efficiency(
    macs: int,
    numerator: str,
    examples_per_second: float,
    *,
    precision: str,
    training: bool,
    against: Device | float | None = None,
    notes: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
) -> Efficiency:
    """A required rate and its share of a peak.

    `macs` are those of one example, `numerator` says whose they are, `notes` and `warnings` what
    is known about them. `against` is a device, or a peak in FLOP/s; without it the rate stands
    alone, and the ratio is None. A ratio above 1 is possible in no run that was measured right,
    so it is a warning.

    Raises InputError for a count, a speed or a peak that is none, and UnknownNameError for a
    precision that the device does not have.
    """
    device = against if isinstance(against, Device) else None
    top = peak(against, precision) if isinstance(against, Device) else against
    _check(macs, examples_per_second, top)
    rate = required_rate(macs, examples_per_second, training)
    ratio = None if top is None else rate / top
    return Efficiency(
        numerator=numerator,
        macs=macs,
        multiplier=multiplier(training),
        examples_per_second=examples_per_second,
        precision=precision,
        work=work(macs, training),
        rate=rate,
        device=device.id if device else None,
        peak=top,
        ratio=ratio,
        assumptions=(*notes, *_rule(training), *_denominator(device, precision, top)),
        warnings=(*warnings, *_doubts(device, precision), *_impossible(numerator, device, ratio)),
    )


def _check(macs: int, examples_per_second: float, top: float | None) -> None:
    if macs < 0:
        raise InputError(f"{macs} MACs are no count", "give a count of zero or more")
    for what, value in (("examples per second", examples_per_second), ("FLOP/s of peak", top)):
        if value is not None and not 1e-30 <= value <= 1e30:
            raise InputError(f"{value} {what} is no rate", "give a number above zero")


def _rule(training: bool) -> tuple[str, ...]:
    unit = "2 FLOPs per MAC: a multiplication and an addition"
    if not training:
        return unit, "x 1: one forward pass"
    passes = (
        "x 3: one forward pass, one for the gradients of the inputs, one for those of the "
        "weights; nothing is frozen and nothing recomputed"
    )
    return unit, passes, "x 3 is a little too much: the first layer's input needs no gradient"


def _denominator(device: Device | None, precision: str, top: float | None) -> tuple[str, ...]:
    if device is None:
        return () if top is None else ("the peak is given, not looked up",)
    dense = "the peak is dense: no structured sparsity, no clock above the one of the sheet"
    source = "; ".join((*device.source, f"confidence {device.confidence}"))
    checked = f"{device.id}, {precision}: {source}; {_arithmetic(device, precision)}"
    return dense, checked, *_tensor_float(device, precision)


def _arithmetic(device: Device, precision: str) -> str:
    second, off = derived(device, precision), deviation(device, precision)
    clock = clock_of(device, precision)
    if second is None or off is None or clock is None:
        return "not derived a second time, as its clock or units are not known"
    return (
        f"{device.units} units x {clock / 1e6:g} MHz x "
        f"{device.fma_per_clock[precision]:g} FMA x 2 = {second / 1e12:.4g} TFLOP/s "
        f"({100 * off:+.1f} %)"
    )


def _tensor_float(device: Device, precision: str) -> tuple[str, ...]:
    if precision != "fp32" or "tf32" not in device.peaks:
        return ()
    tf32 = f"{device.peaks['tf32'] / 1e12:g} TFLOP/s on {device.id}"
    return (f"everything ran as fp32: float32 convolutions may run as tf32, with {tf32}",)


def _doubts(device: Device | None, precision: str) -> tuple[str, ...]:
    off = deviation(device, precision) if device else None
    if device is None or off is None or abs(off) <= TOLERATED:
        return ()
    what = f"{device.id}: clock x units x FMA x 2 is {100 * off:+.1f} % from the published peak"
    return (f"{what}, and the share may be off by as much",)


def _impossible(numerator: str, device: Device | None, ratio: float | None) -> tuple[str, ...]:
    if ratio is None or ratio <= 1:
        return ()
    whose = device.id if device else "given"
    of = f"{100 * ratio:.1f} % of the peak"
    return f"{of} is impossible (MACs: {numerator}; peak: {whose})", REASONS
