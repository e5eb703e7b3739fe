"""`crossflops identify`."""

from typing import Any

import click

from crossflops.cli.options import (
    MODEL,
    OUTPUT,
    SIZES,
    TARGET,
    WEIGHTS,
    command_options,
    pop_request,
    pop_size_options,
    reject_timeout_without_tools,
    verb,
)
from crossflops.cli.output import showing_progress, write_verb_result


@verb(
    "identify",
    example="crossflops identify 4.11G torchvision:resnet50",
    first=("--input", "--image-size", "--as", "--all", "-o"),
)
@click.argument("figure", metavar="NUMBER")
@command_options(
    TARGET,
    *MODEL,
    *SIZES,
    click.option("--as", "as_", multiple=True, metavar="ID[@EDITION]",
                 help="Try only this convention, and the native count: fvcore, thop@0.0.31, or "
                      "'torchstat*' for all that match. Repeatable. Default: all."),
    click.option("--all", "is_thorough", is_flag=True,
                 help="Also count other image sizes, settings and batches, even if a count of "
                      "the given input already matches."),
    WEIGHTS,
    *OUTPUT,
)  # fmt: skip
def identify(figure: str, as_: tuple[str, ...], is_thorough: bool, **fields: Any) -> int:
    """Find the tool, unit, setting or input size that prints a published figure.

    NUMBER is as it was printed: 4.11G, "17.6 GFLOPs", 300M. Nothing is run except the model.
    """
    from crossflops.verbs.identify import identify_figure

    weights = fields.pop("weights")
    requested = pop_request(fields, sizes=pop_size_options(fields), weights=weights)
    reject_timeout_without_tools(requested)
    with showing_progress(f"counting {requested.target}") as on_progress:
        result = identify_figure(figure, requested, as_, is_thorough, on_progress)
    write_verb_result(result, as_json=fields["as_json"], file=fields["file"])
    return 0
