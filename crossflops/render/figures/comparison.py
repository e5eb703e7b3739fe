"""Draw a comparison: from one number to another, cause by cause, on an axis of differences.

Causes are often a thousandth of the total, so the axis begins at the number that the walk starts
from: its zero is "nothing differs". A cause that dwarfs all others is drawn broken, and says so.
A file by itself has the waterfalls beneath each other, or the bars of all tools.
"""

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from crossflops.errors import InputError
from crossflops.ir.profile import Amount
from crossflops.ir.reconciliation import Alignment, Reconciliation
from crossflops.render.figures.bars import tool_bars
from crossflops.render.figures.canvas import (
    Box,
    Canvas,
    DrawnLine,
    Ink,
    Shape,
    TitledCanvas,
    Words,
    bar_break_lines,
    fit_text_to_width,
    round_axis_ticks,
    stack_canvases,
)
from crossflops.report.comparison import Against, Contrast
from crossflops.report.quantity import amount_with_sign, short_amount, term_with_sign
from crossflops.report.report import Report

_WIDTH, _LEFT, _RIGHT = 760.0, 190.0, 170.0  # px: the whole, the causes, the amounts
_ROW, _TOP, _FOOT = 26.0, 30.0, 30.0
_BAR = 14.0
_DWARFS = 20  # times as large as all others together, of which there are several
_BROKEN = 0.6  # of the others together, that the bar is long then


class Step(NamedTuple):
    """A cause and its amount."""

    name: str
    amount: Amount


class WaterfallSteps(NamedTuple):
    """The way from one number to another: `first`, the steps that add up, and `last`."""

    first: str
    last: str
    steps: tuple[Step, ...]
    residual: Amount


def waterfall_steps(content: Reconciliation | Contrast | Alignment) -> WaterfallSteps:
    """Return the steps of a waterfall: the causes that lead from one total to another."""
    match content:
        case Reconciliation():
            steps = tuple(Step(row.cause, row.amount) for row in content.explanations)
            return WaterfallSteps("native MACs", content.tool, steps, content.residual)
        case Contrast():
            steps = tuple(Step(row.cause, row.amount) for row in content.differences)
            model = (
                (Step("(other model)", content.model),) if isinstance(content.model, int) else ()
            )
            return WaterfallSteps(
                content.first, content.second, (*model, *steps), content.residual
            )
        case Alignment():
            steps = tuple(Step(row.cause, row.macs) for row in content.causes)
            return WaterfallSteps("first model", "second model", steps, content.residual.macs)


def waterfall_chart(content: Reconciliation | Contrast | Alignment) -> Canvas | None:
    """Return a waterfall picture of a difference; None if there is nothing finite to draw."""
    path = waterfall_steps(content)
    steps = [step for step in path.steps if step.amount]
    if path.residual:
        steps.append(Step("residual", path.residual))
    if not steps or not all(isfinite(step.amount) for step in steps):
        return None
    lengths = _bar_lengths([step.amount for step in steps])
    broken = [length != float(step.amount) for length, step in zip(lengths, steps, strict=True)]
    indices = [0.0]
    for length in lengths:
        indices.append(indices[-1] + length)
    height = _TOP + _ROW * (len(steps) + 1) + (0 if any(broken) else _FOOT)
    scale = _Scale(min(indices), max(indices))
    shapes = [
        *_waterfall_grid(scale, height, any(broken)),
        *_waterfall_rows(steps, indices, broken, scale, path),
    ]
    total = sum(step.amount for step in steps)
    label = f"From {path.first} to {path.last}: {amount_with_sign(total)} in {len(steps)} steps"
    return Canvas(width=_WIDTH, height=height, label=label, shapes=tuple(shapes))


class _Scale(NamedTuple):
    """The position of an amount between the columns of causes and of amounts."""

    low: float
    high: float

    def x_position(self, value: float) -> float:
        """Return the x coordinate of an amount on the axis of a waterfall, in pixels."""
        room = _WIDTH - _LEFT - _RIGHT
        return _LEFT + room * (value - self.low) / ((self.high - self.low) or 1)


def _bar_lengths(amounts: Sequence[Amount]) -> list[float]:
    """Return the length of each bar: its amount, but a single much larger bar is shortened.

    >>> _bar_lengths([5, -3]), _bar_lengths([10_000, 5, -5])
    ([5.0, -3.0], [6.0, 5.0, -5.0])
    """
    largest = max(range(len(amounts)), key=lambda location: abs(amounts[location]))
    others = sum(abs(amount) for location, amount in enumerate(amounts) if location != largest)
    lengths = [float(amount) for amount in amounts]
    if len(amounts) > 2 and abs(amounts[largest]) > _DWARFS * others:
        lengths[largest] = others * _BROKEN * (1 if amounts[largest] > 0 else -1)
    return lengths


