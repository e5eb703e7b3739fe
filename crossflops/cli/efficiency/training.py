"""What runs besides the forward pass: the fields of `crossflops.hardware.question.Training`."""

import click

from crossflops.cli.efficiency.group import Function, stacked


def options(function: Function) -> Function:
    """`--train`."""
    return stacked(
        function,
        click.option("--train", is_flag=True, help="Training: three passes instead of one."),
    )
