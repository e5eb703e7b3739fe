"""`crossflops check`."""

from pathlib import Path

import click

from crossflops.cli.options import OUTPUT, options, refuse, verb, writable
from crossflops.cli.output import deliver, keep, progress, say


def _file(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    """The file, refused before the work begins if it cannot be written."""
    return None if value is None else writable(Path(value), "checks.xml")


@verb(
    "check",
    example="crossflops check --update",
    first=("--update", "--if-budgeted", "--junit", "-o"),
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@options(
    click.option("--update", is_flag=True,
                 help="Write the baseline, and hold the rules against it."),
    click.option("--if-budgeted", is_flag=True,
                 help="Name a target that has no budget, and do not refuse it."),
    click.option("--junit", callback=_file, metavar="FILE",
                 help="Also write the rules as test cases, in JUnit's XML."),
    *OUTPUT,
)  # fmt: skip
def check(
    targets: tuple[str, ...],
    update: bool,
    if_budgeted: bool,
    junit: Path | None,
    as_json: bool,
    file: Path | None,
) -> int:
    """Hold models against the budgets of a configuration.

    The exit status is 1 when one fails, and 2 when none could be held.

    For example, where pyproject.toml has
    [tool.crossflops.budgets."model.onnx"] and rules = ["macs <= 4.2G"]: crossflops check
    """
    from crossflops.verbs import check as verb

    if not targets:
        refuse(("if_budgeted",), "all targets here have a budget", "name a TARGET")
    if junit is not None:
        junit.unlink(missing_ok=True)  # a file of an earlier run says nothing of this one
    with progress("checking") as tell:
        checks = verb.check(targets, update, tell, if_budgeted=if_budgeted)
    if update:
        say(f"wrote {verb.BASELINE}")
    if junit is not None:
        from crossflops.render.formats import junit as xml

        keep(junit, xml(checks).encode())
    deliver(checks, as_json=as_json, file=file)
    if checks.is_refused:
        return 2
    return 0 if checks.hold else 1
