"""Build the page of `efficiency`: what a speed requires of a device, in lines and tables."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from msgspec import UNSET

from crossflops.ir.formula_account import FormulaReport
from crossflops.ir.reconciliation import Reconciliation
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title
from crossflops.render.pages.comparison import tool_comparison_page
from crossflops.render.pages.generation import generation_blocks
from crossflops.render.pages.llm import formula_blocks
from crossflops.render.pages.places import explanation_table
from crossflops.render.pages.roofline import roofline_blocks
from crossflops.render.pages.summary import module_and_node_figures
from crossflops.report.efficiency import (
    Attention,
    Efficiency,
    EfficiencyReport,
    ModuleTime,
    MovedBytes,
    RunCompute,
    TimedStep,
    World,
    rooflines,
)
from crossflops.report.quantity import (
    exact_amount,
    percent_text,
    seconds_to_text,
    short_amount,
    term_with_sign,
)

# Lines and columns of the parts of an efficiency, where they are there.

Cell: TypeAlias = Callable[[Efficiency], str]
_WIDEST = 11  # digits of a speed that was given


class Line(NamedTuple):
    """A line of the page: the name of a value, and functions for its text and its source."""

    label: str
    value: Cell
    source: Cell


def recompute_and_attention_lines(first: Efficiency, alone: bool) -> list[Line]:
    """Return the lines on executed FLOPs and on attention, each if the result has it."""
    lines = []
    if first.executed is not UNSET:
        lines.append(Line("executed", _hardware_flops_cell, _hardware_flops_source))
    if first.attention is not UNSET:
        lines.append(
            Line(
                "attention",
                _attention_macs_cell,
                _attention_note_with_shares if alone else _attention_note,
            )
        )
    return lines


def hfu_and_byte_lines(first: Efficiency, alone: bool) -> list[Line]:
    """Return the lines on HFU, second peak, all devices and bytes, each if the result has it.

    HFU and second peak are left out unless the row is `alone`: a table has them for several rows.
    """
    lines = []
    if alone and isinstance(first.hfu, float):
        lines.append(Line("HFU", _hfu_cell, _hfu_source))
    if alone and first.others is not UNSET:
        lines.append(Line("second peak", _other_peak_text, _other_peak_source))
    if first.world is not UNSET:
        lines.append(Line("world", _device_count_cell, _parallel_layout_note))
        if first.rate is not None:
            lines.append(Line("all devices", _all_devices_rate_cell, _all_devices_speed_text))
    if first.moved is not UNSET:
        lines += _byte_traffic_lines(alone)
    return lines


def columns_of_optional_values(rows: Iterable[Efficiency]) -> list[tuple[str, Cell]]:
    """Return heads and cell functions of columns that some rows need, such as HFU."""
    rows = tuple(rows)
    columns: list[tuple[str, Cell]] = []
    if any(isinstance(row.hfu, float) for row in rows):
        columns.append(("HFU", _hfu_cell))
    if any(_has_causal_half(row) for row in rows):
        columns += [("full square", _full_attention_mfu), ("causal", _causal_attention_mfu)]
    if any(row.others is not UNSET for row in rows):
        columns.append(("of measured", _other_peak_share_cell))
    if any(moved.mbu is not None for moved in map(_byte_traffic_or_none, rows) if moved):
        columns.append(("MBU", _mbu_cell))
    return columns


def speed_text(row: Efficiency) -> str:
    """Return the speed of one device as text, such as "8 examples/s (4096 tokens/s)", or ""."""
    if row.examples_per_second is None:
        return ""
    tokens = row.tokens_per_second
    also = f" ({number_text(tokens)} tokens/s)" if isinstance(tokens, float) else ""
    return f"{number_text(row.examples_per_second)} {row.unit}s/s{also}"


def number_text(value: float) -> str:
    """Return a number as text: integers exactly, others in at most six digits."""
    if float(value).is_integer():
        return exact_amount(int(value))
    kept = value if len(repr(value)) <= _WIDEST else float(f"{value:.6g}")
    return f"{kept:,}".replace(",", " ")


def _hardware_flops_cell(row: Efficiency) -> str:
    """Return the FLOPs that a device executes, with recomputation, as text, or "-"."""
    return short_amount(row.executed, "FLOPs") if isinstance(row.executed, int) else "-"


def _hardware_flops_source(row: Efficiency) -> str:
    """Return the sum behind the executed FLOPs as text: the work and each recomputation."""
    parts = [f"{short_amount(part.flops, 'FLOPs')} of {part.reason}" for part in row.repeats or ()]
    return f"for one {row.unit}: {' + '.join((short_amount(row.work, 'FLOPs'), *parts))}"


def _hfu_source(row: Efficiency) -> str:
    """Return the sum behind the HFU as text: the MFU and the share of each recomputation."""
    parts = [f"{percent_text(part.ratio)} for {part.reason}" for part in row.repeats or ()]
    return f"executed / peak: {' + '.join((percent_text(row.ratio), *parts))}"


def _hfu_cell(row: Efficiency) -> str:
    """Return the hardware FLOPs utilization (HFU) in percent, or "-"."""
    return percent_text(row.hfu) if isinstance(row.hfu, float) else "-"


def _attention_macs_cell(row: Efficiency) -> str:
    """Return the counted MACs of attention's score and value products as text, or "-"."""
    attention = row.attention
    if not isinstance(attention, Attention):
        return "-"
    counted = attention.full_macs if attention.counted == "full" else attention.half_macs
    return short_amount(counted, "MACs")


