"""The pictures of a comparison in a file by themselves: waterfalls beneath each other, or bars."""

from msgspec.structs import replace

from crossflops.errors import InputError
from crossflops.ir.reconciliation import Reconciliation
from crossflops.render.figures.bars import tools
from crossflops.render.figures.canvas import Canvas, DrawnLine, Shape, Words
from crossflops.render.figures.waterfall import waterfall
from crossflops.render.quantity import added
from crossflops.report.comparison import Against, Contrast
from crossflops.report.report import Report

BARS = "bars"  # begins the name of a file that is to have the bars of all tools
_HEAD, _GAP, _MARGIN = 26.0, 18.0, 16.0  # px


def sheet(report: Report, name: str) -> Canvas:
    """The bars of all tools where the name begins with "bars", else a waterfall for each account.

    Raises InputError where there is nothing to draw.
    """
    if name.lower().startswith(BARS):
        canvas = tools(report)
        drawn = [("Totals as MACs", canvas)] if canvas else []
    else:
        drawn = _waterfalls(report)
    if not drawn:
        raise InputError(
            "there is nothing to draw: no tool differs here", "compare with tools that differ"
        )
    return _stacked(drawn, report.name)


def _waterfalls(report: Report) -> list[tuple[str, Canvas]]:
    walks: list[tuple[str, Reconciliation | Contrast]]
    if isinstance(report.between, Contrast):
        walks = [(f"{report.between.second} = {report.between.first}", report.between)]
    elif isinstance(report.against, Against):
        canvas = waterfall(report.against.alignment)
        head = f"{report.against.name} against {report.name}, MACs"
        return [(head, canvas)] if canvas else []
    else:
        accounts = report.reconciliations or ()
        walks = [(f"{row.tool} = native{added(row.delta)}", row) for row in accounts]
    return [(head, canvas) for head, walk in walks if (canvas := waterfall(walk))]


def _stacked(drawn: list[tuple[str, Canvas]], label: str) -> Canvas:
    """The canvases under their heads, with a margin around all."""
    shapes: list[Shape] = []
    y = _MARGIN
    for head, canvas in drawn:
        shapes.append(Words(x=_MARGIN, y=y + 13, text=head, bold=True))
        y += _HEAD
        shapes += [_moved(shape, _MARGIN, y) for shape in canvas.shapes]
        y += canvas.height + _GAP
    width = max(canvas.width for _, canvas in drawn) + 2 * _MARGIN
    return Canvas(width=width, height=y, label=label, shapes=tuple(shapes))


def _moved(shape: Shape, x: float, y: float) -> Shape:
    if isinstance(shape, DrawnLine):
        return replace(shape, x1=shape.x1 + x, x2=shape.x2 + x, y1=shape.y1 + y, y2=shape.y2 + y)
    return replace(shape, x=shape.x + x, y=shape.y + y)
