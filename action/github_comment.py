"""The comment of the Action on a pull request: made once, and brought up to date by later runs.

A comment is this use's own where the token's account wrote it, and its first line names the same
folder and targets. An answer of GitHub may be cut off, late, or of any type: `CommentError` says
what happened in one line, and `remedy` what to do about it.
"""

import http.client
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

A_PAGE = 100  # comments, the most that GitHub gives at once
MOST_PAGES = 30  # a pull request with more comments gets a second one of ours
LONGEST = 60_000  # letters: GitHub takes 65 536 in a comment
LARGEST_ANSWER = 64 * 2**20  # bytes
SECONDS_A_CALL = 20
SECONDS_IN_ALL = 90
NO_MENTION = "@\N{ZERO WIDTH SPACE}"  # reads as @, and calls nobody


class CommentError(Exception):
    """Why the comment could not be written, and what to do about it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def write_comment(number: int, mark: str, body: str) -> None:
    """Write the comment that bears the mark, within a limit of time. Raises CommentError."""
    failures: list[CommentError] = []

    def write() -> None:
        try:
            _create_or_update(number, mark, body)
        except CommentError as error:
            failures.append(error)
        except Exception as error:  # whatever GitHub answers, the check decides the exit status
            failures.append(_unexpected(error))

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    thread.join(SECONDS_IN_ALL)
    if thread.is_alive():
        raise CommentError(f"GitHub took over {SECONDS_IN_ALL} s", "run the job again")
    if failures:
        raise failures[0]


def comment_body(mark: str, title: str, page: str) -> str:
    """Return the text of a comment: whole rows, no mention of anybody, no path of the runner."""
    text = page.replace("@", NO_MENTION)
    folder = os.environ.get("GITHUB_WORKSPACE", "").rstrip("/\\")
    if folder:
        text = text.replace(f"{folder}/", "").replace(f"{folder}\\", "").replace(folder, ".")
    body = f"{mark}\n### crossflops check: {title}\n\n{text}"
    if len(body) <= LONGEST:
        return body
    whole = body[:LONGEST].rpartition("\n")[0]
    return f"{whole}\n\nThe summary of the job has all rows; the comment is cut here."


def _create_or_update(number: int, mark: str, body: str) -> None:
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    comments = f"{api}/repos/{os.environ.get('GITHUB_REPOSITORY', '')}/issues"
    marked = [
        comment
        for comment in _comments(f"{comments}/{number}/comments")
        if str(comment.get("body") or "").startswith(mark)
    ]
    account = _account_of_token() if marked else ""
    for comment in marked:
        if _account(_field(comment, "user", "login")) == account:
            if comment.get("body") != body:
                _call("PATCH", f"{comments}/comments/{comment.get('id')}", {"body": body})
            return
    _call("POST", f"{comments}/{number}/comments", {"body": body})


def _account_of_token() -> str:
    """Return the account that the token writes as. GraphQL alone says so of the token of a job."""
    graphql = os.environ.get("GITHUB_GRAPHQL_URL", "https://api.github.com/graphql")
    answer = _call("POST", graphql, {"query": "query { viewer { login } }"})
    login = _field(answer, "data", "viewer", "login")
    if not login:
        raise CommentError("GitHub did not say whose token this is", "run the job again")
    return _account(login)


def _field(value: Any, *names: str) -> str:
    """Return the text at a path of keys; "" where something else is there."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _account(login: str) -> str:
    """Return a login without the ending that some answers give to a bot, and others do not.

    >>> _account("github-actions[bot]")
    'github-actions'
    """
    return login.removesuffix("[bot]")


def _comments(url: str) -> Iterator[dict[str, Any]]:
    """Return every comment that there is, the oldest first."""
    for page in range(1, MOST_PAGES + 1):
        rows = _call("GET", f"{url}?per_page={A_PAGE}&page={page}")
        if not isinstance(rows, list):
            raise CommentError("GitHub answered with no list of comments", "run the job again")
        yield from (row for row in rows if isinstance(row, dict))
        if len(rows) < A_PAGE:
            return


def _call(method: str, url: str, content: dict[str, str] | None = None) -> Any:
    """Return the answer of GitHub. Raises CommentError where there is none that can be read."""
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
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_A_CALL) as answer:
            return json.loads(answer.read(LARGEST_ANSWER))
    except urllib.error.HTTPError as error:
        raise _refusal(error) from error
    except TimeoutError as error:
        raise CommentError("GitHub did not answer in time", "run the job again") from error
    except (OSError, http.client.HTTPException) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        message = f"the answer of GitHub did not arrive: {text}"
        raise CommentError(message, "run the job again") from error
    except (ValueError, RecursionError) as error:
        raise CommentError("GitHub answered with no JSON", "run the job again") from error


def _refusal(error: urllib.error.HTTPError) -> CommentError:
    """Return the error that fits a status: an outage, a limit, or a token that may not write."""
    status = f"GitHub answered {error.code}"
    limited = error.headers.get("X-RateLimit-Remaining") == "0" or "Retry-After" in error.headers
    if error.code == 429 or (error.code == 403 and limited):
        return CommentError(f"{status}: a limit of its API is reached", "run the job later")
    if error.code in (401, 403, 404):
        return CommentError(
            f"{status}: the token may not write a comment",
            "let the job have `permissions: pull-requests: write` (a pull request from a fork"
            " never has it), or set comment: false",
        )
    if error.code >= 500:
        return CommentError(f"{status}: it has an outage", "run the job later")
    return CommentError(status, "see the comment's text in the summary of the job")


def _unexpected(error: Exception) -> CommentError:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return CommentError(f"GitHub gave an answer that is not understood ({text})", "report it")
