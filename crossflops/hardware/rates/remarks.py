"""Sentences on what a rate assumes, and on what contradicts it."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from math import isfinite
from typing import NamedTuple

from crossflops.hardware.devices.catalogue import (
    clock_peak_deviation,
    find_device,
    peak_clock_hertz,
    peak_from_clock,
)
from crossflops.hardware.devices.peaks import EMULATIONS, SPARSE, Peaks, peaks_at_least
from crossflops.hardware.rates.mfu import LEAST, MeasuredRun, optimizer_update_seconds
from crossflops.hardware.rates.numerators import Numerator, OmittedTool
from crossflops.hardware.rates.question import Question, TrainingOptions
from crossflops.hardware.rates.runs import (
    TimedRow,
    modules_above_device_peak,
    parents_with_time_gaps,
)
from crossflops.hardware.rates.terms import FLAT, Piece, WorkTerm, three_passes_overstatement
from crossflops.hardware.rates.whole_run import examples_of_step
from crossflops.ir.device import Device
from crossflops.ir.profile import Amount
from crossflops.ir.training import OptimizerStep
from crossflops.report.efficiency import Attention, Efficiency, MovedBytes, RunCompute, TimedStep
from crossflops.report.profile import ModuleProfile, modules_above_peak, modules_with_time_gap
from crossflops.report.quantity import percent_text
from crossflops.report.report import Report

TOLERATED = 0.02  # by how much a sheet may differ from its own arithmetic, as sheets round
_WORTH_SAYING = Fraction(1, 2000)
IMPOSSIBLE_REASONS = (
    "likely reasons: the peak belongs to another device or precision (float32 convolutions that "
    "ran as tf32), the speed is that of several devices but the peak that of one, the timing "
    "did not wait for the device, structured sparsity was used, or the run skipped counted work"
)

# Whose MACs they are.


class Remarks(NamedTuple):
    """Sentences on a result: notes that explain it, and warnings that doubt it."""

    notes: tuple[str, ...]
    warnings: tuple[str, ...]


class ModuleWarnings(NamedTuple):
    """Warnings on modules: rates above the peak, and times that submodules do not explain."""

    above_peak: tuple[str, ...]
    time_gaps: tuple[str, ...]


def macs_source_remarks(
    numerator: Numerator, question: Question, report: Report | None, examples: int
) -> Remarks:
    """Return notes and warnings on where the MACs of an example come from.

    `report` is the one that they are from, of a pass over so many `examples`.
    """
    if numerator.origin == "given":
        return Remarks(tuple(_external_macs_notes(numerator, question, report)), ())
    if numerator.origin == "sizes":
        return Remarks(tuple(_estimate_notes(numerator)), ())
    assert report is not None
    batch, native = question.speed.batch, numerator.origin == "native"
    notes = list(_macs_per_total_notes(numerator))
    if batch is not None:
        notes.insert(0, _batch_size_note(examples, batch))
    elif numerator.origin != "tool":
        notes += _example_notes(report)
    warnings: list[str] = []
    if numerator.assumed:
        tool = numerator.label.partition("@")[0]
        warnings.append(f"{tool} cannot run this model, so its total is predicted from the graph")
    if batch is None and numerator.origin != "tool":
        warnings += _batch_warnings(report)
    if native:
        notes += [*_exactness_notes(report), *_expert_notes(report)]
        warnings += [*_missing_count_notes(report), *map(_tool_omission_note, numerator.left_out)]
    return Remarks(tuple(notes), tuple(warnings))


def _external_macs_notes(
    numerator: Numerator, question: Question, report: Report | None
) -> Iterator[str]:
    """Yield notes on MACs that the user gave, with their difference from the native count if there
    is one.
    """
    if question.work.macs is None:
        yield f"the MACs are those of one pass over {question.speed.batch or 1} examples"
    if report is None:
        yield "the MACs are given, not counted"
        return
    native, macs = report.macs, numerator.macs
    off = (
        f" ({float(100 * Fraction(macs - native, native)):+.2f} % against these)" if native else ""
    )
    yield f"the MACs are given; {report.name} has {_group_digits(native)}, counted natively{off}"
    yield from _example_notes(report)


def _estimate_notes(numerator: Numerator) -> Iterator[str]:
    """Yield notes for a report whose MACs were estimated from the sizes of a language model
    (parameters, layers, width, sequence length) instead of counted.
    """
    yield (
        "MACs per token are estimated by a rule, not counted; N is the number of parameters "
        "in matrix products"
    )
    if numerator.attention is None:
        yield (
            "the score and value products of attention are left out: add --layers, --hidden, --seq"
        )
        return
    layers, across, length = numerator.attention
    yield f"2 x {layers} layers x {across} x {length} MACs of attention per token"


def _batch_size_note(counted_batch: int, requested_batch: int) -> str:
    """Return the note that says the batch size of the count and, if it differs, that of the
    question.
    """
    note = f"counted with a batch of {counted_batch}"
    return (
        note
        if requested_batch == counted_batch
        else f"{note}, used for a batch of {requested_batch}"
    )


def _macs_per_total_notes(numerator: Numerator) -> Iterator[str]:
    """Yield notes on how the total of a tool was divided to get MACs; nothing without such a
    total.
    """
    if numerator.printed is None:
        return
    total, unit = _group_digits(numerator.printed), numerator.per_mac
    config = f"counts {unit} per MAC: its total of {total} is divided by {unit}"
    if unit == 1:
        config = f"counts 1 per MAC, so its total of {total} is used as MACs"
    yield f"{numerator.label} {config}"
    if Fraction(numerator.printed) / unit % 1:
        yield f"{numerator.label}: rounded to whole MACs"


def _tool_omission_note(answer: OmittedTool) -> str:
    """Return the sentence that says why the total of a tool is left out."""
    why = "it counts no multiply-accumulates"
    if not isfinite(answer.total) or answer.total < 0:
        why = f"it printed {answer.total}"
    elif answer.per_mac is None:
        why = "what it counts for one MAC is unknown"
    return f"{answer.tool} is left out: {why}"


def _group_digits(amount: Amount) -> str:
    """Return a number with spaces between groups of three digits."""
    return f"{amount:,}".replace(",", " ")


def _example_notes(report: Report) -> tuple[str, ...]:
    """Return one note that says what an example is: one pass on the inputs of the report."""
    inputs = [
        f"{spec.name} {'x'.join(map(str, spec.shape)) or 'scalar'}" for spec in report.model.inputs
    ]
    return (f"one example is one pass on {', '.join(inputs) or 'no input'}",)


def _batch_warnings(report: Report) -> tuple[str, ...]:
    """Return a warning if the first dimension of the first input is not 1, since it may be the
    batch; else ().
    """
    first = next((spec.shape[0] for spec in report.model.inputs if spec.shape), 1)
    if first == 1:
        return ()
    condition = f"the first dimension of the input is {first}; if this is the batch size"
    return (f"{condition}, count with 1: otherwise the rate is {first} times too high",)


def _exactness_notes(report: Report) -> tuple[str, ...]:
    """Return a note if the count of some nodes is only a bound or an estimate; else ()."""
    grades = {node.exactness for node in report.nodes} - {"exact"}
    return (f"some nodes are not exact: {' and '.join(sorted(grades))}",) if grades else ()


def _expert_notes(report: Report) -> tuple[str, ...]:
    """Return a note on MACs and parameters of experts that a token does not choose; () without
    experts.
    """
    active = report.totals.active_params
    if not isinstance(active, int) or active == report.params:
        return ()
    stored = (
        f"{_group_digits(active)} of {_group_digits(report.params)} "
        "parameters are active; memory holds all"
        " of them"
    )
    if unchosen := report.totals.unchosen_macs:
        return (
            f"this model runs all experts on each token: {_group_digits(unchosen)} of "
            f"{_group_digits(report.macs)} MACs are in experts that the token did not choose; "
            f"{stored}",
        )
    return (f"the MACs are those of the chosen experts only; {stored}",)


def _missing_count_notes(report: Report) -> tuple[str, ...]:
    """Return a note with the number of uncounted nodes; () if there are none."""
    if not report.uncounted:
        return ()
    return (f"uncounted nodes: {len(report.uncounted)}, so the rate is a lower bound",)


# What the share of a peak takes for granted, and what contradicts it.


def peak_share_remarks(
    answer: Efficiency,
    parts: Sequence[WorkTerm],
    pieces: Sequence[Piece],
    training: TrainingOptions,
    against: Peaks | None,
) -> Remarks:
    """Return notes on the peak and the number of passes, and warnings on the share of the peak."""
    precisions = tuple(dict.fromkeys(term.precision for term in parts))
    return Remarks(
        (*_flop_rule_notes(answer, parts, training, pieces), *peak_notes(against, precisions)),
        (
            *_pass_number_warnings(training, pieces),
            *_doubtful_peak_warnings(against, parts),
            *_namesake_warnings(against, parts, answer.ratio),
            *_above_peak_warnings(answer, against, parts),
        ),
    )


def _flop_rule_notes(
    answer: Efficiency,
    parts: Sequence[WorkTerm],
    training: TrainingOptions,
    pieces: Sequence[Piece],
) -> tuple[str, ...]:
    """Return notes on the FLOPs per MAC and the number of passes, and on operations that are left
    out.
    """
    unit = "2 FLOPs per MAC: a multiplication and an addition"
    left = (
        "left out: operations other than contractions (normalization, activations, "
        "softmax), data movement"
    )
    if not training.train:
        return unit, "x 1: one forward pass", left
    return (
        unit,
        *_pass_factor_notes(parts, training, pieces),
        *_recompute_notes(answer),
        f"{left}, the optimizer's step (count --train --optimizer)",
    )


def _pass_factor_notes(
    parts: Sequence[WorkTerm], training: TrainingOptions, pieces: Sequence[Piece]
) -> tuple[str, ...]:
    """Return notes on the number of passes over the forward MACs in a training step."""
    if training.train_multiplier is not None:
        return (f"x {training.train_multiplier}: given, for the forward and the backward pass",)
    known = any(piece.passes is not None for piece in pieces)
    kinds = sorted({term.passes for term in parts})
    if training.has_graph_passes and known and kinds != [FLAT]:
        shares = [
            f"{100 * float(_macs_with_pass_factor(parts, k) / _macs_with_pass_factor(parts)):.3g} "
            f"% of the MACs x {float(k):g}"
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
        "x 3: one forward pass, one for the gradients of the inputs, one for the gradients of "
        f"the weights; nothing is frozen{'' if again else ' and nothing recomputed'}"
    )
    if known:
        return (sentence,)
    return sentence, "x 3 is slightly too high: the input of the first layer needs no gradient"


def _macs_with_pass_factor(parts: Sequence[WorkTerm], k: Fraction | None = None) -> Fraction:
    """Return the MACs of the terms (only of those with `k` passes, if given), or 1 instead of 0,
    for a division.
    """
    return sum(
        (term.macs for term in parts if k is None or term.passes == k), Fraction(0)
    ) or Fraction(1)


def _recompute_notes(answer: Efficiency) -> tuple[str, ...]:
    """Return the note that HFU includes recomputed work; () if nothing is recomputed."""
    if not answer.repeats:
        return ()
    reasons = " and ".join(part.reason for part in answer.repeats)
    return (f"HFU includes recomputed work ({reasons}); MFU does not",)


def _pass_number_warnings(training: TrainingOptions, pieces: Sequence[Piece]) -> tuple[str, ...]:
    """Return a warning that 3 passes are too many for some nodes, or that no parameter is trained;
    () if neither is so.
    """
    if not training.train or training.train_multiplier is not None:
        return ()
    if training.has_graph_passes:
        none = pieces and all(piece.passes == 1 for piece in pieces)
        return (
            ("no trained parameter is in or before any matrix product: one pass each",)
            if none
            else ()
        )
    over = three_passes_overstatement(pieces)
    if over is None or over.share < _WORTH_SAYING:
        return ()
    which = over.pieces[0].names[1] if len(over.pieces) == 1 else f"{len(over.pieces)} nodes"
    return (
        f"x 3 overstates by {100 * float(over.share):.1f} %: not every operand of {which} "
        "needs a gradient; without --backward flat the passes of each node are counted",
    )


def peak_notes(against: Peaks | None, precisions: tuple[str, ...]) -> tuple[str, ...]:
    """Return notes on the source of the peak of these precisions and how it was checked; ()
    without a peak.
    """
    if against is None or not (against.given or against.device):
        return ()
    mean = "the peak is the harmonic mean of the peaks of the precisions, weighted by work"
    several = (mean,) if len(precisions) > 1 else ()
    device = against.device
    if device is None:
        return "the peak is given, not looked up", *several
    taken = peak_condition_notes(device, precisions)
    sources = [
        text for precision in precisions for text in _device_peak_notes(device, precision, against)
    ]
    return *taken, *several, *sources, *_tensor_float_note(device, precisions)


def _device_peak_notes(device: Device, precision: str, against: Peaks) -> tuple[str, ...]:
    """Return one note that says the source of the device's peak for a precision."""
    if precision in against.given:
        return (f"{device.label}, {precision}: the peak is given, not the catalogue's",)
    source = "; ".join((*device.source, f"confidence {device.confidence}"))
    if device.clock_basis == "measured":
        return (f"{device.label}, {precision}: {source}",)
    return (f"{device.label}, {precision}: {source}; {_peak_arithmetic_note(device, precision)}",)


