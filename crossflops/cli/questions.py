"""What may be asked of a comparison, now or of the file that one was written to."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from crossflops.core.profile import Failure
from crossflops.core.report import Report

Function = TypeVar("Function", bound=Callable[..., Any])
NO_ANSWER = 3


def between_option(function: Function) -> Function:
    """`--between`, as keyword `between`."""
    return click.option(
        "--between",
        nargs=2,
        metavar="TOOL TOOL",
        help="Explain why two tools differ from each other.",
    )(function)


def unanswered(report: Report, between: tuple[str, str] | None) -> bool:
    """Whether two tools could not be set against each other, since one failed; says so."""
    failed = [
        one
        for one in report.profiles or ()
        if isinstance(one, Failure) and one.tool in (between or ())
    ]
    for one in failed:
        click.echo(
            f"nothing stands between {' and '.join(between or ())}: {one.tool} failed at "
            f"{one.stage}: {one.message}",
            err=True,
        )
    return bool(failed)
