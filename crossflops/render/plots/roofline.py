"""The picture of a roofline."""

from collections.abc import Iterable, Iterator
from math import atan2, degrees
from typing import TYPE_CHECKING, TypeAlias

from crossflops.ir.roofline import NodeBound, Roofline
from crossflops.render.plots.style import COLOURS, GREY, INK, MARKERS, PALE, headed
from crossflops.render.quantity import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point: TypeAlias = tuple[float, float, float]  # intensity, FLOP/s, share of the work
Span: TypeAlias = tuple[float, float]

_DASHES = ("--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_SIZE, _RIGHT = (9.6, 4.8), 0.715  # inches, and the part of the width that the axes have
_LONGEST = 28  # letters of an operator
_ALIKE = 0.02  # nodes of one operator as close as that in intensity are one point
_LARGEST = 900.0  # area of a point with all of the work, in square points
_SMALLEST = 16.0


def draw(figure: "Figure", roof: Roofline, title: str) -> None:
    """Ceilings, the ridge between the regions, the nodes, the whole, and what was measured."""
    from matplotlib.ticker import NullFormatter

    axes = figure.add_subplot()
    x, y = spans(roof)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    axes.set_xlabel("intensity (FLOP / byte)")
    axes.set_ylabel("FLOP/s")
    axes.yaxis.set_major_formatter(lambda value, _: tick(value))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    for axis in (axes.xaxis, axes.yaxis):  # matplotlib writes these in TeX where a span is short
        axis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, which="major", color=PALE, linewidth=0.6, zorder=0)
    _regions(axes, roof, x, y)
    _ceilings(axes, roof, x)
    _points(axes, roof)
    _whole(axes, roof)
    step = roof.step
    beneath = f"{roof.device}, {short(step.bandwidth, 'B/s')}; bytes: {roof.byte_model}"
    headed(axes, title, f"{beneath}; a step of {step.examples}")
    # Beside the axes, where nothing is to be covered.
    figure.set_size_inches(*_SIZE)
    figure.subplots_adjust(left=0.075, right=_RIGHT)
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.01), fontsize=7.5, handletextpad=0.4,
        title="share of work, of the shortest time", title_fontsize=7.5, alignment="left",
    )  # fmt: skip
    _slope(axes, roof, x)


def tick(value: float) -> str:
    """A power of ten with its prefix.

    >>> tick(1e12), tick(100e9)
    ('1 T', '100 G')
    """
    number, _, prefix = short(value).partition(" ")
    return f"{float(number):g} {prefix}".rstrip()


def spans(roof: Roofline) -> tuple[Span, Span]:
    """Both axes, with room for every point and for the ridges of all ceilings."""
    step = roof.step
    heights = list(tops(roof).values())
    points = [*(point for rows in by_operator(roof).values() for point in merged(rows, roof))]
    xs = [point[0] for point in points] + [
        kernel.intensity for kernel in roof.kernels if kernel.intensity
    ]
    xs += [step.intensity or step.ridge, step.ridge]
    ys = [point[1] for point in points] + [kernel.rate for kernel in roof.kernels if kernel.rate]
    ys += [step.attainable or step.peak]
    if roof.achieved is not None and step.work:
        ys.append(step.work / roof.achieved.seconds)
    left, right = min(xs) / 4, max(*xs, max(heights) / step.bandwidth) * 25
    return (left, right), (min(ys) / 6, max(heights) * 5)


def _regions(axes: "Axes", roof: Roofline, x: Span, y: Span) -> None:
    """Left of the ridge memory is the limit; the side is shaded, and both are named."""
    ridge = roof.step.ridge
    axes.axvspan(x[0], ridge, color="#f4f4f4", zorder=0, linewidth=0)
    axes.axvline(ridge, color=GREY, linestyle=(0, (1, 2)), linewidth=1, zorder=1)
    foot = y[0] * (y[1] / y[0]) ** 0.02
    axes.text(ridge, foot, f" ridge {ridge:.4g}", fontsize=8, color=INK, va="bottom")
    low = y[0] * (y[1] / y[0]) ** 0.075
    axes.text(ridge, low, "memory-bound ", fontsize=8, color=GREY, ha="right", va="bottom")
    axes.text(ridge, low, " compute-bound", fontsize=8, color=GREY, va="bottom")


def tops(roof: Roofline) -> dict[str, float]:
    """The ceilings to draw: those of the run, and the other formats that matrix units take."""
    used = {node.precision: node.peak for node in roof.nodes if node.peak}
    named: dict[float, list[str]] = {}
    for name, peak in {**roof.peaks, **used}.items():
        if (name and "_" not in name) or name in used:
            named.setdefault(peak, []).append(name)
    named.setdefault(roof.step.peak, [])
    return {", ".join(filter(None, names)) or "peak": peak for peak, names in named.items()}


def _ceilings(axes: "Axes", roof: Roofline, x: Span) -> None:
    """The slope of the bandwidth, and a flat line for each precision, named at its right end."""
    bandwidth, peak = roof.step.bandwidth, roof.step.peak
    highest = max(tops(roof).values())
    axes.plot(
        [x[0], highest / bandwidth],
        [x[0] * bandwidth, highest],
        color=INK,
        linewidth=1.2,
        zorder=2,
    )
    others = 0
    for name, top in sorted(tops(roof).items(), key=lambda item: -item[1]):
        binding = top == peak
        dashes = "-" if binding else _DASHES[others % len(_DASHES)]
        others += not binding
        start = top / bandwidth
        axes.plot(
            [start, x[1]], [top, top], color=INK if binding else GREY, linestyle=dashes,
            linewidth=2 if binding else 1, zorder=2,
        )  # fmt: skip
        unit = "OP/s" if name.startswith("int") else "FLOP/s"
        axes.annotate(
            f"{name}  {short(top, unit)} ", (x[1], top), xytext=(0, 2.5), ha="right", va="bottom",
            textcoords="offset points", fontsize=7.5, color=INK if binding else GREY, zorder=8,
            fontweight="bold" if binding else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.2},
        )  # fmt: skip


