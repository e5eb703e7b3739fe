"""What runs besides the forward pass: the fields of `hardware.rates.question.Training`."""

import click

from crossflops.cli.efficiency.group import Function, stacked


def options(function: Function) -> Function:
    """`--train`, and how its passes are counted."""
    return stacked(
        function,
        click.option("--train", is_flag=True, help="Training: three passes instead of one."),
        click.option(
            "--train-multiplier", metavar="X", help="So many passes instead of three, such as 2.5."
        ),
        click.option(
            "--backward",
            type=click.Choice(["flat", "graph"]),
            default="flat",
            show_default=True,
            help="Three passes for everything, or for each node those that its gradients need.",
        ),
        click.option(
            "--frozen",
            multiple=True,
            metavar="PATTERN",
            help="Modules or parameters that are not trained: 'layer1*'. Passes are then by node. "
            "Repeatable.",
        ),
        click.option(
            "--trainable",
            multiple=True,
            metavar="PATTERN",
            help="What of the --frozen is trained all the same: '*lora*'. Repeatable.",
        ),
        click.option(
            "--recompute",
            metavar="none|full|attention|F",
            default="none",
            show_default=True,
            help="What of the forward pass is done again in the backward one: it is in the HFU.",
        ),
        click.option(
            "--flash", is_flag=True, help="Attention recomputes its scores in the backward pass."
        ),
        click.option(
            "--accumulate",
            type=click.IntRange(1),
            default=1,
            metavar="N",
            help="Micro-batches of one step.",
        ),
    )
