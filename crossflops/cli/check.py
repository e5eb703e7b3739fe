"""`crossflops check`."""

from pathlib import Path

import click

from crossflops.cli.help import verb
from crossflops.cli.options import OUTPUT, options
from crossflops.cli.output import deliver, progress, say


@verb(
    "check",
    example="crossflops check --update",
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@options(
    click.option("--update", is_flag=True,
                 help="Write the baseline, and hold the rules against it."),
    *OUTPUT,
)  # fmt: skip
def check(targets: tuple[str, ...], update: bool, as_json: bool, file: Path | None) -> int:
    """Hold models against the budgets of a configuration.

    The exit status is 1 when one fails. For example, where pyproject.toml has
    [tool.crossflops.budgets."model.onnx"] and rules = ["macs <= 4.2G"]: crossflops check
    """
    from crossflops.verbs import check as verb

    with progress("checking") as tell:
        checks = verb.check(targets, update, tell)
    if update:
        say(f"wrote {verb.BASELINE}")
    deliver(checks, as_json=as_json, file=file)
    return 0 if checks.hold else 1
