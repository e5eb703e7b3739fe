"""Compare a count with hardware, for one question or for a table of runs."""

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import AmbiguousDeviceError
from crossflops.hardware.devices.peaks import Peaks, peak_denominators
from crossflops.hardware.rates import mfu, remarks, runs, terms, whole_run
from crossflops.hardware.rates.mfu import (
    Layout,
    device_layout,
    efficiency_of_terms,
    speed_of_all_devices,
)
from crossflops.hardware.rates.numerators import Numerator
from crossflops.hardware.rates.question import PHASE_RATES, WAYS, Question
from crossflops.ir.roofline import Roofline
from crossflops.report.bench import Bench
from crossflops.report.efficiency import Efficiency, EfficiencyReport, RunCompute
from crossflops.targets.request import OPTION_OF, Request, is_empty_input
from crossflops.verbs import count
from crossflops.verbs.devices import additional_devices
from crossflops.verbs.efficiency import roofline
from crossflops.verbs.efficiency.uses import (
    flag_of_field,
    refuse_options_replaced_by_rows,
    refuse_unused_options,
    refuse_without_attention,
)
from crossflops.verbs.efficiency.work import Progress, WorkStudy, study_work
from crossflops.verbs.provenance import framework_versions, with_verb_and_options

# What `efficiency` is asked and cannot answer: refused before a model is built.

_EXCLUSIVE = (  # fields, the second of which makes the first pointless
    ("macs", "pass_macs"),
    ("macs", "as_"),
    ("macs", "compare"),
    ("pass_macs", "as_"),
    ("pass_macs", "compare"),
    ("as_", "compare"),
    ("mfu", "compare"),
    ("mfu", "bench"),
    ("train_multiplier", "frozen"),
    ("train_multiplier", "trainable"),
    ("train_multiplier", "loss"),
    ("train_multiplier", "backward"),
    ("precision", "mix"),
    ("seq", "context"),
)
_MEASURED = (
    "examples_per_second", "tokens_per_second", "latency_ms", "fwd_ms", "bwd_ms", "step_ms",
    "bandwidth", "param_bytes", "cache_bytes", *PHASE_RATES,
)  # fmt: skip
_COUNTED = (
    "batch", "tokens", "accumulate", "devices", "dp", "tp", "pp", "window", "layers", "hidden",
    "heads", "head_dim", "kv_heads", "seq", "context", "prompt", "generate",
)  # fmt: skip


def make_efficiency_request(
    target: Any, inputs: Any, config: Mapping[str, Any], question: Question
) -> Request | None:
    """Return the request of a model, or None if the question gives the work by numbers; raise
    InputError for options without effect.

    The length of the question is that of the usual input of a model by name. Raises InputError
    for options of a model without one.
    """
    seq = question.language.seq
    if target is not None:
        sizes = {**config.get("sizes", {}), **({"seq": seq} if seq is not None else {})}
        return Request.from_arguments(target, inputs, **{**config, "sizes": sizes})
    usual = Request(target=None)
    provided = {
        name: config[name]
        for name in config
        if config[name] and config[name] != getattr(usual, name)
    }
    strays = ["--input"] * (not is_empty_input(inputs)) + [
        flag for name, value in provided.items() for flag in _request_field_flags(name, value)
    ]
    if strays:
        raise InputError(
            f"{' and '.join(strays)} can be used only with a TARGET", "add the TARGET"
        )
    return None


def _request_field_flags(name: str, value: Any) -> Iterator[str]:
    """Yield the command-line options that set this field of a request, such as "--dim"."""
    if name == "setting":
        yield from ["--no-grad"] * (not value.grad) + ["--train-mode"] * value.training
    elif name == "sizes":
        yield from (flag_of_field(size) for size in value)
    else:
        yield OPTION_OF.get(name) or flag_of_field(name)


