"""Build the page of `bench`: batches and their speed, then the time of each part of a run."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from crossflops.ir.measurement import Measurement, Unfit
from crossflops.render.page import (
    Block,
    Column,
    Heading,
    Page,
    Row,
    Table,
    Text,
    Title,
    number_columns,
)
from crossflops.report.bench import Bench, BenchStep, KernelProfile, KernelRow
from crossflops.report.quantity import (
    command_line_shape,
    count_with_noun,
    exact_amount,
    percent_share,
    seconds_to_text,
    short_amount,
)

TOP = 10
WORST = 5
_MUTE = 0.01  # operators that take less of the time share a line


class BenchView(msgspec.Struct, frozen=True):
    """A bench report, and the number of kernels to show in its tables (`top`)."""

    bench: Bench
    top: int = TOP


def bench_page(content: Bench, top: int = TOP) -> Page:
    """Return the page of `bench`: speed by batch size, kernels, errors, warnings."""
    blocks: list[Block] = [_bench_title(content), _batch_size_table(content)]
    if content.goal and content.measurement is not None:
        blocks.append(Text(f"batch {content.batch}: {content.goal}", " > "))
    if content.largest is not None:
        blocks.append(Text(f"the largest batch that fits is {content.largest}", " > "))
    if content.step is not None:
        blocks += _bench_step_blocks(content, content.step)
    if content.profile is not None:
        blocks += _kernel_profile_blocks(content, content.profile, top)
    blocks += [Text(text, " ! ", "bad") for text in content.errors]
    blocks += [Text(text, " ! ", "warn") for text in content.warnings]
    blocks.append(Heading("Assumed"))
    blocks += [Text(text, " - ") for text in content.assumptions]
    return Page(tuple(blocks))


def _bench_title(content: Bench) -> Title:
    """Return the title of a bench page: model, inputs, runtime, device and MACs of a run."""
    ran = "run" if content.step is None else "training step"
    optimized = f"optimization {content.optimization}" if content.optimization else ""
    parts = (
        content.name,
        *(
            f"{spec.name} {command_line_shape(spec.shape)} {spec.dtype}"
            for spec in content.model.inputs
        ),
        content.runtime,
        optimized,
        f"{content.device}, {count_with_noun(content.threads, 'thread')}"
        if content.threads
        else "",
        f"{short_amount(content.macs, 'MACs')} a {ran} of "
        f"{count_with_noun(content.batch, 'example')}",
    )
    return Title(tuple(part for part in parts if part))


def _batch_size_table(content: Bench) -> Table:
    """Return a table of batch sizes: latencies, examples/s, FLOP/s, share of the peak."""
    peak = [Column(head="of peak", right=True)] if content.peak is not None else []
    tails = [Column(head=head, right=True, spare=2) for head in ("p90", "p99")]
    columns = (
        *number_columns("batch", "p50"),
        *tails,
        Column(head="runs", right=True, spare=3),
        *number_columns("examples/s", "rate"),
        *peak,
        Column(head="", flows=True),
    )
    rows = [
        _measurement_row(content, m) if isinstance(m, Measurement) else _unfit_row(content, m)
        for m in content.curve
    ]
    return Table(columns=columns, rows=tuple(rows))


def _measurement_row(content: Bench, timing: Measurement) -> Row:
    """Return the row of a batch size: latencies, number of runs, speed, share of the peak."""
    times = [seconds_to_text(value) for value in (timing.p50, timing.p90, timing.p99)]
    rate, of_peak = content.rate(timing), content.share(timing)
    remarks = [] if timing.settled else ["not stable"]
    below = "profiled below" if content.step is None else "its phases below"
    remarks += [below] if timing.batch == content.batch and len(content.curve) > 1 else []
    cells = (
        str(timing.batch),
        *times,
        str(timing.runs),
        f"{timing.examples_per_second:.4g}",
        "-" if rate is None else short_amount(rate, "FLOP/s"),
        *(() if content.peak is None else (_percent_or_dash(of_peak),)),
        ", ".join(remarks),
    )
    return Row(cells)


def _percent_or_dash(part: float | None) -> str:
    """Return a share in percent with one decimal, or "-" for None."""
    return "-" if part is None else f"{100 * part:.1f} %"


def _unfit_row(content: Bench, unfit: Unfit) -> Row:
    """Return the row of a batch size that did not run, with its error."""
    dashes = ("-",) * (6 + (content.peak is not None))
    return Row.from_cells(
        str(unfit.batch), *dashes, f"{unfit.stage}: {unfit.message}", tone="warn"
    )


def _bench_step_blocks(content: Bench, step: BenchStep) -> list[Block]:
    """Return the table of a training step's phases: MACs, FLOPs, time, rate."""
    timing = content.measurement
    full = timing.p50 if timing is not None else 0.0
    rows = [
        Row.from_cells(
            row.phase,
            short_amount(row.macs) if row.macs else "-",
            "-" if row.flops is None else short_amount(row.flops),
            seconds_to_text(row.seconds),
            percent_share(row.seconds, full),
            "-" if row.rate is None else short_amount(row.rate, "FLOP/s"),
            _percent_or_dash(row.share),
            tone="bad" if (row.share or 0) > 1 else "",
        )
        for row in step.phases
    ]
    rest = seconds_to_text(step.rest_seconds), percent_share(step.rest_seconds, full)
    rows.append(Row.from_cells("the rest", "-", "-", *rest, "-", "-"))
    heads = number_columns("MACs", "FLOPs", "time", "share", "rate", "of peak")
    table = Table(columns=(Column(head="phase"), *heads), rows=tuple(rows))
    heading = f"One training step: {seconds_to_text(full)}, {step.optimizer or 'no optimizer'}"
    blocks: list[Block] = [Heading(heading), table]
    if step.mfu is not None:
        again = (
            f", {short_amount(step.recomputed_macs, 'MACs')} again" if step.recomputed_macs else ""
        )
        figures = f"MFU {_percent_or_dash(step.mfu)}, HFU {_percent_or_dash(step.hfu)}{again}"
        blocks.append(Text(figures, " > "))
    if step.passes > 1:
        blocks.append(Text(f"the optimizer ran the model {step.passes} times a step", " - "))
    return blocks


