"""A canvas as a PNG, painted by matplotlib in the colours of its SVG."""

from typing import TYPE_CHECKING

from crossflops.render.figures.canvas import COLOURS, Box, Canvas, Dot, DrawnLine, Shape, Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INCH = 96.0  # px of CSS
_POINT = 72.0 / _INCH
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def draw(figure: "Figure", canvas: Canvas) -> None:
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

    colour = COLOURS[shape.ink]
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
