"""Pictures of one noun: a roofline, a search for the best batch, a comparison.

They need matplotlib, `[plots]`. Out go the bytes of an SVG or a PNG: the same for the same noun.

Colours are those of Okabe and Ito, which people tell apart who see colours differently; markers
and line styles say the same without colour.
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from io import BytesIO
from math import atan2, degrees
from typing import TYPE_CHECKING, Any

from crossflops.errors import InputError, MissingExtraError, UnknownNameError
from crossflops.ir.measurement import Measurement, Unfit
from crossflops.ir.roofline import NodeBound, Roofline
from crossflops.render.figures.canvas import COLOURS as CANVAS_COLOURS
from crossflops.render.figures.canvas import Box, Canvas, Dot, DrawnLine, Shape, Words, svg
from crossflops.render.figures.comparison import sheet
from crossflops.render.figures.roofline import Span, by_operator, merged, spans, tick, tops
from crossflops.render.quantity import short
from crossflops.report.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")


def checked(suffix: str) -> str:
    """The suffix of a picture. Raises UnknownNameError for any other."""
    if suffix.lower() not in SUFFIXES:
        end = f"the suffix {suffix!r}" if suffix else "no suffix"
        raise UnknownNameError(
            f"{end} names no format of a picture", f"formats are {' and '.join(SUFFIXES)}"
        )
    return suffix.lower()


def installed() -> None:
    """Raises MissingExtraError without matplotlib, which is looked for and not imported."""
    if find_spec("matplotlib") is None:
        raise missing()


def missing() -> MissingExtraError:
    """The error that names the extra."""
    return MissingExtraError(
        "pictures need matplotlib, which is not installed", "pip install 'crossflops[plots]'"
    )


def roofline_plot(roof: Roofline, title: str, suffix: str) -> bytes:
    """A roofline: log-log, the ceilings of every precision, the nodes and the whole as points.

    Raises MissingExtraError without matplotlib.
    """
    return drawn(lambda figure: _draw_roofline(figure, roof, title), checked(suffix))


def batch_plot(
    curve: Sequence[Measurement | Unfit], title: str, suffix: str, chosen: int | None = None
) -> bytes:
    """Throughput and latency over the batch, with the batches that did not fit.

    `chosen` is the batch to mark, the fastest one unless said. Raises MissingExtraError without
    matplotlib.
    """
    return drawn(lambda figure: _draw_batches(figure, curve, title, chosen), checked(suffix))


def comparison_plot(report: Report, name: str, suffix: str) -> bytes:
    """The waterfalls of a comparison, or for a file whose name begins with "bars" its totals.

    An SVG needs no library. Raises MissingExtraError without matplotlib for a PNG, and InputError
    where there is nothing to draw.
    """
    canvas = sheet(report, name)
    if checked(suffix) == ".svg":
        return f"{svg(canvas, alone=True)}\n".encode()
    return drawn(lambda figure: _draw_canvas(figure, canvas), suffix.lower())


# Okabe and Ito, Color universal design (2008); yellow is left out, too faint on white paper.
BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
ORANGE, SKY, PURPLE = "#E69F00", "#56B4E9", "#CC79A7"
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE)
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY, INK, PALE = "#6b6b6b", "#1a1a1a", "#eeeeee"
_RC: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same glyphs everywhere
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "crossflops",  # ids are random otherwise
    "text.parse_math": False,  # names of nodes may hold a dollar sign
}
_SIZE = (7.2, 4.8)  # inches
# Fixed, which is several times as fast as a layout that looks at every text.
_MARGINS = {"left": 0.1, "right": 0.985, "top": 0.91, "bottom": 0.105, "hspace": 0.08}
_DPI = 160
_LONGEST = 64  # characters of a title
_LAST = 24  # of them behind a gap


def drawn(draw: "Callable[[Figure], None]", suffix: str) -> bytes:
    """The bytes of a figure. Raises MissingExtraError without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing() from error
    out = BytesIO()
    with rc_context(_RC):
        figure = Figure(figsize=_SIZE)
        figure.subplots_adjust(**_MARGINS)
        draw(figure)
        empty = {"Date": None} if suffix == ".svg" else {"Software": None}
        figure.savefig(out, format=suffix[1:], dpi=_DPI, metadata=empty)
    return out.getvalue()


