"""Arguments to pipeline to renderer: one file per verb."""

import gc
import os
import sys
import traceback
import warnings
from collections.abc import Sequence

import click

from crossflops.cli.supervision import supervised
from crossflops.cli.verbs import DEBUG, group
from crossflops.errors import TRACEBACK, CrossflopsError, CrossflopsWarning
from crossflops.whereabouts import raised_at

NAME = "crossflops"
INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended
WRONG = 2
# A count makes hundreds of thousands of values and throws none of them away: looking for cycles
# after every 700, as Python does, takes a sixth of the time.
_ALLOCATIONS = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status; as a command beside a process that can end it.

    0 done; 1 done, and a check did not hold; 2 the request is wrong: two lines on stderr, what
    is wrong and what to do; 3 tools were tried and every one failed.
    """
    if arguments is None:
        return supervised(sys.argv[1:], lambda: _run(None), _refuse)
    return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    gc.set_threshold(_ALLOCATIONS, 50, 100)
    if not sys.warnoptions:  # deprecations in frameworks are no business of whoever counts
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", CrossflopsWarning)
        warnings.showwarning = _warn  # type: ignore[assignment]  # the way that Python documents
    debug = DEBUG in (sys.argv[1:] if arguments is None else arguments) or _asked_by_environment()
    try:
        status = group.main(args=arguments, prog_name=NAME, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except CrossflopsError as error:
        _trace(error, debug)
        return _refuse(error.message, error.hint, error.exit_status)
    except click.ClickException as error:
        return _refuse(error.format_message(), _help(error), WRONG)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (Exception, SystemExit) as error:
        # Nothing that a model does ends in a traceback; what is left to say is what it was.
        _trace(error, debug)
        what = f"{type(error).__name__}: {error}".rstrip(": ") + raised_at(error)
        return _refuse(what, f"{TRACEBACK}; if the model itself runs, please report it", WRONG)


def _asked_by_environment() -> bool:
    return os.environ.get("CROSSFLOPS_DEBUG", "0") not in ("", "0")


def _trace(error: BaseException, debug: bool) -> None:
    """The traceback of an error, with what led to it, where it was asked for."""
    if not debug:
        return
    from crossflops.render.legible import inert

    for line in "".join(traceback.format_exception(error)).splitlines():
        click.echo(inert(line), err=True)


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
