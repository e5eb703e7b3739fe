"""What was measured: the fields of `crossflops.hardware.question.Speed`."""

import click

from crossflops.cli.efficiency.group import POSITIVE, Function, stacked


def options(function: Function) -> Function:
    """`--examples-per-second`."""
    return stacked(
        function,
        click.option(
            "--examples-per-second",
            type=POSITIVE,
            metavar="R",
            help="The measured speed of one device.",
        ),
    )
