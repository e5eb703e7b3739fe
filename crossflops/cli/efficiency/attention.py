"""How much of attention counts: the fields of `crossflops.hardware.rates.question.Causality`."""

import click

from crossflops.cli.efficiency.group import Function, stacked


def options(function: Function) -> Function:
    """`--causal`, `--window`."""
    return stacked(
        function,
        click.option(
            "--causal",
            type=click.Choice(["full", "half"]),
            default="full",
            show_default=True,
            help="The whole square of attention, or what a causal mask leaves; both are printed.",
        ),
        click.option(
            "--window", type=click.IntRange(1), metavar="W", help="Keys in a sliding window."
        ),
    )
