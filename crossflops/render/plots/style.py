"""How pictures look, and how they become bytes: the same for the same noun."""

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any

from crossflops.render.plots import missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
