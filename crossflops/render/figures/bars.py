"""Draw bar charts: the totals of tools next to the native count, the parts of a training step.

Tools often differ by a hundredth of the total, which bars from zero would hide: where all are
close, the bars are broken, and begin at an amount that is told.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import isfinite
from typing import NamedTuple

from crossflops.ir.profile import Profile
from crossflops.ir.training import Training
from crossflops.render.figures.canvas import (
    Box,
    Canvas,
    DrawnLine,
    Ink,
    Shape,
    Words,
    bar_break_lines,
    fit_text_to_width,
)
from crossflops.report.quantity import percent_change, short_amount
from crossflops.report.report import Report

_WIDTH, _LEFT, _RIGHT = 760.0, 150.0, 190.0  # px
_ROW, _TOP, _BAR = 24.0, 24.0, 14.0
_BREAK = 14.0  # px from where a broken bar begins to its break
_CLOSE = 2  # times the least, that the most is below where bars are broken


class Bar(NamedTuple):
    """A bar: its name, its value, and the text after it."""

    name: str
    value: Fraction
    note: str
    ink: Ink = "c0"


def tool_bars(report: Report) -> Canvas | None:
    """Return a bar chart of tools' totals in MACs next to native; None if no tool fits."""
    units = {
        account.tool: account.unit
        for account in report.reconciliations or ()
        if isinstance(account.unit, int) and account.unit
    }
    native = report.compared
    rows = []
    for answer in report.profiles or ():
        if isinstance(answer, Profile) and answer.tool in units and isfinite(answer.total):
            macs = Fraction(answer.total) / units[answer.tool]
            note = f"{short_amount(macs)}   {percent_change(macs, native)}"
            rows.append(Bar(answer.tool, macs, note, "c0" if macs == native else "c4"))
    if not rows:
        return None
    label = f"Totals of {len(rows)} tools as MACs, beside {short_amount(native, 'MACs')} (native)"
    return bar_chart(rows, label, native)


def training_step_bars(training: Training) -> Canvas | None:
    """Return a bar chart of the MACs of a training step's parts; None if all are 0."""
    parts = (
        ("forward", training.forward_macs),
        ("gradients, inputs", training.backward_input_macs),
        ("gradients, weights", training.backward_weight_macs),
        ("recomputed", training.recomputed_macs),
    )
    total = sum(macs for _, macs in parts)
    if not total:
        return None
    inks: tuple[Ink, ...] = ("c0", "c2", "c3", "c5")
    rows = [
        Bar(name, Fraction(macs), short_amount(macs, "MACs"), ink)
        for (name, macs), ink in zip(parts, inks, strict=True)
    ]
    return bar_chart(rows, f"A training step of {short_amount(total, 'MACs')}, in its parts")


def bar_chart(rows: Sequence[Bar], label: str, mark: int | None = None) -> Canvas:
    """Return a bar chart of the rows, with a line at the value `mark` (native) if it is given."""
    most = max([*(row.value for row in rows), Fraction(mark or 0)]) or Fraction(1)
    start = (
        Fraction(0)
        if mark is None
        else _axis_start_value([Fraction(mark), *(r.value for r in rows)])
    )
    room = _WIDTH - _LEFT - _RIGHT
    height = _TOP + _ROW * len(rows) + 6
    shapes: list[Shape] = []
    for number, row in enumerate(rows):
        y = _TOP + _ROW * number
        width = float((row.value - start) / (most - start)) * room
        box = Box(x=_LEFT, y=y + (_ROW - _BAR) / 2, width=max(width, 1), height=_BAR, ink=row.ink,
                  tip=f"{row.name}: {row.note}")  # fmt: skip
        shapes += [
            Words(x=0, y=y + 16, text=fit_text_to_width(row.name, _LEFT - 10)),
            box,
            *(bar_break_lines(box, _LEFT + _BREAK) if start else ()),
            Words(x=_LEFT + room + 16, y=y + 16, text=row.note, ink="soft", size=11),
        ]
    if start:
        words = f"bars begin at {short_amount(start)}"
        shapes.append(Words(x=0, y=_TOP - 9, text=words, ink="soft", size=11))
    if mark is not None:
        x = _LEFT + float((mark - start) / (most - start)) * room
        shapes += [
            DrawnLine(x1=x, y1=_TOP - 4, x2=x, y2=height - 4, ink="ink", width=1.5, dashed=True),
            Words(x=x, y=_TOP - 9, text="native", anchor="middle", size=11),
        ]
    return Canvas(width=_WIDTH, height=height, label=label, shapes=tuple(shapes))


def _axis_start_value(values: Sequence[Fraction]) -> Fraction:
    """Return the value at the left end of the bars: 0, or more if all values are close together.

    >>> _axis_start_value([Fraction(100), Fraction(104)])
    Fraction(98, 1)
    >>> _axis_start_value([Fraction(1), Fraction(2)])
    Fraction(0, 1)
    """
    least, most = min(values), max(values)
    if least == most or least <= 0 or most >= _CLOSE * least:
        return Fraction(0)
    return max(least - (most - least) / 2, Fraction(0))
