"""What the GitHub Action runs: `crossflops check`, whose page goes to the summary of the job and
into one comment on the pull request, which later runs bring up to date. A comment is this use's
own where the token's account wrote it, and its first line names the same folder and targets.

All that it needs stands in environment variables: CHECK_* of `action.yml`, GITHUB_* of GitHub. It
ends with the exit status of the check: that no comment could be written is a warning.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from html import escape
from pathlib import Path
from textwrap import indent
from typing import Any

VERDICTS = {0: "all budgets hold", 1: "a budget does not hold"}
LONGEST = 60_000  # letters: GitHub takes 65 536 in a comment
A_PAGE = 100  # comments, the most that GitHub gives at once


def main() -> int:
    """Check, tell, and end as the check did."""
    status, page = checked()
    mark = marker(os.environ.get("CHECK_FOLDER", "."), os.environ.get("CHECK_TARGETS", ""))
    verdict = VERDICTS.get(status, "the budgets could not be checked")
    body = f"{mark}\n### crossflops check: {verdict}\n\n{page}"
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(summary, "a", encoding="utf-8") as file:
            file.write(f"{body}\n")
    number = pull_request()
    if number is not None and os.environ.get("CHECK_COMMENT", "true") == "true":
        try:
            keep_comment(number, mark, shortened(body))
        # HTTPError and URLError are OSErrors; an answer without what was asked for is the others
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"::warning::crossflops could not comment on the pull request: {error}")
            print("let the job have `permissions: pull-requests: write`, or set comment: false")
    return status


def checked() -> tuple[int, str]:
    """The exit status of the check, and its page in Markdown, or what it wrote to stderr."""
    targets = shlex.split(os.environ.get("CHECK_TARGETS", ""))
    junit = os.environ.get("CHECK_JUNIT", "")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.md")
        command = [sys.executable, "-m", "crossflops", "check", *targets, "-o", str(page)]
        command += ["--junit", junit] if junit else []
        done = subprocess.run(
            command, stderr=subprocess.PIPE, text=True, errors="replace", check=False
        )
        # indented, it is code, whatever stands in it
        text = page.read_text("utf-8") if page.is_file() else indent(done.stderr.strip(), "    ")
    print(text)
    return done.returncode, text


def marker(folder: str, targets: str) -> str:
    """What the comment begins with, unseen: other targets, or another folder, have their own.

    >>> marker("models", "a.onnx b.onnx")
    '<!-- crossflops check: models a.onnx b.onnx -->'
    """
    return f"<!-- crossflops check: {escape(' '.join((folder, *targets.split())))} -->"


def shortened(body: str) -> str:
    """The body as GitHub takes it: whole lines, and a note where some are left out."""
    if len(body) <= LONGEST:
        return body
    return f"{body[:LONGEST].rpartition(chr(10))[0]}\n\nMore stands in the summary of the job."


def pull_request() -> int | None:
    """The number of the pull request that this run is about; None where it is about none."""
    path = os.environ.get("GITHUB_EVENT_PATH", "")
    if not path or not Path(path).is_file():
        return None
    event = json.loads(Path(path).read_text("utf-8"))
    number = event.get("pull_request", {}).get("number")
    return int(number) if number is not None else None


def keep_comment(number: int, mark: str, body: str) -> None:
    """Write our comment that bears the mark, or make it. Raises OSError as urllib does."""
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    comments = f"{api}/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    marked = [
        comment
        for comment in written(f"{comments}/{number}/comments")
        if str(comment.get("body") or "").startswith(mark)
    ]
    account = writer() if marked else ""
    for comment in marked:
        if of_account((comment.get("user") or {}).get("login", "")) == account:
            if comment["body"] != body:
                asked("PATCH", f"{comments}/comments/{comment['id']}", {"body": body})
            return
    asked("POST", f"{comments}/{number}/comments", {"body": body})


def writer() -> str:
    """The account that the token writes as. GraphQL alone says so of the token of a job."""
    graphql = os.environ.get("GITHUB_GRAPHQL_URL", "https://api.github.com/graphql")
    answer = asked("POST", graphql, {"query": "query { viewer { login } }"})
    return of_account(answer["data"]["viewer"]["login"])


def of_account(login: str) -> str:
    """A login without the ending that some of GitHub's answers give to a bot, and others not.

    >>> of_account("github-actions[bot]")
    'github-actions'
    """
    return login.removesuffix("[bot]")


def written(url: str) -> Iterator[dict[str, Any]]:
    """Every comment that there is, the oldest first."""
    page = 1
    while True:
        comments = asked("GET", f"{url}?per_page={A_PAGE}&page={page}")
        yield from comments
        if len(comments) < A_PAGE:
            return
        page += 1


def asked(method: str, url: str, content: dict[str, str] | None = None) -> Any:
    """What GitHub answers. Raises HTTPError where it refuses."""
    request = urllib.request.Request(
        url,
        method=method,
        data=None if content is None else json.dumps(content).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {os.environ.get('GITHUB_TOKEN', '')}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main())
