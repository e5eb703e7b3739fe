"""The compute of a whole training run: FLOPs, device-hours, energy.

    FLOPs        = work of one unit x units of the run
    device-hours = FLOPs / (MFU x peak) / 3600
    energy       = device-hours x TDP

The second is the reverse of how an MFU is measured (Chowdhery et al., PaLM, appendix B), and it is
an estimate: the MFU is that of the run as a whole, restarts and evaluations among it.
"""

from collections.abc import Sequence
from fractions import Fraction

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.errors import InputError
from crossflops.hardware.devices.peaks import Peaks
from crossflops.hardware.rates.mfu import MeasuredRun
from crossflops.hardware.rates.numerators import parse_count
from crossflops.hardware.rates.question import RunLength
from crossflops.hardware.rates.terms import WorkTerm
from crossflops.ir.training import OptimizerStep
from crossflops.report.efficiency import Efficiency, RunCompute

_FLAGS = ("run_tokens", "run_examples", "run_steps")


class Length(msgspec.Struct, frozen=True, kw_only=True):
    """The length of a run: `units` are examples, or tokens where the work is that of a token."""

    units: Fraction
    tokens: Fraction | None
    examples: Fraction | None
    steps: Fraction | None


def parse_share(text: str) -> float:
    """Parse a share such as "0.4" or "40%". Raises InputError if it is not above 0 and at most
    1.
    """
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (1 if number == text.strip() else 100)
    except ValueError:
        value = 0.0
    if not 1e-6 <= value <= 1:
        raise InputError(
            f"--mfu must be a share above 0 and at most 1, got {text!r}",
            "give a share such as 0.4 or 40%",
        )
    return value


def check_run_length_options(
    run_length: RunLength, *, train: bool, measured: str, batch: bool, model: bool
) -> None:
    """Raise InputError if the options on the length of a training run contradict each other or are
    incomplete.
    """
    provided = [name for name in _FLAGS if getattr(run_length, name) is not None]
    flags = [f"--{name.replace('_', '-')}" for name in provided]
    if len(provided) > 1:
        raise InputError(f"{' and '.join(flags)} cannot be combined", "give only one of them")
    if run_length.mfu is not None:
        parse_share(run_length.mfu)
        if measured:
            raise InputError(
                f"--mfu cannot be combined with {measured}, because {measured} already gives the "
                "speed",
                "give only one of them",
            )
    if not provided:
        if run_length.optimizer:
            raise InputError(
                "--optimizer describes a whole training run, whose length is missing",
                "add --run-tokens N, such as 15T",
            )
        return
    parse_count(getattr(run_length, provided[0]))
    if not train:
        raise InputError(f"{flags[0]} requires --train", "add --train")
    if run_length.run_steps is not None and not batch:
        raise InputError(
            "--run-steps requires --batch",
            "add --batch B: the number of examples in one (micro-)batch of one data-parallel "
            "replica",
        )
    if run_length.optimizer and not (model and batch):
        raise InputError(
            "--optimizer requires --batch, and a TARGET without --as and --compare",
            "give both and leave out --as and --compare, or leave out --optimizer",
        )


def examples_of_step(run: MeasuredRun) -> int | None:
    """Return the examples of one optimizer step on all replicas; None without a batch."""
    batch = run.question.speed.batch
    return batch * run.question.training.accumulate * run.world.dp if batch else None


def run_length_in_units(run: MeasuredRun, unit: str) -> Length:
    """Return the length of a training run in units of work (examples or tokens), and in examples,
    tokens and steps where known.
    """
    run_length, tokens, a_step = run.question.length, run.tokens, examples_of_step(run)
    if run_length.run_tokens is not None:
        total: Fraction | None = Fraction(parse_count(run_length.run_tokens))
        examples = Fraction(parse_count(run_length.run_tokens), tokens) if tokens else None
    else:
        if run_length.run_steps is not None:
            assert a_step is not None
            examples = Fraction(parse_count(run_length.run_steps) * a_step)
        else:
            assert run_length.run_examples is not None
            examples = Fraction(parse_count(run_length.run_examples))
        total = examples * tokens if tokens else None
    units = total if unit == "token" else examples
    if units is None:
        flag = next(name for name in _FLAGS if getattr(run_length, name) is not None)
        raise InputError(
            f"--{flag.replace('_', '-')} needs the number of tokens per example",
            "add --tokens N",
        )
    steps = examples / a_step if a_step and examples is not None else None
    return Length(units=units, tokens=total, examples=examples, steps=steps)


def run_compute(
    row: Efficiency,
    parts: Sequence[WorkTerm],
    run: MeasuredRun,
    against: Peaks | None,
    optimizer: OptimizerStep | None,
) -> RunCompute | UnsetType:
    """Return the FLOPs, device-hours and energy (kWh) of a whole training run; UNSET if not
    requested.
    """
    run_length = run.question.length
    if not run_length.is_requested:
        return UNSET
    long = run_length_in_units(run, row.unit)
    flops = round(sum((term.flops for term in parts), Fraction(0)) * long.units)
    executed = round(sum((term.hardware_flops for term in parts), Fraction(0)) * long.units)
    updates = (
        round(optimizer.all_flops * long.steps) if optimizer and long.steps is not None else UNSET
    )
    mfu = parse_share(run_length.mfu) if run_length.mfu is not None else row.ratio
    hours = flops / (mfu * row.peak) / 3600 if mfu and row.peak else None
    tdp = against.device.tdp if against and against.device else None
    return RunCompute(
        tokens=_to_plain_number(long.tokens),
        examples=_to_plain_number(long.examples),
        steps=_to_plain_number(long.steps),
        flops=flops,
        executed_flops=executed if executed != flops else UNSET,
        optimizer_flops=updates,
        device=row.device,
        devices=run.world.devices,
        precision=row.precision,
        peak=row.peak,
        mfu=mfu,
        device_hours=hours,
        hours=None if hours is None else hours / run.world.devices,
        tdp=tdp,
        energy_kwh=None if hours is None or tdp is None else hours * tdp / 1000,
    )


def _to_plain_number(value: Fraction | None) -> int | float | None:
    """Convert a fraction to an int if it is whole, else to a float; None stays None."""
    if value is None:
        return None
    return value.numerator if value.denominator == 1 else float(value)
