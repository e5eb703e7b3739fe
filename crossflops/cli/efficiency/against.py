"""The peak: `crossflops.hardware.rates.question.Against`, and `Precisions` that ran."""

import click

from crossflops.cli.efficiency.group import POSITIVE, Function, stacked


def options(function: Function) -> Function:
    """Precisions, a device, or peaks of one's own."""
    return stacked(
        function,
        click.option(
            "--precision",
            metavar="P",
            default="",
            help="What ran: fp16, bf16, tf32, fp32, fp64, int8 ..., or graph: as it is stored.",
        ),
        click.option(
            "--precision-of",
            multiple=True,
            metavar="PATTERN=P",
            help="Another precision for some operators, nodes or modules: Conv=tf32. Repeatable.",
        ),
        click.option(
            "--mix",
            multiple=True,
            metavar="P=SHARE",
            help="Shares of the work by precision: bf16=0.5, fp8=0.5. Repeatable.",
        ),
        click.option(
            "--device",
            metavar="D",
            help="A device of the catalogue, as its driver prints it; `measured` is this machine.",
        ),
        click.option(
            "--catalogue",
            metavar="FILE.toml",
            help="Devices of your own, beside those of crossflops.toml.",
        ),
        click.option(
            "--peak-tflops",
            multiple=True,
            metavar="[P=]X",
            help="The dense peak in TFLOP/s of any other device, or of one precision. Repeatable.",
        ),
        click.option(
            "--bandwidth", type=POSITIVE, metavar="X", help="The memory bandwidth in GB/s."
        ),
    )
