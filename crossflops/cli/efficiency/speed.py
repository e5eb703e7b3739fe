"""What was measured: the fields of `crossflops.hardware.rates.question.Speed`."""

import click

from crossflops.cli.efficiency.group import POSITIVE, Function, stacked


def options(function: Function) -> Function:
    """Rates, times, and of how many examples and tokens they are."""
    return stacked(
        function,
        click.option(
            "--examples-per-second",
            type=POSITIVE,
            metavar="R",
            help="The measured speed, of one device unless --devices or --dp say more.",
        ),
        click.option("--tokens-per-second", type=POSITIVE, metavar="R", help="Or in tokens."),
        click.option(
            "--latency-ms",
            type=POSITIVE,
            metavar="T",
            help="The time of a forward pass over --batch examples; with --train of a step.",
        ),
        click.option("--fwd-ms", type=POSITIVE, metavar="T", help="Of a forward pass alone."),
        click.option("--bwd-ms", type=POSITIVE, metavar="T", help="Of the backward pass."),
        click.option("--step-ms", type=POSITIVE, metavar="T", help="Of the optimizer's step."),
        click.option(
            "--batch",
            type=click.IntRange(1),
            metavar="B",
            help="Examples of one (micro-)batch on one replica of the model.",
        ),
        click.option(
            "--tokens", type=click.IntRange(1), metavar="N", help="Tokens of one example."
        ),
        click.option(
            "--runs",
            metavar="FILE.csv",
            help="A table of runs: columns device, precision, batch, rate, or as the flags say.",
        ),
        click.option(
            "--times",
            metavar="FILE.csv",
            help="Forward times of modules: columns module and ms, and macs without a TARGET.",
        ),
        click.option(
            "--per-device", is_flag=True, help="The rate is that of one of several devices."
        ),
    )
