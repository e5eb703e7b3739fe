"""What a ratio rests on, in words: the rule of its numerator, its peak, and what to beware of."""

from collections.abc import Sequence
from fractions import Fraction

from crossflops.hardware.devices.catalogue import clock_of, derived, deviation, find
from crossflops.hardware.devices.peaks import sparse
from crossflops.hardware.rates.denominators import Peaks, conditions
from crossflops.hardware.rates.question import TrainingOptions
from crossflops.hardware.rates.terms import FLAT, Piece, WorkTerm, passes
from crossflops.ir.device import Device

TOLERATED = 0.02  # by how much a sheet may differ from its own arithmetic, as sheets round
REASONS = (
    "likely reasons: the peak of another device or precision (float32 convolutions that ran as "
    "tf32), the speed of several devices against the peak of one, timing that did not wait for "
    "the device, structured sparsity, work that was counted and not done"
)
_WORTH_SAYING = Fraction(1, 2000)


def rule(
    parts: Sequence[WorkTerm], training: TrainingOptions, pieces: Sequence[Piece]
) -> tuple[str, ...]:
    """How MACs became FLOPs, and what is not among them."""
    unit = "2 FLOPs per MAC: a multiplication and an addition"
    left = "left out: what is no contraction (normalization, activations, softmax), data movement"
    if not training.train:
        return unit, "x 1: one forward pass", left
    return (
        unit,
        *_passes(parts, training, pieces),
        *_recomputed(parts, training),
        f"{left}, the optimizer's step (count --train --optimizer)",
    )


def _passes(
    parts: Sequence[WorkTerm], training: TrainingOptions, pieces: Sequence[Piece]
) -> tuple[str, ...]:
    if training.train_multiplier is not None:
        return (f"x {training.train_multiplier}: given, for forward and backward pass",)
    known = any(piece.passes is not None for piece in pieces)
    kinds = sorted({term.passes for term in parts})
    if training.by_graph and known and kinds != [FLAT]:
        shares = [
            f"{100 * float(_macs(parts, k) / _macs(parts)):.3g} % of the MACs x {float(k):g}"
            for k in kinds
        ]
        frozen = f"; frozen: {', '.join(training.frozen)}" if training.frozen else ""
        trained = f"; trained: {', '.join(training.trainable)}" if training.trainable else ""
        return (
            f"passes by the exact count of a training step: {', '.join(shares)} (one for the "
            f"forward pass, one for every operand that needs a gradient){frozen}{trained}",
        )
    again = any(term.executed != term.passes for term in parts)
    sentence = (
        "x 3: one forward pass, one for the gradients of the inputs, one for those of the "
        f"weights; nothing is frozen{'' if again else ' and nothing recomputed'}"
    )
    if known:
        return (sentence,)
    return sentence, "x 3 is a little too much: the first layer's input needs no gradient"


def _macs(parts: Sequence[WorkTerm], k: Fraction | None = None) -> Fraction:
    return sum(
        (term.macs for term in parts if k is None or term.passes == k), Fraction(0)
    ) or Fraction(1)


def _recomputed(parts: Sequence[WorkTerm], training: TrainingOptions) -> tuple[str, ...]:
    if not any(term.executed != term.passes for term in parts):
        return ()
    repeated = {
        "none": "the scores of attention in a fused kernel",
        "full": "the whole forward pass",
        "attention": "the products of attention",
    }.get(training.recompute, f"{training.recompute} of the forward pass")
    return (f"HFU counts what is done again, {repeated}; MFU does not",)


def first_layer(training: TrainingOptions, pieces: Sequence[Piece]) -> tuple[str, ...]:
    """By how much 3 passes overstate a network whose first layer needs no input gradient."""
    if not training.train or training.train_multiplier is not None:
        return ()
    if training.by_graph:
        none = pieces and all(piece.passes == 1 for piece in pieces)
        return ("nothing that is trained lies before any product: one pass each",) if none else ()
    known = [piece for piece in pieces if piece.passes is not None]
    true = sum((piece.macs * passes(piece, _GRAPH) for piece in known), Fraction(0))
    flat = sum((piece.macs for piece in known), Fraction(0)) * FLAT
    if not true or flat / true - 1 < _WORTH_SAYING:
        return ()
    less = [piece for piece in known if piece.passes is not None and piece.passes < FLAT]
    which = less[0].names[1] if len(less) == 1 else f"{len(less)} nodes"
    return (
        f"x 3 overstates by {100 * float(flat / true - 1):.1f} %: not every operand of {which} "
        "needs a gradient; without --backward flat the passes of each node are counted",
    )


_GRAPH = TrainingOptions(train=True, backward="graph")


def denominator(against: Peaks | None, parts: Sequence[WorkTerm]) -> tuple[str, ...]:
    """Which peak, from where, and how far it was checked."""
    if against is None or not (against.given or against.device):
        return ()
    precisions = tuple(dict.fromkeys(term.precision for term in parts))
    mean = "the peak is the harmonic mean of those of the precisions, by work"
    several = (mean,) if len(precisions) > 1 else ()
    device = against.device
    if device is None:
        return "the peak is given, not looked up", *several
    taken = conditions(device, precisions)
    sources = [text for precision in precisions for text in _of_device(device, precision, against)]
    return *taken, *several, *sources, *_tensor_float(device, precisions)


