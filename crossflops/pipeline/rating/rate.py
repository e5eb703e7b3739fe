"""A count set against hardware: what is asked, whose work, which peaks, the parts of an answer."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from crossflops.core.bench import Bench
from crossflops.core.efficiency import Efficiency, EfficiencyReport
from crossflops.core.roofline import Roofline
from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import AmbiguousDeviceError
from crossflops.hardware.rates import measured, parts, terms, times
from crossflops.hardware.rates.denominators import Peaks, denominators
from crossflops.hardware.rates.numerators import Numerator
from crossflops.hardware.rates.question import Question
from crossflops.hardware.rates.rate import of_terms
from crossflops.hardware.rates.worlds import Layout, layout, pace
from crossflops.pipeline.devices import known
from crossflops.pipeline.provenance import asked_of, made_with
from crossflops.pipeline.rating import roofs
from crossflops.pipeline.rating.contradictions import refuse
from crossflops.pipeline.rating.work import Progress, Studied, studied


class Rated(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, with the error that it ends with, and what was left out of it."""

    noun: EfficiencyReport
    trouble: CrossflopsError | None = None
    left_out: tuple[str, ...] = ()


def rated(
    question: Question,
    target: Any = None,
    inputs: Any = (),
    *,
    how: Mapping[str, Any] = {},
    on_progress: Progress | None = None,
    memory: dict[bool, Studied] | None = None,
) -> Rated:
    """Set the work of a model, or one that is given, against the peaks that are asked for.

    `how` are the options of `crossflops.count`; `memory` is kept between questions about one
    model. Raises UnknownNameError for an unknown device
    (with the required rate) and InputError for what contradicts itself.
    """
    refuse(question, target, inputs, how)
    roofs.refuse(question, target)
    question, bench = roofs.with_bench(question)
    world = layout(question.parallel)
    asked = question.against
    extra = known(asked.device, asked.catalogue) if asked.device else ()
    found = denominators(asked, precisions(question), extra)
    kept = {} if memory is None else memory
    work = studied(
        question, target, inputs, how, on_progress, only_count=found.unknown, memory=kept
    )
    run = _run(question, work, world)
    rows = tuple(
        _efficiency(run, work, one, against, bench)
        for one, against in product(work.numerators, found.against)
    )
    if found.trouble is not None and found.unknown:
        raise _with_rate(found.trouble, rows[0])
    trouble: CrossflopsError | None = found.trouble
    agreed = None if found.left_out else _agreed(rows, trouble)
    if agreed is not None:
        rows, trouble = agreed, None
    noun = told(EfficiencyReport(efficiency=rows, report=work.report), question)
    return Rated(noun=noun, trouble=trouble, left_out=found.left_out)


def _agreed(
    rows: tuple[Efficiency, ...], trouble: CrossflopsError | None
) -> tuple[Efficiency, ...] | None:
    """The answers for the devices that an ambiguous name means as one, where they are equal."""
    if not isinstance(trouble, AmbiguousDeviceError):
        return None
    names = " or ".join(one.label for one in trouble.candidates)
    note = f"{trouble.name!r} is {names}, which agree in all that is asked"
    size = len(trouble.candidates)
    found = []
    for place in range(0, len(rows), size):
        first, *others = rows[place : place + size]
        if any(_figures(one) != _figures(first) for one in others):
            return None
        assumed = (note, *first.assumptions)
        found.append(replace(first, device=trouble.name, assumptions=assumed))
    return tuple(found)


def _figures(one: Efficiency) -> Efficiency:
    """An answer without the name of its device, and without what is said of it."""
    roof = one.roofline
    if isinstance(roof, Roofline):
        roof = replace(roof, device="", assumptions=(), warnings=())
    return replace(one, device=None, roofline=roof, assumptions=(), warnings=())


def told(noun: EfficiencyReport, question: Question) -> EfficiencyReport:
    """The same with what was asked, and with what it was made."""
    usual = Question().flat
    flags = {name: value for name, value in question.flat.items() if value != usual[name]}
    counted = noun.report
    return replace(
        noun,
        request=asked_of("efficiency", flags, counted.request if counted else None),
        made_with=counted.made_with if counted else made_with(is_file=True),
    )


