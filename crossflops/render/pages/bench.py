"""The page of `bench`: batches and their speed, then where the time of one run goes."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from crossflops.ir.measurement import Measurement, Unfit
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title, right
from crossflops.report.bench import Bench, BenchStep, KernelProfile, KernelRow
from crossflops.report.quantity import (
    command_line_shape,
    count_with_noun,
    duration,
    exact_amount,
    percent_share,
    short_amount,
)

TOP = 10
WORST = 5
_MUTE = 0.01  # operators that take less of the time share a line


class Benched(msgspec.Struct, frozen=True):
    """A bench, with as many kernels in its tables as `top` says."""

    bench: Bench
    top: int = TOP


def bench_page(noun: Bench, top: int = TOP) -> Page:
    """The curve, the profile where there is one, what is wrong, doubtful and assumed."""
    blocks: list[Block] = [_bench_title(noun), _curve(noun)]
    if noun.goal and noun.measurement is not None:
        blocks.append(Text(f"batch {noun.batch}: {noun.goal}", " > "))
    if noun.largest is not None:
        blocks.append(Text(f"the largest batch that fits is {noun.largest}", " > "))
    if noun.step is not None:
        blocks += _bench_step_blocks(noun, noun.step)
    if noun.profile is not None:
        blocks += _kernel_profile_blocks(noun, noun.profile, top)
    blocks += [Text(text, " ! ", "bad") for text in noun.errors]
    blocks += [Text(text, " ! ", "warn") for text in noun.warnings]
    blocks.append(Heading("Assumed"))
    blocks += [Text(text, " - ") for text in noun.assumptions]
    return Page(tuple(blocks))


def _bench_title(noun: Bench) -> Title:
    ran = "run" if noun.step is None else "training step"
    optimized = f"optimization {noun.optimization}" if noun.optimization else ""
    parts = (
        noun.name,
        *(
            f"{spec.name} {command_line_shape(spec.shape)} {spec.dtype}"
            for spec in noun.model.inputs
        ),
        noun.runtime,
        optimized,
        f"{noun.device}, {count_with_noun(noun.threads, 'thread')}" if noun.threads else "",
        f"{short_amount(noun.macs, 'MACs')} a {ran} of {count_with_noun(noun.batch, 'example')}",
    )
    return Title(tuple(part for part in parts if part))


def _curve(noun: Bench) -> Table:
    peak = [Column(head="of peak", right=True)] if noun.peak is not None else []
    tails = [Column(head=head, right=True, spare=2) for head in ("p90", "p99")]
    columns = (
        *right("batch", "p50"),
        *tails,
        Column(head="runs", right=True, spare=3),
        *right("examples/s", "rate"),
        *peak,
        Column(head="", flows=True),
    )
    rows = [
        _measurement_row(noun, m) if isinstance(m, Measurement) else _unfit(noun, m)
        for m in noun.curve
    ]
    return Table(columns=columns, rows=tuple(rows))


def _measurement_row(noun: Bench, timing: Measurement) -> Row:
    times = [duration(value) for value in (timing.p50, timing.p90, timing.p99)]
    rate, of_peak = noun.rate(timing), noun.share(timing)
    remarks = [] if timing.settled else ["not settled"]
    below = "profiled below" if noun.step is None else "its phases below"
    remarks += [below] if timing.batch == noun.batch and len(noun.curve) > 1 else []
    cells = (
        str(timing.batch),
        *times,
        str(timing.runs),
        f"{timing.examples_per_second:.4g}",
        "-" if rate is None else short_amount(rate, "FLOP/s"),
        *(() if noun.peak is None else (_percent(of_peak),)),
        ", ".join(remarks),
    )
    return Row(cells)


def _percent(part: float | None) -> str:
    """A share of the peak; a dash where no peak is known for the precision of what ran."""
    return "-" if part is None else f"{100 * part:.1f} %"


def _unfit(noun: Bench, unfit: Unfit) -> Row:
    dashes = ("-",) * (6 + (noun.peak is not None))
    return Row.from_cells(
        str(unfit.batch), *dashes, f"{unfit.stage}: {unfit.message}", tone="warn"
    )


def _bench_step_blocks(noun: Bench, step: BenchStep) -> list[Block]:
    """The phases of a training step."""
    timing = noun.measurement
    whole = timing.p50 if timing is not None else 0.0
    rows = [
        Row.from_cells(
            row.phase,
            short_amount(row.macs) if row.macs else "-",
            "-" if row.flops is None else short_amount(row.flops),
            duration(row.seconds),
            percent_share(row.seconds, whole),
            "-" if row.rate is None else short_amount(row.rate, "FLOP/s"),
            _percent(row.share),
            tone="bad" if (row.share or 0) > 1 else "",
        )
        for row in step.phases
    ]
    rest = duration(step.rest_seconds), percent_share(step.rest_seconds, whole)
    rows.append(Row.from_cells("the rest", "-", "-", *rest, "-", "-"))
    heads = right("MACs", "FLOPs", "time", "share", "rate", "of peak")
    table = Table(columns=(Column(head="phase"), *heads), rows=tuple(rows))
    heading = f"One training step: {duration(whole)}, {step.optimizer or 'no optimizer'}"
    blocks: list[Block] = [Heading(heading), table]
    if step.mfu is not None:
        again = (
            f", {short_amount(step.recomputed_macs, 'MACs')} again" if step.recomputed_macs else ""
        )
        figures = f"MFU {_percent(step.mfu)}, HFU {_percent(step.hfu)}{again}"
        blocks.append(Text(figures, " > "))
    if step.passes > 1:
        blocks.append(Text(f"the optimizer ran the model {step.passes} times a step", " - "))
    return blocks


def _kernel_profile_blocks(noun: Bench, profile: KernelProfile, top: int) -> list[Block]:
    seconds = profile.run_seconds
    nodes = sum(len(row.nodes) for row in profile.kernels)
    exactly = "exactly the count" if profile.macs == noun.macs else f"NOT the count, {noun.macs}"
    sentences = (
        f"{percent_share(profile.named_seconds, seconds)} in kernels"
        f" that stand for {count_with_noun(nodes, 'node')}",
        f"{percent_share(profile.added_seconds, seconds)} in kernels that the runtime put in",
        f"{percent_share(profile.outside_seconds, seconds)} "
        f"outside of kernels{_profiler(profile)}",
        f"all rows together have {exact_amount(profile.macs)} MACs, {exactly}",
    )
    heading = f"One run: {duration(seconds)}, mean of {profile.runs} under the profiler"
    blocks: list[Block] = [
        Heading(heading),
        *(Text(sentence, " - ") for sentence in sentences),
        _operator_time_table(profile),
    ]
    blocks += [
        Heading("Kernels that take the most time"),
        _kernel_time_table(profile, profile.largest(top)),
    ]
    if worst := profile.slowest(min(top, WORST)):
        blocks.append(Heading("Worst offenders: the slowest with 1 % of the time or more"))
        blocks.append(_kernel_time_table(profile, worst))
    for aside in profile.aside:
        named = ", ".join(aside.nodes[:3]) + (" ..." if len(aside.nodes) > 3 else "")
        nodes_aside = (
            f"{count_with_noun(len(aside.nodes), 'node')} "
            f"({named}) {short_amount(aside.macs, 'MACs')}"
        )
        blocks.append(Text(f"{aside.why}: {nodes_aside}", " - "))
    return blocks


def _profiler(profile: KernelProfile) -> str:
    """Return what the profiler itself took, where that is worth a word."""
    if profile.profiler_seconds < _MUTE * profile.run_seconds:
        return ""
    took = percent_share(profile.profiler_seconds, profile.run_seconds)
    nodes = f"nodes have {100 * profile.covered:.1f} % of the rest"
    return f", of which {took} is the profiler's own: {nodes}"


def _operator_time_table(profile: KernelProfile) -> Table:
    """The time by operator of the kernels, the small ones together."""
    sums: dict[str, list[KernelRow]] = defaultdict(list)
    for row in profile.kernels:
        sums[row.op or "(none)"].append(row)
    order = sorted(sums, key=lambda op: -_kernel_seconds(sums[op]))
    shown = [op for op in order if _kernel_seconds(sums[op]) >= _MUTE * profile.run_seconds]
    rest = [row for op in order if op not in shown for row in sums[op]]
    lines = [(op, sums[op]) for op in shown] + ([("all others", rest)] if rest else [])
    columns = (Column(head="operator"), *right("kernels", "time", "share", "MACs", "rate"))
    return Table(columns=columns, rows=tuple(_op_row(*line, profile) for line in lines))


def _op_row(op: str, rows: list[KernelRow], profile: KernelProfile) -> Row:
    seconds, macs = _kernel_seconds(rows), sum(row.macs for row in rows)
    rate = short_amount(2 * macs / seconds, "FLOP/s") if macs and seconds else "-"
    part = percent_share(seconds, profile.run_seconds)
    return Row.from_cells(op, str(len(rows)), duration(seconds), part, short_amount(macs), rate)


def _kernel_seconds(rows: Iterable[KernelRow]) -> float:
    return sum(row.seconds for row in rows)


def _kernel_time_table(profile: KernelProfile, rows: Iterable[KernelRow]) -> Table:
    columns = [
        Column(head="kernel", flows=True),
        Column(head="stands for", flows=True),
        Column(head="time", right=True),
        Column(head="share", right=True, spare=2),
        Column(head="MACs", right=True, spare=1),
        Column(head="rate", right=True),
    ]
    peak = any(row.share is not None for row in profile.kernels)
    columns += [Column(head="of peak", right=True)] if peak else []
    return Table(
        columns=tuple(columns), rows=tuple(_kernel_time_row(profile, row, peak) for row in rows)
    )


def _kernel_time_row(profile: KernelProfile, row: KernelRow, peak: bool) -> Row:
    cells = (
        row.kernel,
        row.does or "(put in by the runtime)",
        duration(row.seconds),
        percent_share(row.seconds, profile.run_seconds),
        short_amount(row.macs) if row.macs else "-",
        "-" if row.rate is None else short_amount(row.rate, "FLOP/s"),
        *((_percent(row.share),) if peak else ()),
    )
    return Row(cells, "bad" if (row.share or 0) > 1 else "")
