"""The script of the GitHub Action: `crossflops check`, and where its page goes.

The page stands in the summary of the job and in one comment on the pull request, failing rules
are annotations on the lines of the configuration, and later steps have the outputs `status` and
`report`. All that it needs stands in environment variables: CHECK_* of `action.yml`, GITHUB_* of
GitHub. It ends with the exit status of the check, whatever GitHub answers.
"""

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

from github_comment import CommentError, comment_body, write_comment

VERDICTS = {0: "all budgets hold", 1: "a budget does not hold"}
CONFIGURATIONS = ("crossflops.toml", "pyproject.toml")
MOST_ANNOTATIONS = 10  # GitHub shows no more of one step


class Outcome(NamedTuple):
    """The exit status of a check, its page in Markdown, and its rows as JSON has them."""

    status: int
    page: str
    rows: tuple[dict[str, Any], ...]


def main() -> int:
    """Check, publish the page, and end as the check did."""
    outcome = run_check()
    mark = marker(os.environ.get("CHECK_FOLDER", "."), os.environ.get("CHECK_TARGETS", ""))
    title = VERDICTS.get(outcome.status, "the budgets could not be checked")
    append("GITHUB_STEP_SUMMARY", f"{mark}\n### crossflops check: {title}\n\n{outcome.page}\n")
    append("GITHUB_OUTPUT", f"status={outcome.status}\nreport={report_path()}\n")
    for line in annotations(outcome.rows):
        print(line)
    number = pull_request()
    if number is not None and wants_comment(outcome):
        try:
            write_comment(number, mark, comment_body(mark, title, outcome.page))
        except CommentError as error:
            print(f"::warning::crossflops could not comment on the pull request: {error}")
            print(error.remedy)
    return outcome.status


def run_check() -> Outcome:
    """Run the check; where it wrote no page, the page is what it wrote to stderr."""
    junit = os.environ.get("CHECK_JUNIT", "")
    try:
        targets = targets_of(os.environ.get("CHECK_TARGETS", ""))
    except ValueError as error:
        message = f"error: the targets cannot be read: {error}"
        print(message)
        return Outcome(2, indent(message, "    "), ())
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.md")
        command = [sys.executable, "-m", "crossflops", "check", *targets, "--json"]
        command += ["-o", str(page), *(["--junit", junit] if junit else [])]
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
    return str(Path(os.environ.get("RUNNER_TEMP") or tempfile.gettempdir(), "crossflops.json"))


def append(variable: str, text: str) -> None:
    """Append to a file that GitHub names; a job without it goes on."""
    path = os.environ.get(variable)
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        print(f"::warning::crossflops could not write {variable}: {error.strerror}")


def annotations(rows: tuple[dict[str, Any], ...]) -> Iterator[str]:
    """Return a command of GitHub for each failing rule, at its line of the configuration."""
    failing = [row for row in rows if not row.get("holds")]
    for row in failing[:MOST_ANNOTATIONS]:
        target, rule = str(row.get("target")), str(row.get("rule"))
        value, limit = row.get("value"), row.get("limit")
        reason = row.get("error") or f"the value is {value}, the limit {limit}"
        place = budget_line(target)
        where = f" file={_property(place[0])},line={place[1]}" if place else ""
        yield f"::error{where}::{_message(f'{target}: {rule}: {reason}')}"


def budget_line(target: str) -> tuple[str, int] | None:
    """Return the file and line of a target's budget, as seen from the root of the repository."""
    here = Path.cwd()
    place = here / target.partition(":")[0]
    for folder in dict.fromkeys((*place.parents, here)):
        for name in CONFIGURATIONS:
            try:
                lines = (folder / name).read_text("utf-8").splitlines()
            except (OSError, UnicodeDecodeError):
                continue
            spelled = {target, place.name, os.path.relpath(place, folder)}
            for number, line in enumerate(lines, 1):
                head = line.strip()
                if head.startswith("[") and "budgets" in head:
                    key = head.strip("[]").partition("budgets.")[2].strip("\"' ")
                    if os.path.normpath(key) in spelled:
                        root = os.environ.get("GITHUB_WORKSPACE") or here
                        return os.path.relpath(folder / name, root), number
    return None


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def wants_comment(outcome: Outcome) -> bool:
    """Whether this outcome is commented: always, where something changed, or where it fails."""
    when = os.environ.get("CHECK_COMMENT", "true")
    if when == "changes":
        return outcome.status != 0 or any(row.get("change") for row in outcome.rows)
    return when == "true" or (when == "failures" and outcome.status != 0)


def marker(folder: str, targets: str) -> str:
    """Return the hidden first line of the comment: other targets, or another folder, differ.

    >>> marker("models", "a.onnx b.onnx")
    '<!-- crossflops check: models a.onnx b.onnx -->'
    """
    return f"<!-- crossflops check: {escape(' '.join((folder, *targets.split())))} -->"


def pull_request() -> int | None:
    """Return the number of the pull request that this run is about; None where it is none."""
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text("utf-8"))
        return int(event["pull_request"]["number"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


if __name__ == "__main__":
    sys.exit(main())
