"""`crossflops identify`."""

from typing import Any

import click

from crossflops.cli.options import (
    MODEL,
    OUTPUT,
    SIZES,
    TARGET,
    WEIGHTS,
    Group,
    command_options,
    option_group,
    pop_request,
    pop_size_options,
    reject_timeout_without_tools,
    verb,
)
from crossflops.cli.output import showing_progress, write_verb_result

# The run of a figure: the fields of `crossflops.verbs.identify_runs.RunOptions`.

RUN: Group = option_group(
    "A figure of a training run",
    click.option("--run-tokens", metavar="N",
                 help="NUMBER is the compute of a training run of this many tokens, such as "
                      "300B: 3.14e23, or 3640 PF-days."),
    click.option("--tokens-per-second", metavar="R",
                 help="NUMBER is a speed such as '400 TFLOP/s', or an MFU such as 46.2%, at "
                      "this measured speed of all devices, such as 238.3k."),
    click.option("--devices", type=click.IntRange(1), metavar="N",
                 help="Number of devices of the run."),
    click.option("--device", metavar="D",
                 help="The device of an MFU: its id in the catalogue, or the name its driver "
                      "prints."),
    click.option("--precision", metavar="P", help="The precision of the run, such as bf16."),
    click.option("--peak-tflops", multiple=True, metavar="[P=]X",
                 help="The dense peak of the device in TFLOP/s, instead of --device."),
)  # fmt: skip


@verb(
    "identify",
    example="crossflops identify 4.11G torchvision:resnet50",
    first=("--input", "--image-size", "--as", "--run-tokens", "-o"),
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
    *RUN,
    WEIGHTS,
    *OUTPUT,
)  # fmt: skip
def identify(figure: str, as_: tuple[str, ...], is_thorough: bool, **fields: Any) -> int:
    """Find the tool, unit, setting or input size that prints a published figure.

    NUMBER is as it was printed: 4.11G, "17.6 GFLOPs", 300M. Nothing is run except the model.

    The compute of a training run, by formulas over the config of a language model:

    \b
    crossflops identify 3.14e23 hf:config.json --seq 2048 --run-tokens 300B
    """
    from crossflops.verbs.identify import identify_figure
    from crossflops.verbs.identify_runs import RunOptions

    weights = fields.pop("weights")
    run = RunOptions(**{name: fields.pop(name) for name in RunOptions.__struct_fields__})
    requested = pop_request(fields, sizes=pop_size_options(fields), weights=weights)
    reject_timeout_without_tools(requested)
    with showing_progress(f"counting {requested.target}") as on_progress:
        result = identify_figure(figure, requested, as_, is_thorough, on_progress, run)
    write_verb_result(result, as_json=fields["as_json"], file=fields["file"])
    return 0
