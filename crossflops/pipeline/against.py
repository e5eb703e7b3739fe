"""Two models that were compared with their tools -> what is between them."""

from collections.abc import Sequence

import msgspec

from crossflops.core.against import Against
from crossflops.core.contrast import Contrast, contrast
from crossflops.core.report import Report
from crossflops.errors import InputError
from crossflops.pipeline.counting import Counted
from crossflops.reconcile.models import Layers, align, layers


def refuse(module: str | None, consensus: bool, onnx: str | None) -> None:
    """Questions about one model alone. Raises InputError."""
    asked = {"--module": module, "--consensus": consensus, "--onnx": onnx}
    found = next((name for name, value in asked.items() if value), None)
    if found is not None:
        raise InputError(
            f"{found} is about one model, and --against names a second",
            f"ask for {found} without --against",
        )


def against(
    first: Report, second: Report, counted: Sequence[Counted], between: tuple[str, str] | None
) -> Report:
    """The first report with what is between its model and that of the second."""
    found = Against(
        model=second.model,
        totals=second.totals,
        setting=second.setting,
        alignment=align(*map(_layers, counted)),
        profiles=second.profiles or (),
        reconciliations=second.reconciliations or (),
        made_with=second.made_with,
    )
    return contrasted(msgspec.structs.replace(first, against=found), between)


def _layers(counted: Counted) -> Layers:
    return layers(counted.graph, counted.trace, counted.ledger)


def contrasted(report: Report, between: tuple[str, str] | None) -> Report:
    """The report with the tools set against each other, the first on the first model.

    Unless two are named, these are each tool that answered for both models, and each two of which
    one answered for the first alone, the other for the second alone.
    """
    other = report.against
    assert isinstance(other, Against)
    mine = {one.tool: one for one in report.reconciliations or ()}
    theirs = {one.tool: one for one in other.reconciliations}
    both = [(tool, tool) for tool in mine if tool in theirs]
    apart = [(one, two) for one in mine if one not in theirs for two in theirs if two not in mine]
    wanted = [between] if between else [*both, *apart]
    found: tuple[Contrast, ...] = tuple(
        contrast(mine[one], theirs[two], models=True)
        for one, two in wanted
        if one in mine and two in theirs
    )
    return msgspec.structs.replace(report, against=msgspec.structs.replace(other, tools=found))
