"""CSV: one table, with the raw integers, as RFC 4180 has it but for the line ends of Unix."""

import csv as writer
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Any

import msgspec

from crossflops.errors import UnknownNameError
from crossflops.ir.device import Derivation, DeviceList, DeviceSheet
from crossflops.ir.measurement import Measurement
from crossflops.ir.profile import Failure, Profile
from crossflops.render.layout import Noun
from crossflops.render.pages.against import COLUMNS, layer_lines
from crossflops.render.pages.bench import Benched
from crossflops.render.pages.inventory import ToolList
from crossflops.render.pages.places import Compared
from crossflops.render.pages.summary import Unit
from crossflops.render.pages.view import Viewed
from crossflops.report.bench import Bench
from crossflops.report.comparison import Against
from crossflops.report.efficiency import EfficiencyReport, rooflines
from crossflops.report.report import Report
from crossflops.report.view import view as table_of

_COMPARISON = (
    "tool", "version", "printed_as", "total", "native_macs", "delta", "residual", "failure",
)  # fmt: skip


def csv(noun: Noun, unit: Unit = "macs") -> str:
    """The table of a view; of a report its operators, of a comparison its tools, of two models
    their layers.

    With a convention that looks at calls, a report gives its modules.

    There is no line for the whole model: whoever reads it adds up. Raises UnknownNameError for a
    noun that is no one table.
    """
    match noun:
        case Viewed(view=view):
            return _written(view.columns, view.rows)
        case Compared(report=report):
            return csv(report, unit)
        case Report(against=Against(alignment=aligned)):
            return _written(COLUMNS, layer_lines(aligned))
        case Report(profiles=tuple(profiles)):
            return _written(_COMPARISON, (_tool(noun, answer) for answer in profiles))
        case Report():
            nodes = all(fold.sees == "node" for fold in noun.folds)
            table = table_of(noun, "op" if nodes else "module", unit=unit)
            return _written(table.columns, table.rows)
        case Benched(bench=bench) | (Bench() as bench):
            return _structs(bench.profile.kernels if bench.profile else _measured(bench))
        case EfficiencyReport():
            bounds = [node for roof in rooflines(noun) for node in roof.nodes]
            return _structs(bounds) if bounds else _structs(noun.efficiency)
        case DeviceSheet():
            return _structs(noun.peaks)
        case DeviceList():
            return _structs([row.device for row in noun.devices])
        case Derivation():
            return _structs(noun.factors)
        case ToolList():
            return _structs(noun.tools)
    raise UnknownNameError(
        f"a {type(noun).__name__.lower()} is not one table, as CSV has it",
        "give a file that ends in .md, .txt or .json",
    )


def _tool(report: Report, answer: Profile | Failure) -> tuple[Any, ...]:
    if isinstance(answer, Failure):
        return (answer.tool, "", "", "", report.macs, "", "", f"{answer.stage}: {answer.message}")
    account = report.reconciliation(answer.tool)
    figures = (answer.total, account.ours, account.delta, account.residual)
    return (answer.tool, answer.version, answer.printed_as, *figures, "")


def _measured(bench: Bench) -> tuple[Measurement, ...]:
    return tuple(timing for timing in bench.curve if isinstance(timing, Measurement))


def _structs(rows: Sequence[msgspec.Struct]) -> str:
    """Values of one class, a column for each field that some row has.

    What is a list stands in one cell, what has parts as JSON.
    """
    plain = [msgspec.to_builtins(row) for row in rows]
    heads = list(dict.fromkeys(head for row in plain for head in row))
    return _written(heads, ([_joined(row.get(head)) for head in heads] for row in plain))


def _joined(value: Any) -> Any:
    if isinstance(value, dict) or (isinstance(value, list) and any(map(_parted, value))):
        return msgspec.json.encode(value).decode()
    return "; ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _parted(value: Any) -> bool:
    return isinstance(value, dict)


def _written(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    out = StringIO()
    table = writer.writer(out, lineterminator="\n")
    table.writerow(heads)
    table.writerows(rows)
    return out.getvalue()