def check_efficiency_question(
    question: Question, request: Request | None, shown: Collection[str] = ()
) -> None:
    """Raise InputError for options that contradict each other, are incomplete, or have no effect.

    Fields that are `shown` as they are given, such as a column of a table, need not change more.
    """
    fields = question.option_values
    _reject_invalid_numbers(fields)
    for field, other in _EXCLUSIVE:
        if fields[field] and fields[other]:
            raise InputError(
                f"{flag_of_field(field)} and {flag_of_field(other)} cannot be combined",
                "leave out one of the two",
            )
    _refuse_device_and_peak(fields)
    provided = fields["macs"] is not None or fields["pass_macs"] is not None
    if request is None and not provided and fields["params"] is None:
        raise InputError(
            "the number of MACs is not given",
            "give a TARGET, or a number with --macs 4.112G, or the size of a language model "
            "with --params 7G",
        )
    if fields["pass_macs"] is not None and fields["batch"] is None:
        raise InputError("--pass-macs requires --batch", "add --batch B")
    _reject_invalid_train_multiplier(fields["train_multiplier"])
    whole_run.check_run_length_options(
        question.length,
        train=question.training.train,
        measured=next((flag_of_field(name) for name in WAYS if fields[name] is not None), ""),
        batch=question.speed.batch is not None,
        model=request is not None and not (fields["as_"] or fields["compare"]),
    )
    refuse_unused_options(question, has_model=request is not None, shown=shown)


def _refuse_device_and_peak(fields: Mapping[str, Any]) -> None:
    """Raise an error if a device and a peak for all precisions are both given."""
    if fields["device"] and any("=" not in peak for peak in fields["peak_tflops"]):
        raise InputError(
            "--device and --peak-tflops without a precision cannot be combined",
            "leave out one of the two, or name the precision: --peak-tflops bf16=X",
        )


def _reject_invalid_numbers(fields: Mapping[str, Any]) -> None:
    """Raise InputError if a measured number is not positive, or a counted number is not an integer
    of at least 1.
    """
    for name in _MEASURED:
        value = fields[name]
        if value is not None and not 1e-30 <= value <= 1e30:
            raise InputError(
                f"{flag_of_field(name)} must be a positive number, got {value}",
                "give a positive number",
            )
    for name in _COUNTED:
        value = fields[name]
        if value is not None and (not isinstance(value, int) or not 1 <= value <= 10**18):
            raise InputError(
                f"{flag_of_field(name)} must be a whole number of at least 1, got {value}",
                "give 1 or more",
            )


def _reject_invalid_train_multiplier(text: str | None) -> None:
    """Raise InputError if the text of --train-multiplier is not a positive number."""
    try:
        passes = Fraction(text) if text is not None else Fraction(1)
    except (ValueError, ZeroDivisionError):
        passes = Fraction(0)
    if not Fraction(1, 10**6) <= passes <= 10**6:
        raise InputError(
            f"--train-multiplier must be a positive number, got {text!r}",
            "give a number such as 3 or 2.5",
        )


class RatedWork(msgspec.Struct, frozen=True, kw_only=True):
    """A result, with the error that it ends with, and the rows that it leaves out."""

    noun: EfficiencyReport
    trouble: CrossflopsError | None = None
    left_out: tuple[str, ...] = ()


def answer_efficiency(
    question: Question, request: Request | None, on_progress: Progress = lambda _: None
) -> RatedWork:
    """Return the answer to an efficiency question, for one run, for each run of its table or for
    each phase of generated text.
    """
    if question.generation.asks_for_generated_text:
        return _rate_generation_phases(question, request)
    return (rate_work if question.speed.runs is None else rate_run_table)(
        question, request, on_progress
    )


def _rate_generation_phases(question: Question, request: Request | None) -> RatedWork:
    """Return the phases of a workload against each device."""
    from crossflops.verbs.efficiency.generation import rate_generation

    _reject_invalid_numbers(question.option_values)
    _refuse_device_and_peak(question.option_values)
    rated = rate_generation(question, request)
    content = EfficiencyReport(efficiency=(), phases=rated.phases, report=rated.report)
    return RatedWork(
        noun=with_request_record(content, question),
        trouble=rated.trouble,
        left_out=rated.left_out,
    )


