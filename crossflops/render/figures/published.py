"""Draw published figures over exact counts, on logarithmic axes."""

from collections.abc import Sequence
from math import ceil, floor, log10

from crossflops.render.figures.canvas import Canvas, Dot, DrawnLine, Ink, Shape, Words
from crossflops.report.quantity import short_amount
from crossflops.report.sweep import PublishedPoint

_SIDE, _LEFT, _FOOT, _TOP = 420.0, 70.0, 46.0, 26.0  # px
_INKS: dict[str, Ink] = {"macs": "c0", "flops": "c1", "params": "c2"}
_FINE = 0.005  # of the exact count: what rounding to three digits may do


def draw_published_figures(points: Sequence[PublishedPoint]) -> Canvas | None:
    """Return a picture with a dot for each published figure, None without any.

    A dot on the line agrees with the exact count; a ring is half a percent or more away from it.
    """
    shown = [point for point in points if point.exact > 0 and point.published > 0]
    if not shown:
        return None
    values = [log10(value) for point in shown for value in (point.exact, point.published)]
    low, high = floor(min(values)), max(ceil(max(values)), floor(min(values)) + 1)

    def x_of_count(value: float) -> float:
        """Return the x coordinate of a count in pixels."""
        return _LEFT + _SIDE * (log10(value) - low) / (high - low)

    def y_of_count(value: float) -> float:
        """Return the y coordinate of a count in pixels."""
        return _TOP + _SIDE * (1 - (log10(value) - low) / (high - low))

    shapes: list[Shape] = []
    for power in range(low, high + 1):
        text = short_amount(10**power) if power >= 0 else f"1e{power}"
        across, down = x_of_count(10.0**power), y_of_count(10.0**power)
        shapes += [
            DrawnLine(x1=_LEFT, y1=down, x2=_LEFT + _SIDE, y2=down),
            DrawnLine(x1=across, y1=_TOP, x2=across, y2=_TOP + _SIDE),
            Words(x=_LEFT - 6, y=down + 4, text=text, ink="soft", anchor="end", size=11),
            Words(x=across, y=_TOP + _SIDE + 16, text=text, ink="soft", anchor="middle", size=11),
        ]
    shapes.append(
        DrawnLine(x1=_LEFT, y1=_TOP + _SIDE, x2=_LEFT + _SIDE, y2=_TOP, ink="soft", dashed=True)
    )
    shapes += [
        Dot(
            x=x_of_count(point.exact),
            y=y_of_count(point.published),
            radius=3.5,
            ink=_INKS[point.unit],
            hollow=abs(point.published / point.exact - 1) > _FINE,
            tip=f"{point.target}: {point.text} published, {short_amount(point.exact)} exact",
        )
        for point in shown
    ]
    shapes += _unit_legend(sorted({point.unit for point in shown}))
    foot = _TOP + _SIDE + 36
    shapes += [
        Words(
            x=_LEFT + _SIDE / 2, y=foot, text="exact count", ink="soft", anchor="middle", size=11
        ),
        Words(x=0, y=_TOP - 12, text="published", ink="soft", size=11),
    ]
    return Canvas(
        width=_LEFT + _SIDE + 160,
        height=_TOP + _SIDE + _FOOT,
        label=f"Published figures over exact counts: {len(shown)}",
        shapes=tuple(shapes),
    )


def _unit_legend(units: Sequence[str]) -> list[Shape]:
    """Return a dot and a name for each unit, and what a ring means."""
    shapes: list[Shape] = []
    left = _LEFT + _SIDE + 20
    for number, unit in enumerate(units):
        y = _TOP + 8 + 18 * number
        shapes += [
            Dot(x=left, y=y, radius=3.5, ink=_INKS[unit]),
            Words(x=left + 10, y=y + 4, text=unit, size=11),
        ]
    y = _TOP + 8 + 18 * len(units)
    return [
        *shapes,
        Dot(x=left, y=y, radius=3.5, ink="soft", hollow=True),
        Words(x=left + 10, y=y + 4, text="0.5 % or more away", ink="soft", size=11),
    ]
