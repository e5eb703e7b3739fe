"""`crossflops render`."""

from pathlib import Path
from typing import Any

import click
import msgspec

from crossflops.cli.options import output_options, unit_option, view_options, viewed
from crossflops.cli.output import deliver
from crossflops.cli.questions import NO_ANSWER, question_options, questions, unanswered
from crossflops.core.report import SCHEMA, Report
from crossflops.errors import CrossflopsError
from crossflops.render.layout import Noun
from crossflops.render.places import Compared


@click.command("render")
@click.argument("file_", metavar="REPORT.json", type=click.Path(path_type=Path))
@view_options
@question_options
@unit_option
@output_options
def command(file_: Path, **fields: Any) -> int:
    """Show a report again that was written to a file, in any format."""
    from crossflops.pipeline.asked import answered

    wanted = questions(fields)
    report = answered(_read(file_), **wanted)
    deliver(_seen(report, fields), **fields)
    return NO_ANSWER if unanswered(report, wanted["between"]) else 0


def _seen(report: Report, fields: dict[str, Any]) -> Noun:
    """What is asked for: of a comparison `--top` alone is about where tools disagree."""
    top = fields["top"]
    if report.profiles and top is not None and fields["by"] is fields["depth"] is None:
        for name in ("by", "top", "depth"):
            del fields[name]
        return Compared(report, top)
    return viewed(report, fields, fields["unit"])


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
