"""Run a verb in a child process, which the parent can end if a converter takes too long.

The process that was started does nothing but wait: it forks before anything is imported, the
child runs the verb, and says over a pipe when a converter begins and when it ended. What runs
away in native code, and holds every lock of Python's, can still be ended from outside.
"""

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from crossflops.limits import TIMEOUT, end_when_pipe_closes

VERBS = ("count", "compare", "efficiency", "bench", "export")
_LOOK = 0.5  # seconds after which is looked whether the child is still there
_GRACE = 5.0  # seconds to clean up: to end its own workers, to show the cursor again
_TOO_LONG = 2
_DONE = b"done"  # the last word of a child, which says that its status is its own
_MOST_INTERRUPTS = 3
_SIGNALLED = 128  # what a shell adds to the number of the signal that ended a process
_OUT_OF_MEMORY = "this often means that the system ran out of memory; give a smaller input"
_CRASHED = (
    "native code crashed; run the model alone with python -X faulthandler to find the location"
)
_limit = [TIMEOUT]


def set_converter_timeout(seconds: float) -> None:
    """Set the number of seconds that a converter of a model may take."""
    _limit[0] = seconds


def run_supervised(
    arguments: list[str], run: Callable[[], int], refuse: Callable[..., int]
) -> int:
    """Call `run()` in a child process, and return its exit status; without a child for other words
    than verbs and on Windows.

    `refuse(message, hint, status)` says what is wrong. Where a system can fork, both processes end
    with that status here; where it cannot (Windows) the verb runs in this one, without a limit.
    """
    if not hasattr(os, "fork") or next(iter(arguments), "") not in VERBS:
        return run()
    events, on_progress = os.pipe()
    alive, life = os.pipe()
    # whoever waits hears a signal that comes while it makes ready, a moment later
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _signals_to_forward())
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for end in (events, life):
            os.close(end)
        _exit_with_parent(alive)
        return _exit_without_teardown(_run_in_child(on_progress, run))
    for end in (on_progress, alive):
        os.close(end)
    return _exit_without_teardown(_Supervisor(child, events).wait_for_exit_status(refuse))


def _exit_with_parent(parent_pipe: int) -> None:
    """Let this process exit when its parent ends; the parent holds `parent_pipe` open."""
    if sys.platform == "linux":
        end_when_pipe_closes(parent_pipe, lambda: os._exit(_TOO_LONG))
        return

    def wait_for_parent_end() -> None:
        """Wait until the parent has ended, then exit this process."""
        os.read(parent_pipe, 1)
        os._exit(_TOO_LONG)

    threading.Thread(target=wait_for_parent_end, daemon=True).start()


def _run_in_child(event_pipe: int, run: Callable[[], int]) -> int:
    """Call `run()` in the child process and return its exit status; report to the parent when
    converters begin and end.
    """
    from crossflops.frontends.conversion import add_conversion_listener

    def send_converter_to_parent(converter: str | None) -> None:
        """Tell the parent the name of the converter that begins (None at its end) and its time
        limit.
        """
        with contextlib.suppress(OSError):
            os.write(event_pipe, f"{_limit[0]} {converter or ''}\n".encode())

    add_conversion_listener(send_converter_to_parent)
    status = run()
    with contextlib.suppress(OSError):
        os.write(event_pipe, b"%s\n" % _DONE)
    return status


