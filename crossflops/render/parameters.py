"""The tools' numbers of parameters beside ours, and why they differ."""

from crossflops.core.profile import Profile
from crossflops.core.reconciliation import ParamsReconciliation
from crossflops.core.report import Report
from crossflops.render.page import Block, Column, Heading, Row, Table, Text
from crossflops.render.quantity import change, exact, signed
from crossflops.render.reasons import named, title

NOTE = "the same as the native count"


def parameters(report: Report) -> list[Block]:
    """A row for each cause of each tool that counts other parameters; nothing if none does."""
    told = [
        one for one in report.profiles or () if isinstance(one, Profile) and one.params is not None
    ]
    others = [one for one in told if one.params != report.params]
    if not others:
        return []
    rows = [row for one in others for row in _rows(report, one)]
    agree = [one.tool for one in told if one.params == report.params]
    columns = (
        Column(head="tool"),
        Column(head="parameters", right=True),
        Column(head="vs native", right=True, spare=2),
        Column(head="cause"),
        Column(head="amount", right=True),
        Column(head="what", flows=True, spare=1),
        Column(head="which", flows=True, detail=True),
    )
    blocks: list[Block] = [
        Heading(f"Parameters: native {exact(report.params)}"),
        Table(columns=columns, rows=tuple(rows)),
    ]
    if agree:
        blocks.append(Text(f"{NOTE}: {', '.join(agree)}", "   ", "dim"))
    return blocks


def _rows(report: Report, profile: Profile) -> list[Row]:
    theirs = profile.params or 0
    head = (profile.tool, exact(theirs), change(theirs, report.params))
    try:
        found = report.reconciliation(profile.tool).params
    except KeyError:
        found = None
    if not isinstance(found, ParamsReconciliation):
        what = "not explained here"
        return [Row((*head, "-", signed(theirs - report.params), what, ""))]
    tails = [
        (one.cause, signed(one.amount), title(one.cause), named(one.parameters))
        for one in sorted(found.explanations, key=lambda one: -abs(one.amount))
    ]
    if found.residual:
        tails.append(("residual", signed(found.residual), "", ""))
    heads = [head, *([("", "", "")] * (len(tails) - 1))]
    return [
        Row((*first, *rest), "bad" if rest[0] == "residual" else "")
        for first, rest in zip(heads, tails, strict=True)
    ]