def rate_work(
    question: Question,
    request: Request | None,
    on_progress: Progress,
    known_studies: dict[bool, WorkStudy] | None = None,
) -> RatedWork:
    """Return the FLOP/s and the MFU of a model's work, or of given MACs, on each device that the
    question names.

    `known_studies` is kept between questions about one model. Raises UnknownNameError for an
    unknown device (with the required rate) and InputError for what contradicts itself.
    """
    check_efficiency_question(question, request, shown=() if known_studies is None else ("batch",))
    roofline.check_roofline_question(question, request)
    if request is not None and question.training.train and not request.setting.grad:
        raise InputError(
            "--train needs gradients and cannot be combined with --no-grad",
            "leave out --no-grad, or leave out --train",
        )
    if request is not None and question.language.seq != request.sizes.get("seq"):
        raise InputError(
            "the column seq differs from --seq, with which the model was counted",
            "leave out the column seq, or run the command once for each length",
        )
    question, bench = roofline.with_bench_result(question)
    world = device_layout(question.parallel)
    requested = question.against
    extra = additional_devices(requested.device, requested.catalogue) if requested.device else ()
    peaks = peak_denominators(requested, peak_precisions(question), extra)
    kept = {} if known_studies is None else known_studies
    work = study_work(
        question, request, on_progress, only_count=peaks.has_unknown_device, known_studies=kept
    )
    pieces = [piece for numerator in work.numerators for piece in numerator.work_pieces]
    refuse_without_attention(question, pieces)
    run_on = {
        id(against): _build_rated_run(question, work, world, against) for against in peaks.against
    }
    rows = tuple(
        _build_efficiency(run_on[id(against)], work, numerator, against, bench)
        for numerator, against in product(work.numerators, peaks.against)
    )
    if peaks.trouble is not None and peaks.has_unknown_device:
        raise _with_required_rate(peaks.trouble, rows[0])
    trouble: CrossflopsError | None = peaks.trouble
    agreed = None if peaks.left_out else _merge_equal_answers(rows, trouble)
    if agreed is not None:
        rows, trouble = agreed, None
    content = with_request_record(EfficiencyReport(efficiency=rows, report=work.report), question)
    return RatedWork(noun=content, trouble=trouble, left_out=peaks.left_out)


def _merge_equal_answers(
    rows: tuple[Efficiency, ...], trouble: CrossflopsError | None
) -> tuple[Efficiency, ...] | None:
    """Return one answer instead of equal answers for all devices of an ambiguous name; None if
    they differ.
    """
    if not isinstance(trouble, AmbiguousDeviceError):
        return None
    names = " or ".join(device.label for device in trouble.candidates)
    note = f"{trouble.name!r} can be {names}; all of them give the same result"
    size = len(trouble.candidates)
    agreed = []
    for index in range(0, len(rows), size):
        first, *others = rows[index : index + size]
        if any(
            _without_device_specific_texts(answer) != _without_device_specific_texts(first)
            for answer in others
        ):
            return None
        assumed = (note, *first.assumptions)
        agreed.append(replace(first, device=trouble.name, assumptions=assumed))
    return tuple(agreed)


def _without_device_specific_texts(answer: Efficiency) -> Efficiency:
    """Return a copy of an answer without device names, assumptions and warnings, to compare it
    with others.
    """
    roof = answer.roofline
    if isinstance(roof, Roofline):
        roof = replace(roof, device="", assumptions=(), warnings=())
    return replace(answer, device=None, roofline=roof, assumptions=(), warnings=())


def with_request_record(content: EfficiencyReport, question: Question) -> EfficiencyReport:
    """Return a copy of the report with a record of the question's options and with the
    versions.
    """
    usual = Question().option_values
    flags = {name: value for name, value in question.option_values.items() if value != usual[name]}
    if "loss" in flags:
        flags["loss"] = count.loss_function_name(flags["loss"])
    counted = content.report
    return replace(
        content,
        request=with_verb_and_options("efficiency", flags, counted.request if counted else None),
        made_with=counted.made_with if counted else framework_versions(is_file=True),
    )


def peak_precisions(question: Question) -> tuple[str, ...]:
    """Return the precisions for which a peak is needed, as far as the options name them."""
    requested = question.precisions
    base = (
        tuple(terms.parse_precision_mix(requested.mix))
        if requested.mix
        else (requested.precision,)
    )
    named = [precision for precision in base if precision != terms.GRAPH]
    return tuple(dict.fromkeys((*named, *terms.parse_precision_patterns(requested).values())))