def _slope(axes: "Axes", roof: Roofline, x: Span) -> None:
    """The bandwidth, written along its line."""
    bandwidth = roof.step.bandwidth
    start = x[0] * 1.15
    ends = axes.transData.transform(
        [(start, start * bandwidth), (10 * start, 10 * start * bandwidth)]
    )
    angle = degrees(atan2(ends[1][1] - ends[0][1], ends[1][0] - ends[0][0]))
    axes.text(
        start, start * bandwidth * 1.25, short(bandwidth, "B/s"), fontsize=8, color=INK,
        rotation=angle, rotation_mode="anchor", va="bottom",
    )  # fmt: skip


def by_operator(roof: Roofline) -> dict[str, list[NodeBound]]:
    """The nodes that have a place in the picture, by operator; most of the time first."""
    groups: dict[str, list[NodeBound]] = {}
    for node in roof.nodes:
        if node.intensity:
            groups.setdefault(node.op, []).append(node)
    order = sorted(
        groups.items(), key=lambda pair: (-sum(node.seconds for node in pair[1]), pair[0])
    )
    named = dict(order[: len(COLOURS)])
    rest = [row for _, rows in order[len(COLOURS) :] for row in rows]
    return named | ({"other operators": rest} if rest else {})


def merged(rows: Iterable[NodeBound], roof: Roofline) -> Iterator[Point]:
    """Points of nodes that lie on each other, as one."""
    group: list[NodeBound] = []
    for node in sorted(rows, key=lambda row: (row.peak or 0, row.intensity or 0)):
        first = group[0] if group else node
        near = (node.intensity or 0) <= (first.intensity or 0) * (1 + _ALIKE)
        if group and not (near and node.peak == first.peak):
            yield _point(group, roof)
            group = []
        group.append(node)
    if group:
        yield _point(group, roof)


def _point(group: list[NodeBound], roof: Roofline) -> Point:
    """Nodes under the roof: at most what the bandwidth, and their own peak, allow."""
    work, moved = (
        sum(node.work or node.operations for node in group),
        sum(node.bytes for node in group),
    )
    reached = min(group[0].peak or roof.step.peak, work / moved * roof.step.bandwidth)
    share = sum(node.work for node in group) / roof.step.work if roof.step.work else 0.0
    return work / moved, reached, share


def _points(axes: "Axes", roof: Roofline) -> None:
    """Nodes on the roof, as large as their work; hollow where there are no MACs to time."""
    styles = (*zip(COLOURS, MARKERS, strict=True), (GREY, "X"))
    for (op, rows), (colour, marker) in zip(by_operator(roof).items(), styles, strict=False):
        points = list(merged(rows, roof))
        hollow = not any(row.work for row in rows)
        axes.scatter(
            [point[0] for point in points],
            [point[1] for point in points],
            s=[max(_SMALLEST, _LARGEST * point[2]) for point in points],
            marker=marker,
            facecolors="none" if hollow else colour,
            edgecolors=colour if hollow else "white",
            linewidths=1.2 if hollow else 0.6,
            alpha=0.9,
            zorder=4,
        )
        axes.scatter(
            [], [], s=28, marker=marker, facecolors="none" if hollow else colour,
            edgecolors=colour, label=_label(op, rows, roof),
        )  # fmt: skip
    moving = [node for node in roof.nodes if node.seconds and not node.intensity]
    if moving:  # they have no place on a logarithmic axis
        axes.plot([], [], linestyle="none", label=_label("without a place: moving", moving, roof))
    able = [
        (kernel.intensity, kernel.rate)
        for kernel in roof.kernels
        if kernel.intensity and kernel.rate
    ]
    if able:
        axes.scatter(
            [kernel[0] for kernel in able], [kernel[1] for kernel in able], s=14, marker="+",
            color=INK, linewidths=0.9, zorder=5, label=f"measured kernels ({len(able)})",
        )  # fmt: skip


def _label(op: str, rows: list[NodeBound], roof: Roofline) -> str:
    work = sum(row.work for row in rows) / roof.step.work if roof.step.work else 0.0
    time = sum(row.seconds for row in rows) / roof.step.shortest
    op = op if len(op) <= _LONGEST else f"{op[: _LONGEST - 1]}…"
    return f"{op} ({len(rows)})  {100 * work:.0f} %, {100 * time:.0f} %"


def _whole(axes: "Axes", roof: Roofline) -> None:
    """The model as a whole, and where a measured step is beneath it."""
    step, took = roof.step, roof.achieved
    if not step.intensity:
        return
    axes.plot(
        step.intensity, step.attainable, marker="*", markersize=14, color=INK,
        markeredgecolor="white", linestyle="none", zorder=7,
        label=f"whole model, at most {short(step.attainable, 'FLOP/s')}",
    )  # fmt: skip
    if took is not None:
        rate = step.work / took.seconds
        axes.plot([step.intensity] * 2, [rate, step.attainable], color=INK, linewidth=1, zorder=6)
        axes.plot(
            step.intensity, rate, marker="d", markersize=9, color="white", markeredgecolor=INK,
            markeredgewidth=1.5, linestyle="none", zorder=6,
            label=f"measured, {short(rate, 'FLOP/s')}: {took.whole_efficiency:.1%} of that",
        )  # fmt: skip