def _kernel_profile_blocks(content: Bench, profile: KernelProfile, top: int) -> list[Block]:
    """Return tables of the time of one run: by operator, and of the slowest kernels."""
    seconds = profile.run_seconds
    nodes = sum(len(row.nodes) for row in profile.kernels)
    exactly = (
        "exactly the count" if profile.macs == content.macs else f"NOT the count, {content.macs}"
    )
    sentences = (
        f"{percent_share(profile.named_seconds, seconds)} in kernels of "
        f"{count_with_noun(nodes, 'node')}",
        f"{percent_share(profile.added_seconds, seconds)} in kernels that the runtime added",
        f"{percent_share(profile.outside_seconds, seconds)} "
        f"outside of kernels{_profiler_overhead_text(profile)}",
        f"all rows together have {exact_amount(profile.macs)} MACs, {exactly}",
    )
    heading = f"One run: {seconds_to_text(seconds)}, mean of {profile.runs} under the profiler"
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
        blocks.append(Heading("Slowest kernels with at least 1 % of the time"))
        blocks.append(_kernel_time_table(profile, worst))
    for aside in profile.aside:
        named = ", ".join(aside.nodes[:3]) + (" ..." if len(aside.nodes) > 3 else "")
        nodes_aside = (
            f"{count_with_noun(len(aside.nodes), 'node')} "
            f"({named}) {short_amount(aside.macs, 'MACs')}"
        )
        blocks.append(Text(f"{aside.why}: {nodes_aside}", " - "))
    return blocks


def _profiler_overhead_text(profile: KernelProfile) -> str:
    """Return a text on the time that the profiler itself took, or "" if it is small."""
    if profile.profiler_seconds < _MUTE * profile.run_seconds:
        return ""
    took = percent_share(profile.profiler_seconds, profile.run_seconds)
    nodes = f"nodes have {100 * profile.covered:.1f} % of the rest"
    return f", of which {took} is the profiler's own: {nodes}"


def _operator_time_table(profile: KernelProfile) -> Table:
    """Return a table of kernel time by operator; operators with little time are one row."""
    sums: dict[str, list[KernelRow]] = defaultdict(list)
    for row in profile.kernels:
        sums[row.op or "(none)"].append(row)
    order = sorted(sums, key=lambda op: -_kernel_seconds(sums[op]))
    shown = [op for op in order if _kernel_seconds(sums[op]) >= _MUTE * profile.run_seconds]
    rest = [row for op in order if op not in shown for row in sums[op]]
    lines = [(op, sums[op]) for op in shown] + ([("all others", rest)] if rest else [])
    columns = (
        Column(head="operator"),
        *number_columns("kernels", "time", "share", "MACs", "rate"),
    )
    return Table(columns=columns, rows=tuple(_operator_time_row(*line, profile) for line in lines))


def _operator_time_row(op: str, rows: list[KernelRow], profile: KernelProfile) -> Row:
    """Return the row of an operator: number of kernels, time, share of the run, MACs, FLOP/s."""
    seconds, macs = _kernel_seconds(rows), sum(row.macs for row in rows)
    rate = short_amount(2 * macs / seconds, "FLOP/s") if macs and seconds else "-"
    part = percent_share(seconds, profile.run_seconds)
    return Row.from_cells(
        op, str(len(rows)), seconds_to_text(seconds), part, short_amount(macs), rate
    )


def _kernel_seconds(rows: Iterable[KernelRow]) -> float:
    """Return the total time of the kernels, in seconds."""
    return sum(row.seconds for row in rows)


def _kernel_time_table(profile: KernelProfile, rows: Iterable[KernelRow]) -> Table:
    """Return a table of kernels: nodes, time, share of the run, MACs, FLOP/s."""
    columns = [
        Column(head="kernel", flows=True),
        Column(head="nodes", flows=True),
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


def _kernel_time_row(profile: KernelProfile, row: KernelRow, has_peak: bool) -> Row:
    """Return the row of a kernel: nodes, time, share of the run, MACs, FLOP/s."""
    cells = (
        row.kernel,
        row.does or "(added by the runtime)",
        seconds_to_text(row.seconds),
        percent_share(row.seconds, profile.run_seconds),
        short_amount(row.macs) if row.macs else "-",
        "-" if row.rate is None else short_amount(row.rate, "FLOP/s"),
        *((_percent_or_dash(row.share),) if has_peak else ()),
    )
    return Row(cells, "bad" if (row.share or 0) > 1 else "")
