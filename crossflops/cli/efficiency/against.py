"""The peak: the fields of `crossflops.hardware.question.Against`."""

import click

from crossflops.cli.efficiency.group import POSITIVE, Function, stacked


def options(function: Function) -> Function:
    """`--precision`, `--device`, `--peak-tflops`."""
    return stacked(
        function,
        click.option(
            "--precision",
            metavar="P",
            default="",
            callback=lambda context, parameter, value: value.casefold(),
            help="What ran: fp16, bf16, tf32, fp32, fp64, int8 ...",
        ),
        click.option(
            "--device", metavar="D", help="A device of the catalogue, as its driver prints it."
        ),
        click.option(
            "--peak-tflops",
            type=POSITIVE,
            metavar="X",
            help="The dense peak in TFLOP/s of any other device.",
        ),
    )
