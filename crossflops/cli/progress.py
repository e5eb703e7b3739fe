"""Progress on stderr, where somebody is looking."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Show what is going on while the block runs; the value says what comes next.

    Nothing is written when stderr is no terminal. Whatever the model or a framework prints
    meanwhile goes to stderr: stdout belongs to the result.
    """
    with redirect_stdout(sys.stderr):
        if not sys.stderr.isatty():
            yield lambda what: None
            return
        from rich.console import Console
        from rich.text import Text

        with Console(stderr=True).status(Text(what)) as status:
            yield lambda what: status.update(Text(what))
