"""From a count and a measured speed to a required rate, and its share of a peak.

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
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.core.device import Device
from crossflops.core.efficiency import Efficiency, PrecisionShare
from crossflops.errors import InputError
from crossflops.hardware.rates import saying
from crossflops.hardware.rates.denominators import ANY, Peaks
from crossflops.hardware.rates.numerators import Numerator
from crossflops.hardware.rates.pieces import whole
from crossflops.hardware.rates.question import Causality, Precisions, Training
from crossflops.hardware.rates.terms import Term, terms
from crossflops.hardware.rates.worlds import Layout

FLOPS_PER_MAC = 2
ALONE = Layout(devices=1, dp=1, tp=1, pp=1)


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
    """A required rate and its share of a peak, of a count of which nothing more is known.

    `macs` are those of one example, `numerator` says whose they are, `notes` and `warnings` what
    is known about them. `against` is a device, or a peak in FLOP/s; without it the rate stands
    alone, and the ratio is None. A ratio above 1 is possible in no run that was measured right,
    so it is a warning.

    Raises InputError for a count, a speed or a peak that is none, and UnknownNameError for a
    precision that the device does not have.
    """
    peaks = Peaks(device=against) if isinstance(against, Device) else None
    if peaks is None and against is not None:
        assert not isinstance(against, Device)
        peaks = Peaks(given={ANY: against})
    asked = Training(train=training)
    parts = terms(whole(macs), asked, Causality(), Precisions(precision=precision))
    of = Numerator(label=numerator, macs=macs, notes=notes, warnings=warnings)
    return of_terms(parts, of, examples_per_second, training=asked, against=peaks)


def of_terms(
    parts: Sequence[Term],
    numerator: Numerator,
    per_second: float | None,
    *,
    training: Training,
    against: Peaks | None = None,
    world: Layout = ALONE,
) -> Efficiency:
    """The same of work in parts. `per_second` are units (examples or tokens) of all devices."""
    _check(numerator.macs, per_second, against)
    found = share(parts, against)
    each = None if per_second is None else per_second / world.devices
    ratio = None if each is None or found.ideal is None else found.ideal * each
    spent = None if each is None or found.executed_ideal is None else found.executed_ideal * each
    macs = sum((one.macs for one in parts), Fraction(0))
    again = found.executed != found.work
    return Efficiency(
        numerator=numerator.label,
        macs=round(macs),
        multiplier=_passes(found.work, macs, parts),
        examples_per_second=each,
        unit=numerator.unit,
        precision=_named(parts),
        work=round(found.work),
        rate=None if each is None else float(found.work * Fraction(each)),
        device=against.device.label if against and against.device else None,
        peak=found.peak,
        ratio=ratio,
        executed=round(found.executed) if again else UNSET,
        hfu=spent if again else UNSET,
        precisions=_precisions(parts, against),
        assumptions=(
            *numerator.notes,
            *saying.rule(parts, training, numerator.pieces),
            *saying.denominator(against, parts),
        ),
        warnings=(
            *numerator.warnings,
            *saying.first_layer(training, numerator.pieces),
            *saying.doubts(against, parts),
            *saying.namesakes(against, parts, ratio),
            *saying.impossible(numerator.label, against, parts, ratio, spent),
        ),
    )


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one unit in FLOPs, and the seconds that it takes at the peaks."""

    work: Fraction
    executed: Fraction
    ideal: float | None
    executed_ideal: float | None
    peak: float | None


def share(parts: Iterable[Term], against: Peaks | None) -> Share:
    """The sums over the parts. Without peaks there are no ideal times."""
    parts = tuple(parts)
    total = sum((one.flops for one in parts), Fraction(0))
    executed = sum((one.executed_flops for one in parts), Fraction(0))
    if against is None or not (against.given or against.device):
        return Share(work=total, executed=executed, ideal=None, executed_ideal=None, peak=None)
    tops = [Fraction(against.top(one.precision)) for one in parts]
    pairs = tuple(zip(parts, tops, strict=True))
    ideal = sum((one.flops / top for one, top in pairs), Fraction(0))
    spent = sum((one.executed_flops / top for one, top in pairs), Fraction(0))
    single = len(set(tops)) == 1 or not total
    peak = float(tops[0]) if single else float(total / ideal)
    return Share(
        work=total, executed=executed, ideal=float(ideal), executed_ideal=float(spent), peak=peak
    )


def _precisions(
    parts: Sequence[Term], against: Peaks | None
) -> tuple[PrecisionShare, ...] | UnsetType:
    """The work by precision, where there are several."""
    flops: dict[str, Fraction] = {}
    for one in parts:
        flops[one.precision] = flops.get(one.precision, Fraction(0)) + one.flops
    if len(flops) < 2:
        return UNSET
    known = against is not None and (against.given or against.device)
    return tuple(
        PrecisionShare(
            precision=name,
            flops=round(value),
            peak=against.top(name) if known and against else None,
        )
        for name, value in flops.items()
    )


def _named(parts: Sequence[Term]) -> str:
    return " + ".join(dict.fromkeys(one.precision for one in parts))


def _passes(total: Fraction, macs: Fraction, parts: Sequence[Term]) -> int | float:
    """k, the mean where it differs between the parts."""
    found = total / (2 * macs) if macs else parts[0].passes if parts else Fraction(1)
    return found.numerator if found.denominator == 1 else float(found)


def _check(macs: int, per_second: float | None, against: Peaks | None) -> None:
    if macs < 0:
        raise InputError(f"{macs} MACs are no count", "give a count of zero or more")
    tops = against.given.values() if against else ()
    rates = (("examples per second", per_second), *(("FLOP/s of peak", top) for top in tops))
    for what, value in rates:
        if value is not None and not 1e-30 <= value <= 1e30:
            raise InputError(f"{value} {what} is no rate", "give a number above zero")