def _attention_note(row: Efficiency) -> str:
    """Return a note on whether attention is counted in full or causal, with both MACs."""
    attention = row.attention
    if not isinstance(attention, Attention):
        return ""
    sentence = "score and value products, "
    if not _has_causal_half(row):
        return sentence + "no causal mask"
    sentence += (
        "the full square" if attention.counted == "full" else "without what a causal mask hides"
    )
    return (
        f"{sentence}; full {short_amount(attention.full_macs)}, "
        f"causal {short_amount(attention.half_macs)}"
    )


def _attention_note_with_shares(row: Efficiency) -> str:
    """Return the note on attention, with the MFU if it is counted in full and if causal."""
    attention = row.attention
    if (
        not isinstance(attention, Attention)
        or attention.full_ratio is None
        or not _has_causal_half(row)
    ):
        return _attention_note(row)
    full, causal = _full_attention_mfu(row), _causal_attention_mfu(row)
    return f"{_attention_note(row)}; MFU full {full}, causal {causal}"


def _has_causal_half(row: Efficiency) -> bool:
    """Return whether full and causal attention have different MACs."""
    attention = row.attention
    return isinstance(attention, Attention) and attention.full_macs != attention.half_macs


def _full_attention_mfu(row: Efficiency) -> str:
    """Return the MFU with attention counted in full, in percent, or "-"."""
    return percent_text(row.attention.full_ratio) if isinstance(row.attention, Attention) else "-"


def _causal_attention_mfu(row: Efficiency) -> str:
    """Return the MFU with only causal attention counted, in percent, or "-"."""
    return percent_text(row.attention.half_ratio) if isinstance(row.attention, Attention) else "-"


def _other_peak_text(row: Efficiency) -> str:
    """Return the second peak (other device or precision) as text in FLOP/s, or "-"."""
    return "-" if not row.others else short_amount(row.others[0].peak, "FLOP/s")


def _other_peak_share_cell(row: Efficiency) -> str:
    """Return the utilization of the second peak in percent, or "-"."""
    return percent_text(row.others[0].ratio) if row.others else "-"


def _other_peak_source(row: Efficiency) -> str:
    """Return the name of the second peak, the percentage of it, and its source; or ""."""
    if not row.others:
        return ""
    peak = row.others[0]
    return f"{peak.name}: {percent_text(peak.ratio)} of it; {peak.source}"


def _device_count_cell(row: Efficiency) -> str:
    """Return the number of devices as text, or "-" if there is one."""
    return f"{exact_amount(row.world.devices)} devices" if isinstance(row.world, World) else "-"


def _parallel_layout_note(row: Efficiency) -> str:
    """Return the sizes of data, tensor and pipeline parallelism as text, with the idle share."""
    world = row.world
    if not isinstance(world, World):
        return ""
    sentence = (
        f"data {world.data_parallel} x tensor {world.tensor_parallel} x "
        f"pipeline {world.pipeline_parallel} parallel"
    )
    if isinstance(world.bubble, float):
        sentence += f"; the pipeline is idle for {percent_text(world.bubble)} of a step"
    return sentence


