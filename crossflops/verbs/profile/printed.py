"""What tools print for the model of a profile, and by which causes: a comparison beside it."""

from collections.abc import Iterable

import msgspec

from crossflops.ir.profile import Failure
from crossflops.report.profile import ConventionProfile, ProfileDifference, TrainingProfile
from crossflops.report.report import Report
from crossflops.targets.request import Request
from crossflops.verbs.compare.compare import Comparison, compare
from crossflops.verbs.compare.tools import Progress


def of_tools(request: Request, tools: tuple[str, ...], tell: Progress) -> Report:
    """The comparison of one forward pass. Raises UnknownNameError for what is no tool."""
    forward = msgspec.structs.replace(request, train=False, as_=(), frozen=(), trainable=())
    return compare(forward, Comparison(tools=tools), tell)


def beside(profile: TrainingProfile, compared: Report) -> TrainingProfile:
    """The profile with what each tool printed; of one that shows no number, why."""
    return msgspec.structs.replace(
        profile,
        conventions=(*profile.conventions, *_rows(compared)),
        warnings=(*profile.warnings, *_without_rows(compared)),
    )


def _rows(compared: Report) -> Iterable[ConventionProfile]:
    answers = [answer for answer in compared.profiles or () if not isinstance(answer, Failure)]
    versions = {answer.tool: answer.version for answer in answers}
    for account in compared.reconciliations or ():
        unit, printed, steps = account.unit, account.theirs, account.explanations
        if unit:
            yield ConventionProfile(
                tool=account.tool,
                edition=versions[account.tool],
                macs=printed / unit if printed % unit else int(printed) // unit,
                printed=printed,
                differences=tuple(ProfileDifference(step.cause, step.amount) for step in steps),
                residual=account.residual,
                by_module={
                    row.path: int(row.predicted if row.theirs is None else row.theirs) // unit
                    for row in account.by_path
                },
            )


def _without_rows(compared: Report) -> Iterable[str]:
    for answer in compared.profiles or ():
        if isinstance(answer, Failure):
            yield f"{answer.tool} printed nothing: {answer.message}; {answer.hint}"
    for account in compared.reconciliations or ():
        if not account.unit:
            yield f"{account.tool} counts no MACs: it is not shown beside the step"
