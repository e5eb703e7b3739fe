"""What may be asked of a comparison beside itself: one module, two tools, two models."""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.ir.profile import Failure, Profile
from crossflops.report.comparison import Against, Contrast, contrast
from crossflops.report.report import Report
from crossflops.report.view import focus

if TYPE_CHECKING:
    from crossflops.verbs.count import CountedModel


def select_tools(
    tools: Sequence[str] | None, between: tuple[str, str] | None
) -> tuple[str, ...] | str | None:
    """The tools to run: those of `between` are among them, and alone where none is named.

    Raises InputError when a tool is to be set against itself.
    """
    if between is None:
        return tools if tools is None or isinstance(tools, str) else tuple(tools)
    if between[0] == between[1]:
        raise InputError(
            f"--between needs two different tools, got {between[0]} twice",
            "name two different tools",
        )
    more = [tools] if isinstance(tools, str) else tools or ()
    return tuple(dict.fromkeys((*more, *between)))


def select_tools_per_model(
    tools: Sequence[str] | None, between: tuple[str, str] | None, two: bool
) -> tuple[tuple[str, ...] | str | None, tuple[str, ...] | str | None]:
    """The tools to run on the first model and on the second; with `two` one of `between` each."""
    if between is None or not two:
        both = select_tools(tools, between)
        return both, both
    more = [tools] if isinstance(tools, str) else tools or ()
    first, second = (tuple(dict.fromkeys((*more, tool))) for tool in between)
    return first, second


def contrast_tools(report: Report, between: tuple[str, str] | None) -> Report:
    """The report with the difference between two tools, where both answered.

    Raises UnknownNameError for a tool that was not asked.
    """
    if between is None:
        return report
    if isinstance(report.against, Against):
        _check_tools_in_report(report.profiles or (), between[:1])
        _check_tools_in_report(report.against.profiles, between[1:])
        return _contrast_across_models(report, between)
    _check_tools_in_report(report.profiles or (), between)
    if not report.residuals.keys() >= set(between):
        return report
    return msgspec.structs.replace(report, between=report.contrast(*between))


def _check_tools_in_report(profiles: Sequence[Profile | Failure], tools: Sequence[str]) -> None:
    """Whether these tools were asked."""
    tried = {answer.tool for answer in profiles}
    for tool in tools:
        if tool not in tried:
            there = ", ".join(sorted(tried)) or "none"
            raise UnknownNameError(f"{tool} is not in this report", f"tools in it: {there}")


def answer_report_questions(
    report: Report,
    *,
    between: tuple[str, str] | None = None,
    module: str | None = None,
    consensus: bool = False,
) -> Report:
    """The report with what was asked of it beside the comparison."""
    report = contrast_tools(report if module is None else focus(report, module), between)
    if not consensus:
        return report
    from crossflops.report.consensus import consensus as publishable

    return msgspec.structs.replace(report, consensus=publishable(report))


# Two models that were compared with their tools -> what is between them.

_OPTION = re.compile(r"--(?=(input|inputs|arg|dim|trips|branch)\b)")


def reject_second_model_options(module: str | None, consensus: bool, onnx: str | None) -> None:
    """Questions about one model alone. Raises InputError."""
    questions = {"--module": module, "--consensus": consensus, "--onnx": onnx}
    flag = next((name for name, value in questions.items() if value), None)
    if flag is not None:
        raise InputError(
            f"{flag} cannot be combined with --against",
            f"use {flag} without --against",
        )


@contextmanager
def naming_second_model() -> Iterator[None]:
    """Errors within say that they are about the second model, and name its options."""
    try:
        yield
    except CrossflopsError as error:
        message = _OPTION.sub("--against-", error.message)
        error.message = f"the second model: {message}"
        if "crossflops " not in error.hint:  # a whole command line is about one model
            error.hint = _OPTION.sub("--against-", error.hint)
        raise


def naming_model_in_errors(model_index: int) -> AbstractContextManager[None]:
    """Return a context in which errors say which model they are about, where it is the second."""
    return naming_second_model() if model_index else nullcontext()


def set_against(
    first: Report,
    second: Report,
    counted: Sequence["CountedModel"],
    between: tuple[str, str] | None,
) -> Report:
    """The first report with what is between its model and that of the second."""
    from crossflops.reconcile.alignment import align
    from crossflops.reconcile.contractions import read_alignable_model

    pair = [read_alignable_model(model.graph, model.trace, model.ledger) for model in counted]
    other = Against(
        model=second.model,
        totals=second.totals,
        setting=second.setting,
        alignment=align(*pair),
        profiles=second.profiles or (),
        reconciliations=second.reconciliations or (),
        request=second.request,
        made_with=second.made_with,
    )
    both = msgspec.structs.replace(
        first, against=other, against_modules=second.modules, against_nodes=second.nodes
    )
    return _contrast_across_models(both, between)


def _contrast_across_models(report: Report, between: tuple[str, str] | None) -> Report:
    """The report with the tools set against each other, the first on the first model.

    Unless two are named, these are each tool that answered for both models, and each that answered
    for one alone with all that answered for the other.
    """
    other = report.against
    assert isinstance(other, Against)
    own = {account.tool: account for account in report.reconciliations or ()}
    theirs = {account.tool: account for account in other.reconciliations}
    both = [(tool, tool) for tool in own if tool in theirs]
    separate = [
        (first, second)
        for first in own
        for second in theirs
        if first != second and (first not in theirs or second not in own)
    ]
    requested = [between] if between else [*both, *separate]
    contrasts: tuple[Contrast, ...] = tuple(
        contrast(own[first], theirs[second], models=True)
        for first, second in requested
        if first in own and second in theirs
    )
    return msgspec.structs.replace(report, against=msgspec.structs.replace(other, tools=contrasts))
