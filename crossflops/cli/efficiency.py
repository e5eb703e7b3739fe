"""`crossflops efficiency`."""

from functools import partial
from itertools import product
from typing import Any

import click
import msgspec

from crossflops.cli.options import Request, model_options, output_options, request
from crossflops.cli.output import deliver
from crossflops.cli.progress import progress
from crossflops.core.device import Device, Efficiency
from crossflops.core.profile import Failure
from crossflops.core.report import Report
from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.catalogue import AmbiguousDeviceError, find, peak
from crossflops.hardware.numerators import Numerator, by_tool, folded, given, native, quantity
from crossflops.hardware.rates import efficiency, required_rate
from crossflops.render.efficiency import EfficiencyReport
from crossflops.render.quantity import short

A_CHECK_FAILED = 1
EVERY_TOOL_FAILED = 3
_EXCLUSIVE = (  # options, the second of which makes the first pointless
    ("device", "peak_tflops"),
    ("macs", "as_"),
    ("macs", "compare"),
    ("as_", "compare"),
)
_RATE = click.FloatRange(min=0, min_open=True)


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is set against which peak."""

    train: bool
    examples_per_second: float
    precision: str
    device: str | None
    peak_tflops: float | None
    as_: str | None
    macs: str | None
    compare: bool
    tools: tuple[str, ...]


@click.command("efficiency")
@partial(model_options, required=False)
@click.option("--train", is_flag=True, help="Training: three passes instead of one.")
@click.option(
    "--examples-per-second",
    type=_RATE,
    required=True,
    metavar="R",
    help="The measured speed of one device.",
)
@click.option("--precision", metavar="P", help="What ran: fp16, bf16, tf32, fp32, fp64, int8 ...")
@click.option("--device", metavar="D", help="A device of the catalogue, as its driver prints it.")
@click.option(
    "--peak-tflops", type=_RATE, metavar="X", help="The dense peak in TFLOP/s of any other device."
)
@click.option("--as", "as_", metavar="ID[@EDITION]", help="The MACs as this tool counts them.")
@click.option("--macs", metavar="N", help="MACs of one example, such as 4.112G; needs no TARGET.")
@click.option("--compare", is_flag=True, help="By each tool's number, with why they differ.")
@click.option(
    "--tool", "tools", multiple=True, metavar="ID", help="A tool to --compare. Repeatable."
)
@output_options
def command(as_json: bool, file: Any, **fields: Any) -> int:
    """Set a count against a device's peak.

    The required rate is 2 x MACs x 1 (inference) or 3 (training) x examples per second.
    Exit status 1 says that the rate is above the peak, which no sound measurement is.
    """
    question = _question(fields)
    asked = request(fields)
    _refuse_contradictions(question, asked)
    against, trouble = _against(question)
    unknown = trouble is not None and against == (None,)
    numerators, report = _numerators(question, asked, compare=question.compare and not unknown)
    if trouble is not None and unknown:
        raise _with_rate(trouble, numerators[0], question)
    found = tuple(_efficiency(question, *pair) for pair in product(numerators, against))
    noun = EfficiencyReport(efficiency=found, report=report)
    deliver(noun, as_json=as_json, file=file)
    if trouble is not None:
        raise trouble
    return _status(noun)


def _question(fields: dict[str, Any]) -> _Question:
    values = {name: fields.pop(name) for name in _Question.__struct_fields__}
    return _Question(**values | {"precision": (values["precision"] or "").casefold()})


def _efficiency(
    question: _Question, numerator: Numerator, against: Device | float | None
) -> Efficiency:
    return efficiency(
        numerator.macs,
        numerator.label,
        question.examples_per_second,
        precision=question.precision,
        training=question.train,
        against=against,
        notes=numerator.notes,
        warnings=numerator.warnings,
    )


def _refuse_contradictions(question: _Question, asked: Request) -> None:
    for one, other in _EXCLUSIVE:
        if getattr(question, one) and getattr(question, other):
            names = [f"--{name.strip('_').replace('_', '-')}" for name in (one, other)]
            raise InputError(f"{' and '.join(names)} contradict each other", "leave one out")
    if not asked.target and question.macs is None:
        raise InputError("there is nothing to count", "give a model, or --macs such as 4.112G")
    if not asked.target and (asked.inputs or asked.inputs_file or asked.arguments):
        raise InputError("inputs and arguments without a model", "give the model too")
    if question.tools and not question.compare:
        raise InputError("--tool runs nothing without --compare", "add --compare, or --as ID")
    if question.device and not question.precision:
        raise InputError("a device has a peak for each precision", "add such as --precision fp16")


def _against(
    question: _Question,
) -> tuple[tuple[Device | float | None, ...], UnknownNameError | None]:
    """The peaks, and the error with which to end when the device is ambiguous or unknown."""
    if question.peak_tflops is not None:
        return (question.peak_tflops * 1e12,), None
    if question.device is None:
        return (None,), None
    try:
        device = find(question.device)
    except AmbiguousDeviceError as error:
        return _able(error, question.precision), error
    except UnknownNameError as error:
        return (None,), error
    peak(device, question.precision)  # refused before the work begins
    return (device,), None


def _able(error: AmbiguousDeviceError, precision: str) -> tuple[Device, ...]:
    """The candidates that have such a peak; the others are named on stderr."""
    able = tuple(one for one in error.candidates if precision in one.peaks)
    for one in error.candidates:
        if one not in able:
            click.echo(f"{one.id} has no {precision} peak, only {', '.join(one.peaks)}", err=True)
    if not able:
        raise UnknownNameError(
            f"none of the devices that are meant has a {precision} peak",
            "give the precision that ran, or a peak by --peak-tflops",
        )
    return able


def _numerators(
    question: _Question, asked: Request, *, compare: bool
) -> tuple[tuple[Numerator, ...], Report | None]:
    """Whose MACs, and the report that they are from."""
    macs = None if question.macs is None else quantity(question.macs)
    if macs is not None and not asked.target:
        return (given(macs),), None
    report = _compared(question, asked) if compare else _counted(question, asked)
    if macs is not None:
        return (given(macs, report),), report
    if compare:
        return by_tool(report), report
    return (folded(report) if question.as_ else native(report),), report


def _counted(question: _Question, asked: Request) -> Report:
    from crossflops import pipeline

    with progress(f"counting {asked.target}"):
        return pipeline.count(
            asked.target,
            as_=question.as_,
            **asked.keywords,
        )


def _compared(question: _Question, asked: Request) -> Report:
    from crossflops import pipeline

    with progress(f"comparing {asked.target}") as on_progress:
        return pipeline.compare(
            asked.target,
            tools=question.tools or None,
            **asked.keywords,
            on_progress=on_progress,
        )


def _with_rate(
    trouble: UnknownNameError, numerator: Numerator, question: _Question
) -> UnknownNameError:
    rate = required_rate(numerator.macs, question.examples_per_second, question.train)
    said = f"{trouble.message}; the required rate is {short(rate, 'FLOP/s')}"
    return UnknownNameError(said, trouble.hint)


def _status(noun: EfficiencyReport) -> int:
    profiles = (noun.report.profiles if noun.report else None) or ()
    if noun.report and noun.report.profiles == ():
        click.echo("no tool is installed; see `crossflops doctor`", err=True)
    if profiles and all(isinstance(one, Failure) for one in profiles):
        click.echo("every tool failed", err=True)
        return EVERY_TOOL_FAILED
    return A_CHECK_FAILED if any((one.ratio or 0) > 1 for one in noun.efficiency) else 0
