"""`crossflops render`."""

from pathlib import Path
from typing import Any

import click
from msgspec import UNSET

from crossflops.cli.compare import (
    NO_ANSWER,
    QUESTIONS,
    has_unanswered_comparison,
    pop_report_questions,
)
from crossflops.cli.options import (
    OUTPUT,
    UNIT,
    VIEW,
    apply_view_options,
    check_picture_file,
    command_options,
    reject_options,
    reject_options_except,
    reject_page_options_with_json,
    verb,
)
from crossflops.cli.output import (
    write_batch_curve,
    write_comparison_picture,
    write_roofline_picture,
    write_verb_result,
)
from crossflops.errors import InputError
from crossflops.render.layout import ShowableResult
from crossflops.render.pages.bench import TOP, BenchView
from crossflops.render.pages.places import ComparisonView
from crossflops.render.pages.profile import ProfileView
from crossflops.report.audit import Audit
from crossflops.report.bench import Bench
from crossflops.report.efficiency import EfficiencyReport
from crossflops.report.identification import Identification
from crossflops.report.profile import ShownDepth, TrainingProfile
from crossflops.report.report import Report
from crossflops.report.sweep import Sweep


@verb(
    "render",
    example="crossflops render report.json -o report.html",
    first=("-o", "--by", "--top", "--json"),
)
@click.argument("file_", metavar="REPORT.json", type=click.Path(path_type=Path))
@command_options(
    *VIEW,
    *QUESTIONS,
    UNIT,
    click.option("--plot", callback=check_picture_file, metavar="FILE",
                 help="Draw the report, as .svg or .png: speed against batch size, a "
                      "roofline, a waterfall for each tool or, if the file name begins with "
                      "bars, the totals of all tools."),
    *OUTPUT,
)  # fmt: skip
def render(file_: Path, plot: str | None, **fields: Any) -> int:
    """Convert a saved report to any output format."""
    from crossflops.verbs.compare.questions import answer_report_questions
    from crossflops.verbs.render import read_saved_result

    requested = pop_report_questions(fields)
    result = read_saved_result(file_)
    if isinstance(result, Bench):
        _reject_unused_render_options(fields, "a result of `bench`", "plot", pages=("top",))
        return _render_bench(result, plot, fields)
    if isinstance(result, TrainingProfile):
        _reject_unused_render_options(fields, "a result of `profile`", pages=("top", "depth"))
        return _render_profile(result, fields)
    if isinstance(result, EfficiencyReport):
        _reject_unused_render_options(fields, "a result of `efficiency`", "plot")
        return _render_efficiency(result, plot, fields)
    if isinstance(result, Identification):
        _reject_unused_render_options(fields, "a result of `identify`")
        return _render_whole(result, fields)
    if isinstance(result, Audit):
        _reject_unused_render_options(fields, "a result of `audit`")
        return _render_whole(result, fields)
    if isinstance(result, Sweep):
        _reject_unused_render_options(fields, "a result of `sweep`")
        return _render_whole(result, fields)
    report = result
    _check_report_options(report, fields)
    report = answer_report_questions(report, **requested)
    if plot is not None and not report.profiles and report.against is UNSET:
        raise InputError(
            f"--plot cannot draw the report {file_}",
            "give a result of `compare`, of `bench` or of `efficiency --roofline`",
        )
    write_verb_result(_content_to_render(report, fields), **fields)
    if plot is not None:
        write_comparison_picture(report, plot)
    return NO_ANSWER if has_unanswered_comparison(report, requested["between"]) else 0


def _reject_unused_render_options(
    fields: dict[str, Any], written: str, *names: str, pages: tuple[str, ...] = ()
) -> None:
    """Raise InputError if an option was given that this kind of report does not use; `names` and
    `pages` are used.
    """
    reject_options_except((*names, *pages), f"REPORT.json is {written}", "leave out {option}")
    reject_page_options_with_json(fields, *pages)


def _check_report_options(report: Report, fields: dict[str, Any]) -> None:
    """Raise InputError if an option was given that this report, a count or a comparison, does not
    use.
    """
    if not report.profiles and report.against is UNSET:
        reject_options(
            ("between", "consensus"),
            "REPORT.json is not a comparison",
            "give a result of `compare`",
        )
    if fields["by"] is fields["depth"] is None:
        if report.profiles:
            reject_page_options_with_json(fields, "top", "unit")
        elif fields["top"] is None:
            reject_page_options_with_json(fields, "unit")


def _content_to_render(report: Report, fields: dict[str, Any]) -> ShowableResult:
    """Return what to show of a report: one table, a comparison with --top causes, or the whole
    report.
    """
    top = fields["top"]
    if report.profiles and top is not None and fields["by"] is fields["depth"] is None:
        for name in ("by", "top", "depth"):
            del fields[name]
        return ComparisonView(report, top)
    return apply_view_options(report, fields, fields["unit"])


def _render_bench(bench: Bench, plot: str | None, fields: dict[str, Any]) -> int:
    """Write a saved bench result, with its --top kernels, and its picture if requested; return the
    exit status 0.
    """
    shown = BenchView(bench, fields["top"] or TOP)
    write_verb_result(shown, as_json=fields["as_json"], file=fields["file"])
    if plot is not None:
        write_batch_curve(bench, plot)
    return 0


def _render_whole(result: Identification | Audit | Sweep, fields: dict[str, Any]) -> int:
    """Write a saved result as a whole, and return the exit status 0."""
    write_verb_result(result, as_json=fields["as_json"], file=fields["file"])
    return 0


def _render_profile(profile: TrainingProfile, fields: dict[str, Any]) -> int:
    """Write a saved profile with --depth levels and --top modules of each; return the exit status
    0.
    """
    usual, depth = ShownDepth(), fields["depth"]
    choice = ShownDepth(
        depth=usual.depth if depth is None else depth, top=fields["top"] or usual.top
    )
    write_verb_result(ProfileView(profile, choice), as_json=fields["as_json"], file=fields["file"])
    return 0


def _render_efficiency(report: EfficiencyReport, plot: str | None, fields: dict[str, Any]) -> int:
    """Write a saved efficiency report, and the picture of its roofline if requested; return the
    exit status 0.
    """
    write_verb_result(report, as_json=fields["as_json"], file=fields["file"])
    if plot is not None:
        write_roofline_picture(report, plot)
    return 0
