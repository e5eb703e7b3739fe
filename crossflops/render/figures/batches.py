"""Draw the curve of a search for the best batch: examples per second, and milliseconds below."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, log2, log10
from typing import NamedTuple

from crossflops.errors import InputError
from crossflops.ir.measurement import Measurement, Unfit
from crossflops.render.figures.canvas import (
    Anchor,
    Canvas,
    Dot,
    DrawnLine,
    Ink,
    Shape,
    Words,
    round_axis_ticks,
)

_WIDTH, _LEFT, _RIGHT, _TOP = 760.0, 62.0, 16.0, 30.0  # px
_UPPER, _LOWER, _BETWEEN, _FOOT = 230.0, 150.0, 34.0, 40.0  # px of both panels, and around them
_LINE = 14.0  # px from one line of text to the next
_ROOM = 1.3  # the upper axis ends so many times above the fastest
_APART = 1.25  # batches are named that are so many times larger than the one named before
_PERCENTILES: tuple[tuple[str, Ink, bool], ...] = (
    ("p50", "c0", False), ("p90", "soft", True), ("p99", "c1", False),
)  # fmt: skip


class _BatchAxis(NamedTuple):
    """The x axis of both charts: batch sizes, on a logarithmic scale."""

    least: int
    most: int

    def x_of_batch(self, batch: int) -> float:
        """Return the x coordinate of a batch size on a logarithmic axis, in pixels."""
        width, octaves = _WIDTH - _LEFT - _RIGHT, log2(self.most / self.least)
        inset = 0.05 * width
        part = log2(batch / self.least) / octaves if octaves else 0.5
        return _LEFT + inset + (width - 2 * inset) * part


def batch_curve_figure(curve: Sequence[Measurement | Unfit], chosen: int | None = None) -> Canvas:
    """Return a picture of two charts over batch sizes: examples per second, and latency in ms.

    `chosen` is a batch to mark beside the fastest. Raises InputError where no batch ran.
    """
    rows = sorted(curve, key=lambda row: row.batch)
    ran = [row for row in rows if isinstance(row, Measurement)]
    unfit = [row for row in rows if isinstance(row, Unfit)]
    if not ran:
        raise InputError(
            "no batch size ran, so there is no curve to draw", "run `bench` with a batch that fits"
        )
    across = _BatchAxis(rows[0].batch, rows[-1].batch)
    top = _TOP + _UPPER + _BETWEEN
    shapes = [
        *_unfit_batch_shapes(across, unfit, top + _LOWER),
        *_rate_curve_shapes(across, ran, chosen),
        *_latency_curve_shapes(across, ran, top),
        *_batch_axis_labels(across, sorted({row.batch for row in rows}), top + _LOWER),
    ]
    fastest = max(ran, key=lambda row: row.examples_per_second)
    label = f"Examples per second over the batch: {fastest.examples_per_second:.4g} at most"
    height = top + _LOWER + _FOOT
    return Canvas(width=_WIDTH, height=height, label=label, shapes=tuple(shapes))


def _unfit_batch_shapes(across: _BatchAxis, unfit: Sequence[Unfit], foot: float) -> list[Shape]:
    """Return a dashed line and the reason for each batch size that did not run."""
    shapes: list[Shape] = []
    for number, failure in enumerate(unfit):
        x, text = across.x_of_batch(failure.batch), f"{failure.batch} did not run: {failure.stage}"
        y = _TOP + 12 + _LINE * number
        shapes += [
            DrawnLine(x1=x, y1=_TOP, x2=x, y2=foot, ink="soft", dashed=True),
            Words(x=x - 5, y=y, text=text, ink="soft", anchor="end", size=11),
        ]
    return shapes


def _rate_curve_shapes(
    across: _BatchAxis, ran: Sequence[Measurement], chosen: int | None
) -> list[Shape]:
    """Return the curve of examples per second over batch sizes, with the best points marked."""
    fastest = max(ran, key=lambda row: row.examples_per_second)
    most = fastest.examples_per_second * _ROOM

    def y_of_rate(rate: float) -> float:
        """Return the y coordinate of a rate in examples per second, in pixels."""
        return _TOP + _UPPER * (1 - rate / most)

    shapes: list[Shape] = [Words(x=0, y=_TOP - 12, text="examples/s", ink="soft", size=11)]
    for value in round_axis_ticks(0, most):
        shapes += _batch_grid_shapes(y_of_rate(value), f"{value:g}")
    points = [(across.x_of_batch(row.batch), y_of_rate(row.examples_per_second)) for row in ran]
    shapes += _curve_lines(points, "c0", 2.0)
    shapes += [
        Dot(x=x, y=height, radius=4, ink="c0", hollow=not row.settled,
            tip=f"{row.batch}: {row.examples_per_second:.4g}/s")
        for row, (x, height) in zip(ran, points, strict=True)
    ]  # fmt: skip
    names = {ran[-1].batch: "largest that ran"}
    names |= {row.batch: "chosen" for row in ran if row.batch == chosen}
    names[fastest.batch] = "fastest"
    for row, (x, height) in zip(ran, points, strict=True):
        if row.batch in names:
            text = f"{names[row.batch]}: {row.examples_per_second:.4g}/s at {row.batch}"
            below = names[row.batch].startswith("largest")
            anchor: Anchor = "start" if row is ran[0] else "end" if row is ran[-1] else "middle"
            shapes += [
                Dot(x=x, y=height, radius=7, ink="c1", hollow=True),
                Words(x=x, y=height + (22 if below else -12), text=text, anchor=anchor, bold=True),
            ]
    if not all(row.settled for row in ran):
        text = "open circles: the run times were not stable"
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        shapes.append(
            Words(x=middle, y=_TOP + _UPPER - 6, text=text, ink="soft", anchor="middle", size=11)
        )
    return shapes


def _latency_curve_shapes(
    across: _BatchAxis, ran: Sequence[Measurement], top: float
) -> list[Shape]:
    """Return the curves of the latency percentiles in milliseconds, on a logarithmic y axis."""
    values = [1e3 * getattr(row, name) for row in ran for name, _, _ in _PERCENTILES]
    low, high = log10(min(values)) - 0.1, log10(max(values)) + 0.3

    def y_of_latency(value: float) -> float:
        """Return the y coordinate, in pixels, of a latency in ms on a logarithmic axis."""
        return top + _LOWER * (1 - (log10(value) - low) / (high - low))

    shapes: list[Shape] = [Words(x=0, y=top - 12, text="ms per run", ink="soft", size=11)]
    for value in (n * 10.0**power for power in range(floor(low), ceil(high)) for n in (1, 2, 5)):
        if low <= log10(value) <= high:
            shapes += _batch_grid_shapes(y_of_latency(value), f"{value:g}")
    for number, (name, ink, dashed) in enumerate(_PERCENTILES):
        points = [
            (across.x_of_batch(row.batch), y_of_latency(1e3 * getattr(row, name))) for row in ran
        ]
        shapes += _curve_lines(points, ink, 1.5, dashed)
        if len(points) == 1:  # a line of one point is not seen
            (x, height) = points[0]
            shapes.append(DrawnLine(x1=x - 7, y1=height, x2=x + 7, y2=height, ink=ink, width=2))
        x = _LEFT + 12 + 70 * number
        shapes += [
            DrawnLine(x1=x, y1=top + 8, x2=x + 22, y2=top + 8, ink=ink, width=1.5, dashed=dashed),
            Words(x=x + 28, y=top + 12, text=name, size=11),
        ]
    return shapes


def _batch_grid_shapes(y: float, text: str) -> list[Shape]:
    """Return a horizontal grid line at the coordinate y, and the label `text` at its left end."""
    return [
        DrawnLine(x1=_LEFT, y1=y, x2=_WIDTH - _RIGHT, y2=y),
        Words(x=_LEFT - 6, y=y + 4, text=text, ink="soft", anchor="end", size=11),
    ]


def _curve_lines(
    points: Sequence[tuple[float, float]], ink: Ink, width: float, dashed: bool = False
) -> list[Shape]:
    """Return straight lines that connect the points in their order."""
    return [
        DrawnLine(x1=x1, y1=y1, x2=x2, y2=y2, ink=ink, width=width, dashed=dashed)
        for (x1, y1), (x2, y2) in pairwise(points)
    ]


def _batch_axis_labels(across: _BatchAxis, sizes: Sequence[int], foot: float) -> list[Shape]:
    """Return the labels of batch sizes on the x axis, without those that would overlap."""
    shapes: list[Shape] = [
        Words(x=_WIDTH / 2, y=foot + 34, text="batch", ink="soft", anchor="middle", size=11)
    ]
    last = 0.0
    for batch in sizes:
        if batch >= last * _APART:
            last = batch
            x = across.x_of_batch(batch)
            shapes.append(
                Words(x=x, y=foot + 16, text=str(batch), ink="soft", anchor="middle", size=11)
            )
    return shapes