def _all_devices_rate_cell(row: Efficiency) -> str:
    """Return the rate that all devices together need, as text in FLOP/s, or "-"."""
    world = row.world
    if not isinstance(world, World) or world.rate is None:
        return "-"
    return short_amount(world.rate, "FLOP/s")


def _all_devices_speed_text(row: Efficiency) -> str:
    """Return the speed of all devices together as text, in examples or tokens per second."""
    world = row.world
    if not isinstance(world, World) or world.examples_per_second is None:
        return ""
    return f"at {number_text(world.examples_per_second)} {row.unit}s/s"


def _byte_traffic_or_none(row: Efficiency) -> MovedBytes | None:
    """Return the memory traffic of an efficiency result, or None if it has none."""
    return row.moved if isinstance(row.moved, MovedBytes) else None


def _byte_traffic_lines(alone: bool) -> list[Line]:
    """Return the lines on memory traffic: bytes, intensity, limit, and with `alone` the MBU."""
    lines = [
        Line(
            "bytes", _byte_traffic_cell, lambda row: f"a pass: {_require_byte_traffic(row).model}"
        ),
        Line("intensity", _intensity_cell, _intensity_limit_text),
    ]
    bound = Line("bound", _time_bound_cell, _time_bound_source)
    mbu = Line("MBU", _mbu_cell, lambda row: "bytes / (time x bandwidth)")
    return [*lines, bound, mbu] if alone else [*lines, bound]


def _require_byte_traffic(row: Efficiency) -> MovedBytes:
    """Return the memory traffic of an efficiency result that is known to have one."""
    assert isinstance(row.moved, MovedBytes)
    return row.moved


def _byte_traffic_cell(row: Efficiency) -> str:
    """Return the bytes that one pass moves, as text."""
    return short_amount(_require_byte_traffic(row).bytes, "B")


def _intensity_cell(row: Efficiency) -> str:
    """Return the arithmetic intensity in FLOP/byte as text, or "-"."""
    intensity = _require_byte_traffic(row).intensity
    return "-" if intensity is None else f"{intensity:.3g} FLOP/byte"


def _intensity_limit_text(row: Efficiency) -> str:
    """Return the FLOPs of a pass as text, with the intensity that no batch size reaches."""
    moved = _require_byte_traffic(row)
    sentence = f"{short_amount(moved.flops, 'FLOPs')} a pass"
    if moved.intensity_limit is not None:
        sentence += f"; below {short_amount(moved.intensity_limit)} for any batch"
    return sentence


def _time_bound_cell(row: Efficiency) -> str:
    """Return what limits a pass, compute or memory, and its shortest time, as text."""
    moved = _require_byte_traffic(row)
    return (
        "-"
        if moved.bound is None
        else f"{moved.bound}, {seconds_to_text(moved.bound_seconds or 0)}"
    )


def _time_bound_source(row: Efficiency) -> str:
    """Return the ridge and the bandwidth that the time limit is computed from, as text."""
    moved = _require_byte_traffic(row)
    if moved.ridge is None or moved.bandwidth is None:
        return "needs a peak and a bandwidth"
    return f"ridge {moved.ridge:.4g} FLOP/byte at {moved.bandwidth / 1e9:g} GB/s"


def _mbu_cell(row: Efficiency) -> str:
    """Return the memory bandwidth utilization (MBU) in percent, or "-"."""
    moved = _byte_traffic_or_none(row)
    return percent_text(moved.mbu) if moved else "-"


# Tables of an efficiency: the phases of a step, and the precisions of its work.


def efficiency_tables(rows: tuple[Efficiency, ...]) -> list[Block]:
    """Return the tables of all rows that have one: step phases, modules, precisions, run."""
    blocks: list[Block] = []
    for row in rows:
        name = f" on {row.device}" if len(rows) > 1 and row.device else ""
        if isinstance(row.step, TimedStep):
            blocks += [Heading(_device_step_summary(row.step) + name), _step_phase_table(row.step)]
        if row.modules:
            blocks += [Heading(f"Forward times of modules{name}"), _module_time_table(row.modules)]
        if row.precisions is not UNSET:
            blocks += [Heading(f"Work by precision{name}"), _precision_share_table(row)]
        if isinstance(row.run, RunCompute):
            blocks += [Heading(f"The whole run{name}"), _run_compute_table(row.run)]
    return blocks