def _peak_arithmetic_note(device: Device, precision: str) -> str:
    """Return the text of units x clock x FMA x 2 for a precision, with its deviation from the
    published peak.
    """
    second, off = peak_from_clock(device, precision), clock_peak_deviation(device, precision)
    clock = peak_clock_hertz(device, precision)
    if second is None or off is None or clock is None:
        return "not checked by clock x units, which are unknown"
    return (
        f"{device.units} units x {clock / 1e6:g} MHz x "
        f"{device.fma_per_clock[precision]:g} FMA x 2 = {second / 1e12:.4g} TFLOP/s "
        f"({_percent_with_sign(off)})"
    )


def _percent_with_sign(fraction: float) -> str:
    """Return a fraction as percent with a sign.

    >>> _percent_with_sign(0.0093), _percent_with_sign(-0.00036), _percent_with_sign(0.0)
    ('+0.9 %', '-0.036 %', '+0 %')
    """
    plain = f"{100 * fraction:+.1f}"
    return f"{100 * fraction:+.2g} %" if float(plain) == 0 else f"{plain} %"


def _tensor_float_note(device: Device, precisions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the note that fp32 convolutions may run as tf32; () if other precisions ran or the
    device has no tf32.
    """
    if precisions != ("fp32",) or "tf32" not in device.peaks:
        return ()
    tf32 = f"{device.peaks['tf32'] / 1e12:g} TFLOP/s on {device.label}"
    return (
        f"all work is assumed to be fp32; float32 convolutions may run as tf32, with {tf32} "
        "(--precision-of Conv=tf32)",
    )


def _doubtful_peak_warnings(against: Peaks | None, parts: Sequence[WorkTerm]) -> tuple[str, ...]:
    """Return a warning for each precision whose published peak differs by over 2 % from clock x
    units.
    """
    device = against.device if against else None
    sentences = []
    for precision in dict.fromkeys(term.precision for term in parts):
        known = device is not None and against is not None and precision not in against.given
        off = clock_peak_deviation(device, precision) if device and known else None
        if device is not None and off is not None and abs(off) > TOLERATED:
            sentences.append(
                f"{device.label}: clock x units x FMA x 2 is {_percent_with_sign(off)} from "
                "the published peak; the share may be wrong by as much"
            )
    return tuple(sentences)


def _namesake_warnings(
    against: Peaks | None, parts: Sequence[WorkTerm], ratio: float | None
) -> tuple[str, ...]:
    """Return a warning that names other devices of the same name, with the share of their peaks;
    else ().
    """
    device = against.device if against else None
    if against is None or device is None or not device.also:
        return ()
    ran = {term.precision for term in parts}
    others = []
    for other in map(find_device, device.also):
        top = other.peaks.get(min(ran)) if len(ran) == 1 else None
        if top is not None and ratio is not None:
            share = f"{100 * ratio * against.peak_of_precision(min(ran)) / top:.1f} %"
            others.append(f"{other.label} ({share} of its peak)")
        else:
            others.append(other.label)
    return (
        f"drivers print the name of {device.label} also for other devices: "
        f"{', '.join(others)}; give --device the id of the device that ran",
    )


def _above_peak_warnings(
    answer: Efficiency, against: Peaks | None, parts: Sequence[WorkTerm]
) -> tuple[str, ...]:
    """Return sentences that the rate is above the peak and what the reasons may be; () if it is
    not.
    """
    worst = max(answer.ratio or 0, answer.hfu or 0)
    if worst <= 1:
        return ()
    whose = against.device.label if against and against.device else "given"
    which = "" if (answer.ratio or 0) > 1 else " (with recomputed work)"
    of = f"{100 * worst:.1f} % of the peak{which}"
    sentence = f"{of} is impossible (MACs: {answer.numerator}; peak: {whose})"
    return sentence, IMPOSSIBLE_REASONS, *_other_peak_notes(against, parts, worst)


def _other_peak_notes(
    against: Peaks | None, parts: Sequence[WorkTerm], ratio: float
) -> tuple[str, ...]:
    """Return one sentence: which other peaks of the device are at least the rate, or that none is;
    () if the device or the precision is unknown.
    """
    device, ran = (against.device if against else None), {term.precision for term in parts}
    if against is None or device is None or len(ran) != 1:
        return ()
    (precision,) = ran
    rate = ratio * against.peak_of_precision(precision)
    tops = peaks_at_least(device, precision, rate)
    if not tops:
        return (
            "no peak of the device is that high: several devices ran, or the run skipped "
            "counted work",
        )
    shares = ", ".join(f"{name} {100 * rate / top:.0f} %" for name, top in tops.items())
    return (f"it is possible for another precision: {shares}",)


# Under which conditions a peak of a device can be reached: printed with every share of it.

_DENSE = "the peak is dense: without structured sparsity, at the clock of the data sheet"
_PARTS = ("no", "the whole", "half", "a third", "a quarter")


def peak_condition_notes(device: Device, precisions: tuple[str, ...]) -> tuple[str, ...]:
    """Return notes on the conditions under which a device reaches its peaks: without sparsity,
    base clock, power mode and similar.
    """
    pruned = [precision for precision in precisions if precision.endswith(SPARSE)]
    sentences = [] if device.clock_basis == "measured" or pruned else [_DENSE]
    if device.clock_basis == "base":
        base = "the peak is for the base clock of one socket; cores may run faster"
        sentences.append(f"{device.label}: {base}")
    if device.power_mode:
        sentences.append(f"{device.label}: the peak is for power mode {device.power_mode}")
    if pruned:
        weights = f"{device.sparse_pattern} pruned weights"
        sentences.append(f"the peak includes work that a sparse kernel skips for {weights}")
    sentences += [
        f"{precision}: an FP32 product is computed as {EMULATIONS[precision]} products of "
        "BF16 parts"
        for precision in precisions
        if precision in EMULATIONS
    ]
    count = device.framework_devices_per_package
    if count > 1:
        part = _PARTS[count] if count < len(_PARTS) else f"one in {count}"
        share_of_package = (
            f"the peak is that of one framework device, which is {part} of its package"
        )
        sentences.append(f"{device.label}: {share_of_package}")
    if device.notes.startswith("A slice"):
        sentences.append(f"{device.label}: {device.notes.partition('. ')[0]}")
    return tuple(sentences)


# What the speed rests on, and what no measurement can have.


def fast_update_warnings(seconds: float, params: int, bandwidth: float) -> tuple[str, ...]:
    """Return a warning if the seconds of an optimizer step are too few to read and write all
    parameters; else ().
    """
    least, adam = optimizer_update_seconds(params, bandwidth)
    if seconds >= least:
        return ()
    return (
        f"a step of {1e3 * seconds:.3g} ms cannot be an update of {params / 1e6:.1f} M "
        f"parameters: reading and writing them takes {1e3 * least:.2g} ms at "
        f"{bandwidth / 1e9:.0f} GB/s ({LEAST} bytes each with SGD; {1e3 * adam:.2g} ms with "
        "Adam): it was a micro-step of gradient accumulation, or the timing did not wait for "
        "the device",
    )


def module_time_remarks(rows: Iterable[TimedRow], peak: float | None) -> tuple[str, ...]:
    """Return a warning for each timed module above the peak (FLOP/s), and for each whose time is
    not the sum of its submodules' times.
    """
    rows = tuple(rows)
    above = () if peak is None else modules_above_device_peak(rows, peak)
    sentences = [
        f"{row.path or '(the model)'} at {row.rate / 1e12:.4g} TFLOP/s is above the peak of "
        f"{(peak or 0) / 1e12:.4g}: the timing did not wait for the device"
        for row in above
    ]
    for parent in parents_with_time_gaps(rows):
        total, name = sum(parent.children), parent.path or "(the model)"
        left = 1e3 * (parent.seconds - total)
        remainder = f"take {left:.4g} ms less" if left > 0 else f"take {-left:.4g} ms more"
        sentences.append(
            f"{name} took {1e3 * parent.seconds:.4g} ms, and its parts {1e3 * total:.4g} ms: "
            f"the {len(parent.children)} parts {remainder}"
        )
    return tuple(sentences)


def speed_and_attention_notes(row: Efficiency, run: MeasuredRun) -> tuple[str, ...]:
    """Return notes on the measured speed and on the counted attention."""
    return (*_speed_notes(run), *_causal_mask_notes(row.attention))


def module_profile_remarks(
    rows: Sequence[ModuleProfile], peak: float | None, unseen: Iterable[str]
) -> ModuleWarnings:
    """Return warnings on profiled modules: those above the peak (FLOP/s), and those
    whose time their submodules do not explain.
    """
    above = () if peak is None else modules_above_peak(rows, peak)
    return ModuleWarnings(
        tuple(
            f"{row.path or '(the model)'}, {word}: {rate / 1e12:.4g} TFLOP/s is above the "
            f"peak of {(peak or 0) / 1e12:.4g}: the timing did not wait for the device, or "
            "the peak is wrong"
            for row, word, rate in above
        ),
        tuple(
            f"{row.path or '(the model)'} took {1e3 * seconds:.4g} ms, and the {parts} modules in "
            f"it {1e3 * total:.4g} ms: {100 * total / seconds:.0f} % of it"
            for row, parts, total in modules_with_time_gap(rows, unseen)
            if (seconds := row.forward_seconds)
        ),
    )


def _speed_notes(run: MeasuredRun) -> Iterator[str]:
    """Yield notes on what the given speed is of: examples, micro-batches, replicas, devices."""
    pace, world, training = run.pace, run.world, run.question.training
    if run.published_by:
        share = run.question.length.mfu
        yield f"the speed follows from an MFU of {share} by {run.published_by}"
    elif pace is not None and pace.parts and pace.seconds:
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
        yield _speed_scope_note(run.question.speed.per_device, world.devices)
    if world.tp * world.pp > 1:
        yield f"{world.tp * world.pp} devices share the work of one replica equally"


def _speed_scope_note(per_device: bool | None, devices: int) -> str:
    """Return the note that says whether the given speed is of one device or of all together."""
    if per_device:
        return "the given speed is per device"
    all_of_them = f"the given speed is that of all {devices} devices together"
    return (
        all_of_them
        if per_device is False
        else f"{all_of_them}; use --per-device if it is per device"
    )


def ambiguous_speed_note(row: Efficiency, run: MeasuredRun) -> tuple[str, ...]:
    """Return a note with both possible shares of the peak if the speed may be that of one device
    or of all; else ().
    """
    devices, speed = run.world.devices, run.question.speed
    rated = speed.examples_per_second is not None or speed.tokens_per_second is not None
    is_unambiguous = speed.per_device is not None or not rated
    if is_unambiguous or devices == 1 or row.ratio is None or row.ratio * devices > 1:
        return ()
    return (
        f"the rate is assumed to be that of all {devices} devices together "
        f"({percent_text(row.ratio)} of the peak), but may be per device "
        f"({percent_text(row.ratio * devices)}): give --all-devices or --per-device",
    )


def _causal_mask_notes(attention: object) -> Iterator[str]:
    """Yield the note that says if the MACs hidden by a causal mask are counted; nothing without a
    mask.
    """
    if not isinstance(attention, Attention) or attention.full_macs == attention.half_macs:
        return
    if attention.counted == "half":
        yield (
            f"of {attention.full_macs} MACs of attention, those hidden by a causal mask are left "
            f"out: {attention.full_macs - attention.half_macs}"
        )
    else:
        yield (
            "attention is counted with all scores; --causal half leaves out the scores that a "
            "causal mask hides"
        )


def impossible_speed_warnings(
    run: MeasuredRun, against: Peaks | None, step: object, moved: object
) -> tuple[str, ...]:
    """Return a warning for each part of a run that is faster than possible: optimizer step, phase,
    memory traffic.
    """
    return (
        *_fast_update_warnings_of_run(run, against),
        *_phase_warnings(step),
        *_bandwidth_warnings(moved),
    )


def _fast_update_warnings_of_run(run: MeasuredRun, against: Peaks | None) -> tuple[str, ...]:
    """Return a warning if the optimizer's step is too fast for the memory bandwidth; else ()."""
    seconds = dict(run.pace.parts).get("step") if run.pace else None
    if seconds is None or run.params is None or against is None or not against.bandwidth:
        return ()
    return fast_update_warnings(seconds, run.params // run.world.devices, against.bandwidth)


def _phase_warnings(step: object) -> Iterator[str]:
    """Yield a warning for each phase of a step that is faster than the peak, then the possible
    reasons.
    """
    if not isinstance(step, TimedStep):
        return
    above = [phase for phase in step.phases if (phase.ratio or 0) > 1]
    for phase in above:
        yield f"{phase.name} at {100 * (phase.ratio or 0):.1f} % of the peak is impossible"
    if above:
        yield IMPOSSIBLE_REASONS


def _bandwidth_warnings(moved: object) -> Iterator[str]:
    """Yield a warning if a run uses more than 100 % of the memory bandwidth."""
    if isinstance(moved, MovedBytes) and (moved.mbu or 0) > 1:
        yield (
            f"{100 * (moved.mbu or 0):.1f} % of the bandwidth: bytes stay in a cache between "
            "passes, or the bandwidth belongs to another device"
        )


# A whole run.


def whole_run_remarks(
    compute: RunCompute, row: Efficiency, run: MeasuredRun, optimizer: OptimizerStep | None
) -> tuple[str, ...]:
    """Return notes on what the compute of a whole training run assumes: its length, MFU, energy
    and optimizer.
    """
    return (*_run_assumptions(compute, row, run), *_optimizer_notes(optimizer))


def _run_length_text(run: MeasuredRun) -> str:
    """Return the length of a training run as text, such as "15T tokens"."""
    run_length = run.question.length
    if run_length.run_tokens is not None:
        return f"{run_length.run_tokens} tokens"
    if run_length.run_steps is not None:
        return f"{run_length.run_steps} steps of {examples_of_step(run)} examples"
    return f"{run_length.run_examples} examples"


def _run_assumptions(compute: RunCompute, row: Efficiency, run: MeasuredRun) -> Iterator[str]:
    """Yield notes on what the FLOPs, device-hours and energy of a training run assume."""
    per = f", {run.tokens} tokens each" if run.tokens and row.unit == "example" else ""
    yield (
        f"the run is {_run_length_text(run)}{per}: its FLOPs are the work of one {row.unit} x "
        "their number"
    )
    if row.peak is None:
        yield "no device-hours: give --device and --precision, or --peak-tflops"
    elif compute.mfu is None:
        yield "no device-hours: give --mfu, or the measured speed"
    else:
        stated = run.question.length.mfu is not None
        kind = "stated" if stated else "the measured MFU, assumed for the whole run"
        yield (
            f"an MFU of {100 * compute.mfu:.3g} %, {kind}: device-hours are an estimate; "
            "restarts, evaluations and idle devices are included only as far as the MFU "
            "includes them"
        )
        yield (
            "no energy: the TDP of the device is unknown"
            if compute.tdp is None
            else f"energy is for the devices at their full TDP, {compute.tdp:g} W each, "
            "without hosts, network and cooling"
        )


def _optimizer_notes(optimizer: OptimizerStep | None) -> Iterator[str]:
    """Yield the note with the FLOPs of the optimizer in a step; nothing without an optimizer."""
    if optimizer is not None:
        yield (
            f"{optimizer.name}: {optimizer.all_flops} FLOPs per step for "
            f"{optimizer.parameters} parameters, once for all replicas; they are not in any "
            "other number"
        )
