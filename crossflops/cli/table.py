"""`crossflops table`."""

from typing import Any

import click

from crossflops.cli.options import (
    MODEL,
    OUTPUT,
    SIZES,
    command_options,
    pop_model_options,
    pop_size_options,
    reject_timeout_without_tools,
    verb,
)
from crossflops.cli.output import showing_progress, write_verb_result


@verb(
    "table",
    example="crossflops table model.onnx other.onnx --by-tool exact-2k-1 -o table.tex",
    first=("--by-tool", "--latency", "--digits", "--batch", "-o"),
)
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@command_options(
    *MODEL,
    *SIZES,
    click.option("--by-tool", "tools", multiple=True, metavar="ID[@EDITION]",
                 help="Add a column with the number of this tool, predicted by its convention "
                      "without running it, such as thop. Repeatable."),
    click.option("--digits", type=click.IntRange(1, 20), default=4, show_default=True,
                 metavar="N", help="Number of significant digits; .csv and .json always have "
                                   "all digits."),
    click.option("--latency", is_flag=True,
                 help="Also run each model in onnxruntime, and show the median time of a run."),
    click.option("--jobs", type=click.IntRange(1), metavar="N",
                 help="Count up to N framework models in parallel. Files are counted one by "
                      "one. Default: at most one per two models, per CPU and per 4 GiB of "
                      "memory."),
    *OUTPUT,
)  # fmt: skip
def table(
    targets: tuple[str, ...],
    tools: tuple[str, ...],
    digits: int,
    latency: bool,
    jobs: int | None,
    **fields: Any,
) -> int:
    """Count several models into one table for a paper, one row each.

    For example: crossflops table torchvision:resnet50 timm:vit_base_patch16_224 -o table.tex
    """
    from crossflops.targets.request import Request, drop_unused_request_options
    from crossflops.verbs import table as table_verb

    shared = {"sizes": pop_size_options(fields), **pop_model_options(fields)}
    requests = drop_unused_request_options(
        [Request.from_arguments(target, **shared) for target in targets]
    )
    if not latency:
        reject_timeout_without_tools(*requests)
    if jobs is None:
        jobs = table_verb.choose_jobs(sum(not request.is_file for request in requests))
    else:
        table_verb.reject_jobs_without_effect(requests)
    named = list(zip(targets, requests, strict=True))
    with showing_progress("counting") as on_progress:
        rows = table_verb.build_paper_table(named, tools, digits, on_progress, latency, jobs)
    write_verb_result(rows, as_json=fields["as_json"], file=fields["file"])
    return 0