def shortened(title: str) -> str:
    """A title that has room: of a longer one its beginning and its end.

    >>> len(shortened("x" * 500)), shortened("resnet50, cpu")
    (64, 'resnet50, cpu')
    """
    if len(title) <= _LONGEST:
        return title
    return f"{title[: _LONGEST - _LAST - 5]} ... {title[-_LAST:]}"


def headed(axes: "Axes", title: str, beneath: str = "") -> None:
    """A title at the left, and a line of small print under it."""
    short = shortened(title)
    axes.set_title(f"{short}\n" if beneath else short, loc="left", fontweight="bold")
    if beneath:
        axes.text(0, 1.015, beneath, transform=axes.transAxes, fontsize=8, color=GREY, va="bottom")


# A roofline.

_DASHES = ("--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_ROOFLINE_SIZE, _RIGHT = (9.6, 4.8), 0.715  # inches, and the part of the width that the axes have
_LONGEST_OPERATOR = 28  # letters of an operator
_LARGEST = 900.0  # area of a point with all of the work, in square points
_SMALLEST = 16.0


def _draw_roofline(figure: "Figure", roof: Roofline, title: str) -> None:
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
    figure.set_size_inches(*_ROOFLINE_SIZE)
    figure.subplots_adjust(left=0.075, right=_RIGHT)
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.01), fontsize=7.5, handletextpad=0.4,
        title="share of work, of the shortest time", title_fontsize=7.5, alignment="left",
    )  # fmt: skip
    _slope(axes, roof, x)


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
    op = op if len(op) <= _LONGEST_OPERATOR else f"{op[: _LONGEST_OPERATOR - 1]}…"
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


# A search for the best batch.

_LARGEST_BATCH = "largest that ran"


def _draw_batches(
    figure: "Figure", curve: Sequence[Measurement | Unfit], title: str, chosen: int | None
) -> None:
    """Examples per second above, milliseconds below, over the batch.

    Raises InputError where no batch ran.
    """
    ran = sorted(
        (timing for timing in curve if isinstance(timing, Measurement)), key=lambda row: row.batch
    )
    unfit = sorted(
        (timing for timing in curve if isinstance(timing, Unfit)), key=lambda row: row.batch
    )
    if not ran:
        raise InputError("no batch ran, so there is no curve", "bench a batch that fits")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for axes in (upper, lower):
        axes.grid(visible=True, color=PALE, linewidth=0.6, zorder=0)
        axes.set_xscale("log", base=2)
        for failed in unfit:
            axes.axvline(failed.batch, color=GREY, linestyle=":", linewidth=1, zorder=1)
    _throughput(upper, ran, chosen)
    _latency(lower, ran)
    _failed(upper, unfit)
    _ticks(lower, sorted({timing.batch for timing in ran} | {failure.batch for failure in unfit}))
    lower.set_xlabel("batch")
    headed(upper, title)


def _throughput(axes: "Axes", ran: Sequence[Measurement], chosen: int | None) -> None:
    """The rates, hollow where the runs had not settled, with the batches that matter named."""
    rates = [timing.examples_per_second for timing in ran]
    axes.plot([timing.batch for timing in ran], rates, "-", color=BLUE, linewidth=1.8, zorder=3)
    for timing in ran:
        axes.plot(
            timing.batch, timing.examples_per_second, "o", markersize=5.5, markeredgecolor=BLUE,
            markerfacecolor=BLUE if timing.settled else "white", zorder=4,
        )  # fmt: skip
    axes.set_ylabel("examples/s")
    axes.set_ylim(0, max(rates) * 1.3)
    fastest = max(ran, key=lambda row: row.examples_per_second)
    names = {ran[-1].batch: _LARGEST_BATCH}
    names |= {timing.batch: "chosen" for timing in ran if timing.batch == chosen}
    names[fastest.batch] = "fastest"
    for timing in ran:
        if timing.batch in names:
            side = "left" if timing is ran[0] else "right" if timing is ran[-1] else "center"
            _mark(
                axes,
                timing,
                names[timing.batch],
                side,
                above=names[timing.batch] != _LARGEST_BATCH,
            )
    if not all(timing.settled for timing in ran):
        axes.text(
            0.5, 0.03, "hollow: the runs had not settled", transform=axes.transAxes, ha="center",
            fontsize=7.5, color=GREY,
        )  # fmt: skip


