"""Draw the roofline of a report with logarithmic axes: limits, ridge, nodes, whole model."""

from collections.abc import Iterable, Iterator
from math import log10, sqrt
from typing import NamedTuple, TypeAlias

from crossflops.ir.roofline import NodeBound, Roofline
from crossflops.render.figures.canvas import (
    Box,
    Canvas,
    Dot,
    DrawnLine,
    Ink,
    Shape,
    TitledCanvas,
    Words,
    fit_text_to_width,
    stack_canvases,
    text_width,
)
from crossflops.report.quantity import short_amount

Point: TypeAlias = tuple[float, float, float]  # intensity, FLOP/s, share of the work
Span: TypeAlias = tuple[float, float]

_WIDTH, _HEIGHT = 760.0, 420.0  # px
_LEFT, _RIGHT, _TOP, _FOOT = 62.0, 236.0, 14.0, 40.0
_LARGEST, _SMALLEST = 14.0, 3.0  # radius of a point with all of the work, and of the least
_INKS: tuple[Ink, ...] = ("c0", "c1", "c2", "c3", "c4", "c5", "c6")
NAMED = len(_INKS) - 1  # operators with a colour of their own; the last is that of all others
_ALIKE = 0.02  # nodes of one operator as close as that in intensity are one point


class _Axes(NamedTuple):
    """Both logarithmic axes: x is the intensity in FLOP/byte, y the rate in FLOP/s."""

    across: Span
    up: Span

    def x_of_intensity(self, value: float) -> float:
        """Return the x coordinate of an intensity in FLOP/byte on a log axis, in pixels."""
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * _log_axis_fraction(value, self.across)

    def y_of_rate(self, value: float) -> float:
        """Return the y coordinate of a rate in FLOP/s on a log axis, in pixels."""
        return _HEIGHT - _FOOT - (_HEIGHT - _TOP - _FOOT) * _log_axis_fraction(value, self.up)


def _log_axis_fraction(value: float, span: Span) -> float:
    """Return where a value is on a logarithmic axis, from 0 at its start to 1 at its end."""
    if value <= 0 or span[0] <= 0 or span[1] <= span[0]:
        return 0.0  # what has no place on a logarithmic axis stands at its foot
    return log10(value / span[0]) / log10(span[1] / span[0])


def power_of_ten_label(value: float) -> str:
    """Return the axis label of a power of ten, such as "100 G".

    >>> power_of_ten_label(1e12), power_of_ten_label(100e9), power_of_ten_label(0.1)
    ('1 T', '100 G', '0.1')
    """
    if value < 1:
        return f"{value:g}"
    number, _, prefix = short_amount(value).partition(" ")
    return f"{float(number):g} {prefix}".rstrip()


def roofline_axis_ranges(roof: Roofline) -> tuple[Span, Span]:
    """Return the ranges of the roofline's axes: of x in FLOP/byte, and of y in FLOP/s."""
    step = roof.step
    heights = list(peaks_to_draw(roof).values())
    points = [
        *(
            point
            for rows in roofline_nodes_by_operator(roof).values()
            for point in merge_roofline_points(rows, roof)
        )
    ]
    xs = [point[0] for point in points] + [
        kernel.intensity for kernel in roof.kernels if kernel.intensity
    ]
    xs += [step.intensity or step.ridge, step.ridge]
    ys = [point[1] for point in points] + [kernel.rate for kernel in roof.kernels if kernel.rate]
    ys += [step.attainable or step.peak]
    if roof.achieved is not None and step.work:
        ys.append(step.work / roof.achieved.seconds)
    xs, ys = ([value for value in values if value > 0] or [1.0] for values in (xs, ys))
    left, right = min(xs) / 4, max(*xs, max(heights) / step.bandwidth) * 25
    return (left, right), (min(ys) / 6, max(heights) * 5)


