"""What may be asked of a comparison beside the comparison itself."""

from collections.abc import Sequence

import msgspec

from crossflops.errors import InputError, UnknownNameError
from crossflops.ir.profile import Failure, Profile
from crossflops.report.comparison import Against
from crossflops.report.report import Report
from crossflops.report.view import focus


def chosen(
    tools: Sequence[str] | None, between: tuple[str, str] | None
) -> tuple[str, ...] | str | None:
    """The tools to run: those of `between` are among them, and alone where none is named.

    Raises InputError when a tool is to be set against itself.
    """
    if between is None:
        return tools if tools is None or isinstance(tools, str) else tuple(tools)
    if between[0] == between[1]:
        raise InputError(f"{between[0]} is no other tool than itself", "name two tools")
    more = [tools] if isinstance(tools, str) else tools or ()
    return tuple(dict.fromkeys((*more, *between)))


def of_models(
    tools: Sequence[str] | None, between: tuple[str, str] | None, two: bool
) -> tuple[tuple[str, ...] | str | None, tuple[str, ...] | str | None]:
    """The tools to run on the first model and on the second; with `two` one of `between` each."""
    if between is None or not two:
        found = chosen(tools, between)
        return found, found
    more = [tools] if isinstance(tools, str) else tools or ()
    first, second = (tuple(dict.fromkeys((*more, tool))) for tool in between)
    return first, second


def contrasted(report: Report, between: tuple[str, str] | None) -> Report:
    """The report with the difference between two tools, where both answered.

    Raises UnknownNameError for a tool that was not asked.
    """
    if between is None:
        return report
    if isinstance(report.against, Against):
        from crossflops.verbs.compare.models import contrasted as across

        _known(report.profiles or (), between[:1])
        _known(report.against.profiles, between[1:])
        return across(report, between)
    _known(report.profiles or (), between)
    if not report.residuals.keys() >= set(between):
        return report
    return msgspec.structs.replace(report, between=report.contrast(*between))


def _known(profiles: Sequence[Profile | Failure], tools: Sequence[str]) -> None:
    """Whether these tools were asked."""
    tried = {one.tool for one in profiles}
    for tool in tools:
        if tool not in tried:
            there = ", ".join(sorted(tried)) or "none"
            raise UnknownNameError(f"{tool} is not in this report", f"tools in it: {there}")


def answered(
    report: Report,
    *,
    between: tuple[str, str] | None = None,
    module: str | None = None,
    consensus: bool = False,
) -> Report:
    """The report with what was asked of it beside the comparison."""
    report = contrasted(report if module is None else focus(report, module), between)
    if not consensus:
        return report
    from crossflops.render.pages.consensus import consensus as worded

    return msgspec.structs.replace(report, consensus=worded(report))