def _waterfall_grid(scale: _Scale, height: float, broken: bool) -> list[Shape]:
    """Return the zero line of a waterfall, and its axis unless a bar is shortened (`broken`)."""
    foot = height - (0 if broken else _FOOT)
    zero = scale.x_position(0)
    shapes: list[Shape] = []
    for tick in [] if broken else round_axis_ticks(scale.low, scale.high, 1):
        x = scale.x_position(tick)
        text = f"{'+' if tick > 0 else ''}{short_amount(round(tick))}"
        shapes += [
            DrawnLine(x1=x, y1=_TOP, x2=x, y2=foot),
            Words(x=x, y=foot + 16, text=text, ink="soft", anchor="middle", size=11),
        ]
    return [*shapes, DrawnLine(x1=zero, y1=_TOP - 6, x2=zero, y2=foot, ink="ink", width=1.5)]


def _waterfall_rows(
    steps: Sequence[Step],
    indices: list[float],
    broken: list[bool],
    scale: _Scale,
    path: WaterfallSteps,
) -> list[Shape]:
    """Return the shapes of a waterfall: a bar, a name and an amount for each step."""
    shapes: list[Shape] = [
        Words(x=0, y=_TOP - 10, text=fit_text_to_width(path.first, _LEFT), ink="soft"),
        Words(x=_WIDTH, y=_TOP - 10, text="difference", ink="soft", anchor="end"),
    ]
    for number, step in enumerate(steps):
        y = _TOP + _ROW * number
        ends = sorted((scale.x_position(indices[number]), scale.x_position(indices[number + 1])))
        ink: Ink = "bad" if step.name == "residual" else "more" if step.amount > 0 else "less"
        box = Box(
            x=ends[0], y=y + (_ROW - _BAR) / 2, width=max(ends[1] - ends[0], 1.5), height=_BAR,
            ink=ink, tip=f"{step.name}: {amount_with_sign(step.amount)}",
        )  # fmt: skip
        foot = scale.x_position(indices[number + 1])
        name = fit_text_to_width(step.name, _LEFT - 12)
        shapes += [
            DrawnLine(x1=foot, y1=y + _ROW / 2, x2=foot, y2=y + _ROW * 1.5, ink="soft"),
            box,
            *(bar_break_lines(box, box.x + box.width / 2) if broken[number] else ()),
            Words(x=0, y=y + 17, text=name),
            Words(x=_WIDTH, y=y + 17, text=amount_with_sign(step.amount), anchor="end"),
        ]
    y = _TOP + _ROW * len(steps)
    total = sum(step.amount for step in steps)
    note = "the broken bar is longer than drawn" if any(broken) else ""
    return [
        *shapes,
        Words(x=0, y=y + 17, text=fit_text_to_width(path.last, _LEFT - 12), bold=True),
        Words(x=_LEFT + 8, y=y + 17, text=note, ink="soft", size=11),
        Words(x=_WIDTH, y=y + 17, text=amount_with_sign(total), anchor="end", bold=True),
    ]


BARS = "bars"  # begins the name of a file that is to have the bars of all tools


def comparison_figure(report: Report, file_name: str) -> Canvas:
    """Return the picture of a comparison: bars for a name that begins "bars", else waterfalls.

    Raises InputError where there is nothing to draw.
    """
    if file_name.lower().startswith(BARS):
        canvas = tool_bars(report)
        drawn = [TitledCanvas("Totals as MACs", canvas)] if canvas else []
    else:
        drawn = _waterfalls_with_titles(report)
    if not drawn:
        if isinstance(report.against, Against):
            raise InputError(
                "--plot has nothing to draw: the MACs of the two models do not differ",
                "leave out --plot",
            )
        raise InputError(
            "--plot has nothing to draw: for no tool is the difference from the native count "
            "explained",
            "compare the model with other tools, or leave out --plot",
        )
    return stack_canvases(drawn, report.name)


def _waterfalls_with_titles(report: Report) -> list[TitledCanvas]:
    """Return a waterfall picture, with its title, for each difference in a report."""
    walks: list[tuple[str, Reconciliation | Contrast]]
    if isinstance(report.between, Contrast):
        walks = [(f"{report.between.second} = {report.between.first}", report.between)]
    elif isinstance(report.against, Against):
        canvas = waterfall_chart(report.against.alignment)
        head = f"{report.against.name} against {report.name}, MACs"
        return [TitledCanvas(head, canvas)] if canvas else []
    else:
        accounts = report.reconciliations or ()
        walks = [(f"{row.tool} = native{term_with_sign(row.delta)}", row) for row in accounts]
    return [
        TitledCanvas(head, canvas) for head, walk in walks if (canvas := waterfall_chart(walk))
    ]