def _of_device(device: Device, precision: str, against: Peaks) -> tuple[str, ...]:
    if precision in against.given:
        return (f"{device.label}, {precision}: the peak is given, not the catalogue's",)
    source = "; ".join((*device.source, f"confidence {device.confidence}"))
    if device.clock_basis == "measured":
        return (f"{device.label}, {precision}: {source}",)
    return (f"{device.label}, {precision}: {source}; {_arithmetic(device, precision)}",)


def _arithmetic(device: Device, precision: str) -> str:
    second, off = derived(device, precision), deviation(device, precision)
    clock = clock_of(device, precision)
    if second is None or off is None or clock is None:
        return "not derived a second time, as its clock or units are not known"
    return (
        f"{device.units} units x {clock / 1e6:g} MHz x "
        f"{device.fma_per_clock[precision]:g} FMA x 2 = {second / 1e12:.4g} TFLOP/s "
        f"({_signed(off)})"
    )


def _signed(fraction: float) -> str:
    """In percent with one decimal, and two significant digits where that has none.

    >>> _signed(0.0093), _signed(-0.00036), _signed(0.0)
    ('+0.9 %', '-0.036 %', '+0 %')
    """
    plain = f"{100 * fraction:+.1f}"
    return f"{100 * fraction:+.2g} %" if float(plain) == 0 else f"{plain} %"


def _tensor_float(device: Device, precisions: tuple[str, ...]) -> tuple[str, ...]:
    if precisions != ("fp32",) or "tf32" not in device.peaks:
        return ()
    tf32 = f"{device.peaks['tf32'] / 1e12:g} TFLOP/s on {device.label}"
    return (
        f"everything ran as fp32: float32 convolutions may run as tf32, with {tf32} "
        "(--precision-of Conv=tf32)",
    )


def doubts(against: Peaks | None, parts: Sequence[WorkTerm]) -> tuple[str, ...]:
    """A peak that contradicts its own clock."""
    device = against.device if against else None
    sentences = []
    for precision in dict.fromkeys(term.precision for term in parts):
        known = device is not None and against is not None and precision not in against.given
        off = deviation(device, precision) if device and known else None
        if device is not None and off is not None and abs(off) > TOLERATED:
            sentences.append(
                f"{device.label}: clock x units x FMA x 2 is {_signed(off)} from the "
                "published peak, and the share may be off by as much"
            )
    return tuple(sentences)


def namesakes(
    against: Peaks | None, parts: Sequence[WorkTerm], ratio: float | None
) -> tuple[str, ...]:
    """Other devices whose drivers print the same name, with the share of the peak of each."""
    device = against.device if against else None
    if against is None or device is None or not device.also:
        return ()
    ran = {term.precision for term in parts}
    others = []
    for other in map(find, device.also):
        top = other.peaks.get(min(ran)) if len(ran) == 1 else None
        if top is not None and ratio is not None:
            share = f"{100 * ratio * against.top(min(ran)) / top:.1f} %"
            others.append(f"{other.label} ({share} of its peak)")
        else:
            others.append(other.label)
    return (
        f"drivers print the name of {device.label} for other devices, too: {', '.join(others)}; "
        "give --device the id of the one that ran",
    )


def impossible(
    numerator: str,
    against: Peaks | None,
    parts: Sequence[WorkTerm],
    ratio: float | None,
    executed: float | None,
) -> tuple[str, ...]:
    """More than the peak: which it is, and why that may be."""
    worst = max(ratio or 0, executed or 0)
    if worst <= 1:
        return ()
    whose = against.device.label if against and against.device else "given"
    which = "" if (ratio or 0) > 1 else " (with what is recomputed)"
    of = f"{100 * worst:.1f} % of the peak{which}"
    sentence = f"{of} is impossible (MACs: {numerator}; peak: {whose})"
    return sentence, REASONS, *_other_peaks(against, parts, worst)


def _other_peaks(
    against: Peaks | None, parts: Sequence[WorkTerm], ratio: float
) -> tuple[str, ...]:
    """What the share would be if it ran otherwise on the same device, where that is possible."""
    device, ran = (against.device if against else None), {term.precision for term in parts}
    if against is None or device is None or len(ran) != 1:
        return ()
    (precision,) = ran
    rate = ratio * against.top(precision)
    tops = {
        name: top
        for name, top in device.peaks.items()
        if name != precision and top >= rate and name[:3] != "int"
    }
    pruned = sparse(device, precision)
    if pruned is not None and pruned >= rate:
        tops[f"{precision} with structured sparsity"] = pruned
    if not tops:
        return ("no peak of the device is as high: several devices, or work that was not done",)
    shares = ", ".join(f"{name} {100 * rate / top:.0f} %" for name, top in tops.items())
    return (f"as something else it would be possible: {shares}",)
