"""Whose count: the fields of `crossflops.hardware.rates.question.Work`."""

import click

from crossflops.cli.efficiency.group import Function, stacked


def options(function: Function) -> Function:
    """`--as`, `--macs`, `--pass-macs`, `--compare`, `--tool`."""
    return stacked(
        function,
        click.option(
            "--as", "as_", metavar="ID[@EDITION]", help="The MACs as this tool counts them."
        ),
        click.option(
            "--macs", metavar="N", help="MACs of one example, such as 4.112G; needs no TARGET."
        ),
        click.option(
            "--pass-macs", metavar="N", help="MACs of one forward pass over the whole --batch."
        ),
        click.option(
            "--compare", is_flag=True, help="By each tool's number, with why they differ."
        ),
        click.option(
            "--tool", "tools", multiple=True, metavar="ID", help="A tool to --compare. Repeatable."
        ),
    )
