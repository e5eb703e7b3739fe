"""The hosts whose requests get a comment, from the variables that each gives to a job."""

import json
import os
from pathlib import Path
from typing import Any

from comments import CommentError, Host, call, text_at

_MAY_WRITE_NOTES = (
    "give GITLAB_TOKEN, a token of the project with the scope api (a job's own token writes no"
    " notes, and the pipeline of a fork has none), or set CHECK_COMMENT: 'false'"
)


def host_of_job() -> Host | None:
    """Return the host of this job's pull or merge request; None where it has none.

    Raises CommentError where the job has no token for it.
    """
    return gitlab() if os.environ.get("GITLAB_CI") else github()


def github() -> Host | None:
    """Return GitHub with the comments of the pull request that the event is about."""
    number = _pull_request()
    if number is None:
        return None
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    issues = f"{api}/repos/{os.environ.get('GITHUB_REPOSITORY', '')}/issues"
    return Host(
        name="GitHub",
        comments=f"{issues}/{number}/comments",
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {os.environ.get('GITHUB_TOKEN', '')}",
        },
        account_of_token=_account_on_github,
        address_of=lambda key: f"{issues}/comments/{key}",
        writer_of=lambda comment: _plain(text_at(comment, "user", "login")),
        verb="PATCH",
        may_write="let the job have `permissions: pull-requests: write` (a pull request from a"
        " fork never has it), or set comment: false",
    )


def _pull_request() -> int | None:
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text("utf-8"))
        return int(event["pull_request"]["number"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _account_on_github(host: Host) -> str:
    """Return the account that the token writes as. GraphQL alone says so of the token of a job."""
    graphql = os.environ.get("GITHUB_GRAPHQL_URL", "https://api.github.com/graphql")
    answer = call(host, "POST", graphql, {"query": "query { viewer { login } }"})
    return _known_account(host, _plain(text_at(answer, "data", "viewer", "login")))


def _plain(login: str) -> str:
    """Return a login without the ending that some answers give to a bot, and others do not.

    >>> _plain("github-actions[bot]")
    'github-actions'
    """
    return login.removesuffix("[bot]")


def gitlab() -> Host | None:
    """Return GitLab with the notes of the merge request that the pipeline is about."""
    number, token = os.environ.get("CI_MERGE_REQUEST_IID"), os.environ.get("GITLAB_TOKEN")
    if not number:
        return None
    if not token:
        raise CommentError("the job has no GITLAB_TOKEN", _MAY_WRITE_NOTES)
    api = os.environ.get("CI_API_V4_URL", "https://gitlab.com/api/v4")
    project = f"{api}/projects/{os.environ.get('CI_PROJECT_ID', '')}"
    notes = f"{project}/merge_requests/{number}/notes"
    return Host(
        name="GitLab",
        comments=f"{notes}?sort=asc",
        headers={"PRIVATE-TOKEN": token},
        account_of_token=lambda host: _account_on_gitlab(host, api),
        address_of=lambda key: f"{notes}/{key}",
        writer_of=lambda note: text_at(note, "author", "username"),
        verb="PUT",
        may_write=_MAY_WRITE_NOTES,
    )


def _account_on_gitlab(host: Host, api: str) -> str:
    return _known_account(host, text_at(call(host, "GET", f"{api}/user"), "username"))


def _known_account(host: Host, account: Any) -> str:
    if not account:
        raise CommentError(f"{host.name} did not say whose token this is", "run the job again")
    return str(account)
