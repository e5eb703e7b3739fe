"""`crossflops check`."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from crossflops.cli.options import (
    FORMULAS,
    OUTPUT,
    check_writable_path,
    command_options,
    verb,
)
from crossflops.cli.output import (
    print_to_stderr,
    showing_progress,
    write_file_and_print_name,
    write_verb_result,
)
from crossflops.errors import InputError


def _writable_junit_file(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> Path | None:
    """Return the path of the file for JUnit results, or None. Raises CrossflopsError if it cannot
    be written.
    """
    return None if value is None else check_writable_path(Path(value), "checks.xml")


def _reject_equal_output_files(files: Sequence[Path | None]) -> None:
    """Raise InputError if two of these output files are the same file."""
    indices = [os.path.realpath(file) for file in files if file is not None]
    if len(set(indices)) < len(indices):
        raise InputError(
            f"two outputs have the same file name {indices[-1]}",
            "write each output to its own file",
        )


@verb(
    "check",
    example="crossflops check --update",
    first=("--update", "--against", "--if-budgeted", "--junit", "-o"),
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@command_options(
    click.option("--update", is_flag=True,
                 help="Write the baseline, and check the rules against it."),
    click.option("--against", metavar="REV",
                 help="Measure growth against the models at a git revision, such as "
                      "origin/main, instead of the baseline."),
    click.option("--if-budgeted", is_flag=True,
                 help="List targets without a budget in the result instead of failing."),
    click.option("--junit", callback=_writable_junit_file, metavar="FILE",
                 help="Also write the rules as test cases, in JUnit XML."),
    click.option("--code-quality", "quality", callback=_writable_junit_file, metavar="FILE",
                 help="Also write the broken rules as a GitLab code quality report, in JSON."),
    FORMULAS,
    *OUTPUT,
)  # fmt: skip
def check(
    targets: tuple[str, ...],
    update: bool,
    against: str | None,
    if_budgeted: bool,
    junit: Path | None,
    quality: Path | None,
    as_json: bool,
    file: Path | None,
) -> int:
    """Check models against the budgets of a configuration file.

    The exit status is 1 if a budget is exceeded, and 2 if no budget could be checked.

    For example, if pyproject.toml has
    [tool.crossflops.budgets."model.onnx"] and rules = ["macs <= 4.2G"]: crossflops check
    """
    from crossflops.verbs import check as check_verb

    check_verb.refuse_contradictions(targets, update, against, if_budgeted)
    _reject_equal_output_files((junit, quality, file))
    for stale in filter(None, (junit, quality, file)):
        if stale.is_file() and not stale.is_symlink():  # which /dev/stdout is
            stale.unlink()  # a file of an earlier run says nothing of this one
    with showing_progress("checking") as on_progress:
        checks = check_verb.check_budgets(
            targets, update, on_progress, if_budgeted=if_budgeted, revision=against or ""
        )
    if update:
        print_to_stderr(f"wrote {check_verb.BASELINE}")
    if junit is not None:
        from crossflops.render.formats import junit as junit_text

        write_file_and_print_name(junit, junit_text(checks).encode())
    if quality is not None:
        from crossflops.render.formats import code_quality
        from crossflops.verbs.revisions import repository_root

        folder = Path.cwd().resolve().relative_to(repository_root()).as_posix()
        write_file_and_print_name(quality, code_quality(checks, folder).encode())
    write_verb_result(checks, as_json=as_json, file=file)
    if checks.is_refused:
        return 2
    return 0 if checks.hold else 1
