"""Arguments to pipeline to renderer: one file per verb."""

import gc
import os
import sys
import warnings
from collections.abc import Sequence

import click

from crossflops import errors
from crossflops.cli.supervision import supervised
from crossflops.cli.verbs import DEBUG, group
from crossflops.errors import TRACEBACK, CrossflopsError, CrossflopsWarning

NAME = "crossflops"
INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended
WRONG = 2
_HAD_ENOUGH = "PacifyFlushWrapper"  # what click makes of stdout when a reader of help is gone
# A count makes hundreds of thousands of values and throws none of them away: looking for cycles
# after every 700, as Python does, takes a sixth of the time.
_ALLOCATIONS = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status; as a command beside a process that can end it.

    0 done; 1 done, and a check did not hold; 2 the request is wrong: two lines on stderr, what
    is wrong and what to do; 3 tools were tried and every one failed.
    """
    if arguments is None:
        _open_streams()
        return supervised(sys.argv[1:], lambda: _run(None), _refuse)
    return _run(arguments)


def _open_streams() -> None:
    """Let a standard stream that the caller closed lead nowhere.

    Else the next file that is opened would be taken for it, and written to by whoever prints.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest descriptor that is free: this one
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r"))


def _run(arguments: Sequence[str] | None) -> int:
    gc.set_threshold(_ALLOCATIONS, 50, 100)
    if not sys.warnoptions:  # deprecations in frameworks are no business of whoever counts
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", CrossflopsWarning)
        warnings.showwarning = _warn  # type: ignore[assignment]  # the way that Python documents
    before = os.environ.get(errors.DEBUG)
    if DEBUG in (sys.argv[1:] if arguments is None else arguments):
        os.environ[errors.DEBUG] = "1"  # which workers inherit
    try:
        return _status(arguments)
    finally:
        if before is None:
            os.environ.pop(errors.DEBUG, None)
        else:
            os.environ[errors.DEBUG] = before


def _status(arguments: Sequence[str] | None) -> int:
    try:
        status = group.main(args=arguments, prog_name=NAME, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except CrossflopsError as error:
        errors.print_traceback(error)
        return _refuse(error.message, error.hint, error.exit_status)
    except click.ClickException as error:
        return _refuse(error.format_message(), _help(error), WRONG)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BaseException as error:  # a model may raise what is no Exception, or ask to leave
        if isinstance(error, SystemExit) and _HAD_ENOUGH in type(sys.stdout).__name__:
            return 0
        # Nothing that a model does ends in a traceback; what is left to say is what it was.
        errors.print_traceback(error)
        what = f"{type(error).__name__}: {error}".rstrip(": ") + errors.raised_at(error)
        return _refuse(what, f"{TRACEBACK}; if the model itself runs, please report it", WRONG)


def _warn(message: Warning | str, *_: object) -> None:
    _say("warning", str(message))


def _refuse(message: str, hint: str, status: int) -> int:
    _say("error", message)
    _say("hint", hint)
    return status


def _say(word: str, text: str) -> None:
    from crossflops.cli.output import say

    say(f"{word}: {text}")


def _help(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"`{context.command_path if context else NAME} --help` says what is accepted"
