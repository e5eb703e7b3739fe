"""What may be asked of a comparison, now or of the file that one was written to."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from crossflops.cli.output import say
from crossflops.core.against import Against
from crossflops.core.profile import Failure, Profile
from crossflops.core.report import Report
from crossflops.render.places import TOP

Function = TypeVar("Function", bound=Callable[..., Any])
NO_ANSWER = 3


def question_options(function: Function) -> Function:
    """`--between`, `--module` and `--consensus`, for `questions` to take."""
    consensus = click.option(
        "--consensus", is_flag=True, help="Which number to publish, in a sentence to cite."
    )
    module = click.option(
        "--module",
        metavar="PATH",
        help="Only this module and what is beneath it, such as layer1.0.",
    )
    between = click.option(
        "--between",
        nargs=2,
        metavar="TOOL TOOL",
        help="Explain why two tools differ from each other.",
    )
    return between(consensus(module(function)))


def top_option(function: Function) -> Function:
    """`--top`, as keyword `top`."""
    return click.option(
        "--top",
        type=click.IntRange(0),
        default=TOP,
        show_default=True,
        metavar="N",
        help="How many modules to show, of those where the tools disagree most.",
    )(function)


def questions(fields: dict[str, Any]) -> dict[str, Any]:
    """The values of `question_options`, taken out of a command's keyword arguments."""
    return {name: fields.pop(name) for name in ("between", "module", "consensus")}


def unanswered(report: Report, between: tuple[str, str] | None) -> bool:
    """Whether two tools could not be set against each other, since one failed; says so."""
    profiles = report.profiles or ()
    sides: list[tuple[Sequence[Profile | Failure], Sequence[str]]] = [(profiles, between or ())]
    if between and isinstance(report.against, Against):
        sides = [(profiles, between[:1]), (report.against.profiles, between[1:])]
    failed = [
        one
        for found, tools in sides
        for one in found
        if isinstance(one, Failure) and one.tool in tools
    ]
    for one in failed:
        say(
            f"nothing stands between {' and '.join(between or ())}: {one.tool} failed at "
            f"{one.stage}: {one.message}"
        )
    return bool(failed)
