"""`crossflops render`."""

from pathlib import Path
from typing import Any

import click
import msgspec

from crossflops.cli.options import output_options, unit_option, view_options, viewed
from crossflops.cli.output import deliver
from crossflops.cli.questions import NO_ANSWER, between_option, unanswered
from crossflops.core.report import SCHEMA, Report
from crossflops.errors import CrossflopsError


@click.command("render")
@click.argument("file_", metavar="REPORT.json", type=click.Path(path_type=Path))
@view_options
@between_option
@unit_option
@output_options
def command(file_: Path, between: tuple[str, str] | None, **fields: Any) -> int:
    """Show a report again that was written to a file, in any format."""
    from crossflops.pipeline.asked import contrasted

    report = contrasted(_read(file_), between)
    deliver(viewed(report, fields, fields["unit"]), **fields)
    return NO_ANSWER if unanswered(report, between) else 0


def _read(path: Path) -> Report:
    hint = "give a file that `crossflops count` or `compare` wrote with -o FILE.json"
    try:
        report = Report.from_json(path.read_bytes())
    except OSError as error:
        raise CrossflopsError(f"cannot read {path}: {error.strerror}", hint) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CrossflopsError(f"{path} is no report: {error}", hint) from error
    if report.schema != SCHEMA:
        raise CrossflopsError(f"{path} has the schema {report.schema!r}", f"this one is {SCHEMA}")
    return report
