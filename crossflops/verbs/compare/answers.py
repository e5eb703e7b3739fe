"""Collect the answers of the tools of a comparison, and choose those that a report shows."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from crossflops.ir.profile import Failure, Profile
from crossflops.plugins.choice import Choice

Answers = dict[str, Profile | Failure]
Progress = Callable[[str], None]  # a text that ends with a newline stays, others are replaced
FORWARD = "leave out --train to compare forward passes"


def answers_to_show(answers: Answers, choice: Choice) -> Answers:
    """Return {tool: answer}, sorted by tool; tools that declined the model are left out unless
    they were named.

    A tool of another framework is no failure where the caller did not name it.
    """
    return {
        tool: _with_interpreter(answer, choice.elsewhere.get(tool))
        for tool, answer in sorted({**choice.failures, **answers}.items())
        if choice.named or not _is_declined(answer)
    }


def _is_declined(answer: Profile | Failure) -> bool:
    """Return whether the tool declined the model before it ran."""
    return isinstance(answer, Failure) and answer.stage == "accept"


def _with_interpreter(answer: Profile | Failure, python: str | None) -> Profile | Failure:
    """Return the answer with the path of the Python interpreter that ran the tool, if it is
    another one than ours.

    One in the current folder is named from there: a report does not say where the folder is.
    """
    if python is None or isinstance(answer, Failure):
        return answer
    index, folder = Path(python), Path.cwd()
    inside = index.relative_to(folder) if index.is_relative_to(folder) else index
    return msgspec.structs.replace(answer, python=str(inside))


def collect_answers(
    answers: Iterator[tuple[str, Profile | Failure]],
    tool_count: int,
    failures: Answers,
    on_progress: Progress,
    begin: float,
) -> Answers:
    """Return {tool: answer} in the order in which the tools end, and report progress for each; an
    entry of `failures` replaces an answer.

    Args:
        answers: tool and answer, as the tools end.
        tool_count: how many tools there are.
        failures: of tools that could not be asked, whose answers these are.
        on_progress: gets the lines.
        begin: when the first tool was released, by `time.monotonic`.
    """
    outcomes: Answers = {}
    for tool, answer in answers:
        outcomes[tool] = failures.get(tool, answer)
        word = "failed" if isinstance(outcomes[tool], Failure) else "done"
        rest = _time_left_text(time.monotonic() - begin, len(outcomes), tool_count)
        on_progress(f"{tool} {word}, {len(outcomes)} of {tool_count}{rest}\n")
    return outcomes


def _time_left_text(elapsed_seconds: float, ended_count: int, tool_count: int) -> str:
    """Return a text such as ", about 5 s left", estimated from the tools that ended; "" after the
    last tool.

    >>> _time_left_text(20.0, 2, 3), _time_left_text(0.1, 1, 2), _time_left_text(9.0, 3, 3)
    (', about 10 s left', ', about 1 s left', '')
    """
    left = elapsed_seconds / ended_count * (tool_count - ended_count)
    return f", about {max(1, round(left))} s left" if left else ""
