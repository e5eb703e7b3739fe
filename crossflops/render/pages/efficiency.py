"""The page of `efficiency`: what a speed asks of a device, in lines and tables."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from msgspec import UNSET

from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title
from crossflops.render.pages.comparison import comparison
from crossflops.render.pages.places import explanations
from crossflops.render.pages.roofline import roofline_blocks
from crossflops.render.pages.summary import inside
from crossflops.report.efficiency import (
    Attention,
    Efficiency,
    EfficiencyReport,
    ModuleTime,
    Moved,
    RunCompute,
    TimedStep,
    World,
    rooflines,
)
from crossflops.report.quantity import added, duration, exact, percent, short

# Lines and columns of the parts of an efficiency, where they are there.

Cell: TypeAlias = Callable[[Efficiency], str]
_WIDEST = 11  # digits of a speed that was given


class Line(NamedTuple):
    """A value with what it is and where it is from."""

    label: str
    value: Cell
    source: Cell


def before(first: Efficiency, alone: bool) -> list[Line]:
    """Return what belongs to the work. With several rows shares stand in their table (`more`)."""
    lines = []
    if first.executed is not UNSET:
        lines.append(Line("executed", _executed, _executed_source))
    if first.attention is not UNSET:
        lines.append(Line("attention", _attention, _shares if alone else _sizes))
    return lines


def behind(first: Efficiency, alone: bool) -> list[Line]:
    """Return what belongs to the MFU: the HFU of executed work, other peaks, the world, the bytes.

    With several rows shares stand in their table (`more`).
    """
    lines = []
    if alone and isinstance(first.hfu, float):
        lines.append(Line("HFU", _hfu, _hfu_source))
    if alone and first.others is not UNSET:
        lines.append(Line("second peak", _other, _other_source))
    if first.world is not UNSET:
        lines.append(Line("world", _devices, _layout))
        if first.rate is not None:
            lines.append(Line("all devices", _all, _all_source))
    if first.moved is not UNSET:
        lines += _moved_lines(alone)
    return lines


def more(rows: Iterable[Efficiency]) -> list[tuple[str, Cell]]:
    """Columns that stand beside the MFU, in a table of several rows."""
    rows = tuple(rows)
    columns: list[tuple[str, Cell]] = []
    if any(isinstance(row.hfu, float) for row in rows):
        columns.append(("HFU", _hfu))
    if any(_halved(row) for row in rows):
        columns += [("full square", _full), ("causal", _half)]
    if any(row.others is not UNSET for row in rows):
        columns.append(("of measured", _other_share))
    if any(moved.mbu is not None for moved in map(_moved, rows) if moved):
        columns.append(("MBU", _mbu))
    return columns


def speed(row: Efficiency) -> str:
    """How fast one device is, in units and, where these are examples of tokens, in tokens."""
    if row.examples_per_second is None:
        return ""
    tokens = row.tokens_per_second
    also = f" ({number(tokens)} tokens/s)" if isinstance(tokens, float) else ""
    return f"{number(row.examples_per_second)} {row.unit}s/s{also}"


def number(value: float) -> str:
    """A measured value: as it was given, or in six digits where it was computed."""
    if float(value).is_integer():
        return exact(int(value))
    kept = value if len(repr(value)) <= _WIDEST else float(f"{value:.6g}")
    return f"{kept:,}".replace(",", " ")


def _executed(row: Efficiency) -> str:
    return short(row.executed, "FLOPs") if isinstance(row.executed, int) else "-"


def _executed_source(row: Efficiency) -> str:
    """Return what the executed work is the sum of."""
    parts = [f"{short(part.flops, 'FLOPs')} of {part.reason}" for part in row.repeats or ()]
    return f"for one {row.unit}: {' + '.join((short(row.work, 'FLOPs'), *parts))}"


def _hfu_source(row: Efficiency) -> str:
    """Return what the HFU is the sum of."""
    parts = [f"{percent(part.ratio)} for {part.reason}" for part in row.repeats or ()]
    return f"executed / peak: {' + '.join((percent(row.ratio), *parts))}"


def _hfu(row: Efficiency) -> str:
    return percent(row.hfu) if isinstance(row.hfu, float) else "-"


def _attention(row: Efficiency) -> str:
    attention = row.attention
    if not isinstance(attention, Attention):
        return "-"
    counted = attention.full_macs if attention.counted == "full" else attention.half_macs
    return short(counted, "MACs")


def _sizes(row: Efficiency) -> str:
    """Return what is counted of attention, and what else it may be."""
    attention = row.attention
    if not isinstance(attention, Attention):
        return ""
    sentence = "score and value products, "
    if not _halved(row):
        return sentence + "none of it behind a causal mask"
    sentence += "the full square" if attention.counted == "full" else "what a causal mask leaves"
    return f"{sentence}; full {short(attention.full_macs)}, causal {short(attention.half_macs)}"


def _shares(row: Efficiency) -> str:
    """The same with the shares of the peak, where there is one."""
    attention = row.attention
    if not isinstance(attention, Attention) or attention.full_ratio is None or not _halved(row):
        return _sizes(row)
    return f"{_sizes(row)}; MFU full {_full(row)}, causal {_half(row)}"


def _halved(row: Efficiency) -> bool:
    attention = row.attention
    return isinstance(attention, Attention) and attention.full_macs != attention.half_macs


def _full(row: Efficiency) -> str:
    return percent(row.attention.full_ratio) if isinstance(row.attention, Attention) else "-"


def _half(row: Efficiency) -> str:
    return percent(row.attention.half_ratio) if isinstance(row.attention, Attention) else "-"


def _other(row: Efficiency) -> str:
    return "-" if not row.others else short(row.others[0].peak, "FLOP/s")


def _other_share(row: Efficiency) -> str:
    return percent(row.others[0].ratio) if row.others else "-"


def _other_source(row: Efficiency) -> str:
    if not row.others:
        return ""
    peak = row.others[0]
    return f"{peak.name}: {percent(peak.ratio)} of it; {peak.source}"


def _devices(row: Efficiency) -> str:
    return f"{exact(row.world.devices)} devices" if isinstance(row.world, World) else "-"


def _layout(row: Efficiency) -> str:
    world = row.world
    if not isinstance(world, World):
        return ""
    sentence = (
        f"data {world.data_parallel} x tensor {world.tensor_parallel} x "
        f"pipeline {world.pipeline_parallel} parallel"
    )
    if isinstance(world.bubble, float):
        sentence += f"; the pipeline waits {percent(world.bubble)} of a step"
    return sentence


def _all(row: Efficiency) -> str:
    world = row.world
    if not isinstance(world, World) or world.rate is None:
        return "-"
    return short(world.rate, "FLOP/s")


def _all_source(row: Efficiency) -> str:
    world = row.world
    if not isinstance(world, World) or world.examples_per_second is None:
        return ""
    return f"at {number(world.examples_per_second)} {row.unit}s/s"


def _moved(row: Efficiency) -> Moved | None:
    return row.moved if isinstance(row.moved, Moved) else None


def _moved_lines(alone: bool) -> list[Line]:
    lines = [
        Line("bytes", _bytes, lambda row: f"a pass: {_of(row).model}"),
        Line("intensity", _intensity, _limit),
    ]
    bound = Line("bound", _bound, _bound_source)
    mbu = Line("MBU", _mbu, lambda row: "bytes / (time x bandwidth)")
    return [*lines, bound, mbu] if alone else [*lines, bound]


def _of(row: Efficiency) -> Moved:
    assert isinstance(row.moved, Moved)
    return row.moved


def _bytes(row: Efficiency) -> str:
    return short(_of(row).bytes, "B")


def _intensity(row: Efficiency) -> str:
    intensity = _of(row).intensity
    return "-" if intensity is None else f"{intensity:.3g} FLOP/byte"


def _limit(row: Efficiency) -> str:
    moved = _of(row)
    sentence = f"{short(moved.flops, 'FLOPs')} a pass"
    if moved.intensity_limit is not None:
        sentence += f"; below {short(moved.intensity_limit)} for any batch"
    return sentence


def _bound(row: Efficiency) -> str:
    moved = _of(row)
    return "-" if moved.bound is None else f"{moved.bound}, {duration(moved.bound_seconds or 0)}"


def _bound_source(row: Efficiency) -> str:
    moved = _of(row)
    if moved.ridge is None or moved.bandwidth is None:
        return "needs a peak and a bandwidth"
    return f"ridge {moved.ridge:.4g} FLOP/byte at {moved.bandwidth / 1e9:g} GB/s"


def _mbu(row: Efficiency) -> str:
    moved = _moved(row)
    return percent(moved.mbu) if moved else "-"


# Tables of an efficiency: the phases of a step, and the precisions of its work.


def tables(rows: tuple[Efficiency, ...]) -> list[Block]:
    """The parts of a step, and the precisions of the work, each with its peak."""
    blocks: list[Block] = []
    for row in rows:
        name = f" on {row.device}" if len(rows) > 1 and row.device else ""
        if isinstance(row.step, TimedStep):
            blocks += [Heading(_summary(row.step) + name), _step(row.step)]
        if row.modules:
            blocks += [Heading(f"Forward times of modules{name}"), _modules(row.modules)]
        if row.precisions is not UNSET:
            blocks += [Heading(f"Work by precision{name}"), _precisions(row)]
        if isinstance(row.run, RunCompute):
            blocks += [Heading(f"The whole run{name}"), _run(row.run)]
    return blocks


def _run(run: RunCompute) -> Table:
    """FLOPs, device-hours and energy; what is not known is a dash."""
    lengths = [(name, getattr(run, name)) for name in ("tokens", "examples", "steps")]
    rows = [Row.of(name, number(value), "") for name, value in lengths if value is not None]
    rows.append(Row.of("FLOPs", f"{run.flops:.4g}", f"{exact(run.flops)}, of the model"))
    if isinstance(run.executed_flops, int):
        rows.append(Row.of("executed", f"{run.executed_flops:.4g}", "with what is done again"))
    if isinstance(run.optimizer_flops, int):
        rows.append(Row.of("optimizer", f"{run.optimizer_flops:.4g}", "apart"))
    at = "" if run.mfu is None or run.peak is None else f"at {percent(run.mfu)} of the peak"
    rows.append(Row.of("device-hours", _known(run.device_hours), at))
    if run.devices > 1:
        rows.append(Row.of("days", _known(run.hours, 24), f"on {exact(run.devices)} devices"))
    watts = "" if run.tdp is None else f"at {run.tdp:g} W each"
    rows.append(Row.of("energy, MWh", _known(run.energy_kwh, 1000), watts))
    heads = (Column(head=""), Column(head="value", right=True), Column(head="from", flows=True))
    return Table(columns=heads, rows=tuple(rows), bare=True)


def _known(value: float | None, unit: float = 1) -> str:
    return "-" if value is None else number(float(f"{value / unit:.4g}"))


def _summary(step: TimedStep) -> str:
    params = "" if step.params is None else f", {short(step.params)} parameters"
    return f"One device: batch {step.batch}, {short(step.macs, 'MACs')} forward{params}"


def _step(step: TimedStep) -> Table:
    rows = [
        Row.of(
            phase.name,
            f"{1e3 * phase.seconds:.5g} ms",
            short(phase.flops, "FLOPs"),
            short(phase.rate, "FLOP/s"),
            percent(phase.ratio),
        )
        for phase in step.phases
    ]
    speed = f"{number(step.examples_per_second)} examples/s"
    total = ("whole step", f"{1e3 * step.seconds:.5g} ms", "", speed, "")
    right = [Column(head=head, right=True) for head in ("latency", "work", "rate", "MFU")]
    return Table(columns=(Column(head=""), *right), rows=(*rows, Row(total)))


def _modules(modules: tuple[ModuleTime, ...]) -> Table:
    right = [Column(head=head, right=True) for head in ("time", "work", "rate", "MFU")]
    return Table(
        columns=(Column(head="module", flows=True), *right),
        rows=tuple(
            Row.of(
                module.path or "(the model)",
                duration(module.seconds),
                short(module.flops, "FLOPs"),
                short(module.rate, "FLOP/s"),
                percent(module.ratio),
                tone="bad" if (module.ratio or 0) > 1 else "",
            )
            for module in modules
        ),
    )


def _precisions(row: Efficiency) -> Table:
    parts = row.precisions or ()
    total = sum(part.flops for part in parts)
    right = [Column(head=head, right=True) for head in ("work", "of it", "peak")]
    return Table(
        columns=(Column(head="precision"), *right),
        rows=tuple(
            Row.of(
                part.precision,
                short(part.flops, "FLOPs"),
                percent(part.flops / total if total else None),
                "-" if part.peak is None else short(part.peak, "FLOP/s"),
            )
            for part in parts
        ),
    )


def efficiency_page(noun: EfficiencyReport) -> Page:
    """The reconciliation where there is one, the rates, what they assume, and what is doubtful.

    What all rows have in common stands above them, once.
    """
    rows = noun.efficiency
    if not rows:
        named = "no model" if noun.report is None else noun.report.name
        return Page((Title((named, "no rate was asked for")),))
    blocks: list[Block] = [*_opening(noun), _common(rows)]
    if len(rows) > 1 or rows[0].line is not UNSET:
        blocks.append(_varying(rows))
    blocks += tables(rows)
    blocks += _explained(noun)
    blocks += roofline_blocks(rooflines(noun))
    blocks += [Text(text, " ! ", "warn") for text in _unique(row.warnings for row in rows)]
    blocks.append(Heading("Assumed"))
    assumed = [row.assumptions for row in rows]
    assumed += [row.run.assumptions for row in rows if isinstance(row.run, RunCompute)]
    blocks += [Text(text, " - ") for text in _unique(assumed)]
    if noun.report is not None and not noun.report.profiles:
        blocks += inside(noun.report)
    return Page(tuple(blocks))


def _opening(noun: EfficiencyReport) -> list[Block]:
    first, report = noun.efficiency[0], noun.report
    kind = "inference" if first.multiplier == 1 else "training"
    run = [word for word in (kind, *_shared(noun.efficiency)) if word]
    if report is not None and report.profiles:
        return [*comparison(report).blocks, Heading(f"Required rate: {', '.join(run)}")]
    named = "MACs as given" if first.unit == "example" else "by its sizes"
    return [Title((named if report is None else report.name, *run))]


def _explained(noun: EfficiencyReport) -> list[Block]:
    """Why the MACs of a convention are not the native ones, and what these come to."""
    report, first = noun.report, noun.efficiency[0]
    if report is None or report.profiles or not report.reconciliations or report.as_ is None:
        return []
    (account,) = report.reconciliations
    unit = "" if account.unit in (1, UNSET) else f", {account.unit} per MAC"
    sentence = f"native: {exact(account.ours)} MACs a pass"
    alone = len(noun.efficiency) == 1
    if alone and first.ratio is not None and first.rate is not None and account.theirs:
        times = account.ours * (account.unit or 1) / account.theirs
        sentence += f", {short(first.rate * times, 'FLOP/s')}, MFU {percent(first.ratio * times)}"
    return [
        Heading(f"{first.numerator} = native{added(account.delta)}{unit}"),
        explanations(account),
        Text(sentence, " "),
    ]


def _shared(rows: tuple[Efficiency, ...]) -> tuple[str, ...]:
    """The precision and the speed, or how many runs of a table there are."""
    if rows[0].line is not UNSET:
        runs = len({row.line for row in rows})
        return (f"{runs} {'run' if runs == 1 else 'runs'}",)
    return rows[0].precision, speed(rows[0]) if rows[0].rate is not None else ""


def _common(rows: tuple[Efficiency, ...]) -> Table:
    """Return what all rows agree on, with where it is from."""
    first = rows[0]
    lines: list[Line] = [
        Line("model", _macs, _origin),
        Line("rule", _rule, lambda row: ""),
        Line("work", _work, lambda row: f"for one {row.unit}"),
        *before(first, alone=len(rows) == 1),
    ]
    if first.rate is not None:
        lines.append(Line("required", _rate, _at))
    if first.peak is not None:
        lines.append(Line("peak", _peak, _against))
    if first.ratio is not None and len(rows) == 1:
        lines.append(Line("MFU", _mfu, lambda row: "required / peak"))
    lines += behind(first, alone=len(rows) == 1)
    return Table(
        columns=(Column(head=""), Column(head="value"), Column(head="from", flows=True)),
        rows=tuple(
            Row.of(line.label, line.value(first), line.source(first))
            for line in lines
            if _same(rows, line.value) and _same(rows, line.source)
        ),
        bare=True,
    )


def _batch(row: Efficiency) -> str:
    return exact(row.batch) if row.batch else "-"


def _varying(rows: tuple[Efficiency, ...]) -> Table:
    """Return what differs between the rows, and the MFU in any case."""
    table = rows[0].line is not UNSET  # whose columns are all shown
    columns: list[tuple[Column, Cell, bool]] = [
        (Column(head="line", right=True, spare=9), lambda row: str(row.line or ""), table),
        (Column(head="by"), lambda row: row.numerator, False),
        (Column(head="MACs", right=True), lambda row: exact(row.macs), False),
        (Column(head="device"), lambda row: row.device or "-", table),
        (Column(head="precision"), lambda row: row.precision or "-", table),
        (Column(head="batch", right=True), _batch, table),
        (Column(head=f"{rows[0].unit}s/s", right=True), _speed, table),
        (Column(head="required", right=True), _rate, table),
        (Column(head="peak", right=True), _peak, table),
    ]
    shown = [(column, cell) for column, cell, always in columns if always or not _same(rows, cell)]
    if any(row.ratio is not None for row in rows):
        shown.append((Column(head="MFU", right=True), _mfu))
    shown += [(Column(head=head, right=True), cell) for head, cell in more(rows)]
    return Table(
        columns=tuple(column for column, _ in shown),
        rows=tuple(
            Row(tuple(cell(row) for _, cell in shown), "bad" if (row.ratio or 0) > 1 else "")
            for row in rows
        ),
    )


def _macs(row: Efficiency) -> str:
    return f"{exact(row.macs)} MACs"


def _origin(row: Efficiency) -> str:
    return f"{row.numerator}, for one {row.unit}"


def _rule(row: Efficiency) -> str:
    return f"2 FLOPs per MAC x {row.multiplier:.4g}"


def _work(row: Efficiency) -> str:
    return short(row.work, "FLOPs")


def _rate(row: Efficiency) -> str:
    return "-" if row.rate is None else short(row.rate, "FLOP/s")


def _speed(row: Efficiency) -> str:
    return "-" if row.examples_per_second is None else number(row.examples_per_second)


def _at(row: Efficiency) -> str:
    on_each = "" if row.world is UNSET else " on each device"
    return f"at {speed(row)}{on_each}"


def _peak(row: Efficiency) -> str:
    return "-" if row.peak is None else short(row.peak, "FLOP/s")


def _against(row: Efficiency) -> str:
    mean = "harmonic mean of " if row.precisions is not UNSET else ""
    return f"{row.device}, dense {mean}{row.precision}" if row.device else f"{mean}given"


def _mfu(row: Efficiency) -> str:
    return percent(row.ratio)


def _same(rows: tuple[Efficiency, ...], cell: Cell) -> bool:
    return len({cell(row) for row in rows}) == 1


def _unique(texts: Iterable[tuple[str, ...]]) -> list[str]:
    return list(dict.fromkeys(text for group in texts for text in group))
