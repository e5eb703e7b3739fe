"""The page of generated text: a table for each device, with a column for each phase."""

from collections.abc import Callable, Sequence

from crossflops.render.page import (
    Block,
    Column,
    Heading,
    Row,
    Table,
    Text,
    Title,
    number_columns,
)
from crossflops.render.pages.workload import image_tokens_text
from crossflops.report.efficiency import EfficiencyReport, PhaseEfficiency
from crossflops.report.quantity import (
    count_with_noun,
    exact_amount,
    percent_text,
    seconds_to_text,
    short_amount,
)

_UNKNOWN = "-"
# Names of phases of a model with a draft model, as in the page of its workload.
_WITH_DRAFT = {
    "decode": "rounds", "draft-prefill": "draft prefill", "draft-decode": "draft rounds",
}  # fmt: skip


def generation_blocks(content: EfficiencyReport) -> list[Block]:
    """Return the blocks of a report with phases: tables, warnings, assumptions."""
    phases = content.phases or ()
    blocks: list[Block] = [_generation_title(content)]
    for device in dict.fromkeys(row.device for row in phases):
        rows = [row for row in phases if row.device == device]
        blocks += [Heading(_device_heading(rows[0])), _phase_table(rows)]
    warnings = dict.fromkeys(text for row in phases for text in row.warnings)
    blocks += [Text(text, " ! ", "warn") for text in warnings]
    assumed = dict.fromkeys(text for row in phases for text in row.assumptions)
    return [*blocks, Heading("Assumed"), *(Text(text, " - ") for text in assumed)]


def _generation_title(content: EfficiencyReport) -> Title:
    """Return the title: the model, its requests, and the formats."""
    report, first = content.report, (content.phases or ())[0]
    parts = ["generated text" if report is None else report.name]
    if report is not None and report.workload:
        workload = report.workload
        parts.append(
            f"{count_with_noun(workload.batch, 'request')} of "
            f"{count_with_noun(workload.prompt, 'prompt token')}{image_tokens_text(workload)} and "
            f"{count_with_noun(workload.generate, 'new token')}"
        )
        if workload.speculation is not None:
            parts.append(f"draft {workload.speculation.target}")
    parts.append(f"{first.precision or 'as stored'}, cache {first.cache_dtype}")
    return Title(tuple(parts))


def _device_heading(first: PhaseEfficiency) -> str:
    """Return the heading of a device: its name, its peak, bandwidth and ridge."""
    whose = first.device or "A device"
    if first.devices > 1:
        whose = f"One of {first.devices} devices" + (f", {first.device}" if first.device else "")
    facts = []
    if first.peak is not None:
        facts.append(f"peak {short_amount(first.peak, 'FLOP/s')}")
    if first.bandwidth is not None:
        facts.append(f"bandwidth {short_amount(first.bandwidth, 'B/s')}")
    if first.ridge is not None:
        facts.append(f"ridge {first.ridge:.4g} FLOP/byte")
    return f"{whose}: {', '.join(facts)}" if facts else whose


def _phase_table(rows: Sequence[PhaseEfficiency]) -> Table:
    """Return the table of a device: lines of work, of the bound, and of what was measured."""
    lines = [
        _phase_line("tokens", rows, lambda row: exact_amount(row.tokens)),
        _phase_line("passes", rows, lambda row: exact_amount(row.passes)),
        _phase_line("FLOPs", rows, lambda row: short_amount(row.device_flops)),
        _phase_line("weights, bytes", rows, lambda row: short_amount(row.device_weight_bytes)),
        _phase_line("cache read, bytes", rows, lambda row: short_amount(row.device_cache_read)),
        _phase_line(
            "cache written, bytes", rows, lambda row: short_amount(row.device_cache_written)
        ),
    ]
    if rows[0].byte_model == "unfused":
        lines.append(
            _phase_line(
                "other bytes of operators",
                rows,
                lambda row: short_amount(row.device_activation_bytes),
            )
        )
    lines += [
        _phase_line("bytes to move", rows, lambda row: short_amount(row.device_bytes)),
        _phase_line("FLOPs per byte", rows, lambda row: _number_cell(row.intensity)),
    ]
    if rows[0].bound is not None:
        lines += [
            _phase_line("bound", rows, lambda row: row.bound or _UNKNOWN),
            _phase_line("least time", rows, lambda row: _time_cell(row.bound_seconds)),
            _phase_line(
                "tokens/s at the bound",
                rows,
                lambda row: _number_cell(row.bound_tokens_per_second),
            ),
        ]
    if any(row.seconds is not None for row in rows):
        lines += [
            _phase_line(
                "measured tokens/s", rows, lambda row: _number_cell(row.tokens_per_second)
            ),
            _phase_line("measured time", rows, lambda row: _time_cell(row.seconds)),
            _phase_line("required FLOP/s", rows, lambda row: _rate_cell(row.rate)),
            _phase_line("required bytes/s", rows, lambda row: _rate_cell(row.byte_rate)),
            _phase_line("MFU", rows, lambda row: percent_text(row.mfu)),
            _phase_line("MBU", rows, lambda row: percent_text(row.mbu)),
        ]
    has_draft = any(row.phase.startswith("draft") for row in rows)
    names = [_WITH_DRAFT.get(row.phase, row.phase) if has_draft else row.phase for row in rows]
    return Table(columns=(Column(head=""), *number_columns(*names)), rows=tuple(lines), stub=1)


def _phase_line(
    name: str, rows: Sequence[PhaseEfficiency], cell: Callable[[PhaseEfficiency], str]
) -> Row:
    """Return a line of the table: a name, and a cell for each phase."""
    return Row.from_cells(name, *map(cell, rows))


def _number_cell(value: float | None) -> str:
    """Return a number as text in four digits, or "-" if it is unknown."""
    return _UNKNOWN if value is None else f"{value:.4g}" if value < 1e4 else short_amount(value)


def _time_cell(value: float | None) -> str:
    """Return a time in seconds as text with its unit, or "-" if it is unknown."""
    return _UNKNOWN if value is None else seconds_to_text(value)


def _rate_cell(value: float | None) -> str:
    """Return a rate as text in four digits with a prefix, or "-" if it is unknown."""
    return _UNKNOWN if value is None else short_amount(value)
