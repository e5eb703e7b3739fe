"""Set published figures beside the counts of a sweep."""

from collections.abc import Sequence
from pathlib import Path

from crossflops.report.audit import PublishedRow
from crossflops.report.sweep import NATIVE, PublishedPoint, SweepRow
from crossflops.verbs.published_tables import read_published_table


def match_published_figures(path: str, rows: Sequence[SweepRow]) -> tuple[PublishedPoint, ...]:
    """Return each figure of a table whose model the sweep has counted, () without a table.

    Raises InputError for a file that is not such a table: see `audit`.
    """
    if not path:
        return ()
    native = [
        row for row in rows if row.tool == NATIVE and row.macs is not None and not row.case.train
    ]
    published = read_published_table(Path(path)).rows
    matches = (
        _match_figure(figure, row)
        for figure in published
        for row in native
        if _is_figure_of_row(figure, row)
    )
    return tuple(point for point in matches if point is not None)


def _is_figure_of_row(figure: PublishedRow, row: SweepRow) -> bool:
    """Return whether a figure is one of the model of a row, at its input with a batch of one."""
    target = row.case.target
    if figure.target not in (target, target.rpartition(":")[2]):
        return False
    sides = row.shapes[0].split("x") if row.shapes else []
    if figure.input:
        return "x".join(sides) == figure.input
    is_size = figure.image_size is None or str(figure.image_size) in sides[1:]
    return is_size and (figure.image_size is None or sides[0] == "1")


def _match_figure(figure: PublishedRow, row: SweepRow) -> PublishedPoint | None:
    """Return a published figure together with the count of the row in the same unit; None if the
    unit is none that the row has.
    """
    counts = {"macs": row.macs, "flops": row.flops, "params": row.params}
    unit = figure.figure.unit
    exact = counts.get(unit)
    if exact is None or unit not in ("macs", "flops", "params"):
        return None
    return PublishedPoint(
        target=row.case.target,
        unit=unit,  # type: ignore[arg-type]  # one of the three
        text=figure.figure.text,
        published=float(figure.figure.value),
        exact=exact,
        family=row.family,
    )
