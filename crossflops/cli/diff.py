"""`crossflops diff`."""

from fractions import Fraction
from typing import Any

import click

from crossflops.cli.options import (
    MODEL,
    OUTPUT,
    SIZES,
    command_options,
    pop_model_options,
    pop_size_options,
    reject_options_except,
    reject_timeout_without_tools,
    verb,
)
from crossflops.cli.output import showing_progress, write_verb_result


def _parse_increase_share(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> Fraction | None:
    """Return the share of --max-increase as a fraction: 1/50 for "2%" or "0.02", None if not
    given.
    """
    from crossflops.verbs.diff import parse_increase_share

    return None if text is None else parse_increase_share(text)


@verb(
    "diff",
    example="crossflops diff model.onnx other.onnx --max-increase 5%",
    first=("--max-increase", "--input", "-o"),
)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@command_options(
    *MODEL,
    *SIZES,
    click.option("--max-increase", "most", callback=_parse_increase_share, metavar="PERCENT",
                 help="Exit with status 1 if MACs, FLOPs or parameters grow by more than "
                      "this, such as 2%."),
    *OUTPUT,
)  # fmt: skip
def diff(first: str, second: str, most: Fraction | None, **fields: Any) -> int:
    """Show what changed between two models, two saved reports, or two git revisions.

    For example: crossflops diff HEAD~1:model.py:make model.py:make --max-increase 2%
    """
    from crossflops.targets.request import Request
    from crossflops.verbs import diff as diff_verb

    shared = {"sizes": pop_size_options(fields), **pop_model_options(fields)}

    sides = [
        diff_verb.diff_side_from_text(
            text, lambda target: Request.from_arguments(target, **shared)
        )
        for text in (first, second)
    ]
    if not diff_verb.requests_of_sides(sides):
        reject_options_except(
            ("most",),
            "both arguments are saved reports, and nothing is counted",
            "leave out {option}",
        )
    reject_timeout_without_tools(*diff_verb.requests_of_sides(sides))
    first_side, second_side = diff_verb.drop_unused_side_options(sides)
    with showing_progress("counting") as on_progress:
        changes = diff_verb.compare_sides(first_side, second_side, most, on_progress)
    write_verb_result(changes, as_json=fields["as_json"], file=fields["file"])
    return 0 if changes.holds else 1
