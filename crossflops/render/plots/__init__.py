"""Pictures of one noun. They need matplotlib, `[plots]`.

In: a roofline, a bench. Out: the bytes of an SVG or a PNG; the same noun gives the same bytes.
May import: render, report, ir, errors.

Colours are those of Okabe and Ito, which people tell apart who see colours differently; markers
and line styles say the same without colour.
"""

from collections.abc import Sequence
from importlib.util import find_spec

from crossflops.errors import MissingExtraError, UnknownNameError
from crossflops.ir.measurement import Measurement, Unfit
from crossflops.ir.roofline import Roofline
from crossflops.report.report import Report

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
    from crossflops.render.plots.roofline import draw
    from crossflops.render.plots.style import drawn

    return drawn(lambda figure: draw(figure, roof, title), checked(suffix))


def batch_plot(
    curve: Sequence[Measurement | Unfit], title: str, suffix: str, chosen: int | None = None
) -> bytes:
    """Throughput and latency over the batch, with the batches that did not fit.

    `chosen` is the batch to mark, the fastest one unless said. Raises MissingExtraError without
    matplotlib.
    """
    from crossflops.render.plots.batch import draw
    from crossflops.render.plots.style import drawn

    return drawn(lambda figure: draw(figure, curve, title, chosen), checked(suffix))


def comparison_plot(report: Report, name: str, suffix: str) -> bytes:
    """The waterfalls of a comparison, or for a file whose name begins with "bars" its totals.

    An SVG needs no library. Raises MissingExtraError without matplotlib for a PNG, and InputError
    where there is nothing to draw.
    """
    from crossflops.render.figures.canvas import svg
    from crossflops.render.figures.comparison import sheet

    canvas = sheet(report, name)
    if checked(suffix) == ".svg":
        return f"{svg(canvas, alone=True)}\n".encode()
    from crossflops.render.plots.canvas import draw
    from crossflops.render.plots.style import drawn

    return drawn(lambda figure: draw(figure, canvas), suffix.lower())
