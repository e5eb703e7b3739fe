"""Build the table of the parts of a pipeline."""

from collections.abc import Sequence

from crossflops.render.page import Block, Column, Heading, Row, Table, Text, number_columns
from crossflops.report.quantity import exact_amount, percent_share, short_amount
from crossflops.report.report import PipelinePart

_NOTE = (
    "The totals are sums over all runs. Parameters are stored once, however often a part runs, "
    "and the peak of memory is that of one part, since they run one after the other."
)


def pipeline_blocks(parts: Sequence[PipelinePart], unit: str) -> list[Block]:
    """Return the table of a pipeline's parts, with the `unit` (macs, flops) of one run and of
    all.
    """
    total = sum(part.times * getattr(part, unit) for part in parts)
    name = "FLOPs" if unit == "flops" else "MACs"
    columns = (
        Column(head="part", flows=True),
        *number_columns("runs", f"{name} of a run", f"{name} of all"),
        Column(head="share", right=True, spare=2),
        Column(head="parameters", right=True, spare=1),
    )
    rows = [
        Row.from_cells(
            part.name,
            exact_amount(part.times),
            short_amount(getattr(part, unit)),
            exact_amount(part.times * getattr(part, unit)),
            percent_share(part.times * getattr(part, unit), total),
            f"as {part.weights_of}" if part.weights_of else short_amount(part.params),
        )
        for part in parts
    ]
    shared = [
        Text(
            f"{part.name} has the weights of {part.weights_of}: both have the same target and "
            "arguments.",
            " ",
        )
        for part in parts
        if part.weights_of
    ]
    return [
        Heading("Parts"),
        Table(columns=columns, rows=tuple(rows)),
        *shared,
        Text(_NOTE, " ", "dim"),
        Heading("Totals of all runs"),
    ]
