"""Run the verb `diff`: compare two models, or two saved reports."""

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from crossflops.errors import InputError
from crossflops.files import read_file_bytes
from crossflops.report.difference import Difference, report_difference
from crossflops.report.report import SCHEMA, Report
from crossflops.targets.request import Request, drop_unused_request_options
from crossflops.targets.target import restoring_imports
from crossflops.verbs.count import CountedModel, native_count
from crossflops.verbs.revisions import TargetAtRevision, count_at_revision, split_revision

# a name, and what it is the name of
Side: TypeAlias = tuple[str, Request | Report | Path | TargetAtRevision]
_HINT = "give a model, or a file written by `crossflops count -o FILE.json`"


@restoring_imports()
def compare_sides(
    first: Side, second: Side, max_increase: Fraction | None, on_progress: Callable[[str], None]
) -> Difference:
    """Return the differences between two models or reports; `max_increase` is the allowed
    growth of a total, 0.1 for 10 %.

    Of two models the causes are given, too. Raises what counting raises, and InputError for a file
    that is no report of a count.
    """
    (report, native), (report_of_second, native_of_second) = (
        _count_or_read_side(side, on_progress) for side in (first, second)
    )
    change = report_difference(report, report_of_second, (first[0], second[0]), max_increase)
    if native is None or native_of_second is None:
        return change
    from crossflops.reconcile.alignment import align_models
    from crossflops.reconcile.contractions import read_alignable_model

    aligned = align_models(
        *(
            read_alignable_model(side.graph, side.trace, side.ledger)
            for side in (native, native_of_second)
        )
    )
    return msgspec.structs.replace(change, causes=aligned.causes)


def _count_or_read_side(
    side: Side, on_progress: Callable[[str], None]
) -> tuple[Report, CountedModel | None]:
    """Return (report, counted model) of one side of a diff; the latter is None if the report was
    read from a file or a revision.
    """
    name, source = side
    on_progress(f"counting {name}")
    if isinstance(source, Request):
        return native_count(source)
    if isinstance(source, TargetAtRevision):
        return count_at_revision(source, _read_report_file), None
    if isinstance(source, Report):
        return source, None
    return _read_report_file(source), None


def _read_report_file(source: Path) -> Report:
    """Return the report that was saved in a file; raise InputError if it cannot be read or has
    another schema.
    """
    try:
        report = Report.from_json(read_file_bytes(source))
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}", _HINT) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{source} is not a valid report: {error}", _HINT) from error
    if report.schema != SCHEMA:
        raise InputError(
            f"{source} has schema {report.schema!r}, but this release reads schema {SCHEMA}",
            "write the report again with this release",
        )
    return report


def diff_side_from_object(target: Any, request: Callable[[Any], Request]) -> Side:
    """Return one side of a diff, (name, source), of what a Python caller has: a report, a model
    object, a path, or a text as in `diff_side_from_text`. Raises InputError.
    """
    if isinstance(target, str | os.PathLike):
        return diff_side_from_text(os.fspath(target), request)
    if isinstance(target, Report):
        return target.name, target
    return type(target).__name__, request(target)


def diff_side_from_text(text: str, request: Callable[[str], Request]) -> Side:
    """Return one side of a diff, (text, source): a request or a report file, at a git revision if
    the text begins with "REVISION:".

    `request` makes one of a target. Raises InputError.
    """
    revision, index = split_revision(text)
    source = Path(index) if is_report_path(index) else request(index)
    return text, TargetAtRevision(revision, source) if revision else source


def requests_of_sides(sides: Sequence[Side]) -> list[Request]:
    """Return the requests of the sides that are models; sides that are report files are left
    out.
    """
    sources = [_side_source(side) for side in sides]
    return [source for source in sources if isinstance(source, Request)]


def drop_unused_side_options(sides: Sequence[Side]) -> list[Side]:
    """Return both sides of a diff; a side's request loses the options that only the other side can
    use.

    Raises InputError for an option that neither has a use for.
    """
    requests = iter(drop_unused_request_options(requests_of_sides(sides)))
    return [
        (
            name,
            _replace_side_request(of, next(requests))
            if isinstance(_side_source((name, of)), Request)
            else of,
        )
        for name, of in sides
    ]


def _side_source(side: Side) -> Request | Report | Path:
    """Return the request, the report or the report path of one side of a diff, without its
    git revision.
    """
    _, of = side
    return of.source if isinstance(of, TargetAtRevision) else of


def _replace_side_request(
    side: Request | Report | Path | TargetAtRevision, request: Request
) -> Request | TargetAtRevision:
    """Return a side of a diff with another request, at the same git revision if it has one."""
    return (
        TargetAtRevision(side.revision, request) if isinstance(side, TargetAtRevision) else request
    )


def parse_increase_share(text: str) -> Fraction:
    """Return the allowed growth as a fraction: 1/50 for "2%" or "0.02". Raises InputError."""
    try:
        number = Fraction(text.strip().removesuffix("%").strip())
    except (ValueError, ZeroDivisionError):
        raise InputError(
            f"--max-increase must be a percentage, got {text!r}", "write, for example, 2%"
        ) from None
    if number < 0:
        raise InputError(
            f"--max-increase must be at least 0 %, got {text!r}", "write, for example, 2%"
        )
    return number / 100 if text.strip().endswith("%") else number


def is_report_path(text: str) -> bool:
    """Return whether the text is the path of a report, which ends in .json or .json.gz."""
    return text.lower().endswith((".json", ".json.gz")) and ":" not in Path(text).name
