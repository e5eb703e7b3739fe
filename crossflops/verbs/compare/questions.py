"""Answer further questions to a comparison: about one module, two tools, or two models."""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.ir.profile import Failure, Profile
from crossflops.report.comparison import Against, Contrast, contrast_accounts
from crossflops.report.report import Report
from crossflops.report.view import restrict_to_module

if TYPE_CHECKING:
    from crossflops.verbs.count import CountedModel


def select_tools(
    tools: Sequence[str] | None, between: tuple[str, str] | None
) -> tuple[str, ...] | str | None:
    """Return the names of the tools to run: the requested ones and the two of `between`; None
    means all installed tools.

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
    tools: Sequence[str] | None, between: tuple[str, str] | None, has_second_model: bool
) -> tuple[tuple[str, ...] | str | None, tuple[str, ...] | str | None]:
    """Return (tools to run on the first model, tools to run on the second); `between` names one
    tool for each.
    """
    if between is None or not has_second_model:
        both = select_tools(tools, between)
        return both, both
    more = [tools] if isinstance(tools, str) else tools or ()
    first, second = (tuple(dict.fromkeys((*more, tool))) for tool in between)
    return first, second


def with_tool_contrast(report: Report, between: tuple[str, str] | None) -> Report:
    """Return a copy of the report with the explained difference between the two tools of
    `between`; unchanged if it is None.

    Raises UnknownNameError for a tool that was not asked.
    """
    if between is None:
        return report
    if isinstance(report.against, Against):
        _check_tools_in_report(report.profiles or (), between[:1])
        _check_tools_in_report(report.against.profiles, between[1:])
        return _with_contrasts_across_models(report, between)
    _check_tools_in_report(report.profiles or (), between)
    if not report.residuals.keys() >= set(between):
        return report
    return msgspec.structs.replace(report, between=report.contrast(*between))


def _check_tools_in_report(profiles: Sequence[Profile | Failure], tools: Sequence[str]) -> None:
    """Raise UnknownNameError if one of the tools has no answer in the report."""
    tried = {answer.tool for answer in profiles}
    for tool in tools:
        if tool not in tried:
            raise UnknownNameError(
                f"{tool} is not in this report",
                f"name one of the tools in it: {', '.join(sorted(tried))}"
                if tried
                else f"compare the model with it: crossflops compare TARGET --tool {tool}",
            )


def answer_report_questions(
    report: Report,
    *,
    between: tuple[str, str] | None = None,
    module: str | None = None,
    consensus: bool = False,
) -> Report:
    """Return a copy of the report restricted to `module`, with the difference of `between` and
    with the consensus, as requested.
    """
    report = with_tool_contrast(
        report if module is None else restrict_to_module(report, module), between
    )
    if not consensus:
        return report
    from crossflops.report.consensus import build_consensus

    return msgspec.structs.replace(report, consensus=build_consensus(report))


# Two models that were compared with their tools -> what is between them.

_OPTION = re.compile(r"--(?=(input|inputs|arg|dim|trips|branch)\b)")


def reject_second_model_options(module: str | None, consensus: bool, onnx: str | None) -> None:
    """Raise InputError for --module, --consensus or --onnx together with --against."""
    questions = {"--module": module, "--consensus": consensus, "--onnx": onnx}
    flag = next((name for name, value in questions.items() if value), None)
    if flag is not None:
        raise InputError(
            f"{flag} cannot be combined with --against",
            f"use {flag} without --against",
        )


@contextmanager
def naming_second_model_in_errors() -> Iterator[None]:
    """Change errors of the block: their text says that they are about the second model, and names
    its options --against-*.
    """
    try:
        yield
    except CrossflopsError as error:
        message = _OPTION.sub("--against-", error.message)
        error.message = f"the second model: {message}"
        if "crossflops " not in error.hint:  # a whole command line is about one model
            error.hint = _OPTION.sub("--against-", error.hint)
        raise


def naming_model_in_errors(model_index: int) -> AbstractContextManager[None]:
    """Return a context manager that names the second model in errors of the block; for the first
    model it does nothing.
    """
    return naming_second_model_in_errors() if model_index else nullcontext()


def with_second_model(
    first: Report,
    second: Report,
    counted: Sequence["CountedModel"],
    between: tuple[str, str] | None,
) -> Report:
    """Return a copy of the first report with the second model: its numbers, and the differences by
    layer and by tool.
    """
    from crossflops.reconcile.alignment import align_models
    from crossflops.reconcile.contractions import read_alignable_model

    pair = [read_alignable_model(model.graph, model.trace, model.ledger) for model in counted]
    other = Against(
        model=second.model,
        totals=second.totals,
        setting=second.setting,
        alignment=align_models(*pair),
        profiles=second.profiles or (),
        reconciliations=second.reconciliations or (),
        request=second.request,
        made_with=second.made_with,
    )
    both = msgspec.structs.replace(
        first, against=other, against_modules=second.modules, against_nodes=second.nodes
    )
    return _with_contrasts_across_models(both, between)


def _with_contrasts_across_models(report: Report, between: tuple[str, str] | None) -> Report:
    """Return a copy of the report with the explained differences between tools on the first and on
    the second model.

    Unless two are named, these are each tool that answered for both models, and each that answered
    for one alone with all that answered for the other.
    """
    other = report.against
    assert isinstance(other, Against)
    own = {account.tool: account for account in report.reconciliations or ()}
    other_accounts = {account.tool: account for account in other.reconciliations}
    both = [(tool, tool) for tool in own if tool in other_accounts]
    separate = [
        (first, second)
        for first in own
        for second in other_accounts
        if first != second and (first not in other_accounts or second not in own)
    ]
    requested = [between] if between else [*both, *separate]
    contrasts: tuple[Contrast, ...] = tuple(
        contrast_accounts(own[first], other_accounts[second], models=True)
        for first, second in requested
        if first in own and second in other_accounts
    )
    return msgspec.structs.replace(report, against=msgspec.structs.replace(other, tools=contrasts))
