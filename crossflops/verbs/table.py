"""The verb `table`: several models counted one after the other, a row each, for a paper."""

from collections.abc import Callable, Sequence

import msgspec

from crossflops.errors import InputError
from crossflops.ir.measurement import Unfit
from crossflops.report.papers import PaperRow, PaperTable
from crossflops.report.quantity import number
from crossflops.report.report import Report
from crossflops.targets.request import Request
from crossflops.targets.target import imports_restored
from crossflops.verbs import count


@imports_restored()
def table(
    requests: Sequence[tuple[str, Request]],
    tools: Sequence[str],
    digits: int,
    tell: Callable[[str], None],
    latency: bool = False,
) -> PaperTable:
    """Every model under the name that stands before its request.

    Each is also counted by the conventions of `tools`; one that cannot count a model leaves its
    cell empty, and the row says why. With `latency` each is run in onnxruntime, when all are
    counted; so is one that does not run. Raises what counting raises, and MissingExtraError
    without onnxruntime.
    """
    rows: list[PaperRow] = []
    editions: dict[str, str] = {}
    made_with: dict[str, str] = {}
    for name, request in requests:
        tell(f"counting {name}")
        row, report = _row(name, request, tools)
        rows.append(row)
        editions |= {fold.tool: fold.edition for fold in report.folds}
        made_with |= report.made_with or {}
    where = ""
    if latency:
        rows, where = _timed(rows, [request for _, request in requests], tell)
    named = tuple(dict.fromkeys(tool for row in rows for tool in row.by_tool))
    return PaperTable(
        rows=tuple(rows), tools=named, editions=editions, digits=digits, latency=where,
        made_with=made_with,
    )  # fmt: skip


def _timed(
    rows: Sequence[PaperRow], requests: Sequence[Request], tell: Callable[[str], None]
) -> tuple[list[PaperRow], str]:
    """The rows with the median time of a run, and where and how they ran."""
    from crossflops.verbs.bench import Conditions, cpus, once

    timed: list[PaperRow] = []
    where: list[str] = []
    for row, request in zip(rows, requests, strict=True):
        tell(f"running {row.target}")
        ran = once(msgspec.structs.replace(request, observe=True), Conditions())
        if isinstance(ran, Unfit):
            note = f"did not run ({ran.stage}): {ran.message}"
            timed.append(msgspec.structs.replace(row, notes=(*row.notes, note)))
            continue
        assert ran.measurement is not None
        timed.append(msgspec.structs.replace(row, latency_seconds=ran.measurement.p50))
        where.append(f"{ran.runtime} on {ran.device}, {number(cpus(), 'thread')}")
        if not ran.measurement.settled:
            note = "its latency had not settled when it was timed"
            timed[-1] = msgspec.structs.replace(timed[-1], notes=(*row.notes, note))
    places = ", ".join(dict.fromkeys(where)) or "no model ran"
    return timed, f"median of the runs after a warm-up, in {places}"


def _row(name: str, request: Request, tools: Sequence[str]) -> tuple[PaperRow, Report]:
    notes: dict[str, str] = {}
    try:
        report = _counted(request, tools)
    except InputError:
        report = _counted(request, ())
    for tool in tools:
        if not any(fold.tool == tool.partition("@")[0] for fold in report.folds):
            notes |= _refusal(request, tool)
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
    return row, report


def _counted(request: Request, tools: Sequence[str]) -> Report:
    return count.native_count(msgspec.structs.replace(request, as_=tuple(tools)))[0]


def _refusal(request: Request, tool: str) -> dict[str, str]:
    """Return by the tool's name why its convention cannot count the model."""
    try:
        _counted(request, (tool,))
    except InputError as error:
        return {tool.partition("@")[0]: error.message}
    return {}