def peaks_to_draw(roof: Roofline) -> dict[str, float]:
    """Return the peaks to draw, in FLOP/s, by the names of the precisions that have them."""
    used = {node.precision: node.peak for node in roof.nodes if node.peak}
    named: dict[float, list[str]] = {}
    for name, peak in {**roof.peaks, **used}.items():
        if (name and "_" not in name) or name in used:
            named.setdefault(peak, []).append(name)
    named.setdefault(roof.step.peak, [])
    return {", ".join(filter(None, names)) or "peak": peak for peak, names in named.items()}


def roofline_nodes_by_operator(roof: Roofline) -> dict[str, list[NodeBound]]:
    """Return the nodes that have an intensity, by operator type, slowest type first."""
    groups: dict[str, list[NodeBound]] = {}
    for node in roof.nodes:
        if node.intensity:
            groups.setdefault(node.op, []).append(node)
    order = sorted(
        groups.items(), key=lambda pair: (-sum(node.seconds for node in pair[1]), pair[0])
    )
    named = dict(order[:NAMED])
    rest = [row for _, rows in order[NAMED:] for row in rows]
    return named | ({"other operators": rest} if rest else {})


def merge_roofline_points(rows: Iterable[NodeBound], roof: Roofline) -> Iterator[Point]:
    """Yield one roofline point for all nodes with one peak and nearly the same intensity."""
    group: list[NodeBound] = []
    for node in sorted(rows, key=lambda row: (row.peak or 0, row.intensity or 0)):
        first = group[0] if group else node
        near = (node.intensity or 0) <= (first.intensity or 0) * (1 + _ALIKE)
        if group and not (near and node.peak == first.peak):
            yield _point_of_similar_nodes(group, roof)
            group = []
        group.append(node)
    if group:
        yield _point_of_similar_nodes(group, roof)


def _point_of_similar_nodes(group: list[NodeBound], roof: Roofline) -> Point:
    """Return intensity, attainable FLOP/s and share of the work (0 to 1) of a group of nodes."""
    work, moved = (
        sum(node.work or node.operations for node in group),
        sum(node.bytes for node in group),
    )
    dense = work / moved if moved else 0.0
    reached = min(group[0].peak or roof.step.peak, dense * roof.step.bandwidth)
    share = sum(node.work for node in group) / roof.step.work if roof.step.work else 0.0
    return dense, reached, share


def roofline_plot_with_title(roof: Roofline, title: str) -> Canvas:
    """Return the roofline plot with a title and a note on the device and the bytes."""
    step = roof.step
    note = f"{roof.device}, {short_amount(step.bandwidth, 'B/s')}; bytes: {roof.byte_model}"
    canvas = roofline_plot(roof)
    return stack_canvases(
        [TitledCanvas(title, canvas, f"{note}; a step of {step.examples}")], canvas.label
    )


def roofline_plot(roof: Roofline) -> Canvas:
    """Return the roofline plot: bandwidth, peaks, a legend, and a point for each group of nodes.

    Beside them what each colour stands for, with its shares of work and of the shortest time.
    """
    axes = _Axes(*roofline_axis_ranges(roof))
    legend = _legend_and_whole_model_dots(axes, roof)
    shapes = [
        *_roofline_background(axes, roof),
        *_bandwidth_and_peak_lines(axes, roof),
        *_node_group_dots(axes, roof),
        *legend,
    ]
    label = (
        f"Roofline of {roof.device}: {roof.step.bound}-bound, at most "
        f"{short_amount(roof.step.attainable, 'FLOP/s')}"
    )
    return Canvas(width=_WIDTH, height=_HEIGHT, label=label, shapes=tuple(shapes))


