"""Run functions in processes that stay warm: an Executor whose calls survive a process that ends.

In: a function of a module with arguments that can be pickled. Out: a Future. A call whose process
is killed, crashes or takes too long is an error of that call alone, and the next call gets a new
process. All processes end with this one.
"""

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from crossflops.errors import CrossflopsError
from crossflops.limits import end_when_pipe_closes
from crossflops.operators.formula_sources import (
    formula_locations_for_workers,
    load_formulas_for_process,
)

_STDOUT, _STDERR = 1, 2
_READY = "ready"
_PATIENCE = 5.0  # seconds in which a process that has nothing to do ends


class WorkerEndedError(CrossflopsError):
    """An error of a call whose process ended before the call did."""


class _WarmProcess(NamedTuple):
    """A process, and the pipe to it."""

    process: Any
    link: Connection

    def end_process(self) -> None:
        """Kill the process, and close the pipe to it."""
        self.process.kill()
        self.process.join()
        self.link.close()


class WarmExecutor(Executor):
    """An executor of so many processes, each started by its first call.

    `timeout` are the seconds that a call may take, None for no limit.
    """

    def __init__(self, jobs: int, timeout: float | None = None) -> None:
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(jobs)
        self._own = threading.local()
        self._lock = threading.Lock()
        self._processes: list[_WarmProcess] = []
        self._is_closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Call the function in one of the processes, as soon as one is free.

        Raises nothing; the future raises what the call raises, and WorkerEndedError where the
        process of the call ended.
        """
        return self._threads.submit(self._call_in_process, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the executor. With `cancel_futures` running calls are killed as well."""
        if cancel_futures or not wait:
            self._end_processes(patience=0.0)
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        self._end_processes(_PATIENCE)

    def _call_in_process(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the result of a call in the process of this thread."""
        warm = getattr(self._own, "warm", None) or self._start_process()
        try:
            warm.link.send((function, args, kwargs))
            if not warm.link.poll(self._timeout):
                self._end_and_forget_process(warm)
                raise WorkerEndedError(
                    f"the count took longer than {self._timeout:g} seconds",
                    "allow more with --timeout",
                )
            is_result, value = warm.link.recv()
        except (EOFError, OSError) as error:
            self._end_and_forget_process(warm)
            raise WorkerEndedError(
                "the process that counted the model was killed, perhaps because of its memory use",
                "count fewer models at a time (--jobs 1), or leave out this model",
            ) from error
        if is_result:
            return value
        raise value

    def _start_process(self) -> _WarmProcess:
        """Start a process for this thread, and wait until it listens.

        Raises CrossflopsError where none can be started.
        """
        context = multiprocessing.get_context("spawn")  # a fork has half of what a framework began
        link, other = context.Pipe()
        process = context.Process(
            target=_serve_calls, args=(other, formula_locations_for_workers())
        )
        with self._lock:
            if self._is_closed:
                raise WorkerEndedError(
                    "the sweep was stopped before this model was counted",
                    "run the sweep again: models that are in the store are not counted again",
                )
            process.start()
            warm = _WarmProcess(process, link)
            self._processes.append(warm)
        other.close()
        try:
            greeting = link.recv()
        except (EOFError, OSError):
            greeting = ""
        if greeting != _READY:
            self._end_and_forget_process(warm)
            raise CrossflopsError(
                "worker processes cannot be started: each of them imports your main script again",
                "call crossflops under `if __name__ == '__main__':`",
            )
        self._own.warm = warm
        return warm

    def _end_and_forget_process(self, warm: _WarmProcess) -> None:
        """End a process; the next call of this thread starts another one."""
        self._own.warm = None
        with self._lock:
            if warm in self._processes:
                self._processes.remove(warm)
                warm.end_process()

    def _end_processes(self, patience: float) -> None:
        """End all processes: kill those that do not end within so many seconds; no further one is
        started.
        """
        with self._lock:
            self._is_closed = True
            for warm in self._processes:
                if patience:
                    warm.link.close()  # a process that waits for a call ends by itself
                    warm.process.join(patience)
                warm.process.kill()
                warm.process.join()
            self._processes.clear()


# In a process of its own.


def _serve_calls(link: Connection, formulas: tuple[str, ...]) -> None:
    """Call functions as they come over the pipe, and send back results or exceptions, until the
    pipe closes.

    Stdout goes to stderr, Ctrl-C is ignored, and the process ends with its parent.
    """
    os.dup2(_STDERR, _STDOUT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    parent = multiprocessing.parent_process()
    if sys.platform == "linux" and parent is not None:
        end_when_pipe_closes(parent.sentinel, lambda: os._exit(1))
        # else the locks of libraries are named, and outlive a process that is killed
        multiprocessing.set_start_method("fork", force=True)
    load_formulas_for_process(formulas)
    link.send(_READY)
    while True:
        try:
            function, args, kwargs = link.recv()
        except (EOFError, OSError):
            return
        link.send(_call_result_or_exception(function, args, kwargs))


def _call_result_or_exception(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[bool, Any]:
    """Return (True, the result of a call), or (False, its exception)."""
    try:
        return True, function(*args, **kwargs)
    except Exception as error:
        return False, error
