"""Write a canvas as a file: an SVG, or a PNG that matplotlib draws (`[plots]`).

The same canvas gives the same bytes.
"""

from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

from crossflops.errors import MissingExtraError, UnknownNameError
from crossflops.render.figures.canvas import (
    COLOURS,
    Box,
    Canvas,
    Dot,
    DrawnLine,
    Shape,
    Words,
    canvas_to_svg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".svg", ".png")
_RC: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same glyphs everywhere
    "text.parse_math": False,  # names of nodes may hold a dollar sign
}
_INCH = 96.0  # px of CSS
_POINT = 72.0 / _INCH
_DPI = 160
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def require_picture_suffix(suffix: str) -> str:
    """Return the suffix in lower case. Raises an error if no picture can be made for it.

    Raises UnknownNameError for any other, and MissingExtraError for a PNG without matplotlib,
    which is looked for and not imported.
    """
    suffix = suffix.lower()
    if suffix not in SUFFIXES:
        raise UnknownNameError(
            f"the suffix {suffix!r} of --plot is not an image format"
            if suffix
            else "the file name of --plot has no suffix, which gives the format",
            f"end the file name with {' or '.join(SUFFIXES)}",
        )
    if suffix == ".png" and find_spec("matplotlib") is None:
        raise _matplotlib_missing_error()
    return suffix


def figure_file_bytes(canvas: Canvas, suffix: str) -> bytes:
    """Return a canvas as the bytes of a picture file, SVG or PNG by its suffix."""
    if require_picture_suffix(suffix) == ".svg":
        return f"{canvas_to_svg(canvas, alone=True)}\n".encode()
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _matplotlib_missing_error() from error
    out = BytesIO()
    with rc_context(_RC):
        figure = Figure(figsize=(canvas.width / _INCH, canvas.height / _INCH))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, canvas.width)
        axes.set_ylim(canvas.height, 0)
        axes.axis("off")
        for location, shape in enumerate(canvas.shapes):
            _paint_shape(axes, shape, location)
        figure.savefig(out, format="png", dpi=_DPI, metadata={"Software": None})
    return out.getvalue()


def _matplotlib_missing_error() -> MissingExtraError:
    """Return the error that a PNG picture needs matplotlib, with the command to install it."""
    return MissingExtraError(
        "a picture as PNG needs matplotlib, which is not installed",
        "pip install 'crossflops[plots]', or choose a file name that ends in .svg",
    )


def _paint_shape(axes: "Axes", shape: Shape, z_order: int) -> None:
    """Paint a shape on axes of matplotlib; a shape with a larger `z_order` is on top."""
    from matplotlib.patches import Circle, Rectangle

    colour = COLOURS[shape.ink]
    match shape:
        case Box():
            corner = (shape.x, shape.y)
            axes.add_patch(
                Rectangle(corner, shape.width, shape.height, color=colour, lw=0, zorder=z_order)
            )
        case DrawnLine():
            axes.plot(
                [shape.x1, shape.x2], [shape.y1, shape.y2], color=colour, zorder=z_order,
                linewidth=shape.width * _POINT, linestyle="--" if shape.dashed else "-",
            )  # fmt: skip
        case Words():
            axes.text(
                shape.x, shape.y, shape.text, color=colour, fontsize=shape.size * _POINT,
                ha=_ANCHORS[shape.anchor], va="baseline", zorder=z_order,
                fontweight="bold" if shape.bold else "normal",
            )  # fmt: skip
        case Dot():
            axes.add_patch(
                Circle((shape.x, shape.y), shape.radius, fill=not shape.hollow, color=colour,
                       zorder=z_order)
            )  # fmt: skip