def _powers_of_ten(span: Span) -> list[float]:
    """Return the powers of ten in a range of values."""
    first, last = log10(span[0]), log10(span[1])
    return [10.0**n for n in range(-int(-first // 1), int(last // 1) + 1)]


def _roofline_background(axes: _Axes, roof: Roofline) -> list[Shape]:
    """Return the background of a roofline plot: grid, axis labels, and a line at the ridge."""
    foot, ridge = _HEIGHT - _FOOT, axes.x_of_intensity(roof.step.ridge)
    right = _WIDTH - _RIGHT
    shapes: list[Shape] = [
        Box(x=_LEFT, y=_TOP, width=ridge - _LEFT, height=foot - _TOP, ink="shade")
    ]
    for value in _powers_of_ten(axes.across):
        x = axes.x_of_intensity(value)
        shapes += [
            DrawnLine(x1=x, y1=_TOP, x2=x, y2=foot),
            Words(
                x=x,
                y=foot + 15,
                text=power_of_ten_label(value),
                ink="soft",
                anchor="middle",
                size=11,
            ),
        ]
    for value in _powers_of_ten(axes.up):
        y = axes.y_of_rate(value)
        shapes += [
            DrawnLine(x1=_LEFT, y1=y, x2=right, y2=y),
            Words(
                x=_LEFT - 6,
                y=y + 4,
                text=power_of_ten_label(value),
                ink="soft",
                anchor="end",
                size=11,
            ),
        ]
    return [
        *shapes,
        DrawnLine(x1=ridge, y1=_TOP, x2=ridge, y2=foot, ink="soft", dashed=True),
        Words(x=ridge + 6, y=foot - 24, text=f"ridge {roof.step.ridge:.4g}", size=11),
        Words(x=ridge - 6, y=foot - 8, text="memory-bound", ink="soft", anchor="end", size=11),
        Words(x=ridge + 6, y=foot - 8, text="compute-bound", ink="soft", size=11),
        Words(
            x=(_LEFT + right) / 2,
            y=_HEIGHT - 6,
            text="FLOP / byte",
            ink="soft",
            anchor="middle",
            size=11,
        ),
        Words(x=_LEFT - 6, y=_TOP - 2, text="FLOP/s", ink="soft", anchor="end", size=11),
    ]


def _bandwidth_and_peak_lines(axes: _Axes, roof: Roofline) -> list[Shape]:
    """Return a roofline's upper limits: the slope of the bandwidth, a line for each peak."""
    bandwidth, named = roof.step.bandwidth, peaks_to_draw(roof)
    left, right = axes.across
    start = max(left, axes.up[0] / bandwidth)
    highest = max(named.values())
    shapes: list[Shape] = [
        DrawnLine(
            x1=axes.x_of_intensity(start),
            y1=axes.y_of_rate(start * bandwidth),
            x2=axes.x_of_intensity(highest / bandwidth),
            y2=axes.y_of_rate(highest),
            ink="ink",
            width=1.5,
        ),
        Words(
            x=axes.x_of_intensity(start) + 40,
            y=axes.y_of_rate(start * bandwidth) - 14,
            text=short_amount(bandwidth, "B/s"),
            size=11,
        ),
    ]
    for name, top in named.items():
        binds = top == roof.step.peak
        y = axes.y_of_rate(top)
        unit = "OP/s" if name.startswith("int") else "FLOP/s"
        text = f"{name} {short_amount(top, unit)}"
        shapes += [
            DrawnLine(
                x1=axes.x_of_intensity(top / bandwidth),
                y1=y,
                x2=axes.x_of_intensity(right),
                y2=y,
                ink="ink" if binds else "soft",
                width=2 if binds else 1,
                dashed=not binds,
            ),
            Words(
                x=axes.x_of_intensity(right) - 4,
                y=y - 7,
                text=fit_text_to_width(text, 300, 11),
                anchor="end",
                size=11,
                bold=binds,
                ink="ink" if binds else "soft",
            ),
        ]
    return shapes


def _node_group_dots(axes: _Axes, roof: Roofline) -> list[Shape]:
    """Return a dot for each group of nodes: the colour is its operator, the area its work."""
    return [
        Dot(
            x=axes.x_of_intensity(intensity),
            y=axes.y_of_rate(rate),
            radius=max(_SMALLEST, _LARGEST * sqrt(part)),
            ink=ink,
            hollow=_has_no_work(rows),
            tip=f"{op}: {intensity:.4g} FLOP/byte, at most {short_amount(rate, 'FLOP/s')}",
        )
        for (op, rows), ink in zip(roofline_nodes_by_operator(roof).items(), _INKS, strict=False)
        for intensity, rate, part in sorted(
            merge_roofline_points(rows, roof), key=lambda point: -point[2]
        )
    ]


def _has_no_work(rows: Iterable[NodeBound]) -> bool:
    """Return whether none of these nodes has work (FLOPs)."""
    return not any(row.work for row in rows)


class _Entry(NamedTuple):
    """A line of the legend: a name, its shares, and a dot if it has a colour."""

    name: str
    shares: str = ""
    ink: Ink | None = None
    hollow: bool = False


def _legend_and_whole_model_dots(axes: _Axes, roof: Roofline) -> list[Shape]:
    """Return a roofline's legend, and the dots of kernels, whole model and measured run."""
    step = roof.step
    entries = [
        _Entry(f"{op} ({len(rows)})", _roofline_shares_text(rows, roof), ink, _has_no_work(rows))
        for (op, rows), ink in zip(roofline_nodes_by_operator(roof).items(), _INKS, strict=False)
    ]
    moving = [node for node in roof.nodes if node.seconds and not node.intensity]
    if moving:  # they have no place on a logarithmic axis
        entries.append(_Entry(f"no FLOPs ({len(moving)})", _roofline_shares_text(moving, roof)))
    shapes: list[Shape] = []
    kernels = [(row.intensity, row.rate) for row in roof.kernels if row.intensity and row.rate]
    if kernels:
        entries.append(_Entry(f"measured kernels ({len(kernels)})", ink="ink"))
        shapes += [
            Dot(x=axes.x_of_intensity(x), y=axes.y_of_rate(y), radius=2, ink="ink")
            for x, y in kernels
        ]
    if step.intensity and step.attainable:
        most = short_amount(step.attainable, "FLOP/s")
        tip = f"the whole: {step.intensity:.4g} FLOP/byte"
        full = Dot(
            x=axes.x_of_intensity(step.intensity),
            y=axes.y_of_rate(step.attainable),
            radius=9,
            ink="ink",
            hollow=True,
            tip=tip,
        )
        shapes.append(full)
        entries.append(_Entry(f"whole, at most {most}", ink="ink", hollow=True))
    if roof.achieved is not None and step.intensity and step.work:
        rate = step.work / roof.achieved.seconds
        text = f"measured, {short_amount(rate, 'FLOP/s')}"
        tip = f"{text}: {roof.achieved.whole_efficiency:.1%} of the most"
        shapes.append(
            Dot(
                x=axes.x_of_intensity(step.intensity),
                y=axes.y_of_rate(rate),
                radius=5,
                ink="bad",
                tip=tip,
            )
        )
        entries.append(_Entry(text, f"{roof.achieved.whole_efficiency:.1%}", "bad"))
    return [*shapes, *_legend_entry_shapes(entries)]


def _roofline_shares_text(rows: Iterable[NodeBound], roof: Roofline) -> str:
    """Return "A %, B %": the nodes' share of the work, and of the shortest time."""
    work = sum(row.work for row in rows) / roof.step.work if roof.step.work else 0.0
    shortest = roof.step.shortest_seconds
    time = sum(row.seconds for row in rows) / shortest if shortest else 0.0
    return f"{100 * work:.0f} %, {100 * time:.0f} %"


def _legend_entry_shapes(entries: Iterable[_Entry]) -> list[Shape]:
    """Return the shapes of a legend: a dot, a name and shares for each entry."""
    x = _WIDTH - _RIGHT + 16
    shapes: list[Shape] = [
        Words(x=_WIDTH, y=_TOP + 4, text="of work, of time", ink="soft", anchor="end", size=11)
    ]
    for number, entry in enumerate(entries):
        y = _TOP + 24 + 22 * number
        room = _WIDTH - x - 18 - text_width(entry.shares, 11)
        if entry.ink:
            shapes.append(Dot(x=x, y=y, radius=5, ink=entry.ink, hollow=entry.hollow))
        shapes += [
            Words(x=x + 12, y=y + 4, text=fit_text_to_width(entry.name, room, 11), size=11),
            Words(x=_WIDTH, y=y + 4, text=entry.shares, anchor="end", size=11),
        ]
    return shapes
