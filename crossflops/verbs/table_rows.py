"""Count one model for a row of the verb `table`, in this process or another one."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from crossflops.errors import InputError
from crossflops.report.papers import PaperRow
from crossflops.report.report import Report
from crossflops.targets.request import Request
from crossflops.verbs import count


class CountedRow(NamedTuple):
    """A row, the editions of the conventions in it, and the versions of its makers."""

    row: PaperRow
    editions: dict[str, str]
    made_with: dict[str, str]


def count_row(name: str, request: Request, tools: Sequence[str]) -> CountedRow:
    """Return the row of a model with its counts and its totals by tool; a tool that cannot count
    it gets a note.
    """
    notes: dict[str, str] = {}
    try:
        report = _count_with_tools(request, tools)
    except InputError:
        report = _count_with_tools(request, ())
    for tool in tools:
        if not any(fold.tool == tool.partition("@")[0] for fold in report.folds):
            notes |= _tool_refusal(request, tool)
    totals = report.totals
    row = PaperRow(
        target=name,
        params=report.params,
        macs=report.macs,
        flops=report.flops,
        memory_traffic=totals.bytes_read + totals.bytes_written,
        by_tool={**{fold.tool: fold.total for fold in report.folds}, **dict.fromkeys(notes)},
        inputs=report.request.inputs if report.request else (),
        uncounted=len(report.uncounted),
        notes=tuple(notes.values()),
    )
    editions = {fold.tool: fold.edition for fold in report.folds}
    return CountedRow(row, editions, dict(report.made_with or {}))


def _count_with_tools(request: Request, tools: Sequence[str]) -> Report:
    """Return the report of a model, with the totals by the conventions of these tools."""
    return count.count_target(msgspec.structs.replace(request, as_=tuple(tools)))


def _tool_refusal(request: Request, tool: str) -> dict[str, str]:
    """Return {tool: message} with the reason why a tool's convention cannot count the model, {} if
    it can.
    """
    try:
        _count_with_tools(request, (tool,))
    except InputError as error:
        return {tool.partition("@")[0]: error.message}
    return {}
