"""Output: results go to stdout or completely to a file, messages to stderr."""

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from crossflops.commands import localize_commands
from crossflops.errors import CrossflopsError
from crossflops.files import write_file
from crossflops.render.layout import ShowableResult
from crossflops.render.pages.summary import Unit
from crossflops.render.terminal import (
    WORD,
    escape_json_control_chars,
    terminal,
    terminal_width,
    to_legible_text,
)

if TYPE_CHECKING:
    from rich.status import Status

    from crossflops.report.bench import Bench
    from crossflops.report.efficiency import EfficiencyReport
    from crossflops.report.report import Report

_TO_A_FILE = "write the result to a file with -o FILE"
_SAID = 4000  # letters of a line on stderr: a command may have many paths in it
_ASCII = str.maketrans({"·": "-", "×": "x", "–": "-", "—": "-", "…": "..."})


def write_verb_result(
    result: ShowableResult, *, as_json: bool, file: Path | None, unit: Unit = "macs"
) -> None:
    """Write a result to stdout as a page or as JSON, or to a file in the format of its suffix.

    With `file` it goes there, in the format of the suffix, and to stdout only with `as_json`.
    Raises CrossflopsError when the file cannot be written; nothing half-written is left.
    """
    if file is None and not as_json:
        _print_to_stdout(
            _to_encodable_text(terminal(result, terminal_width(), has_colour(), unit))
        )
        return
    from crossflops.render.formats import (
        FORMATS,
        content_file_bytes,
    )  # a page in a terminal needs no format

    if file is not None:
        write_file_and_print_name(file, content_file_bytes(result, file, unit))
    if as_json:
        _print_to_stdout(_to_encodable_json(escape_json_control_chars(FORMATS[".json"](result))))


def print_to_stderr(text: str) -> None:
    """Write a text as one line to stderr, with control characters escaped."""
    line = to_legible_text(localize_commands(" ".join(text.split())), WORD, _SAID)
    try:
        click.echo(line, err=True)
    except OSError:  # no stream is left for a message, and the exit status says it
        _redirect_to_null(sys.stderr)


def has_colour() -> bool:
    """Return whether pages on stdout have colours: if it is a terminal, unless NO_COLOR is set."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def _print_to_stdout(text: str) -> None:
    """Write text to stdout; do nothing if the reader has closed the pipe. Raises CrossflopsError
    on other errors.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _redirect_to_null(sys.stdout)
    except OSError as error:
        _redirect_to_null(sys.stdout)
        message = f"cannot write to stdout: {error.strerror or error}"
        raise CrossflopsError(message, _TO_A_FILE) from error


def _redirect_to_null(stream: TextIO) -> None:
    """Redirect a closed stream to the null device, so that Python can flush it at exit without an
    error.
    """
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _stdout_encoding() -> str:
    """Return the encoding of stdout, or "utf-8" if it has none."""
    return getattr(sys.stdout, "encoding", None) or "utf-8"


def _to_encodable_text(text: str) -> str:
    """Return the text with the characters that stdout cannot encode replaced by similar ones or
    "?".
    """
    try:
        text.encode(_stdout_encoding())
    except UnicodeEncodeError:
        return (
            text.translate(_ASCII).encode(_stdout_encoding(), "replace").decode(_stdout_encoding())
        )
    return text


def _to_encodable_json(text: str) -> str:
    """Return the JSON text with non-ASCII characters escaped, if stdout cannot encode them."""
    try:
        text.encode(_stdout_encoding())
    except UnicodeEncodeError:
        import json

        return "".join(letter if letter.isascii() else json.dumps(letter)[1:-1] for letter in text)
    return text


def write_batch_curve(bench: "Bench", plot: str) -> None:
    """Write a picture to a file: examples per second for each batch size.

    Raises CrossflopsError when the file cannot be written, and InputError where nothing ran.
    """
    from crossflops.render.figures.results import batch_curve_picture

    write_file_and_print_name(Path(plot), batch_curve_picture(bench, Path(plot)))


def write_roofline_picture(report: "EfficiencyReport", plot: str) -> None:
    """Write a picture of the first roofline of an efficiency report to a file.

    Raises CrossflopsError when the file cannot be written, and InputError where there is none.
    """
    from crossflops.render.figures.results import roofline_picture
    from crossflops.report.efficiency import rooflines

    write_file_and_print_name(Path(plot), roofline_picture(report, Path(plot)))
    roofs = rooflines(report)
    if len(roofs) > 1:
        print_to_stderr(f"--plot draws only the roofline of {roofs[0].device}")


def write_comparison_picture(report: "Report", plot: str) -> None:
    """Write a picture of a comparison to a file: a waterfall for each tool, or bars if the file
    name begins with "bars".

    Raises CrossflopsError when the file cannot be written, and InputError where nothing differs.
    """
    from crossflops.render.figures.results import comparison_picture

    write_file_and_print_name(Path(plot), comparison_picture(report, Path(plot)))


def write_file_and_print_name(file: Path, data: bytes) -> None:
    """Write bytes to a file, and print its name to stderr."""
    write_file(file, data)
    print_to_stderr(f"wrote {file}")


# Progress on stderr, where somebody is looking.

_STDOUT, _STDERR = 1, 2


class Progress:
    """A display of progress: a call with a text shows what comes next.

    A text that ends with a newline stays as a line, above the one that the next text replaces.
    Without a `status`, which is moved by a thread of its own, nothing is shown.
    """

    def __init__(self, status: "Status | None" = None) -> None:
        self._status = status

    def __call__(self, what: str) -> None:
        """Show the text."""
        if self._status is None:
            return
        from rich.text import Text

        text = Text(to_legible_text(what.removesuffix("\n")))
        if what.endswith("\n"):
            self._status.console.print(text)
        else:
            self._status.update(text)

    @contextmanager
    def pausing_display(self) -> Iterator[None]:
        """Stop the progress display, and its thread, inside the block; start it again after."""
        if self._status is not None:
            self._status.stop()
        try:
            yield
        finally:
            if self._status is not None:
                self._status.start()


@contextmanager
def showing_progress(first_text: str) -> Iterator[Progress]:
    """Show progress on stderr during the block, beginning with this text; yield the display.

    Nothing is written when stderr is no terminal. Whatever the model, a framework, a native
    library or a process of theirs prints meanwhile goes to stderr: stdout belongs to the result.
    """
    with _descriptor_on_stderr(), redirect_stdout(sys.stderr):
        if not sys.stderr.isatty():
            yield Progress()
            return
        from rich.console import Console
        from rich.text import Text

        # Another descriptor of the terminal: that of stderr may lead elsewhere for a while.
        with (
            os.fdopen(os.dup(_STDERR), "w", encoding=sys.stderr.encoding) as terminal,
            Console(file=terminal).status(Text(to_legible_text(first_text))) as status,
        ):
            yield Progress(status)


@contextmanager
def _descriptor_on_stderr() -> Iterator[None]:
    """Redirect the file descriptor of stdout to stderr during the block, for native code that
    writes to it.
    """
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    try:
        kept = os.dup(_STDOUT)
    except OSError:  # there is no stdout
        yield
        return
    try:
        with contextlib.suppress(OSError):
            os.dup2(_STDERR, _STDOUT)
        yield
    finally:
        os.dup2(kept, _STDOUT)
        os.close(kept)
