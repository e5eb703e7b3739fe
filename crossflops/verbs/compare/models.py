"""Two models that were compared with their tools -> what is between them."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from crossflops.errors import CrossflopsError, InputError
from crossflops.reconcile.models import Layers, align, layers
from crossflops.report.comparison import Against, Contrast, contrast
from crossflops.report.report import Report
from crossflops.verbs.count import Counted

_OPTION = re.compile(r"--(?=(input|inputs|arg|dim|trips|branch)\b)")


def refuse(module: str | None, consensus: bool, onnx: str | None) -> None:
    """Questions about one model alone. Raises InputError."""
    asked = {"--module": module, "--consensus": consensus, "--onnx": onnx}
    found = next((name for name, value in asked.items() if value), None)
    if found is not None:
        raise InputError(
            f"{found} is about one model, and --against names a second",
            f"ask for {found} without --against",
        )


@contextmanager
def told_of_the_second() -> Iterator[None]:
    """Errors within say that they are about the second model, and name its options."""
    try:
        yield
    except CrossflopsError as error:
        error.message = f"the second model: {error.message}"
        if "crossflops " not in error.hint:  # a whole command line is about one model
            error.hint = _OPTION.sub("--against-", error.hint)
        raise


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
        request=second.request,
        made_with=second.made_with,
    )
    return contrasted(msgspec.structs.replace(first, against=found), between)


def _layers(counted: Counted) -> Layers:
    return layers(counted.graph, counted.trace, counted.ledger)


def contrasted(report: Report, between: tuple[str, str] | None) -> Report:
    """The report with the tools set against each other, the first on the first model.

    Unless two are named, these are each tool that answered for both models, and each that answered
    for one alone with all that answered for the other.
    """
    other = report.against
    assert isinstance(other, Against)
    mine = {one.tool: one for one in report.reconciliations or ()}
    theirs = {one.tool: one for one in other.reconciliations}
    both = [(tool, tool) for tool in mine if tool in theirs]
    apart = [
        (one, two)
        for one in mine
        for two in theirs
        if one != two and (one not in theirs or two not in mine)
    ]
    wanted = [between] if between else [*both, *apart]
    found: tuple[Contrast, ...] = tuple(
        contrast(mine[one], theirs[two], models=True)
        for one, two in wanted
        if one in mine and two in theirs
    )
    return msgspec.structs.replace(report, against=msgspec.structs.replace(other, tools=found))
