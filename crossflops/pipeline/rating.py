"""A count set against hardware: what is asked, whose work, which peaks, the parts of an answer."""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import msgspec

from crossflops.core.device import Device
from crossflops.core.efficiency import Efficiency, EfficiencyReport
from crossflops.core.report import Report
from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.denominators import Denominators, denominators
from crossflops.hardware.numerators import Numerator, by_tool, folded, given, native, quantity
from crossflops.hardware.question import Question
from crossflops.hardware.rates import efficiency as rate
from crossflops.hardware.rates import required_rate
from crossflops.pipeline.counting import Counted

Progress = Callable[[str], None]
_EXCLUSIVE = (  # fields, the second of which makes the first pointless
    ("device", "peak_tflops"),
    ("macs", "as_"),
    ("macs", "compare"),
    ("as_", "compare"),
)


class Rated(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, with the error that it ends with, and what was left out of it."""

    noun: EfficiencyReport
    trouble: UnknownNameError | None = None
    left_out: tuple[str, ...] = ()


class Studied(msgspec.Struct, frozen=True, kw_only=True):
    """Whose MACs, the report that they are from, and the model as it was counted, if it was."""

    numerators: tuple[Numerator, ...]
    report: Report | None = None
    counted: Counted | None = None


def rated(
    question: Question,
    target: Any = None,
    inputs: Any = (),
    *,
    how: Mapping[str, Any] = {},
    on_progress: Progress | None = None,
) -> Rated:
    """Set the work of a model, or one that is given, against the peaks that are asked for.

    `how` are the options of `crossflops.count`. Raises UnknownNameError for an unknown device
    (with the required rate) and InputError for what contradicts itself.
    """
    _refuse_contradictions(question, target, inputs, how)
    found = denominators(question.against)
    studied = _studied(question, found, target, inputs, how, on_progress)
    if found.trouble is not None and found.unknown:
        raise _with_rate(found.trouble, studied.numerators[0], question)
    rows = tuple(
        _efficiency(question, studied, one, against)
        for one, against in product(studied.numerators, found.against)
    )
    noun = EfficiencyReport(efficiency=rows, report=studied.report)
    return Rated(noun=noun, trouble=found.trouble, left_out=found.left_out)


def _efficiency(
    question: Question, studied: Studied, numerator: Numerator, against: Device | float | None
) -> Efficiency:
    """The rate and its share. Parts that are asked for are put in here, one after the other."""
    assert question.speed.examples_per_second is not None
    return rate(
        numerator.macs,
        numerator.label,
        question.speed.examples_per_second,
        precision=question.against.precision,
        training=question.training.train,
        against=against,
        notes=numerator.notes,
        warnings=numerator.warnings,
    )


def _refuse_contradictions(
    question: Question, target: Any, inputs: Any, how: Mapping[str, Any]
) -> None:
    asked = question.flat
    for one, other in _EXCLUSIVE:
        if asked[one] and asked[other]:
            names = [f"--{name.strip('_').replace('_', '-')}" for name in (one, other)]
            raise InputError(f"{' and '.join(names)} contradict each other", "leave one out")
    if target is None and question.work.macs is None:
        raise InputError("there is nothing to count", "give a model, or --macs such as 4.112G")
    if target is None and (inputs or how.get("inputs_file") or how.get("arguments")):
        raise InputError("inputs and arguments without a model", "give the model too")
    if question.work.tools and not question.work.compare:
        raise InputError("--tool runs nothing without --compare", "add --compare, or --as ID")
    if question.against.device and not question.against.precision:
        raise InputError("a device has a peak for each precision", "add such as --precision fp16")
    if question.speed.examples_per_second is None:
        raise InputError("no speed was given", "add --examples-per-second R, as it was measured")


def _studied(
    question: Question,
    found: Denominators,
    target: Any,
    inputs: Any,
    how: Mapping[str, Any],
    on_progress: Progress | None,
) -> Studied:
    """Whose MACs, and what they are from."""
    work = question.work
    macs = None if work.macs is None else quantity(work.macs)
    if macs is not None and target is None:
        return Studied(numerators=(given(macs),))
    if work.compare and not found.unknown:
        from crossflops import pipeline

        tools = work.tools or None
        report = pipeline.compare(target, inputs, tools=tools, on_progress=on_progress, **how)
        return Studied(numerators=by_tool(report), report=report)
    from crossflops.pipeline import native as counting

    report, counted = counting.native_count(target, inputs, as_=work.as_, **how)
    if macs is not None:
        numerators = (given(macs, report),)
    else:
        numerators = (folded(report) if work.as_ else native(report),)
    return Studied(numerators=numerators, report=report, counted=counted)


def _with_rate(
    trouble: UnknownNameError, numerator: Numerator, question: Question
) -> UnknownNameError:
    from crossflops.render.quantity import short  # a renderer is not imported for `count`

    assert question.speed.examples_per_second is not None
    speed, train = question.speed.examples_per_second, question.training.train
    needed = short(required_rate(numerator.macs, speed, train), "FLOP/s")
    return UnknownNameError(f"{trouble.message}; the required rate is {needed}", trouble.hint)
