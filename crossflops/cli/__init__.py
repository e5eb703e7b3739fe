"""Arguments to pipeline to renderer: one file per verb."""

import gc
import sys
import warnings
from collections.abc import Sequence

import click

from crossflops.cli.supervision import supervised
from crossflops.cli.verbs import group
from crossflops.errors import CrossflopsError, CrossflopsWarning

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
    try:
        status = group.main(args=arguments, prog_name=NAME, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except CrossflopsError as error:
        return _refuse(error.message, error.hint, error.exit_status)
    except click.ClickException as error:
        return _refuse(error.format_message(), _help(error), WRONG)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (Exception, SystemExit) as error:
        # Nothing that a model does ends in a traceback; what is left to say is what it was.
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        return _refuse(what, "if the model itself runs on these inputs, please report it", WRONG)


def _warn(message: Warning | str, *_: object) -> None:
    click.echo(f"warning: {' '.join(str(message).split())}", err=True)


def _refuse(message: str, hint: str, status: int) -> int:
    for word, text in (("error", message), ("hint", hint)):
        click.echo(f"{word}: {' '.join(text.split())}", err=True)
    return status


def _help(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"`{context.command_path if context else NAME} --help` says what is accepted"
