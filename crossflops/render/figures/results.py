"""Draw a bench, an efficiency or a comparison as the bytes of a picture file."""

from pathlib import Path

from crossflops.errors import InputError
from crossflops.render.figures.files import figure_file_bytes
from crossflops.report.bench import Bench
from crossflops.report.efficiency import EfficiencyReport, rooflines
from crossflops.report.report import Report


def batch_curve_picture(bench: Bench, file: Path) -> bytes:
    """Return the picture of examples per second for each batch size, in the format of the file.

    Raises InputError if nothing ran.
    """
    from crossflops.render.figures.batches import batch_curve_figure
    from crossflops.render.figures.canvas import TitledCanvas, stack_canvases

    canvas = batch_curve_figure(bench.curve, bench.batch)
    title = f"{bench.name}, {bench.runtime}, {bench.device}"
    titled = stack_canvases([TitledCanvas(title, canvas)], canvas.label)
    return figure_file_bytes(titled, file.suffix)


def roofline_picture(report: EfficiencyReport, file: Path) -> bytes:
    """Return the picture of the first roofline of an efficiency report, in the format of the file.

    Raises InputError if the report has no roofline.
    """
    from crossflops.render.figures.roofline import roofline_plot_with_title

    roofs = rooflines(report)
    if not roofs:
        raise InputError(
            "--plot draws a roofline, but this result does not contain one",
            "add --roofline to the command `crossflops efficiency`",
        )
    title = report.report.name if report.report else "as given"
    return figure_file_bytes(roofline_plot_with_title(roofs[0], title), file.suffix)


def comparison_picture(report: Report, file: Path) -> bytes:
    """Return the picture of a comparison, in the format of the file: a waterfall for each tool, or
    bars if the file name begins with "bars".

    Raises InputError if nothing differs.
    """
    from crossflops.render.figures.comparison import comparison_figure

    return figure_file_bytes(comparison_figure(report, file.name), file.suffix)