def _run_compute_table(run: RunCompute) -> Table:
    """Return a table of a training run: length, FLOPs, device-hours, energy."""
    lengths = [(name, getattr(run, name)) for name in ("tokens", "examples", "steps")]
    rows = [
        Row.from_cells(name, number_text(value), "")
        for name, value in lengths
        if value is not None
    ]
    rows.append(
        Row.from_cells("FLOPs", f"{run.flops:.4g}", f"{exact_amount(run.flops)}, of the model")
    )
    if isinstance(run.executed_flops, int):
        rows.append(
            Row.from_cells("executed", f"{run.executed_flops:.4g}", "with recomputed work")
        )
    if isinstance(run.optimizer_flops, int):
        rows.append(Row.from_cells("optimizer", f"{run.optimizer_flops:.4g}", "apart"))
    at = "" if run.mfu is None or run.peak is None else f"at {percent_text(run.mfu)} of the peak"
    rows.append(Row.from_cells("device-hours", _number_or_dash(run.device_hours), at))
    if run.devices > 1:
        rows.append(
            Row.from_cells(
                "days", _number_or_dash(run.hours, 24), f"on {exact_amount(run.devices)} devices"
            )
        )
    watts = "" if run.tdp is None else f"at {run.tdp:g} W each"
    rows.append(Row.from_cells("energy, MWh", _number_or_dash(run.energy_kwh, 1000), watts))
    heads = (Column(head=""), Column(head="value", right=True), Column(head="from", flows=True))
    return Table(columns=heads, rows=tuple(rows), bare=True)


def _number_or_dash(value: float | None, unit: float = 1) -> str:
    """Return value / unit as text with four digits, or "-" for None."""
    return "-" if value is None else number_text(float(f"{value / unit:.4g}"))


def _device_step_summary(step: TimedStep) -> str:
    """Return a heading on the step of one device: batch, forward MACs, parameters."""
    params = "" if step.params is None else f", {short_amount(step.params)} parameters"
    return f"One device: batch {step.batch}, {short_amount(step.macs, 'MACs')} forward{params}"


def _step_phase_table(step: TimedStep) -> Table:
    """Return a table of a step's phases: time, FLOPs, FLOP/s and MFU."""
    rows = [
        Row.from_cells(
            phase.name,
            f"{1e3 * phase.seconds:.5g} ms",
            short_amount(phase.flops, "FLOPs"),
            short_amount(phase.rate, "FLOP/s"),
            percent_text(phase.ratio),
        )
        for phase in step.phases
    ]
    speed = f"{number_text(step.examples_per_second)} examples/s"
    total = ("whole step", f"{1e3 * step.seconds:.5g} ms", "", speed, "")
    right = [Column(head=head, right=True) for head in ("latency", "work", "rate", "MFU")]
    return Table(columns=(Column(head=""), *right), rows=(*rows, Row(total)))


def _module_time_table(modules: tuple[ModuleTime, ...]) -> Table:
    """Return a table of modules: forward time, FLOPs, FLOP/s and MFU."""
    right = [Column(head=head, right=True) for head in ("time", "work", "rate", "MFU")]
    return Table(
        columns=(Column(head="module", flows=True), *right),
        rows=tuple(
            Row.from_cells(
                module.path or "(the model)",
                seconds_to_text(module.seconds),
                short_amount(module.flops, "FLOPs"),
                short_amount(module.rate, "FLOP/s"),
                percent_text(module.ratio),
                tone="bad" if (module.ratio or 0) > 1 else "",
            )
            for module in modules
        ),
    )


def _precision_share_table(row: Efficiency) -> Table:
    """Return a table of precisions: FLOPs, their share, and the peak."""
    parts = row.precisions or ()
    total = sum(part.flops for part in parts)
    right = [Column(head=head, right=True) for head in ("work", "of it", "peak")]
    return Table(
        columns=(Column(head="precision"), *right),
        rows=tuple(
            Row.from_cells(
                part.precision,
                short_amount(part.flops, "FLOPs"),
                percent_text(part.flops / total if total else None),
                "-" if part.peak is None else short_amount(part.peak, "FLOP/s"),
            )
            for part in parts
        ),
    )


