"""A count set against hardware, for one question or for a table of runs."""

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import AmbiguousDeviceError
from crossflops.hardware.rates import breakdown, measured, runs, terms
from crossflops.hardware.rates.denominators import Peaks, denominators
from crossflops.hardware.rates.numerators import Numerator
from crossflops.hardware.rates.question import Question
from crossflops.hardware.rates.rate import Layout, layout, of_terms, pace
from crossflops.ir.roofline import Roofline
from crossflops.report.bench import Bench
from crossflops.report.efficiency import Efficiency, EfficiencyReport
from crossflops.verbs.devices import known
from crossflops.verbs.efficiency import roofline
from crossflops.verbs.efficiency.work import Progress, Studied, studied
from crossflops.verbs.provenance import asked_of, made_with

# What `efficiency` is asked and cannot answer: refused before a model is built.

_EXCLUSIVE = (  # fields, the second of which makes the first pointless
    ("macs", "pass_macs"),
    ("macs", "as_"),
    ("macs", "compare"),
    ("pass_macs", "as_"),
    ("pass_macs", "compare"),
    ("as_", "compare"),
    ("train_multiplier", "frozen"),
    ("seq", "context"),
)
_OF_TRAINING = (
    "train_multiplier", "frozen", "trainable", "flash", "bwd_ms", "step_ms",
)  # fmt: skip
_MEASURED = (
    "examples_per_second", "tokens_per_second", "latency_ms", "fwd_ms", "bwd_ms", "step_ms",
    "bandwidth", "param_bytes", "cache_bytes",
)  # fmt: skip
_COUNTED = (
    "batch", "tokens", "accumulate", "devices", "dp", "tp", "pp", "window", "layers", "hidden",
    "heads", "head_dim", "kv_heads", "seq", "context",
)  # fmt: skip
_OF_A_GRAPH = ("frozen", "trainable", "precision_of", "backward")


def refuse(question: Question, target: Any, inputs: Any, how: Mapping[str, Any]) -> None:
    """Raises InputError for what contradicts itself, or needs what is not given."""
    asked = question.flat
    _refuse_numbers(asked)
    for one, other in _EXCLUSIVE:
        if asked[one] and asked[other]:
            raise InputError(
                f"{_flag(one)} and {_flag(other)} contradict each other", "leave one out"
            )
    if asked["device"] and any("=" not in one for one in asked["peak_tflops"]):
        raise InputError(
            "--device and --peak-tflops contradict each other",
            "leave one out, or say for which precision: --peak-tflops bf16=X",
        )
    given = asked["macs"] is not None or asked["pass_macs"] is not None
    if target is None and not given and asked["params"] is None:
        raise InputError(
            "there is nothing to count", "give a model, or --macs such as 4.112G, or --params"
        )
    if target is None and (inputs or how.get("inputs_file") or how.get("arguments")):
        raise InputError("inputs and arguments without a model", "give the model too")
    if asked["tools"] and not asked["compare"]:
        raise InputError("--tool runs nothing without --compare", "add --compare, or --as ID")
    if asked["pass_macs"] is not None and asked["batch"] is None:
        raise InputError("--pass-macs are those of a batch", "add --batch B")
    _refuse_training(asked)
    _refuse_without_graph(asked, target is None or given)


def _refuse_numbers(asked: Mapping[str, Any]) -> None:
    for name in _MEASURED:
        value = asked[name]
        if value is not None and not 1e-30 <= value <= 1e30:
            raise InputError(f"{_flag(name)} {value} is no rate or time", "give one above zero")
    for name in _COUNTED:
        value = asked[name]
        if value is not None and (not isinstance(value, int) or not 1 <= value <= 10**18):
            raise InputError(f"{_flag(name)} {value} is no number of them", "give 1 or more")


def _refuse_training(asked: Mapping[str, Any]) -> None:
    if asked["train"]:
        _refuse_multiplier(asked["train_multiplier"])
        return
    for name in _OF_TRAINING:
        if asked[name]:
            raise InputError(f"{_flag(name)} is about training", "add --train")
    if asked["recompute"] != "none" or asked["backward"] != "flat" or asked["accumulate"] != 1:
        raise InputError(
            "--recompute, --backward and --accumulate are about training", "add --train"
        )


def _refuse_multiplier(text: str | None) -> None:
    try:
        found = Fraction(text) if text is not None else Fraction(1)
    except (ValueError, ZeroDivisionError):
        found = Fraction(0)
    if not Fraction(1, 10**6) <= found <= 10**6:
        raise InputError(
            f"--train-multiplier {text!r} is no number of passes", "give one such as 3 or 2.5"
        )


def _refuse_without_graph(asked: Mapping[str, Any], given: bool) -> None:
    """What tells nodes apart needs the nodes of the native count."""
    whose = "--as" if asked["as_"] else "--compare" if asked["compare"] else ""
    if not given and not whose:
        return
    of = f"the MACs of {whose}" if whose else "MACs that are given"
    sized = asked["params"] is not None and asked["macs"] is asked["pass_macs"] is None
    parts = () if sized and not whose else ("causal", "window", "flash")
    for name in (*_OF_A_GRAPH, *parts):
        if asked[name] and asked[name] not in ("flat", "full"):
            raise InputError(
                f"{_flag(name)} tells nodes apart, which {of} do not",
                "give the model, and leave out --macs, --as and --compare",
            )


