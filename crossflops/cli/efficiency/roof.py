"""The roofline: the fields of `crossflops.hardware.rates.question.Roof`."""

import click

from crossflops.cli.efficiency.group import Function, stacked
from crossflops.cli.options import picture


def options(function: Function) -> Function:
    """A roofline, its bytes, alternatives, a run to set against it, and a picture."""
    return stacked(
        function,
        click.option(
            "--roofline",
            is_flag=True,
            help="What the device allows, node by node: the longer of work and bytes.",
        ),
        click.option(
            "--bytes",
            "bytes_",
            type=click.Choice(["unfused", "weights-once", "fused-ideal"]),
            help="What is moved: by every node (the default), weights and caches once, or these "
            "with the inputs and outputs of the model. Implies --roofline.",
        ),
        click.option(
            "--bytes-per-example",
            metavar="N",
            help="Bytes that a run moves for one example, such as 459M, instead of counting them.",
        ),
        click.option(
            "--what-if",
            multiple=True,
            metavar="KEY=VALUE[,...]",
            help="The same with another batch, precision, weights, cache, device or bytes, such "
            "as batch=64 or weights=fp8,cache=fp8. Repeatable.",
        ),
        click.option(
            "--bench",
            metavar="FILE.json",
            help="What `crossflops bench -o FILE.json` measured, kernel by kernel.",
        ),
        click.option(
            "--plot", callback=picture, metavar="FILE", help="Draw the roofline: .svg or .png."
        ),
    )
