"""One verb at a time in a process; what other threads print, warn of or log stays untouched.

Frameworks keep much for the whole process: patched functions, random numbers, what is traced. So
whoever counts holds one lock. What a count silences is silenced in its own thread alone: streams,
filters of warnings and loggers are the process's, and each is filtered by the thread that writes.
"""

import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from crossflops.errors import CrossflopsError
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

_NOTHING = "(?!)"  # an expression that matches no text
_FORK_WAITS = 60.0  # seconds: a fork waits for a count, and not for ever for a comparison


class _Process:
    """The lock of a process. A nested count is of the same thread, and goes on."""

    def __init__(self) -> None:
        self.turn = threading.RLock()
        self.is_patched = False  # for good: in a child that was forked in the middle of a count
        self._at_fork = threading.local()

    def before_fork(self) -> None:
        """Wait until no other thread counts, before this process forks."""
        self._at_fork.held = self.turn.acquire(timeout=_FORK_WAITS)

    def after_fork(self) -> None:
        """Let other threads count again in the parent process after a fork."""
        if self._at_fork.held:
            self.turn.release()

    def reset_in_child(self) -> None:
        """Forget waiting threads: the child has only the one that forked."""
        if self._at_fork.held:
            self.turn.release()
        else:
            self.turn, self.is_patched = threading.RLock(), True


_PROCESS = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_PROCESS.before_fork,
        after_in_parent=_PROCESS.after_fork,
        after_in_child=_PROCESS.reset_in_child,
    )


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let one thread at a time count models; other threads wait until the block ends.

    Raises CrossflopsError in a process that was forked in the middle of a count of another thread:
    it has the functions that this had patched, and nothing that would put them back.
    """
    if _PROCESS.is_patched:
        raise CrossflopsError(
            "this process was forked while another thread was counting a model for more than "
            f"{_FORK_WAITS:g} s",
            'fork before or after the count, or start processes with "spawn"',
        )
    with _PROCESS.turn:
        yield


class _Silent:
    """A stream that drops the writes of one thread until it is closed, and no others."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._thread: int | None = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._stream)

    def write(self, text: str) -> int:
        """Discard text of the silenced thread; write the text of other threads."""
        if threading.get_ident() == self._thread:
            return len(text)
        return 0 if self._stream is None else self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        """Write each of the lines, or discard them in the silenced thread."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the text of other threads."""
        if self._stream is not None:
            self._stream.flush()

    def end(self) -> None:
        """Write all text from now on, since another thread may still hold this stream."""
        self._thread = None


@contextmanager
def silence_streams() -> Iterator[None]:
    """Discard what this thread writes to sys.stdout and sys.stderr within the block."""
    with ExitStack() as kept:
        for name in ("stdout", "stderr"):
            kept.enter_context(_silence_stream(name))
        yield


@contextmanager
def _silence_stream(name: str) -> Iterator[None]:
    """Discard what this thread writes to the stream named "stdout" or "stderr"."""
    before = getattr(sys, name)
    silent = _Silent(before)
    # another thread may put its own there meanwhile, which stays
    with patching_attribute(sys, name, silent, inventory.STREAMS, leave_foreign=True):
        try:
            yield
        finally:
            silent.end()


class _ThreadPattern:
    """A pattern that matches every text of one thread, and no text after its end.

    `pattern` is what a library makes filters of for workers of its own, as sklearn.utils.parallel
    does with the expressions of the filters that it finds.
    """

    def __init__(self, begins: str) -> None:
        self._begins = begins
        self.pattern = re.escape(begins)
        self._thread: int | None = threading.get_ident()

    def match(self, text: str) -> bool:
        """Return whether a warning text begins so and comes from the filter's thread."""
        return threading.get_ident() == self._thread and text.startswith(self._begins)

    def end(self) -> None:
        """Stop to match any warning."""
        self._thread = None
        self.pattern = _NOTHING


@contextmanager
def filter_warnings(
    action: str, category: type[Warning] = Warning, begins: str = ""
) -> Iterator[None]:
    """Apply a warnings filter to this thread in the block, for texts that begin so.

    All that was filtered before is filtered so again behind the block.
    """
    own = _ThreadPattern(begins)
    entry: Any = (action, own, category, None, 0)
    filters: Any = warnings.filters
    before = list(filters)
    filters.insert(0, entry)
    _tell_filters()
    try:
        yield
    finally:
        own.end()
        filters[:] = before  # those of code within go too; `catch_warnings` has its own list
        _tell_filters()


def _tell_filters() -> None:
    """Tell the module warnings that its filters changed."""
    for name in ("_filters_mutated", "_filters_mutated_lock_held"):
        if (on_progress := getattr(warnings, name, None)) is not None:
            on_progress()
            return


@contextmanager
def record_warnings(category: type[Warning]) -> Iterator[list[warnings.WarningMessage]]:
    """Record warnings of this category and this thread in a list, instead of showing them."""
    recorded: list[warnings.WarningMessage] = []
    thread = threading.get_ident()
    before: Any = warnings.showwarning

    def show(message: Any, kind: Any, file: str, line: int, *rest: Any, **more: Any) -> None:
        """Record a warning of this thread and of the category; show all others as before."""
        if threading.get_ident() == thread and issubclass(kind, category) and is_open:
            recorded.append(warnings.WarningMessage(message, kind, file, line))
        else:
            before(message, kind, file, line, *rest, **more)

    is_open = True
    with patching_attribute(warnings, "showwarning", show, inventory.WARNINGS, leave_foreign=True):
        try:
            with filter_warnings("always", category):
                yield recorded
        finally:
            is_open = False


@contextmanager
def silence_logs(is_dropped: Callable[[Any], bool]) -> Iterator[None]:
    """Drop records that this thread logs within the block, if `is_dropped(record)`."""
    import logging  # a count of a file silences nothing

    thread = threading.get_ident()
    before = logging.Logger.handle

    def handle(self: logging.Logger, record: logging.LogRecord) -> None:
        """Discard a log record of this thread if the filter matches it; handle all others."""
        if not (is_open and threading.get_ident() == thread and is_dropped(record)):
            before(self, record)

    is_open = True
    with patching_attribute(logging.Logger, "handle", handle, inventory.LOGS, leave_foreign=True):
        try:
            yield
        finally:
            is_open = False