def precisions(question: Question) -> tuple[str, ...]:
    """The precisions that a peak is needed for, as far as they are known before the count."""
    asked = question.precisions
    base = tuple(terms.shares(asked.mix)) if asked.mix else (asked.precision,)
    named = [one for one in base if one != terms.GRAPH]
    return tuple(dict.fromkeys((*named, *terms.kinds(asked).values())))


def _run(question: Question, work: Studied, world: Layout) -> parts.Run:
    by_token = work.numerators[0].unit == "token"
    tokens = question.speed.tokens or work.tokens
    found = pace(question.speed, question.training, world, tokens=tokens, by_token=by_token)
    other = question.roof.asked or question.speed.times is not None
    if found is None and work.transfer is None and not other:
        raise InputError(
            "no speed was given",
            "add --examples-per-second R, --tokens-per-second R or --latency-ms T, as measured",
        )
    return parts.Run(
        question=question,
        world=world,
        pace=found,
        units=tokens or 1 if by_token else 1,
        tokens=tokens,
        params=work.params,
        transfer=work.transfer,
    )


def _efficiency(
    run: parts.Run,
    work: Studied,
    numerator: Numerator,
    against: Peaks | None,
    bench: Bench | None,
) -> Efficiency:
    """The rate and its share. Parts that are asked for are put in here, one after the other."""
    question = run.question
    pieces = numerator.split
    split = terms.terms(pieces, question.training, question.causality, question.precisions)
    found = of_terms(
        split,
        numerator,
        run.pace.per_second if run.pace else None,
        training=question.training,
        against=against,
        world=run.world,
    )
    roof = roofs.roof(found, run, work, numerator, against, bench)
    if isinstance(roof, Roofline):
        found = under(found, roof)
    step = parts.step(split, run, against)
    # one byte model at a time: with a roofline the one that it names
    moved = parts.moved(split, run, against) if roof is UNSET else UNSET
    found = replace(
        found,
        batch=UNSET if question.speed.batch is None else question.speed.batch,
        tokens_per_second=parts.tokens(found, run),
        attention=parts.attention(found, pieces, run, against),
        world=parts.world(found, run),
        step=step,
        moved=moved,
        roofline=roof,
        others=parts.others(found, split, against),
    )
    found = replace(
        found,
        assumptions=(*found.assumptions, *measured.said(found, run)),
        warnings=(*found.warnings, *measured.doubts(run, against, step, moved)),
    )
    return found if question.speed.times is None else _timed(found, run, work)


def _timed(found: Efficiency, run: parts.Run, work: Studied) -> Efficiency:
    """The same with the modules of a table of times, by their native MACs."""
    assert run.question.speed.times is not None
    known = work.report.modules if work.report else ()
    batches = (run.question.speed.batch or 1) / work.examples / run.world.split
    rows = times.read(run.question.speed.times, {one.path: one.macs for one in known}, batches)
    return replace(
        found,
        modules=times.module_times(rows, found.peak),
        warnings=(*found.warnings, *times.doubts(rows, found.peak)),
    )


def under(found: Efficiency, roof: Roofline) -> Efficiency:
    """The same with what the roofline of the whole says, and what that assumes."""
    return replace(
        found,
        intensity=roof.step.intensity,
        ridge=roof.step.ridge,
        bound=roof.step.bound,
        assumptions=(*found.assumptions, *roof.assumptions),
        warnings=(*found.warnings, *roof.warnings),
    )


def _with_rate(trouble: UnknownNameError, found: Efficiency) -> UnknownNameError:
    from crossflops.render.quantity import short  # a renderer is not imported for `count`

    if found.rate is None:
        return trouble
    needed = short(found.rate, "FLOP/s")
    return UnknownNameError(f"{trouble.message}; the required rate is {needed}", trouble.hint)
