"""The command line: one file per verb, which turns options into one request and prints its result
as a page.

In: arguments. Out: a page on stdout or in a file, and an exit status.
May import: bench, causes, commands, files, errors, frontends, hardware, ir, limits, load,
operators, patches, plugins, profiling, render, report, rules, targets, testing, tools,
training_loops, verbs, workers; the
verbs when they are called.
"""

import errno
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from crossflops import errors
from crossflops.cli.supervision import run_supervised
from crossflops.errors import (
    TRACEBACK,
    CrossflopsError,
    CrossflopsWarning,
    UnknownNameError,
    nearest_name_hint,
)
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

NAME = "crossflops"
INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended
WRONG = 2
_SHOWN = 60  # letters of a path that is too long
_COMPLETE = "_CROSSFLOPS_COMPLETE"  # what a shell asks by, at TAB
_HAD_ENOUGH = "PacifyFlushWrapper"  # what click makes of stdout when a reader of help is gone


# The verbs, each with the sentence that `--help` has for it.

VERBS = {
    "count": "Count a model exactly, with no tool.",
    "compare": "Run other counters on a model, and explain every difference.",
    "explain": "Describe a cause, or list all rules of a tool.",
    "efficiency": "Compare a count with a device's peak.",
    "bench": "Run a model and measure its speed and the time of each node.",
    "profile": "Train a PyTorch model for some steps and show the work and time of each module.",
    "devices": "Look up a device and its peaks, or measure this machine.",
    "peak": "Derive a compute peak from a clock and units.",
    "bandwidth": "Derive a memory bandwidth from a clock and a bus.",
    "tools": "List all known tools and show which are installed.",
    "table": "Count several models into one table for a paper, one row each.",
    "identify": "Find the tool, unit, setting or input size that prints a published figure.",
    "audit": "Reproduce the published figures of a table, and name its contradictions.",
    "sweep": "Count many models with many tools into a store that can be continued.",
    "diff": "Show what changed between two models, two saved reports, or two git revisions.",
    "check": "Check models against the budgets of a configuration file.",
    "check-formula": "Check your own operator formulas against their references.",
    "export": "Write the normalized model, or its counts for a viewer, to a file.",
    "render": "Convert a saved report to any output format.",
    "schema": "Print the JSON Schema of the reports.",
    "doctor": "Check the installation and list what is missing.",
}


