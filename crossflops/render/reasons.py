"""Causes and calls in few words."""

from crossflops.causes import cause
from crossflops.core.reconciliation import Explanation, Reconciliation
from crossflops.errors import UnknownNameError
from crossflops.render.page import Column, Row, Table, Tone
from crossflops.render.quantity import number, signed

NAMED = 1  # calls that are named before the rest is only numbered


def title(id: str) -> str:
    """What a cause is; nothing for one that another release knew."""
    try:
        return cause(id).title
    except UnknownNameError:
        return ""


def named(calls: tuple[str, ...]) -> str:
    """The first call, and how many more there are."""
    rest = len(calls) - NAMED
    return ", ".join([*calls[:NAMED], *([f"and {rest} more"] if rest > 0 else [])])


def explanations(found: Reconciliation) -> Table:
    """Every step from the native count, and what is left."""
    tone: Tone = "bad" if found.residual else "good"
    rows = [_explanation(one) for one in found.explanations]
    rows.append(Row(("residual", signed(found.residual), "", "", "", ""), tone))
    return Table(
        columns=(
            Column(head="cause"),
            Column(head="amount", right=True),
            Column(head="from"),
            Column(head="what", flows=True),
            Column(head="where", flows=True, detail=True),
            Column(head="source", flows=True, detail=True),
        ),
        rows=tuple(rows),
        bare=True,
    )


def _explanation(one: Explanation) -> Row:
    calls = number(len(one.calls), "call") if one.calls else ""
    return Row(
        (one.cause, signed(one.amount), calls, title(one.cause), named(one.calls), one.reference)
    )
