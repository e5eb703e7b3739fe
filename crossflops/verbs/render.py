"""Run the verb `render`: read a result that was saved as JSON."""

from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET

from crossflops.errors import CrossflopsError, InputError
from crossflops.files import read_file_bytes
from crossflops.report.audit import Audit
from crossflops.report.bench import Bench
from crossflops.report.efficiency import EfficiencyReport
from crossflops.report.identification import Identification
from crossflops.report.profile import TrainingProfile
from crossflops.report.report import SCHEMA, Report
from crossflops.report.sweep import Sweep
from crossflops.verbs.compare.questions import answer_report_questions

SavedResult: TypeAlias = (
    Report | Bench | EfficiencyReport | TrainingProfile | Identification | Audit | Sweep
)
_HINT = "give a file written by `crossflops count`, `compare` or `bench` with -o FILE.json"
Found = TypeVar(
    "Found", Report, Bench, EfficiencyReport, TrainingProfile, Identification, Audit, Sweep
)
_KINDS: tuple[tuple[str, type[Any]], ...] = (  # a key that only this kind of result has
    ("curve", Bench),
    ("latencies", TrainingProfile),
    ("efficiency", EfficiencyReport),
    ("candidates", Identification),
    ("contradictions", Audit),
    ("compared_to", Sweep),
)


def read_saved_result(path: Path) -> SavedResult:
    """Return the result in a file that any verb wrote. Raises CrossflopsError if the file cannot
    be read or is not such a result.
    """
    data = _read_report_bytes(path)
    kind: type[Any] = next((kind for key, kind in _KINDS if _has_json_key(data, key)), Report)
    result: SavedResult = _decode_report(path, data, kind)
    return result


def with_answers_to_questions(
    result: SavedResult, between: tuple[str, str] | None, module: str | None, consensus: bool
) -> SavedResult:
    """Return the result with the answers to these questions to a report; unchanged without one.

    Raises InputError for a question to a result that is no report, or no comparison.
    """
    questions = {"between": between, "consensus": consensus, "module": module}
    names = [name for name, value in questions.items() if value]
    if not names:
        return result
    if not isinstance(result, Report):
        raise InputError(
            f"{names[0]} has no effect here: the file is not a report of a model",
            "give a result of `count` or `compare`",
        )
    is_comparison = bool(result.profiles) or result.against is not UNSET
    if not is_comparison and names != ["module"]:
        raise InputError(
            f"{names[0]} has no effect here: the file is not a comparison",
            "give a result of `compare`",
        )
    return answer_report_questions(result, between=between, module=module, consensus=consensus)


def _has_json_key(data: bytes, key: str) -> bool:
    """Return whether the bytes are a JSON object that has this key."""
    try:
        content = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return isinstance(content, dict) and key in content


def _read_report_bytes(path: Path) -> bytes:
    """Return the decompressed bytes of a saved report. Raises CrossflopsError if it cannot be
    read.
    """
    try:
        return read_file_bytes(path)
    except OSError as error:
        raise CrossflopsError(f"cannot read {path}: {error.strerror}", _HINT) from error


def _decode_report(path: Path, data: bytes, kind: type[Found]) -> Found:
    """Return the saved report in these bytes. Raises CrossflopsError if it is invalid or has
    another schema.
    """
    try:
        report = kind.from_json(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CrossflopsError(f"{path} is not a valid report: {error}", _HINT) from error
    if report.schema != SCHEMA:
        raise CrossflopsError(
            f"{path} has schema {report.schema!r}, but this release reads schema {SCHEMA}",
            "write the report again with this release",
        )
    return report