# of verbs that share what they do with another
_FILES = {"peak": "devices", "bandwidth": "devices", "tools": "doctor"}
_OF_ONE_MODEL = ("count", "efficiency")
DEBUG = "--debug"
_DEBUG_HELP = "Show the traceback of an error, and log which graph pass changed which node."
_DEBUG = click.Option([DEBUG], is_flag=True, expose_value=False, help=_DEBUG_HELP)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, so that `--help` costs nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs, in the order in which --help lists them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the file of a verb and return its command, or None if there is no such verb."""
        if cmd_name not in VERBS:
            return None
        module = import_module(
            f"crossflops.cli.{_FILES.get(cmd_name, cmd_name).replace('-', '_')}"
        )
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        if _DEBUG not in command.params:
            command.params.append(_DEBUG)
        if _COMPLETE in os.environ:
            from crossflops.cli.completion import add_value_completion

            add_value_completion(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Return what a shell can complete: the verbs and options that begin with the
        typed text.
        """
        from click.shell_completion import CompletionItem

        verbs = [
            CompletionItem(name, help=text)
            for name, text in VERBS.items()
            if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb of a command line as (name, command, other words). Raises
        UnknownNameError for an unknown command.
        """
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            raise UnknownNameError(f"unknown command {name!r}", nearest_name_hint(name, VERBS))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs into --help, each with one sentence, without importing their files."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _print_version(ctx: click.Context, param: click.Parameter, is_requested: bool) -> None:
    """Print the version of crossflops and exit, if --version is given."""
    if not is_requested or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"crossflops {version('crossflops')}")
    except PackageNotFoundError:
        click.echo("crossflops, not installed: run from its source folder")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.option(DEBUG, is_flag=True, expose_value=False, help=_DEBUG_HELP)
@click.pass_context
def command_group(context: click.Context) -> None:
    """Count a model's FLOPs exactly, and explain why other counters differ.

    A TARGET is `model.onnx`, or `pkg.module:callable` or `path/file.py:callable`, called to get
    the model: its code is run; or a model by name: `resnet50`, `timm:NAME`, `torchvision:NAME`,
    `keras:NAME`, `hf:config.json`, whose usual input is known. Inputs are shapes:
    `--input 1x3x224x224`, `--input input_ids=1x128:int64`.

    Exit status: 0 done, 1 a check did not hold, 2 the request is wrong, 3 every tool failed.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


# What a run of the command is: streams, warnings, errors and the exit status.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status of the command.

    0 done; 1 done, and a check did not hold; 2 the request is wrong: two lines on stderr, what
    is wrong and what to do; 3 tools were tried and every one failed.
    """
    if arguments is None:
        _open_missing_streams()
        if _COMPLETE in os.environ:
            from crossflops.cli.completion import print_completions

            return print_completions(command_group, NAME, _COMPLETE)
        return run_supervised(sys.argv[1:], _run_process_command, _print_error_and_hint)
    return _run_command_line(arguments)


def _run_process_command() -> int:
    """Run the verb of the command line and return its exit status; begin to read the ONNX file of
    `count` in the background.
    """
    verb, *words = sys.argv[1:] or ("",)
    file = next((word for word in words if word.endswith(".onnx")), "")
    if verb == "count" and file:
        from crossflops.load import start_reading_ahead

        start_reading_ahead(file)
    return _run_command_line(None)


def _open_missing_streams() -> None:
    """Open the null device for each standard stream that the caller has closed.

    Else the next file that is opened would stand in its place, and `print` would write to it.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest descriptor that is free: this one
            stream = os.fdopen(descriptor, "w" if descriptor else "r")
            patching_attribute(sys, name, stream, inventory.STREAMS).patch_permanently()


def _run_command_line(arguments: Sequence[str] | None) -> int:
    """Run the command line (None: the one of this process) and return its exit status; show each
    warning once.
    """
    if not sys.warnoptions:  # deprecations in frameworks do not concern a count
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", CrossflopsWarning)
        _WARNED.clear()
        # the way that Python documents
        patching_attribute(
            warnings, "showwarning", _print_warning_once, inventory.WARNINGS
        ).patch_permanently()
    before = os.environ.get(errors.DEBUG)
    if DEBUG in (sys.argv[1:] if arguments is None else arguments):
        os.environ[errors.DEBUG] = "1"  # which workers inherit
    try:
        return _run_verb_safely(arguments)
    finally:
        if before is None:
            os.environ.pop(errors.DEBUG, None)
        else:
            os.environ[errors.DEBUG] = before


def _run_verb_safely(arguments: Sequence[str] | None) -> int:
    """Run the verb of a command line and return its exit status; print errors as two lines,
    without a traceback.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if any("\0" in word for word in words):  # no path and no name has one
        return _print_error_and_hint(
            "an argument on the command line contains a null character",
            "remove the null character",
            WRONG,
        )
    try:
        status = command_group.main(args=arguments, prog_name=NAME, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except CrossflopsError as error:
        errors.print_traceback(error)
        return _print_error_and_hint(error.message, error.hint, error.exit_status)
    except click.ClickException as error:
        return _print_error_and_hint(error.format_message(), _help_hint(error), WRONG)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            return _report_unknown_exception(error)
        shown = f"{str(error.filename)[:_SHOWN]}..."
        return _print_error_and_hint(f"{shown}: {error.strerror}", "use a shorter path", WRONG)
    except BaseException as error:  # a model may raise what is no Exception, or ask to leave
        if isinstance(error, SystemExit) and _HAD_ENOUGH in type(sys.stdout).__name__:
            return 0
        return _report_unknown_exception(error)


def _report_unknown_exception(error: BaseException) -> int:
    """Print an unexpected exception with its place and a hint, and return the exit status 2."""
    errors.print_traceback(error)
    message = errors.error_words(error) + errors.error_location(error)
    return _print_error_and_hint(
        message, f"{TRACEBACK}; if the model itself runs, please report it", WRONG
    )


_WARNED: set[str] = set()  # what this command has warned of


def _print_warning_once(message: Warning | str, *_: object) -> None:
    """Print a warning to stderr, unless the same text was printed before."""
    if str(message) not in _WARNED:
        _WARNED.add(str(message))
        _print_labelled("warning", str(message))


def _print_error_and_hint(message: str, hint: str, status: int) -> int:
    """Print an error and its hint to stderr, and return `status`."""
    _print_labelled("error", message)
    _print_labelled("hint", hint)
    return status


def _print_labelled(word: str, text: str) -> None:
    """Print "WORD: TEXT" to stderr."""
    from crossflops.cli.output import print_to_stderr

    print_to_stderr(f"{word}: {text}")


def _help_hint(error: click.ClickException) -> str:
    """Return the hint for a wrong command line: see its --help, or use a verb that takes several
    models.
    """
    context = error.ctx if isinstance(error, click.UsageError) else None
    extra = "unexpected extra argument" in error.message
    if extra and context and context.info_name in _OF_ONE_MODEL:
        return f"`{NAME} table` counts several models into one table, `{NAME} diff` compares two"
    return f"`{context.command_path if context else NAME} --help` lists the accepted arguments"
