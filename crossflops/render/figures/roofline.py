"""The roofline of a report, log-log: ceilings, the ridge, the nodes, the whole."""

from math import log10, sqrt
from typing import NamedTuple

from crossflops.ir.roofline import Roofline
from crossflops.render.figures.canvas import Box, Canvas, Dot, DrawnLine, Ink, Shape, Words, fitted
from crossflops.render.plots.roofline import Span, by_operator, merged, spans, tick, tops
from crossflops.render.quantity import short

_WIDTH, _HEIGHT = 760.0, 420.0  # px
_LEFT, _RIGHT, _TOP, _FOOT = 62.0, 200.0, 14.0, 40.0
_LARGEST, _SMALLEST = 14.0, 3.0  # radius of a point with all of the work, and of the least
_INKS: tuple[Ink, ...] = ("c0", "c1", "c2", "c3", "c4", "c5", "c6")


class _Axes(NamedTuple):
    """Both logarithmic axes: intensity in FLOP/byte, and FLOP/s."""

    across: Span
    up: Span

    def x(self, value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * _part(value, self.across)

    def y(self, value: float) -> float:
        return _HEIGHT - _FOOT - (_HEIGHT - _TOP - _FOOT) * _part(value, self.up)


def _part(value: float, span: Span) -> float:
    return log10(value / span[0]) / log10(span[1] / span[0])


def roofline(roof: Roofline) -> Canvas:
    """Points lie on the roof, at the most that the device allows, as large as their work."""
    axes = _Axes(*spans(roof))
    shapes = [*_paper(axes, roof), *_ceilings(axes, roof), *_points(axes, roof)]
    label = (
        f"Roofline of {roof.device}: {roof.step.bound}-bound, at most "
        f"{short(roof.step.attainable, 'FLOP/s')}"
    )
    return Canvas(width=_WIDTH, height=_HEIGHT, label=label, shapes=tuple(shapes))


def _decades(span: Span) -> list[float]:
    first, last = log10(span[0]), log10(span[1])
    return [10.0**n for n in range(-int(-first // 1), int(last // 1) + 1)]


def _paper(axes: _Axes, roof: Roofline) -> list[Shape]:
    foot, ridge = _HEIGHT - _FOOT, axes.x(roof.step.ridge)
    right = _WIDTH - _RIGHT
    shapes: list[Shape] = [
        Box(x=_LEFT, y=_TOP, width=ridge - _LEFT, height=foot - _TOP, ink="shade")
    ]
    for value in _decades(axes.across):
        x = axes.x(value)
        shapes += [
            DrawnLine(x1=x, y1=_TOP, x2=x, y2=foot),
            Words(x=x, y=foot + 15, text=f"{value:g}", ink="soft", anchor="middle", size=11),
        ]
    for value in _decades(axes.up):
        y = axes.y(value)
        shapes += [
            DrawnLine(x1=_LEFT, y1=y, x2=right, y2=y),
            Words(x=_LEFT - 6, y=y + 4, text=tick(value), ink="soft", anchor="end", size=11),
        ]
    return [
        *shapes,
        DrawnLine(x1=ridge, y1=_TOP, x2=ridge, y2=foot, ink="soft", dashed=True),
        Words(x=ridge - 6, y=foot - 8, text="memory-bound", ink="soft", anchor="end", size=11),
        Words(x=ridge + 6, y=foot - 8, text="compute-bound", ink="soft", size=11),
        Words(x=(_LEFT + right) / 2, y=_HEIGHT - 6, text="FLOP / byte", ink="soft",
              anchor="middle", size=11),
        Words(x=_LEFT - 6, y=_TOP - 2, text="FLOP/s", ink="soft", anchor="end", size=11),
    ]  # fmt: skip


def _ceilings(axes: _Axes, roof: Roofline) -> list[Shape]:
    bandwidth, named = roof.step.bandwidth, tops(roof)
    left, right = axes.across
    start = max(left, axes.up[0] / bandwidth)
    highest = max(named.values())
    shapes: list[Shape] = [
        DrawnLine(x1=axes.x(start), y1=axes.y(start * bandwidth), x2=axes.x(highest / bandwidth),
             y2=axes.y(highest), ink="ink", width=1.5),
        Words(x=axes.x(start) + 40, y=axes.y(start * bandwidth) - 14,
              text=short(bandwidth, "B/s"), size=11),
    ]  # fmt: skip
    for name, top in named.items():
        binds = top == roof.step.peak
        y = axes.y(top)
        unit = "OP/s" if name.startswith("int") else "FLOP/s"
        text = f"{name} {short(top, unit)}"
        shapes += [
            DrawnLine(x1=axes.x(top / bandwidth), y1=y, x2=axes.x(right), y2=y,
                 ink="ink" if binds else "soft", width=2 if binds else 1, dashed=not binds),
            Words(x=axes.x(right) - 4, y=y - 4, text=fitted(text, 300, 11), anchor="end", size=11,
                  bold=binds, ink="ink" if binds else "soft"),
        ]  # fmt: skip
    return shapes


def _points(axes: _Axes, roof: Roofline) -> list[Shape]:
    """A colour for each operator, named at the right; the whole model is a ring."""
    shapes: list[Shape] = []
    x = _WIDTH - _RIGHT + 16
    groups = by_operator(roof)
    for number, ((op, rows), ink) in enumerate(zip(groups.items(), _INKS, strict=False)):
        hollow = not any(row.work for row in rows)
        for intensity, rate, part in sorted(merged(rows, roof), key=lambda point: -point[2]):
            radius = max(_SMALLEST, _LARGEST * sqrt(part))
            shapes.append(
                Dot(x=axes.x(intensity), y=axes.y(rate), radius=radius, ink=ink, hollow=hollow,
                    tip=f"{op}: {intensity:.4g} FLOP/byte, at most {short(rate, 'FLOP/s')}")
            )  # fmt: skip
        y = _TOP + 14 + 22 * number
        shapes += [
            Dot(x=x, y=y, radius=5, ink=ink, hollow=hollow),
            Words(x=x + 12, y=y + 4, text=fitted(op, _RIGHT - 30)),
        ]
    step = roof.step
    y = _TOP + 14 + 22 * len(groups)
    if step.intensity and step.attainable:
        tip = f"the whole: {step.intensity:.4g} FLOP/byte"
        step_dot = Dot(x=axes.x(step.intensity), y=axes.y(step.attainable), radius=9, ink="ink",
                    hollow=True, tip=tip)  # fmt: skip
        shapes += [
            step_dot,
            Dot(x=x, y=y, radius=6, ink="ink", hollow=True),
            Words(x=x + 12, y=y + 4, text="the whole model"),
        ]
    if roof.achieved is not None and step.intensity and step.work:
        rate = step.work / roof.achieved.seconds
        shapes += [
            Dot(x=axes.x(step.intensity), y=axes.y(rate), radius=5, ink="bad",
                tip=f"measured: {short(rate, 'FLOP/s')}"),
            Dot(x=x, y=y + 22, radius=5, ink="bad"),
            Words(x=x + 12, y=y + 26, text="measured"),
        ]  # fmt: skip
    return shapes
