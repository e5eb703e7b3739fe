"""The script of a job: `crossflops check`, and where its page goes, on GitHub and on GitLab.

The page stands in the log, in the summary of the job (GitHub), and in one comment on the pull or
merge request. Failing rules are annotations on the lines of the configuration (GitHub), or a
report of code quality (GitLab). Later steps have the status and the report. All that it needs
stands in environment variables: CHECK_* of `action.yml`, those of GitHub, and those of GitLab. It
ends with the exit status of the check, whatever a host answers.
"""

import contextlib
import glob
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

from comments import CommentError, comment_body, write_comment
from hosts import host_of_job

VERDICTS = {0: "all budgets hold", 1: "a budget does not hold"}
OPTIONS = {
    "--against": "CHECK_AGAINST",
    "--junit": "CHECK_JUNIT",
    "--code-quality": "CHECK_CODE_QUALITY",
}
MOST_ANNOTATIONS = 10  # GitHub shows no more of one step


class Outcome(NamedTuple):
    """The exit status of a check, its page in Markdown, and its rows as JSON has them."""

    status: int
    page: str
    rows: tuple[dict[str, Any], ...]


def main() -> int:
    """Check, publish the page, and end as the check did."""
    remove_files_of_earlier_runs()
    outcome = run_check()
    mark = marker(os.environ.get("CHECK_FOLDER", "."), os.environ.get("CHECK_TARGETS", ""))
    title = VERDICTS.get(outcome.status, "the budgets could not be checked")
    append("GITHUB_STEP_SUMMARY", f"{mark}\n### crossflops check: {title}\n\n{outcome.page}\n")
    report = report_path() if Path(report_path()).is_file() else ""
    append("GITHUB_OUTPUT", f"status={outcome.status}\nreport={report}\n")
    append("CHECK_DOTENV", f"CROSSFLOPS_STATUS={outcome.status}\nCROSSFLOPS_REPORT={report}\n")
    for line in annotations(outcome.rows) if not os.environ.get("GITLAB_CI") else ():
        print(line)
    if wants_comment(outcome):
        try:
            if (host := host_of_job()) is not None:
                write_comment(host, mark, comment_body(mark, title, outcome.page))
        except CommentError as error:
            warn(f"crossflops could not write the comment: {error}")
            print(error.remedy)
    return outcome.status


def remove_files_of_earlier_runs() -> None:
    """Remove what this run writes, which would say nothing of it where the check is refused."""
    names = (os.environ.get("CHECK_JUNIT"), os.environ.get("CHECK_CODE_QUALITY"), report_path())
    for name in filter(None, names):
        if os.path.isfile(name) and not os.path.islink(name):
            with contextlib.suppress(OSError):
                os.remove(name)


def warn(text: str) -> None:
    """Print a warning, which GitHub shows beside the job."""
    print(f"warning: {text}" if os.environ.get("GITLAB_CI") else f"::warning::{text}")


def run_check() -> Outcome:
    """Run the check; where it wrote no page, the page is what it wrote to stderr."""
    try:
        targets = targets_of(os.environ.get("CHECK_TARGETS", ""))
    except ValueError as error:
        message = f"error: the targets cannot be read: {error}"
        print(message)
        return Outcome(2, indent(message, "    "), ())
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.md")
        command = [sys.executable, "-m", "crossflops", "check", *targets, "--json"]
        command += ["-o", str(page)]
        for flag, variable in OPTIONS.items():
            if text := os.environ.get(variable, ""):
                command += [flag, text]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
        # indented, it is code, whatever stands in it
        text = page.read_text("utf-8") if page.is_file() else indent(done.stderr.strip(), "    ")
    print(text)
    return Outcome(done.returncode, text, rows_of(done.stdout))


def targets_of(text: str) -> list[str]:
    """Return the targets that an input names, with those that a pattern stands for.

    One that cannot be split as a shell would is split at spaces: it's.onnx. Raises ValueError for
    a pattern that no file has.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    found = []
    for word in words:
        files = sorted(glob.glob(word, recursive=True)) if glob.has_magic(word) else [word]
        if not files:
            raise ValueError(f"no file is like {word!r}")
        found += files
    return found


def rows_of(text: str) -> tuple[dict[str, Any], ...]:
    """Return the rows of a check's JSON, which is also written for later steps."""
    try:
        rows = json.loads(text)["checks"]
    except (ValueError, KeyError, TypeError):
        return ()
    Path(report_path()).write_text(text, encoding="utf-8")
    return tuple(rows)


def report_path() -> str:
    """Return the file of the JSON report."""
    kept = os.environ.get("RUNNER_TEMP") or os.environ.get("CI_PROJECT_DIR")
    return str(Path(kept or tempfile.gettempdir(), "crossflops.json"))


def append(variable: str, text: str) -> None:
    """Append to a file that GitHub names; a job without it goes on."""
    path = os.environ.get(variable)
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        warn(f"crossflops could not write {variable}: {error.strerror}")


def annotations(rows: tuple[dict[str, Any], ...]) -> Iterator[str]:
    """Return a command of GitHub for each failing rule, at its line of the configuration."""
    failing = [row for row in rows if not row.get("holds")]
    for row in failing[:MOST_ANNOTATIONS]:
        target, rule = str(row.get("target")), str(row.get("rule"))
        part = f"{row.get('part')}: " if row.get("part") else ""
        yield f"::error{place_of(row)}::{_message(f'{target}: {part}{rule}: {reason_of(row)}')}"


def reason_of(row: dict[str, Any]) -> str:
    """Return why a rule does not hold.

    >>> reason_of({"value": 100, "limit": 101, "uncounted": ["/tail (nobody.Mystery)"]})
    'the value is 100, and nobody counted /tail (nobody.Mystery)'
    """
    value, limit, nodes = row.get("value"), row.get("limit"), row.get("uncounted")
    if row.get("error"):
        return str(row["error"])
    if nodes:
        return f"the value is {value}, and nobody counted {', '.join(map(str, nodes))}"
    return f"the value is {value}, the limit {limit}"


def place_of(row: dict[str, Any]) -> str:
    """Return the file and line of a rule as properties, from the root of the repository."""
    if not row.get("file") or not row.get("line"):
        return ""
    root = os.environ.get("GITHUB_WORKSPACE") or os.curdir
    return f" file={_property(os.path.relpath(str(row['file']), root))},line={row['line']}"


def _message(text: str) -> str:
    """Return a text as a command of GitHub has it, without what a terminal would obey."""
    plain = "".join(
        letter if letter.isprintable() or letter in "\r\n" else ascii(letter)[1:-1]
        for letter in text
    )
    return plain.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def wants_comment(outcome: Outcome) -> bool:
    """Whether this outcome is commented: always, where something changed, or where it fails."""
    when = os.environ.get("CHECK_COMMENT", "true")
    if when == "changes":
        return outcome.status != 0 or any(map(has_changed, outcome.rows))
    return when == "true" or (when == "failures" and outcome.status != 0)


def has_changed(row: dict[str, Any]) -> bool:
    """Whether a model is not as it was. A time differs from run to run."""
    is_time = str(row.get("rule")).startswith("latency_ms")
    return bool(row.get("moved_from") or row.get("is_new") or (row.get("change") and not is_time))


def marker(folder: str, targets: str) -> str:
    """Return the hidden first line of the comment: other targets, or another folder, differ.

    >>> marker("models", "a.onnx b.onnx")
    '<!-- crossflops check: models a.onnx b.onnx -->'
    """
    return f"<!-- crossflops check: {escape(' '.join((folder, *targets.split())))} -->"


if __name__ == "__main__":
    sys.exit(main())