def _flag(name: str) -> str:
    return f"--{name.strip('_').replace('_', '-')}"


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
    roofline.refuse(question, target)
    question, bench = roofline.with_bench(question)
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


def _run(question: Question, work: Studied, world: Layout) -> breakdown.MeasuredRun:
    by_token = work.numerators[0].unit == "token"
    tokens = question.speed.tokens or work.tokens
    found = pace(question.speed, question.training, world, tokens=tokens, by_token=by_token)
    other = question.roof.asked or question.speed.times is not None
    if found is None and work.transfer is None and not other:
        raise InputError(
            "no speed was given",
            "add --examples-per-second R, --tokens-per-second R or --latency-ms T, as measured",
        )
    return breakdown.MeasuredRun(
        question=question,
        world=world,
        pace=found,
        units=tokens or 1 if by_token else 1,
        tokens=tokens,
        params=work.params,
        transfer=work.transfer,
    )


def _efficiency(
    run: breakdown.MeasuredRun,
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
    roof = roofline.roof(found, run, work, numerator, against, bench)
    if isinstance(roof, Roofline):
        found = under(found, roof)
    step = breakdown.step(split, run, against)
    # one byte model at a time: with a roofline the one that it names
    moved = breakdown.moved(split, run, against) if roof is UNSET else UNSET
    found = replace(
        found,
        batch=UNSET if question.speed.batch is None else question.speed.batch,
        tokens_per_second=breakdown.tokens(found, run),
        attention=breakdown.attention(found, pieces, run, against),
        world=breakdown.world(found, run),
        step=step,
        moved=moved,
        roofline=roof,
        others=breakdown.others(found, split, against),
    )
    found = replace(
        found,
        assumptions=(*found.assumptions, *measured.speed_and_attention(found, run)),
        warnings=(*found.warnings, *measured.doubts(run, against, step, moved)),
    )
    return found if question.speed.times is None else _timed(found, run, work)


def _timed(found: Efficiency, run: breakdown.MeasuredRun, work: Studied) -> Efficiency:
    """The same with the modules of a table of times, by their native MACs."""
    assert run.question.speed.times is not None
    known = work.report.modules if work.report else ()
    batches = (run.question.speed.batch or 1) / work.examples / run.world.split
    rows = runs.read_times(
        run.question.speed.times, {one.path: one.macs for one in known}, batches
    )
    return replace(
        found,
        modules=runs.module_times(rows, found.peak),
        warnings=(*found.warnings, *runs.doubts(rows, found.peak)),
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


# A table of measured runs, each set against its own device: the model is counted once.


def rated_runs(
    question: Question,
    target: Any = None,
    inputs: Any = (),
    *,
    how: Mapping[str, Any] = {},
    on_progress: Progress | None = None,
) -> Rated:
    """An efficiency for every run, and for every device that one may mean.

    A row that cannot be answered is named by its line in `left_out`, and the trouble is that
    there are such. Raises InputError where there is no table, and the error of the rows where
    none has an answer and all have the same.
    """
    assert question.speed.runs is not None
    table = runs.read(question.speed.runs)
    memory: dict[bool, Studied] = {}
    rows, said, errors, report = [], _unused(table), [], None
    for row in table.rows:
        try:
            if row.trouble is not None:
                raise row.trouble
            asked = runs.asked(question, row.fields)
            found = rated(asked, target, inputs, how=how, on_progress=on_progress, memory=memory)
        except CrossflopsError as error:
            errors.append((row.line, error))
            continue
        rows += [replace(one, line=row.line) for one in found.noun.efficiency]
        said += [f"{table.name}, line {row.line}: {text}" for text in found.left_out]
        report = found.noun.report
        if found.trouble is not None:
            errors.append((row.line, found.trouble))
    if not rows and len({error.message for _, error in errors}) == 1:
        raise errors[0][1]
    said += [f"{table.name}, line {line}: {one.message}; {one.hint}" for line, one in errors]
    trouble = _trouble(table, len(errors)) if errors else None
    if not rows:
        raise InputError("; ".join(said), "correct these rows")
    noun = told(EfficiencyReport(efficiency=tuple(rows), report=report), question)
    return Rated(noun=noun, trouble=trouble, left_out=tuple(said))


def _unused(table: runs.RunTable) -> list[str]:
    if not table.unused:
        return []
    return [f"{table.name}: columns that are not used: {', '.join(table.unused)}"]


def _trouble(table: runs.RunTable, number: int) -> InputError:
    rows = "row" if len(table.rows) == 1 else "rows"
    return InputError(
        f"{number} of {len(table.rows)} {rows} of {table.name} cannot be answered as it is",
        "correct the lines that are named above",
    )
