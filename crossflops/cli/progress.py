"""Progress on stderr, where somebody is looking."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout

_STDOUT, _STDERR = 1, 2


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Show what is going on while the block runs; the value says what comes next.

    Nothing is written when stderr is no terminal. Whatever the model, a framework, a native
    library or a process of theirs prints meanwhile goes to stderr: stdout belongs to the result.
    """
    with _descriptor_on_stderr(), redirect_stdout(sys.stderr):
        if not sys.stderr.isatty():
            yield lambda what: None
            return
        from rich.console import Console
        from rich.text import Text

        from crossflops.render.terminal import legible

        # Another descriptor of the terminal: that of stderr may lead elsewhere for a while.
        with (
            os.fdopen(os.dup(_STDERR), "w", encoding=sys.stderr.encoding) as terminal,
            Console(file=terminal).status(Text(legible(what))) as status,
        ):
            yield lambda what: status.update(Text(legible(what)))


@contextmanager
def _descriptor_on_stderr() -> Iterator[None]:
    """Let what writes to the file descriptor of stdout, past Python, write to that of stderr."""
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
