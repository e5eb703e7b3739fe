"""Count the training step that `bench` times, and combine the work of its phases with their
times.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from crossflops.errors import InputError
from crossflops.frontends import frontend_of
from crossflops.ir.measurement import Measurement, StepPhases
from crossflops.ir.training import Training
from crossflops.ledger.optimizer import OPTIMIZERS
from crossflops.report.bench import BenchPeak, BenchStep, PhaseRow
from crossflops.report.report import Report, TrainingReport
from crossflops.targets.request import Request
from crossflops.verbs.count import CountedModel, native_count

_NOT_TRAINED = (
    "give a PyTorch model, or count a step of this model with `crossflops count --train`"
)
_GRADIENTS = tuple(
    (f"{part}_macs", f"{part}_flops") for part in ("backward_input", "backward_weight")
)


def reject_untrainable_request(request: Request) -> None:
    """Raise InputError if the request is an ONNX file, or a run without gradients."""
    if request.is_file:
        raise InputError(
            "--train cannot be used with an ONNX file, which holds only a forward pass",
            _NOT_TRAINED,
        )
    if not request.setting.grad:
        raise InputError(
            "--train needs gradients and cannot be combined with --no-grad",
            "leave out one of the two",
        )


def count_model_training_step(request: Request, optimizer: str) -> tuple[Report, CountedModel]:
    """Return (report, counted model) of a training step, with the optimizer's work if the
    optimizer is known.

    Raises InputError for a model of another framework.
    """
    source = request.source(values=False)
    frontend = frontend_of(source.model)
    if frontend is None or frontend.name != "torch":
        title = frontend.title if frontend is not None else "no known framework"
        raise InputError(
            f"--train requires a PyTorch model, but this is a model of {title}", _NOT_TRAINED
        )
    name = optimizer.lower()
    known = name if name in OPTIMIZERS else ""
    return native_count(
        msgspec.structs.replace(request, train=True, optimizer=known, observe=False)
    )


class RunWork(NamedTuple):
    """The work of one run of a model, or of one training step."""

    macs: int
    flops: int
    macs_by_precision: dict[str, int]


class PhaseMacs(NamedTuple):
    """The MACs of the forward pass and of the gradients of a training step, by precision."""

    forward: dict[str, int]
    backward: dict[str, int]


def training_step_work(report: Report, phases: StepPhases) -> RunWork:
    """Return the work of a training step, without recomputed work."""
    forward, backward = _phase_macs_by_precision(report, phases)
    macs = {name: forward.get(name, 0) + backward.get(name, 0) for name in forward | backward}
    work = _require_training_report(report)
    flops = work.forward_flops + (
        _gradient_macs_or_flops(work, in_flops=True) if phases.backward else 0
    )
    return RunWork(sum(macs.values()), phases.passes * flops, macs)


def build_bench_step(
    report: Report, phases: StepPhases, timing: Measurement, peak: BenchPeak | None
) -> BenchStep:
    """Return the phases of a training step with their MACs, FLOPs, seconds and share of the
    peak.
    """
    work, times = _require_training_report(report), phases.passes
    forward, backward = _phase_macs_by_precision(report, phases)
    rows = [_phase_row("forward", times * work.forward_flops, phases.forward, forward, peak)]
    if phases.backward is not None:
        flops = times * _gradient_macs_or_flops(work, in_flops=True)
        rows.append(_phase_row("backward", flops, phases.backward, backward, peak))
    if phases.optimizer is not None:
        step = work.optimizer
        flops_ = step.flops if step else None
        rows.append(PhaseRow(phase="optimizer", macs=0, flops=flops_, seconds=phases.optimizer))
    needed = {name: forward.get(name, 0) + backward.get(name, 0) for name in forward | backward}
    again = times * work.recomputed_macs if phases.backward else 0
    mfu = _phase_peak_share(needed, timing.p50, peak)
    macs = sum(needed.values())
    return BenchStep(
        optimizer=phases.optimizer_name,
        passes=times,
        phases=tuple(rows),
        rest_seconds=max(phases.whole - sum(row.seconds for row in rows), 0.0),
        recomputed_macs=again,
        mfu=mfu,
        hfu=mfu * (macs + again) / macs if mfu is not None else None,
    )


def step_timing_notes(report: Report, phases: StepPhases | None) -> Iterator[str]:
    """Yield a note if the timed step had no backward pass, or an optimizer whose work is
    unknown.
    """
    if phases is None:
        return
    if phases.backward is None:
        yield "no output requires a gradient, so there was no backward pass"
    if phases.optimizer is not None and not _require_training_report(report).optimizer:
        yield f"the work of optimizer {phases.optimizer_name} is unknown and not counted"


def _require_training_report(report: Report) -> TrainingReport:
    """Return the training part of a report; the report must have one."""
    assert isinstance(report.training, TrainingReport)
    return report.training


def _gradient_macs_or_flops(work: Training, in_flops: bool = False) -> int:
    """Return the MACs of the gradients in a training step, or with `in_flops` their FLOPs."""
    return sum(getattr(work, pair[in_flops]) for pair in _GRADIENTS)


def _phase_macs_by_precision(report: Report, phases: StepPhases) -> PhaseMacs:
    """Return the MACs of the forward pass and of the gradients of a training step."""
    forward: dict[str, int] = {}
    backward: dict[str, int] = {}
    for node in report.nodes:
        if not isinstance(node.training, Training):
            continue
        work = (
            (forward, node.training.forward_macs),
            (backward, _gradient_macs_or_flops(node.training)),
        )
        for sums, macs in work:
            if macs:
                sums[node.precision] = sums.get(node.precision, 0) + phases.passes * macs
    return PhaseMacs(forward, backward if phases.backward is not None else {})


def _phase_row(
    phase: str, flops: int, seconds: float, macs: Mapping[str, int], peak: BenchPeak | None
) -> PhaseRow:
    """Return the row of a phase with its MACs, FLOPs, seconds, FLOP/s and share of the peak."""
    total = sum(macs.values())
    return PhaseRow(
        phase=phase,
        macs=total,
        flops=flops,
        seconds=seconds,
        rate=2 * total / seconds if total and seconds else None,
        share=_phase_peak_share(macs, seconds, peak),
    )


def _phase_peak_share(
    macs: Mapping[str, int], seconds: float, peak: BenchPeak | None
) -> float | None:
    """Return the share of the peak that a phase reaches: seconds at the peak / measured seconds;
    None if a peak is unknown.
    """
    rates = peak.rates if peak is not None else {}
    if not macs or not seconds or not rates.keys() >= macs.keys():
        return None
    return sum(2 * amount / rates[name] for name, amount in macs.items()) / seconds
