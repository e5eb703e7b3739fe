"""Bars from zero: what tools print beside the native count, and the parts of a training step."""

from collections.abc import Sequence
from fractions import Fraction
from math import isfinite
from typing import NamedTuple

from crossflops.ir.profile import Profile
from crossflops.ir.training import Training
from crossflops.render.figures.canvas import Box, Canvas, DrawnLine, Ink, Shape, Words, fitted
from crossflops.render.quantity import change, short
from crossflops.report.report import Report

_WIDTH, _LEFT, _RIGHT = 760.0, 150.0, 190.0  # px
_ROW, _TOP, _BAR = 24.0, 24.0, 14.0


class Bar(NamedTuple):
    """A name, a value, and what stands behind its bar."""

    name: str
    value: Fraction
    note: str
    ink: Ink = "c0"


def tools(report: Report) -> Canvas | None:
    """The total of every tool as MACs, and a line at the native count; None without tools."""
    units = {
        account.tool: account.unit
        for account in report.reconciliations or ()
        if isinstance(account.unit, int) and account.unit
    }
    native = report.scope.macs
    rows = []
    for answer in report.profiles or ():
        if isinstance(answer, Profile) and answer.tool in units and isfinite(answer.total):
            macs = Fraction(answer.total) / units[answer.tool]
            note = f"{short(macs)}   {change(macs, native)}"
            rows.append(Bar(answer.tool, macs, note, "c0" if macs == native else "c4"))
    if not rows:
        return None
    label = f"Totals of {len(rows)} tools as MACs, beside {short(native, 'MACs')} (native)"
    return bars(rows, label, native)


def step(training: Training) -> Canvas | None:
    """The MACs of the parts of a training step; None where it has none."""
    parts = (
        ("forward", training.forward_macs),
        ("gradients, inputs", training.backward_input_macs),
        ("gradients, weights", training.backward_weight_macs),
        ("computed again", training.recomputed_macs),
    )
    whole = sum(macs for _, macs in parts)
    if not whole:
        return None
    inks: tuple[Ink, ...] = ("c0", "c2", "c3", "c5")
    rows = [
        Bar(name, Fraction(macs), short(macs, "MACs"), ink)
        for (name, macs), ink in zip(parts, inks, strict=True)
    ]
    return bars(rows, f"A training step of {short(whole, 'MACs')}, in its parts")


def bars(rows: Sequence[Bar], label: str, mark: int | None = None) -> Canvas:
    """A bar for each row, from zero, and a line at `mark`."""
    most = max([*(row.value for row in rows), Fraction(mark or 0)]) or Fraction(1)
    room = _WIDTH - _LEFT - _RIGHT
    height = _TOP + _ROW * len(rows) + 6
    shapes: list[Shape] = []
    for number, row in enumerate(rows):
        y = _TOP + _ROW * number
        width = float(row.value / most) * room
        shapes += [
            Words(x=0, y=y + 16, text=fitted(row.name, _LEFT - 10)),
            Box(x=_LEFT, y=y + (_ROW - _BAR) / 2, width=max(width, 1), height=_BAR, ink=row.ink,
                tip=f"{row.name}: {row.note}"),
            Words(x=_LEFT + room + 16, y=y + 16, text=row.note, ink="soft", size=11),
        ]  # fmt: skip
    if mark is not None:
        x = _LEFT + float(Fraction(mark) / most) * room
        shapes += [
            DrawnLine(x1=x, y1=_TOP - 4, x2=x, y2=height - 4, ink="ink", width=1.5, dashed=True),
            Words(x=x, y=_TOP - 9, text="native", anchor="middle", size=11),
        ]
    return Canvas(width=_WIDTH, height=height, label=label, shapes=tuple(shapes))
