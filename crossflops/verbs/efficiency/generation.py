"""The efficiency of generated text: a workload that is counted, or read from a report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import replace

from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.files import read_file_bytes
from crossflops.hardware.devices.peaks import Peaks, peak_denominators
from crossflops.hardware.rates.generation import GenerationRun, phase_efficiencies, phase_seconds
from crossflops.hardware.rates.generation_remarks import (
    generation_assumptions,
    generation_warnings,
)
from crossflops.hardware.rates.question import Question
from crossflops.hardware.rates.terms import GRAPH
from crossflops.hardware.step_traffic import PRECISIONS, Formats
from crossflops.ir.workload import Workload
from crossflops.report.efficiency import PhaseEfficiency
from crossflops.report.report import Report
from crossflops.targets.request import Request
from crossflops.verbs.devices import additional_devices
from crossflops.verbs.efficiency.uses import flag_of_field, non_default_fields

_USED = frozenset(
    (
        *("prompt", "generate", "workload", "cache_dtype", "batch", "precision", "device"),
        *("images", "draft", "draft_tokens", "acceptance"),
        *("catalogue", "peak_tflops", "bandwidth", "tp", "per_device", "bytes_"),
        *("tokens_per_second", "prefill_tokens_per_second", "decode_tokens_per_second"),
    )
)
_PHASE_OF_RATE = {
    "prefill_tokens_per_second": "prefill",
    "decode_tokens_per_second": "decode",
    "tokens_per_second": "request",
}
_OF_A_COUNT = (
    "prompt", "generate", "batch", "images", "draft", "draft_tokens", "acceptance",
)  # fmt: skip
_HINT = "give a file written by `crossflops count TARGET --prompt P --generate G -o FILE.json`"


class RatedGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """The phases of a workload against each device, and the report of its count.

    `trouble` is the error of a device's name that several devices have.
    """

    phases: tuple[PhaseEfficiency, ...]
    report: Report
    trouble: CrossflopsError | None = None
    left_out: tuple[str, ...] = ()


def rate_generation(question: Question, request: Request | None) -> RatedGeneration:
    """Count a workload or read it, and compare its phases with each device.

    Raises InputError for options that contradict each other or are without effect, and
    UnknownNameError for an unknown device or precision.
    """
    _check_generation_question(question, request)
    requested = question.against
    precision = question.precisions.precision
    extra = additional_devices(requested.device, requested.catalogue) if requested.device else ()
    needed = () if precision == GRAPH else (precision,)
    peaks = peak_denominators(requested, needed, extra)
    if peaks.has_unknown_device and peaks.trouble is not None:
        raise peaks.trouble
    report, workload = _find_workload(question, request)
    run = _build_generation_run(question, workload)
    rows = [
        row for against in peaks.against for row in _rate_phases_on_device(workload, run, against)
    ]
    return RatedGeneration(
        phases=tuple(rows), report=report, trouble=peaks.trouble, left_out=peaks.left_out
    )


def _rate_phases_on_device(
    workload: Workload, run: GenerationRun, peaks: Peaks | None
) -> list[PhaseEfficiency]:
    """Return the phases against one device, with what is assumed and what cannot be."""
    assumed = generation_assumptions(workload, run, peaks)
    return [
        replace(row, assumptions=assumed, warnings=generation_warnings(row, workload, run, peaks))
        for row in phase_efficiencies(workload, run, peaks)
    ]


def _check_generation_question(question: Question, request: Request | None) -> None:
    """Raise InputError for options that are contradictory, incomplete, or without effect."""
    fields = question.option_values
    for name in non_default_fields(question):
        if name not in _USED:
            raise InputError(
                f"{flag_of_field(name)} cannot be combined with generated text (--prompt, "
                "--generate, --workload)",
                "leave it out",
            )
    Formats(cache=fields["cache_dtype"])
    if fields["workload"] is not None:
        typed = [name for name in _OF_A_COUNT if fields[name] not in (None, "")]
        if typed or request is not None:
            what = flag_of_field(typed[0]) if typed else "a TARGET"
            raise InputError(
                f"{what} cannot be combined with --workload, whose file has the lengths and the "
                "model",
                "leave out one of the two",
            )
    elif request is None and question.generation.prompt is None:
        raise InputError("--generate needs a TARGET", "give a config, such as hf:config.json")
    elif request is None:
        raise InputError("--prompt needs a TARGET", "give a config, such as hf:config.json")
    rates = [name for name in _PHASE_OF_RATE if fields[name] is not None]
    if "tokens_per_second" in rates and len(rates) == len(_PHASE_OF_RATE):
        raise InputError(
            "--tokens-per-second, --prefill-tokens-per-second and --decode-tokens-per-second "
            "cannot be combined: the first follows from the others",
            "leave out one of them",
        )
    if fields["per_device"] is not None and not (rates and fields["tp"] > 1):
        raise InputError(
            "--per-device applies only to a measured rate on several devices",
            "leave it out, or give --tensor-parallel N and a rate",
        )
    if fields["bytes_"] == "weights-once":
        raise InputError(
            "--bytes weights-once has no effect: generated text is always rated by it",
            "leave it out, or give --bytes unfused",
        )
    if fields["bytes_"] not in (None, "unfused"):
        raise InputError(
            f"--bytes {fields['bytes_']} is not a byte model of generated text",
            "give --bytes unfused, or leave it out for weights and cache alone",
        )
    if fields["catalogue"] and not fields["device"]:
        raise InputError("--catalogue has no effect: no device is named", "add --device D")


def _find_workload(question: Question, request: Request | None) -> tuple[Report, Workload]:
    """Return the report of a workload and the workload, read from a file or counted."""
    generation = question.generation
    if generation.workload is not None:
        return _read_workload_file(Path(generation.workload))
    from crossflops.verbs.workload import count_generation

    assert request is not None
    sizes = dict(request.sizes)
    if question.speed.batch is not None:
        sizes["batch"] = question.speed.batch
    asked = replace(
        request,
        sizes=sizes,
        **{name: getattr(generation, name) for name in _OF_A_COUNT if name != "batch"},
    )
    report, _ = count_generation(asked)
    return report, cast("Workload", report.workload)


def _read_workload_file(path: Path) -> tuple[Report, Workload]:
    """Read a saved count with a workload. Raises CrossflopsError for any other file."""
    try:
        report = Report.from_json(read_file_bytes(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", _HINT) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a report: {error}", _HINT) from error
    if not isinstance(report.workload, Workload):
        raise InputError(f"{path} is a report without a workload", _HINT)
    return report, report.workload


def _build_generation_run(question: Question, workload: Workload) -> GenerationRun:
    """Return the run that a question is about. Raises InputError for rates that do not fit."""
    fields = question.option_values
    draft = workload.speculation.draft if workload.speculation is not None else None
    precision = question.precisions.precision
    if precision == GRAPH:
        types = {own.weight_dtype for own in (workload, draft) if own is not None}
        if len(types) > 1 or workload.weight_dtype not in PRECISIONS:
            raise UnknownNameError(
                "--precision graph needs weights of one type, but the workload has several",
                "give the precision that ran, such as --precision bf16",
            )
        precision = PRECISIONS[workload.weight_dtype]
    if workload.decode is None and fields["decode_tokens_per_second"] is not None:
        raise InputError(
            "--decode-tokens-per-second has no effect: one new token needs no decoding step",
            "leave it out, or generate more tokens",
        )
    rates = {phase: fields[name] for name, phase in _PHASE_OF_RATE.items()}
    if draft is not None:
        _refuse_rates_of_phases(fields)
    devices = question.parallel.tp
    byte_model: Literal["weights-once", "unfused"] = (
        "unfused" if question.roof.bytes_ == "unfused" else "weights-once"
    )
    kept = _cache_precision_of_count(workload)
    requested = question.generation.cache_dtype
    if workload.model_cache_dtype and requested:
        raise InputError(
            "--cache-dtype cannot be combined with a workload that was counted with --cache-dtype "
            f"{kept}",
            "leave it out, or count the workload without --cache-dtype",
        )
    return GenerationRun(
        devices=devices,
        precision=precision,
        cache=kept if workload.model_cache_dtype else requested or precision or kept,
        draft_cache=""
        if draft is None or requested or precision
        else _cache_precision_of_count(draft),
        byte_model=byte_model,
        seconds=phase_seconds(workload, rates, devices, bool(question.speed.per_device)),
    )


def _cache_precision_of_count(workload: Workload) -> str:
    """Return the precision of the cache of a counted workload."""
    return PRECISIONS.get(workload.cache_dtype, workload.cache_dtype)


def _refuse_rates_of_phases(fields: Mapping[str, Any]) -> None:
    """Raise InputError for the rate of a phase of a workload with a draft model.

    A measured prefill or decoding has passes of both models, and the phases are those of one.
    """
    for name, phase in _PHASE_OF_RATE.items():
        if fields[name] is not None and phase != "request":
            raise InputError(
                f"{flag_of_field(name)} cannot be combined with a draft model: both models share "
                "the time of a prefill and of decoding",
                "give the speed of whole requests: --tokens-per-second, in new tokens",
            )
