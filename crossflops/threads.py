"""One count at a time in a process, and silence in one thread: output, warnings and logs of other
threads stay.

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
        """Wait, before this process forks, until no other thread counts, at most 60 s."""
        self._at_fork.held = self.turn.acquire(timeout=_FORK_WAITS)

    def after_fork(self) -> None:
        """Let other threads of the parent process count again after a fork."""
        if self._at_fork.held:
            self.turn.release()

    def reset_in_child(self) -> None:
        """Release the lock in a forked child; if another thread was counting, make a new lock and
        mark the child as unusable for counts.
        """
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
def counting_one_at_a_time() -> Iterator[None]:
    """Let only this thread count models during the block; other threads wait until it ends.

    Raises CrossflopsError in a process that was forked in the middle of a count of another thread:
    it has the functions that this had patched, and nothing that would put them back.
    """
    if _PROCESS.is_patched:
        raise CrossflopsError(
            "this process was forked while another thread of its parent was counting a model; "
            f"the fork waited {_FORK_WAITS:g} s for the end of that count",
            "fork before or after the count, or start the process with "
            'multiprocessing.get_context("spawn")',
        )
    with _PROCESS.turn:
        yield


class _Silent:
    """A stream that drops the writes of one thread until it is closed, and no others."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._thread: int | None = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped stream."""
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the lines of the wrapped stream."""
        return iter(self._stream)

    def write(self, text: str) -> int:
        """Write the text unless it comes from the silenced thread; return the number of
        characters.
        """
        if threading.get_ident() == self._thread:
            return len(text)
        return 0 if self._stream is None else self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        """Write the lines unless they come from the silenced thread."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the underlying stream, if there is one."""
        if self._stream is not None:
            self._stream.flush()

    def end(self) -> None:
        """End the silence: write the text of all threads from now on."""
        self._thread = None


@contextmanager
def silence_streams() -> Iterator[None]:
    """Discard what this thread writes to sys.stdout and sys.stderr during the block."""
    with ExitStack() as kept:
        for name in ("stdout", "stderr"):
            kept.enter_context(_silence_stream(name))
        yield


@contextmanager
def _silence_stream(name: str) -> Iterator[None]:
    """Discard what this thread writes during the block to one stream of sys: "stdout" or
    "stderr".
    """
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
        """Return whether the text of a warning begins with the requested words and comes from the
        requested thread.
        """
        return threading.get_ident() == self._thread and text.startswith(self._begins)

    def end(self) -> None:
        """Make the pattern match no warning from now on."""
        self._thread = None
        self.pattern = _NOTHING


@contextmanager
def filter_warnings(
    action: str, category: type[Warning] = Warning, message_start: str = ""
) -> Iterator[None]:
    """Apply a warnings filter during the block, to this thread's warnings whose text begins with
    `message_start`.

    All that was filtered before is filtered so again behind the block.
    """
    own = _ThreadPattern(message_start)
    entry: Any = (action, own, category, None, 0)
    filters: Any = warnings.filters
    before = list(filters)
    filters.insert(0, entry)
    _announce_filter_change()
    try:
        yield
    finally:
        own.end()
        filters[:] = before  # those of code within go too; `catch_warnings` has its own list
        _announce_filter_change()


def _announce_filter_change() -> None:
    """Tell the module `warnings` that its list of filters changed."""
    for name in ("_filters_mutated", "_filters_mutated_lock_held"):
        if (on_progress := getattr(warnings, name, None)) is not None:
            on_progress()
            return


@contextmanager
def record_warnings(category: type[Warning]) -> Iterator[list[warnings.WarningMessage]]:
    """Yield a list that receives this thread's warnings of this category during the block, instead
    of showing them.
    """
    recorded: list[warnings.WarningMessage] = []
    thread = threading.get_ident()
    before: Any = warnings.showwarning

    def record_or_show_warning(
        message: Any, kind: Any, file: str, line: int, *rest: Any, **more: Any
    ) -> None:
        """Append a warning of the recorded thread and category to the list; show any other as
        before.
        """
        if threading.get_ident() == thread and issubclass(kind, category) and is_open:
            recorded.append(warnings.WarningMessage(message, kind, file, line))
        else:
            before(message, kind, file, line, *rest, **more)

    is_open = True
    with patching_attribute(
        warnings, "showwarning", record_or_show_warning, inventory.WARNINGS, leave_foreign=True
    ):
        try:
            with filter_warnings("always", category):
                yield recorded
        finally:
            is_open = False


@contextmanager
def silence_logs(is_dropped: Callable[[Any], bool]) -> Iterator[None]:
    """Drop, during the block, those log records of this thread for which `is_dropped(record)` is
    true.
    """
    import logging  # a count of a file silences nothing

    thread = threading.get_ident()
    before = logging.Logger.handle

    def drop_or_handle_log_record(self: logging.Logger, record: logging.LogRecord) -> None:
        """Drop a log record of the silenced thread if `is_dropped` says so; handle any other as
        before.
        """
        if not (is_open and threading.get_ident() == thread and is_dropped(record)):
            before(self, record)

    is_open = True
    with patching_attribute(
        logging.Logger, "handle", drop_or_handle_log_record, inventory.LOGS, leave_foreign=True
    ):
        try:
            yield
        finally:
            is_open = False