def efficiency_page(content: EfficiencyReport) -> Page:
    """Return the page of an efficiency report: rates, shares, assumptions, warnings.

    What all rows have in common stands above them, once.
    """
    rows = content.efficiency
    if content.phases:
        return Page(tuple(generation_blocks(content)))
    if not rows:
        named = "no model" if content.report is None else content.report.name
        return Page((Title((named, "no rate requested")),))
    blocks: list[Block] = [*_opening_blocks(content), _common_values_table(rows)]
    if len(rows) > 1 or rows[0].line is not UNSET:
        blocks.append(_varying_values_table(rows))
    blocks += efficiency_tables(rows)
    blocks += _convention_blocks(content)
    blocks += roofline_blocks(rooflines(content))
    blocks += [Text(text, " ! ", "warn") for text in _unique_texts(row.warnings for row in rows)]
    blocks.append(Heading("Assumed"))
    assumed = [row.assumptions for row in rows]
    assumed += [row.run.assumptions for row in rows if isinstance(row.run, RunCompute)]
    blocks += [Text(text, " - ") for text in _unique_texts(assumed)]
    if content.report is not None and not content.report.profiles:
        blocks += module_and_node_figures(content.report)
    return Page(tuple(blocks))


def _opening_blocks(content: EfficiencyReport) -> list[Block]:
    """Return the first blocks of an efficiency page: a title, or a comparison of tools."""
    first, report = content.efficiency[0], content.report
    kind = "inference" if first.multiplier == 1 else "training"
    run = [word for word in (kind, *_title_precision_and_speed(content.efficiency)) if word]
    if report is not None and report.profiles:
        return [*tool_comparison_page(report).blocks, Heading(f"Required rate: {', '.join(run)}")]
    named = "MACs as given" if first.unit == "example" else "by its sizes"
    return [Title((named if report is None else report.name, *run))]


def _convention_blocks(content: EfficiencyReport) -> list[Block]:
    """Return blocks that explain the MACs by a tool's convention; [] if none is used."""
    report = content.report
    if report is None or report.profiles or report.as_ is None:
        return []
    accounts = report.reconciliations or ()
    blocks = [
        block for account in accounts for block in _convention_account_blocks(content, account)
    ]
    if isinstance(report.llm, FormulaReport):
        blocks += formula_blocks(report.llm)
    return blocks


def _convention_account_blocks(content: EfficiencyReport, account: Reconciliation) -> list[Block]:
    """Return the blocks that explain how a tool's MACs differ from native, and its MFU."""
    first = content.efficiency[0]
    unit = "" if account.unit in (1, UNSET) else f", {account.unit} per MAC"
    sentence = f"native: {exact_amount(account.ours)} MACs a pass"
    alone = len(content.efficiency) == 1
    if alone and first.ratio is not None and first.rate is not None and account.theirs:
        times = account.ours * (account.unit or 1) / account.theirs
        mfu = percent_text(first.ratio * times)
        sentence += f", {short_amount(first.rate * times, 'FLOP/s')}, MFU {mfu}"
    return [
        Heading(f"{account.tool}@{account.edition} = native{term_with_sign(account.delta)}{unit}"),
        explanation_table(account),
        Text(sentence, " "),
    ]


def _title_precision_and_speed(rows: tuple[Efficiency, ...]) -> tuple[str, ...]:
    """Return words for a title: precision and speed, or the number of runs in a table."""
    if rows[0].line is not UNSET:
        runs = len({row.line for row in rows})
        return (f"{runs} {'run' if runs == 1 else 'runs'}",)
    return rows[0].precision, speed_text(rows[0]) if rows[0].rate is not None else ""


def _common_values_table(rows: tuple[Efficiency, ...]) -> Table:
    """Return a table of the values that all rows share, with their sources."""
    first = rows[0]
    lines: list[Line] = [
        Line("model", _efficiency_macs_cell, _numerator_source),
        Line("rule", _flops_rule_note, lambda row: ""),
        Line("work", _work_flops_cell, lambda row: f"for one {row.unit}"),
        *recompute_and_attention_lines(first, alone=len(rows) == 1),
    ]
    if first.rate is not None:
        lines.append(Line("required", _flops_rate_cell, _speed_note))
    if first.peak is not None:
        lines.append(Line("peak", _peak_flops_cell, _peak_source_note))
    if first.ratio is not None and len(rows) == 1:
        lines.append(Line("MFU", _mfu_cell, lambda row: "required / peak"))
    lines += hfu_and_byte_lines(first, alone=len(rows) == 1)
    return Table(
        columns=(Column(head=""), Column(head="value"), Column(head="from", flows=True)),
        rows=tuple(
            Row.from_cells(line.label, line.value(first), line.source(first))
            for line in lines
            if _has_one_value(rows, line.value) and _has_one_value(rows, line.source)
        ),
        bare=True,
    )