def _with_published_speed(
    question: Question, work: WorkStudy, world: Layout, against: Peaks | None
) -> tuple[Question, str]:
    """Return the question with the speed that a published MFU gives, and whose MFU it is.

    That is the first convention of --as, or the native count. Without such an MFU, or on an
    unknown device, the question stays as it is.
    """
    if not question.length.has_published_mfu or against is None:
        return question, ""
    assert question.length.mfu is not None
    named = [numerator for numerator in work.numerators if numerator.origin != "native"]
    numerator = (named or list(work.numerators))[0]
    split = terms.work_terms(
        numerator.work_pieces, question.training, question.causality, question.precisions
    )
    per_second = mfu.speed_at_mfu(
        split, whole_run.parse_share(question.length.mfu), against, world.devices
    )
    if per_second is None:
        raise InputError(
            "--mfu gives no speed: the work is zero, or no peak is known",
            "give --device D and --precision P, or --peak-tflops X",
        )
    unit = "tokens_per_second" if numerator.unit == "token" else "examples_per_second"
    fields: dict[str, Any] = {unit: per_second, "per_device": False}
    return replace(question, speed=replace(question.speed, **fields)), numerator.label


def _build_rated_run(
    question: Question, work: WorkStudy, world: Layout, against: Peaks | None
) -> mfu.MeasuredRun:
    """Build the measured run of a question from its speed, devices, tokens and parameters."""
    question, published_by = _with_published_speed(question, work, world, against)
    by_token = work.numerators[0].unit == "token"
    tokens = question.speed.tokens or work.tokens
    speed = speed_of_all_devices(
        question.speed, question.training, world, tokens=tokens, by_token=by_token
    )
    other = (
        question.roof.is_requested
        or question.speed.times is not None
        or question.length.is_requested
    )
    if speed is None and work.transfer is None and not other:
        raise InputError(
            "no measured speed is given",
            "add --examples-per-second R, --tokens-per-second R or --latency-ms T",
        )
    return mfu.MeasuredRun(
        published_by=published_by,
        question=question,
        world=world,
        pace=speed,
        units=tokens or 1 if by_token else 1,
        tokens=tokens,
        params=work.params,
        transfer=work.transfer,
    )


def _build_efficiency(
    run: mfu.MeasuredRun,
    work: WorkStudy,
    numerator: Numerator,
    against: Peaks | None,
    bench: Bench | None,
) -> Efficiency:
    """Return one answer: rate, MFU and all parts that the question requests, for one amount of
    work and one peak.
    """
    question = run.question
    pieces = numerator.work_pieces
    split = terms.work_terms(pieces, question.training, question.causality, question.precisions)
    answer = efficiency_of_terms(
        split,
        numerator,
        run.pace.per_second if run.pace else None,
        against=against,
        world=run.world,
    )
    again = mfu.recompute_by_reason(answer, pieces, question, against)
    answer = replace(answer, repeats=again)
    made, doubtful = remarks.macs_source_remarks(numerator, question, work.report, work.examples)
    taken, doubts = remarks.peak_share_remarks(
        answer, split, numerator.pieces, question.training, against
    )
    answer = replace(
        answer, assumptions=(*made, *taken), warnings=(*doubtful, *work.warnings, *doubts)
    )
    roof = roofline.build_requested_roofline(answer, run, work, numerator, against, bench)
    if isinstance(roof, Roofline):
        answer = with_roofline(answer, roof)
    step = mfu.training_step_phases(split, run, against)
    # one byte model at a time: with a roofline the one that it names
    moved = mfu.pass_memory_traffic(split, run, against) if roof is UNSET else UNSET
    answer = replace(
        answer,
        batch=UNSET if question.speed.batch is None else question.speed.batch,
        tokens_per_second=mfu.device_token_rate(answer, run),
        attention=mfu.attention_efficiency(answer, pieces, run, against),
        world=mfu.all_devices_figures(answer, run),
        step=step,
        moved=moved,
        roofline=roof,
        others=mfu.ratios_to_measured_product_peak(answer, split, against),
    )
    answer = replace(
        answer,
        assumptions=(*answer.assumptions, *remarks.speed_and_attention_notes(answer, run)),
        warnings=(
            *answer.warnings,
            *remarks.ambiguous_speed_note(answer, run),
            *remarks.impossible_speed_warnings(run, against, step, moved),
        ),
    )
    compute = whole_run.run_compute(answer, split, run, against, work.optimizer)
    if isinstance(compute, RunCompute):
        assumed = remarks.whole_run_remarks(compute, answer, run, work.optimizer)
        compute = replace(compute, assumptions=(*answer.assumptions, *assumed))
    answer = replace(answer, run=compute)
    return answer if question.speed.times is None else _with_module_times(answer, run, work)


