"""`crossflops compare`."""

from typing import Any

import click

from crossflops.cli.options import (
    NO_ANSWER,
    Positive,
    against,
    against_options,
    model_options,
    output_options,
    python_option,
    question_options,
    questions,
    request,
    strict_option,
    top_option,
    unanswered,
    unit_option,
)
from crossflops.cli.output import deliver, say
from crossflops.cli.progress import progress
from crossflops.ir.profile import Failure
from crossflops.plugins.installation import to_install
from crossflops.render.pages.places import Compared
from crossflops.report.comparison import Against
from crossflops.report.report import Report

DOCTOR = "see `crossflops doctor`"


@click.command("compare")
@model_options
@against_options
@click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="ID",
    help="A tool to run. Repeatable; the default is every installed one that takes the model.",
)
@click.option("--no-tools", is_flag=True, help="Run none: with --against, the models alone.")
@click.option(
    "--onnx",
    metavar="FILE",
    help="For the tools that count an ONNX file: another one than the normalized model.",
)
@click.option(
    "--memory",
    type=Positive(),
    metavar="GIB",
    help="Address space of each tool, by default as much as the machine has memory.",
)
@question_options
@top_option
@python_option
@strict_option
@unit_option
@output_options
def command(
    tools: tuple[str, ...],
    no_tools: bool,
    onnx: str | None,
    memory: float | None,
    python: dict[str, str],
    top: int,
    strict: bool,
    **fields: Any,
) -> int:
    """Run other counters on a model, and explain every difference."""
    asked, wanted = request(fields), {**questions(fields), **against(fields)}
    from crossflops.verbs import api

    with progress(f"comparing {asked.target}") as on_progress:
        report = api.compare(
            asked.target,
            tools=() if no_tools else tools or None,
            onnx=onnx,
            timeout=asked.timeout,
            memory=None if memory is None else round(memory * 2**30),
            python=python,
            **asked.keywords,
            **wanted,
            on_progress=on_progress,
        )
    deliver(Compared(report, top) if report.profiles else report, **fields)
    if unanswered(report, wanted["between"]):
        return NO_ANSWER
    return _status(report, strict, no_tools)


def _status(report: Report, strict: bool, alone: bool) -> int:
    other = report.against if isinstance(report.against, Against) else None
    profiles = (*(report.profiles or ()), *(other.profiles if other else ()))
    if not profiles and not alone:
        say(f"no tool is installed; to install some: {to_install() or DOCTOR}")
    elif profiles and all(isinstance(one, Failure) for one in profiles):
        say("every tool failed")
        return NO_ANSWER
    left = [(tool, residual) for tool, residual in report.residuals.items() if residual]
    left += (
        [(one.tool, one.residual) for one in other.reconciliations if one.residual]
        if other
        else []
    )
    missing = len(report.uncounted) + (other.alignment.uncounted[1] if other else 0)
    if strict and (left or missing):
        what = [f"{tool} leaves a residual of {residual}" for tool, residual in left]
        what += [f"{missing} nodes are not counted"] if missing else []
        say(f"strict: {'; '.join(what)}")
        return 1
    return 0
