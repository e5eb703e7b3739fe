"""Exceptions of tools and models, turned into the one line that a comparison shows."""

from typing import Literal, TypeAlias

from crossflops.errors import CrossflopsError
from crossflops.ir.profile import Failure

Stage: TypeAlias = Literal[
    "load", "build", "run", "time", "memory", "crash", "accept", "predict", "account"
]

HINTS: dict[Stage, str] = {
    "load": "reinstall the plugin and its tool, or leave out the tool",
    "build": "build the model and its inputs in plain Python to see the whole traceback",
    "accept": "leave out the tool for this model",
    "run": "the tool itself fails on this model; leave the tool out, or report it to its authors",
    "time": "allow more time with --timeout, give a smaller input, or leave out the tool",
    "memory": "allow more memory, give a smaller input, or leave out the tool",
    "crash": "leave out the tool for this model, or report it to its authors",
    "predict": "this is an error in crossflops or a plugin; run again with --debug and report it",
    "account": "this is an error in crossflops or a plugin; run again with --debug and report it",
}

STAGES: dict[Stage, str] = {
    "load": "the plugin or its tool cannot be imported",
    "build": "building the model or its inputs failed",
    "accept": "the tool does not accept this model",
    "run": "the tool raised an exception while it counted",
    "time": "the tool did not finish within the timeout",
    "memory": "there was not enough memory",
    "crash": "the process of the tool ended without an answer",
    "predict": "the count by the convention of the tool failed",
    "account": "the explanation of the difference failed",
}

_LENGTH = 300
_SIGNS_OF_MEMORY = (
    *("allocate memory", "not enough memory", "bad_alloc", "MemoryError"),
    "Memory allocation still failed",  # OpenBLAS
    "failed to map segment",  # the loader of shared libraries
)


def tool_failure(tool: str, stage: Stage, problem: BaseException | str, hint: str = "") -> Failure:
    """Return the failure of a tool at a stage: one line that says what is wrong, and one that says
    what to do.

    An exception that says that memory ran out belongs to the stage "memory" wherever it was
    raised. An error of crossflops keeps its own hint.
    """
    if isinstance(problem, CrossflopsError):
        return Failure(tool=tool, stage=stage, message=problem.message, hint=problem.hint)
    if isinstance(problem, BaseException):
        message = exception_text(problem)
        stage = "memory" if says_memory_ran_out(message) else stage
        hint = "" if stage == "memory" else hint
    else:
        message = problem
    message = shorten_line(message, _LENGTH)
    return Failure(tool=tool, stage=stage, message=message, hint=hint or HINTS[stage])


def exception_text(problem: BaseException) -> str:
    """Return the class name and the message of an exception: "ValueError: message"."""
    return f"{type(problem).__name__}: {problem}".removesuffix(": ")


def says_memory_ran_out(text: str) -> bool:
    """Return whether a message or an output says that memory ran out."""
    return any(sign in text for sign in _SIGNS_OF_MEMORY)


def shorten_line(text: str, length: int) -> str:
    """Return the text on one line of at most `length` characters, with "…" at the end if it was
    cut.
    """
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"