def _with_module_times(answer: Efficiency, run: mfu.MeasuredRun, work: WorkStudy) -> Efficiency:
    """Return a copy of the answer with seconds, FLOP/s and MFU of each module in the table of
    times.
    """
    assert run.question.speed.times is not None
    known = work.report.modules if work.report else ()
    batches = (run.question.speed.batch or 1) / work.examples / run.world.devices_per_replica
    rows = runs.read_times(
        run.question.speed.times, {module.path: module.macs for module in known}, batches
    )
    return replace(
        answer,
        modules=runs.module_times(rows, answer.peak),
        warnings=(*answer.warnings, *remarks.module_time_remarks(rows, answer.peak)),
    )


def with_roofline(answer: Efficiency, roof: Roofline) -> Efficiency:
    """Return a copy of the answer with intensity, ridge and bound of this roofline."""
    return replace(
        answer,
        intensity=roof.step.intensity,
        ridge=roof.step.ridge,
        bound=roof.step.bound,
        assumptions=(*answer.assumptions, *roof.assumptions),
        warnings=(*answer.warnings, *roof.warnings),
    )


def _with_required_rate(trouble: UnknownNameError, answer: Efficiency) -> UnknownNameError:
    """Return the error about an unknown device; if the required FLOP/s are known, the message also
    states them.
    """
    from crossflops.report.quantity import short_amount  # a renderer is not imported for `count`

    if answer.rate is None:
        return trouble
    rate = short_amount(answer.rate, "FLOP/s")
    return UnknownNameError(f"{trouble.message}; the required rate is {rate}", trouble.hint)


# A table of measured runs, each set against its own device: the model is counted once.


def rate_run_table(
    question: Question, request: Request | None, on_progress: Progress
) -> RatedWork:
    """Return the answers for all runs of a table; invalid rows are left out and reported.

    A row that cannot be answered is named by its line in `left_out`, and the trouble is that
    there are such. Raises InputError where there is no table, and the error of the rows where
    none has an answer and all have the same.
    """
    assert question.speed.runs is not None
    table = runs.read_run_table(question.speed.runs)
    refuse_options_replaced_by_rows(question, runs.fields_of_every_row(table), table.name)
    memory: dict[bool, WorkStudy] = {}
    rows, lines, errors, report = [], _surplus_column_notes(table), [], None
    for row in table.rows:
        try:
            if row.trouble is not None:
                raise row.trouble
            run = runs.question_of_row(question, row.fields)
            answered = rate_work(run, request, on_progress, memory)
        except CrossflopsError as error:
            errors.append((row.line, error))
            continue
        rows += [replace(answer, line=row.line) for answer in answered.noun.efficiency]
        lines += [f"{table.name}, line {row.line}: {text}" for text in answered.left_out]
        report = answered.noun.report
        if answered.trouble is not None:
            errors.append((row.line, answered.trouble))
    if not rows and len({error.message for _, error in errors}) == 1:
        raise errors[0][1]
    lines += [
        f"{table.name}, line {line}: {error.message}; {error.hint}" for line, error in errors
    ]
    trouble = _invalid_rows_error(table, len(errors)) if errors else None
    if not rows:
        raise InputError(
            f"no row of {table.name} can be used: {'; '.join(lines)}",
            "correct these rows of the table",
        )
    content = with_request_record(
        EfficiencyReport(efficiency=tuple(rows), report=report), question
    )
    return RatedWork(noun=content, trouble=trouble, left_out=tuple(lines))


def _surplus_column_notes(table: runs.RunTable) -> list[str]:
    """Return a list with one note that names the unused columns of a table of runs, [] if there
    are none.
    """
    if not table.unused:
        return []
    return [f"{table.name}: unused columns: {', '.join(table.unused)}"]


def _invalid_rows_error(table: runs.RunTable, number: int) -> InputError:
    """Return the error that says how many rows of a table of runs are invalid."""
    rows = "row" if len(table.rows) == 1 else "rows"
    return InputError(
        f"{number} of {len(table.rows)} {rows} in {table.name} cannot be used",
        "correct the lines that are listed above",
    )