def _mark(axes: "Axes", timing: Measurement, name: str, side: str, *, above: bool) -> None:
    axes.plot(
        timing.batch, timing.examples_per_second, "o", markersize=11, markerfacecolor="none",
        markeredgecolor=VERMILION, markeredgewidth=1.8, zorder=5,
    )  # fmt: skip
    axes.annotate(
        f"{name}: {timing.examples_per_second:.4g}/s at {timing.batch}",
        (timing.batch, timing.examples_per_second), xytext=(0, 10 if above else -18), ha=side,
        textcoords="offset points", fontsize=8, fontweight="bold", color=INK,
    )  # fmt: skip


def _latency(axes: "Axes", ran: Sequence[Measurement]) -> None:
    """The median, and the percentiles above it."""
    from matplotlib.ticker import LogLocator, NullFormatter

    batches = [timing.batch for timing in ran]
    for name, style, colour in (("p50", "-", BLUE), ("p90", "--", GREY), ("p99", ":", VERMILION)):
        values = [1e3 * getattr(timing, name) for timing in ran]
        axes.plot(batches, values, style, color=colour, linewidth=1.5, zorder=3, label=name)
        if len(ran) == 1:  # a line of one point is not seen
            axes.plot(batches, values, "_", color=colour, markersize=14, zorder=3)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("ms a run")
    axes.legend(loc="upper left", fontsize=8, ncols=3)


def _failed(axes: "Axes", unfit: Sequence[Unfit]) -> None:
    top = axes.get_ylim()[1]
    for failure in unfit:
        axes.text(
            failure.batch, top, f"{failure.batch} did not run: {failure.stage} ", fontsize=7.5,
            color=GREY, rotation=90, ha="right", va="top",
        )  # fmt: skip


def _ticks(axes: "Axes", batches: Sequence[int]) -> None:
    """The batches that were tried, as far as their numbers have room."""
    kept: list[int] = []
    for batch in batches:
        if not kept or batch >= kept[-1] * 1.25:
            kept.append(batch)
    axes.set_xticks(kept, [str(size) for size in kept])
    axes.minorticks_off()


# A canvas, in the colours of its SVG.

_INCH = 96.0  # px of CSS
_POINT = 72.0 / _INCH
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def _draw_canvas(figure: "Figure", canvas: Canvas) -> None:
    """Every shape, from back to front, on axes that are as large as the canvas."""
    figure.set_size_inches(canvas.width / _INCH, canvas.height / _INCH)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, canvas.width)
    axes.set_ylim(canvas.height, 0)
    axes.axis("off")
    for place, shape in enumerate(canvas.shapes):
        _paint(axes, shape, place)


def _paint(axes: "Axes", shape: Shape, place: int) -> None:
    from matplotlib.patches import Circle, Rectangle

    colour = CANVAS_COLOURS[shape.ink]
    match shape:
        case Box():
            corner = (shape.x, shape.y)
            axes.add_patch(
                Rectangle(corner, shape.width, shape.height, color=colour, lw=0, zorder=place)
            )
        case DrawnLine():
            axes.plot(
                [shape.x1, shape.x2], [shape.y1, shape.y2], color=colour, zorder=place,
                linewidth=shape.width * _POINT, linestyle="--" if shape.dashed else "-",
            )  # fmt: skip
        case Words():
            axes.text(
                shape.x, shape.y, shape.text, color=colour, fontsize=shape.size * _POINT,
                ha=_ANCHORS[shape.anchor], va="baseline", zorder=place,
                fontweight="bold" if shape.bold else "normal",
            )  # fmt: skip
        case Dot():
            axes.add_patch(
                Circle((shape.x, shape.y), shape.radius, fill=not shape.hollow, color=colour,
                       zorder=place)
            )  # fmt: skip
