"""The comment of a check on a pull or merge request: made once, and kept up to date by later runs.

A comment is this use's own where the token's account wrote it, and its first line names the same
folder and targets. An answer may be cut off, late, or of any type: `CommentError` says what
happened in one line, and `remedy` what to do about it.
"""

import http.client
import json
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

A_PAGE = 100  # comments, the most that a host gives at once
MOST_PAGES = 30  # a request with more comments gets a second one of ours
LONGEST = 60_000  # letters: GitHub takes 65 536 in a comment
LARGEST_ANSWER = 64 * 2**20  # bytes
SECONDS_A_CALL = 20
SECONDS_IN_ALL = 90
NO_MENTION = "@\N{ZERO WIDTH SPACE}"  # reads as @, and calls nobody
FOLDERS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR", "RUNNER_TEMP", "GITHUB_ACTION_PATH", "HOME")
SHORTEST = 4  # letters of a folder that is taken out: not "/"


class CommentError(Exception):
    """Why the comment could not be written, and what to do about it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class Host(NamedTuple):
    """Where the comments are: the URL of their list, the headers, and whose token it is.

    `address_of` is the URL of one comment, `writer_of` the account that wrote it, `verb` what
    changes it. `may_write` says what lets a token write.
    """

    name: str
    comments: str
    headers: dict[str, str]
    account_of_token: Callable[["Host"], str]
    address_of: Callable[[Any], str]
    writer_of: Callable[[dict[str, Any]], str]
    verb: str
    may_write: str


def write_comment(host: Host, mark: str, body: str) -> None:
    """Write the comment that bears the mark, within a limit of time. Raises CommentError."""
    failures: list[CommentError] = []

    def write() -> None:
        try:
            _create_or_update(host, mark, body)
        except CommentError as error:
            failures.append(error)
        except Exception as error:  # whatever the host answers, the check decides the exit status
            failures.append(_unexpected(host, error))

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    thread.join(SECONDS_IN_ALL)
    if thread.is_alive():
        raise CommentError(f"{host.name} took over {SECONDS_IN_ALL} s", "run the job again")
    if failures:
        raise failures[0]


def comment_body(mark: str, title: str, page: str) -> str:
    """Return the text of a comment: whole rows, no mention of anybody, no path of the runner."""
    text = without_folders(page).replace("@", NO_MENTION)
    body = f"{mark}\n### crossflops check: {title}\n\n{text}"
    if len(body) <= LONGEST:
        return body
    whole = body[:LONGEST].rpartition("\n")[0]
    return f"{whole}\n\nThe log of the job has all rows; the comment is cut here."


def without_folders(text: str) -> str:
    """Return a text without the folders of the machine that the job runs on."""
    folders = [os.environ.get(name, "").rstrip("/\\") for name in FOLDERS]
    for folder in sorted((*folders, sys.prefix), key=len, reverse=True):
        if len(folder) >= SHORTEST:
            text = text.replace(f"{folder}/", "").replace(f"{folder}\\", "").replace(folder, ".")
    return text


def _create_or_update(host: Host, mark: str, body: str) -> None:
    marked = [
        comment for comment in _comments(host) if str(comment.get("body") or "").startswith(mark)
    ]
    account = host.account_of_token(host) if marked else ""
    for comment in marked:
        if host.writer_of(comment) == account:
            if comment.get("body") != body:
                call(host, host.verb, host.address_of(comment.get("id")), {"body": body})
            return
    call(host, "POST", host.comments, {"body": body})


def _comments(host: Host) -> Iterator[dict[str, Any]]:
    """Return every comment that there is, the oldest first."""
    for page in range(1, MOST_PAGES + 1):
        sign = "&" if "?" in host.comments else "?"
        rows = call(host, "GET", f"{host.comments}{sign}per_page={A_PAGE}&page={page}")
        if not isinstance(rows, list):
            message = f"{host.name} answered with no list of comments"
            raise CommentError(message, "run the job again")
        yield from (row for row in rows if isinstance(row, dict))
        if len(rows) < A_PAGE:
            return


def text_at(value: Any, *names: str) -> str:
    """Return the text at a path of keys; "" where something else is there."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def call(host: Host, method: str, url: str, content: dict[str, str] | None = None) -> Any:
    """Return the answer of a host. Raises CommentError where there is none that can be read."""
    request = urllib.request.Request(
        url,
        method=method,
        data=None if content is None else json.dumps(content).encode(),
        headers={**host.headers, "Content-Type": "application/json"},
    )
    again = "run the job again"
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_A_CALL) as answer:
            return json.loads(answer.read(LARGEST_ANSWER))
    except urllib.error.HTTPError as error:
        raise _refusal(host, error) from error
    except TimeoutError as error:
        raise CommentError(f"{host.name} did not answer in time", again) from error
    except (OSError, http.client.HTTPException, OverflowError) as error:
        message = f"the answer of {host.name} did not arrive: {_words_of(error)}"
        raise CommentError(message, again) from error
    except (ValueError, RecursionError) as error:
        raise CommentError(f"{host.name} answered with no JSON", again) from error


def _words_of(error: Exception) -> str:
    """Return what happened in one line, without what a server sent that is no HTTP."""
    strange = (http.client.BadStatusLine, http.client.UnknownProtocol, OverflowError)
    if isinstance(error, strange) and not isinstance(error, OSError):
        return "it is no HTTP"
    return " ".join(str(error).split()) or type(error).__name__


def _refusal(host: Host, error: urllib.error.HTTPError) -> CommentError:
    """Return the error that fits a status: an outage, a limit, or a token that may not write."""
    status = f"{host.name} answered {error.code}"
    left = error.headers.get("X-RateLimit-Remaining") or error.headers.get("RateLimit-Remaining")
    limited = left == "0" or "Retry-After" in error.headers
    if error.code == 429 or (error.code == 403 and limited):
        return CommentError(f"{status}: a limit of its API is reached", "run the job later")
    if error.code in (401, 403, 404):
        return CommentError(f"{status}: the token may not write a comment", host.may_write)
    if error.code >= 500:
        return CommentError(f"{status}: it has an outage", "run the job later")
    return CommentError(status, "see the comment's text in the log of the job")


def _unexpected(host: Host, error: Exception) -> CommentError:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    message = f"{host.name} gave an answer that is not understood ({text})"
    return CommentError(message, "report it")
