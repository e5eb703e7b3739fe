"""The devices of a run: the fields of `crossflops.hardware.rates.question.Parallel`."""

import click

from crossflops.cli.efficiency.group import Function, stacked


def options(function: Function) -> Function:
    """`--devices`, `--dp`, `--tp`, `--pp`."""
    number = click.IntRange(1)
    return stacked(
        function,
        click.option("--devices", type=number, metavar="N", help="All of them: dp x tp x pp."),
        click.option("--dp", type=number, metavar="N", help="Replicas, each with its examples."),
        click.option("--tp", type=number, default=1, metavar="N", help="Devices to a layer."),
        click.option("--pp", type=number, default=1, metavar="N", help="Stages of a pipeline."),
    )
