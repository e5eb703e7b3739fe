"""`crossflops audit`."""

from pathlib import Path
from typing import Any

import click

from crossflops.cli.options import OUTPUT, command_options, verb
from crossflops.cli.output import showing_progress, write_verb_result


@verb(
    "audit",
    example="crossflops audit results.csv --library timm --only 'resnet*' -o audit.md",
    first=("--library", "--only", "--limit", "--store", "-o"),
)
@click.argument("table", metavar="TABLE.csv", type=click.Path(path_type=Path))
@command_options(
    click.option("--library", default="", metavar="NAME",
                 help="The library of the models of the table, such as timm or torchvision."),
    click.option("--only", multiple=True, metavar="PATTERN",
                 help="Audit only models whose name matches, such as 'resnet*'. Repeatable."),
    click.option("--limit", type=click.IntRange(1), metavar="N",
                 help="Audit only the first N models."),
    click.option("--as", "as_", multiple=True, metavar="ID[@EDITION]",
                 help="Try only this convention, and the native count. Repeatable. Default: "
                      "all."),
    click.option("--store", default="", metavar="FOLDER",
                 help="Store each count in this folder and reuse it: an interrupted audit "
                      "continues."),
    click.option("--jobs", type=click.IntRange(1), metavar="N",
                 help="Count up to N models in parallel. Default: at most one per two models, "
                      "per CPU and per 4 GiB of memory."),
    *OUTPUT,
)  # fmt: skip
def audit(table: Path, jobs: int | None, **fields: Any) -> int:
    """Reproduce the published figures of a table, and name its contradictions.

    The columns are found by their names: a model, its input, and figures such as gmacs or
    "Params (M)".
    """
    from crossflops.verbs.audit import AuditChoice, audit_table

    choice = AuditChoice(
        library=fields.pop("library"),
        as_=fields.pop("as_"),
        only=fields.pop("only"),
        limit=fields.pop("limit"),
        store=fields.pop("store"),
        jobs=jobs,
    )
    with showing_progress(f"auditing {table}") as on_progress:
        result = audit_table(table, choice, on_progress)
    write_verb_result(result, as_json=fields["as_json"], file=fields["file"])
    return 0
