"""`crossflops count`."""

from typing import Any

import click

from crossflops.cli.options import (
    model_options,
    output_options,
    request,
    strict_option,
    unit_option,
    view_options,
    viewed,
)
from crossflops.cli.output import deliver, say
from crossflops.cli.progress import progress


@click.command("count")
@model_options
@click.option(
    "--as",
    "as_",
    multiple=True,
    metavar="ID[@EDITION]",
    help="Also count by this convention, without the tool: thop@0.0.31, exact-2k-1, "
    "'torchstat*' (all that match). Repeatable.",
)
@click.option(
    "--vary",
    "vary",
    multiple=True,
    metavar="NAME",
    help="Also give the totals as exact polynomials in this named dimension of an ONNX file. "
    "Repeatable.",
)
@click.option(
    "--observe",
    is_flag=True,
    help="Run the ONNX file once in onnxruntime, in a worker process, for sizes, iterations and "
    "branches that depend on data. --inputs gives real values.",
)
@view_options
@strict_option
@unit_option
@output_options
def command(
    as_: tuple[str, ...], vary: tuple[str, ...], observe: bool, strict: bool, **fields: Any
) -> int:
    """Count a model exactly, with no tool."""
    asked = request(fields)
    from crossflops.verbs import api

    with progress(f"counting {asked.target}"):
        report = api.count(
            asked.target,
            vary=vary,
            observe=observe,
            as_=as_,
            **asked.keywords,
        )
    deliver(viewed(report, fields, fields["unit"]), **fields)
    if strict and report.uncounted:
        say(f"strict: {len(report.uncounted)} nodes are not counted")
        return 1
    return 0