def _efficiency_batch_cell(row: Efficiency) -> str:
    """Return the batch size as text, or "-" if it is unknown."""
    return exact_amount(row.batch) if row.batch else "-"


def _varying_values_table(rows: tuple[Efficiency, ...]) -> Table:
    """Return a table of the values that differ between the rows, with the MFU of each."""
    table = rows[0].line is not UNSET  # whose columns are all shown
    columns: list[tuple[Column, Cell, bool]] = [
        (Column(head="line", right=True, spare=9), lambda row: str(row.line or ""), table),
        (Column(head="by"), lambda row: row.numerator, False),
        (Column(head="MACs", right=True), lambda row: exact_amount(row.macs), False),
        (Column(head="device"), lambda row: row.device or "-", table),
        (Column(head="precision"), lambda row: row.precision or "-", table),
        (Column(head="batch", right=True), _efficiency_batch_cell, table),
        (Column(head=f"{rows[0].unit}s/s", right=True), _speed_cell, table),
        (Column(head="required", right=True), _flops_rate_cell, table),
        (Column(head="peak", right=True), _peak_flops_cell, table),
    ]
    shown = [
        (column, cell)
        for column, cell, always in columns
        if always or not _has_one_value(rows, cell)
    ]
    if any(row.ratio is not None for row in rows):
        shown.append((Column(head="MFU", right=True), _mfu_cell))
    shown += [
        (Column(head=head, right=True), cell) for head, cell in columns_of_optional_values(rows)
    ]
    return Table(
        columns=tuple(column for column, _ in shown),
        rows=tuple(
            Row(tuple(cell(row) for _, cell in shown), "bad" if (row.ratio or 0) > 1 else "")
            for row in rows
        ),
    )


def _efficiency_macs_cell(row: Efficiency) -> str:
    """Return the exact number of MACs as text."""
    return f"{exact_amount(row.macs)} MACs"


def _numerator_source(row: Efficiency) -> str:
    """Return a text on who counted the MACs, and that they are of one example or token."""
    return f"{row.numerator}, for one {row.unit}"


def _flops_rule_note(row: Efficiency) -> str:
    """Return the factor from MACs to FLOPs as text: 2 x the passes of training."""
    return f"2 FLOPs per MAC x {row.multiplier:.4g}"


def _work_flops_cell(row: Efficiency) -> str:
    """Return the FLOPs of the work as text."""
    return short_amount(row.work, "FLOPs")


def _flops_rate_cell(row: Efficiency) -> str:
    """Return the rate that the speed requires, as text in FLOP/s, or "-"."""
    return "-" if row.rate is None else short_amount(row.rate, "FLOP/s")


def _speed_cell(row: Efficiency) -> str:
    """Return the number of examples or tokens per second as text, or "-"."""
    return "-" if row.examples_per_second is None else number_text(row.examples_per_second)


def _speed_note(row: Efficiency) -> str:
    """Return the speed behind the required rate as text, with "on each device" for several."""
    on_each = "" if row.world is UNSET else " on each device"
    return f"at {speed_text(row)}{on_each}"


def _peak_flops_cell(row: Efficiency) -> str:
    """Return the peak of the device in FLOP/s as text, or "-"."""
    return "-" if row.peak is None else short_amount(row.peak, "FLOP/s")


def _peak_source_note(row: Efficiency) -> str:
    """Return whose peak it is as text: device and precision, or "given"."""
    mean = "harmonic mean of " if row.precisions is not UNSET else ""
    return f"{row.device}, dense {mean}{row.precision}" if row.device else f"{mean}given"


def _mfu_cell(row: Efficiency) -> str:
    """Return the model FLOPs utilization (MFU) in percent, or "-"."""
    return percent_text(row.ratio)


def _has_one_value(rows: tuple[Efficiency, ...], cell: Cell) -> bool:
    """Return whether the function gives the same text for all rows."""
    return len({cell(row) for row in rows}) == 1


def _unique_texts(texts: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the texts of all groups in their order, without repetitions."""
    return list(dict.fromkeys(text for group in texts for text in group))