def _exit_without_teardown(status: int) -> int:
    """Run atexit handlers, flush the streams, and exit at once with this status, without Python's
    slow cleanup.

    That takes a tenth of the time of a count, and in the process that waited a sixth of all page
    faults of a small one; the system does it at once. As multiprocessing leaves a forked process:
    Lib/multiprocessing/process.py, BaseProcess._bootstrap. Where what was written cannot be
    delivered, Python ends the process and says so.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return status
    os._exit(status)


class _Supervisor:
    """The parent's side: waits for the child, and ends it when a converter takes too long."""

    def __init__(self, child: int, event_pipe: int) -> None:
        self._child = child
        self._news = event_pipe
        self._unread = b""
        self._converter = ""
        self._seconds = 0.0
        self._end: float | None = None
        self._done = False
        self._asked: list[int] = []  # the signals that somebody sent to end this

    def wait_for_exit_status(self, refuse: Callable[..., int]) -> int:
        """Wait for the child and return its exit status; end the child if its converter takes too
        long; forward signals.
        """
        heard = [
            sign for sign in _signals_to_forward() if signal.getsignal(sign) is not signal.SIG_IGN
        ]
        before = {sign: signal.signal(sign, self._forward_signal) for sign in heard}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _signals_to_forward())
        try:
            while (status := self._poll_exit_status()) is None:
                self._wait_for_event()
                if self._end is not None and time.monotonic() > self._end:
                    self._end_child()
                    message = f"{self._converter} did not finish within {self._seconds:g} s"
                    hint = (
                        "allow more time with --timeout SECONDS, or convert a smaller part "
                        "of the model"
                    )
                    return refuse(f"{message}: it did not convert the model", hint, _TOO_LONG)
        finally:
            for sign, handler in before.items():
                signal.signal(sign, handler)
        while (
            not self._done
            and select.select([self._news], [], [], 0)[0]
            and self._read_child_messages()
        ):
            pass  # what it wrote before its end
        if status < 0 and self._asked:
            return _SIGNALLED + self._asked[-1]  # which needs no words
        if status < 0:
            doing = f"while {self._converter} converted the model" if self._converter else ""
            message = f"the process was ended by {signal.Signals(-status).name} {doing}"
            hint = _OUT_OF_MEMORY if status == -signal.SIGKILL else _CRASHED
            return refuse(message, hint, _TOO_LONG)
        if not self._done:
            message = (
                f"the model ended the process with exit status {status} before the result was "
                "complete"
            )
            return refuse(message, "remove the call that exits from the model's code", _TOO_LONG)
        return status

    def _poll_exit_status(self) -> int | None:
        """Return the exit status of the child (negative for a signal), or None while it runs."""
        with contextlib.suppress(ChildProcessError):
            process, status = os.waitpid(self._child, os.WNOHANG)
            return os.waitstatus_to_exitcode(status) if process else None
        return _TOO_LONG

    def _wait_for_event(self) -> None:
        """Wait a short time for a message of the child, at most until its converter's time is
        over.
        """
        left = _LOOK if self._end is None else min(_LOOK, max(0.0, self._end - time.monotonic()))
        if not select.select([self._news], [], [], left)[0]:
            return
        if not self._read_child_messages():  # the child is about to end
            time.sleep(0.001)

    def _read_child_messages(self) -> bool:
        """Read the messages of the child; return False if it has closed the pipe."""
        received = os.read(self._news, 4096)
        *lines, self._unread = (self._unread + received).split(b"\n")
        for line in lines:
            if line == _DONE:
                self._done = True
                continue
            seconds, _, self._converter = line.decode().partition(" ")
            self._seconds = float(seconds)
            self._end = time.monotonic() + self._seconds if self._converter else None
        return bool(received)

    def _end_child(self) -> None:
        """End the child: interrupt it like Ctrl-C, so that it cleans up, and kill it if it
        continues.
        """
        for sign, wait in ((signal.SIGINT, _GRACE), (signal.SIGKILL, _GRACE)):
            os.kill(self._child, sign)
            end = time.monotonic() + wait
            while time.monotonic() < end:
                if self._poll_exit_status() is not None:
                    return
                time.sleep(0.02)

    def _forward_signal(self, sign: int, _frame: Any) -> None:
        """Handle a signal: forward it to the child, unless the terminal sends it Ctrl-C itself.

        A model that swallows interrupts is killed at the third one.
        """
        self._asked.append(sign)
        patience = self._asked.count(signal.SIGINT) < _MOST_INTERRUPTS
        if sign != signal.SIGINT or not patience or not _is_in_foreground():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, sign if patience else signal.SIGKILL)


def _signals_to_forward() -> tuple[signal.Signals, ...]:
    """Return the signals that are forwarded to the child: SIGINT, SIGTERM and SIGHUP."""
    return signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def _is_in_foreground() -> bool:
    """Return whether Ctrl-C on the terminal reaches this process group."""
    with contextlib.suppress(OSError, ValueError):
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    return False
