"""One worker process, seen from the process that started it."""

import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn, Protocol

import msgspec

from crossflops.errors import print_worker_stderr
from crossflops.ir.profile import Failure, Profile
from crossflops.limits import end_when_pipe_closes, process_thread_count
from crossflops.plugins.failures import says_memory_ran_out, shorten_line, tool_failure
from crossflops.workers.conversation import OrderFields
from crossflops.workers.jobs import Order

_TAIL = 8192  # bytes of a tool's output that are looked at
_QUOTED = 160  # characters of it that a message quotes
_REAPED = 5.0  # seconds that a parent has to tell how its worker ended
_ANSWER = Profile | Failure
READY = "ready"
_WORDS = {b"hello", READY.encode()}  # whatever else stands there is not the worker's
News = Callable[[Any, str | None], None]  # is told who speaks, and the word; None: it has ended


class Process(Protocol):
    """A process that exchanges lines with this one."""

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that the process writes, until it ends."""

    def send(self, line: bytes) -> None:
        """Send a line to the process; do nothing if the process has ended."""

    def kill(self) -> None:
        """Kill the process and all processes in its group."""

    def wait_for_exit_status(self) -> int | None:
        """Return the exit status of the ended process, negative for a signal; None if it is
        unknown.
        """

    def close_pipes(self) -> None:
        """Close the pipes to and from the process."""


class SpawnedProcess:
    """A process that this one started, in a group of its own: a `Process`.

    -P keeps the current directory off the front of sys.path. Raises OSError where the
    interpreter cannot be started.
    """

    def __init__(
        self, python: str, module: str, log: Path, env: dict[str, str], links: Sequence[int] = ()
    ) -> None:
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [python, "-P", "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=env,
                start_new_session=True,
                pass_fds=links,
            )

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that the process writes to stdout."""
        return iter(self._process.stdout or ())

    def send(self, line: bytes) -> None:
        """Send a line to the stdin of the process; do nothing if the process has ended."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(line + b"\n")
                self._process.stdin.flush()

    def kill(self) -> None:
        """Kill the process and all processes in its group."""
        if self._process.returncode is not None:
            return
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def wait_for_exit_status(self) -> int | None:
        """Wait for the end of the process and return its exit status, negative for a signal."""
        return self._process.wait()

    def close_pipes(self) -> None:
        """Close the pipes to and from the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def can_fork_this_process() -> bool:
    """Return whether this process can be forked safely: on Linux, with one thread, stdout and
    stderr open.
    """
    single = sys.platform == "linux" and process_thread_count() == 1
    return single and sys.stdout is not None and sys.stderr is not None


class ForkedProcess:
    """A fork of this process, in a group of its own, that only calls `run_process()`: a `Process`.

    Like one that was started it has the conversation for stdin and stdout, and of what is open
    here nothing but `links`. See `can_fork_this_process`.
    """

    def __init__(self, live: Callable[[], NoReturn], log: Path, links: Sequence[int]) -> None:
        requests, to_clone = os.pipe()
        from_clone, replies = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()  # what is there stays shared while neither process's collector writes to it
        self._pid = os.fork()
        if not self._pid:
            _run_forked_process(live, requests, replies, log, links)
        os.close(requests)
        os.close(replies)
        self._requests = os.fdopen(to_clone, "wb", 0)
        self._replies = os.fdopen(from_clone, "rb")
        self._status: int | None = None

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that the process writes to its pipe."""
        return iter(self._replies)

    def send(self, line: bytes) -> None:
        """Send a line to the process; do nothing if the process has ended."""
        with contextlib.suppress(OSError):
            self._requests.write(line + b"\n")

    def kill(self) -> None:
        """Kill the process and all processes in its group."""
        if self._status is None:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(self._pid, signal.SIGKILL)

    def wait_for_exit_status(self) -> int | None:
        """Wait for the end of the process and return its exit status, negative for a signal."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._status

    def close_pipes(self) -> None:
        """Close the pipes to and from the process."""
        for pipe in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                pipe.close()


class Background:
    """A fork of this process that computes while this one goes on: see `can_fork_this_process`."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._process = ForkedProcess(partial(_write_fork_answer, compute), Path(os.devnull), ())

    def result(self) -> Any:
        """Wait for the forked process; return the value that it computed, or None if it failed."""
        return self._result

    @cached_property
    def _result(self) -> Any:
        """The value that the forked process computed, or None if it failed; waits for its end."""
        data = b"".join(self._process.lines())
        return pickle.loads(data) if self._process.wait_for_exit_status() == 0 else None

    def close(self) -> None:
        """Kill the forked process and close its pipes."""
        self._process.kill()
        self._process.wait_for_exit_status()
        self._process.close_pipes()


def _write_fork_answer(compute: Callable[[], Any]) -> NoReturn:
    """Write the pickled value of `compute()` to stdout, and exit the forked process."""
    with os.fdopen(os.dup(1), "wb") as replies:
        end_when_pipe_closes(0, partial(os._exit, 1))
        os.dup2(2, 1)
        replies.write(pickle.dumps(compute()))
    os._exit(0)


def _run_forked_process(
    run_process: Callable[[], NoReturn],
    requests: int,
    replies: int,
    log: Path,
    links: Sequence[int],
) -> NoReturn:
    """Call `run_process()` in a forked process, with its streams on these pipes and the log;
    then exit.
    """
    try:
        os.setsid()
        errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for stream, end in enumerate((requests, replies, errors)):
            os.dup2(end, stream)
        before = 2
        for link in sorted(links):
            os.closerange(before + 1, link)
            before = link
        os.closerange(before + 1, os.sysconf("SC_OPEN_MAX"))
        run_process()
    except BaseException as problem:
        sys.stderr.write(f"{type(problem).__name__}: {problem}\n")
    finally:
        os._exit(1)


class GrandchildProcess:
    """A process that the fork server forked, which reports its end: a `Process`."""

    def __init__(self, pid: int, requests: BinaryIO, replies: BinaryIO) -> None:
        self._pid = pid
        self._requests = requests
        self._replies = replies
        self._status: int | None = None
        self._told = threading.Event()

    def on_exit(self, status: int) -> None:
        """Record the exit status of the process, which the fork server reported."""
        self._status = status
        self.stop_waiting_for_exit()

    def stop_waiting_for_exit(self) -> None:
        """Stop waiting for the exit status: the fork server will not report it."""
        self._told.set()

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that the process writes to its pipe."""
        with self._replies:
            yield from self._replies

    def send(self, line: bytes) -> None:
        """Send a line to the process; do nothing if the process has ended."""
        with contextlib.suppress(OSError, ValueError):  # broken, or closed
            self._requests.write(line + b"\n")

    def kill(self) -> None:
        """Kill the process and all processes in its group."""
        if self._status is None:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(self._pid, signal.SIGKILL)

    def wait_for_exit_status(self) -> int | None:
        """Wait for the exit status that the fork server reports, and return it; None if it reports
        none.
        """
        self._told.wait(_REAPED)
        return self._status

    def close_pipes(self) -> None:
        """Close the pipe to the process."""
        with contextlib.suppress(OSError):
            self._requests.close()


class MonitoredProcess:
    """A process with a listener, and a timeout while it works.

    `events` is told this and each word that it says, and None when it has ended, from a thread of
    its own. `limit` are the seconds that a piece of its work may take: the clock kills it,
    whatever other processes are busy with. `log` has what it writes to stderr.
    """

    def __init__(self, python: str, log: Path, events: News, limit: float) -> None:
        self.python = python
        self.log = log
        self.said = ""
        self.overdue = False
        self.over = False
        self.limit = limit
        self._clock: threading.Timer | None = None
        self._news = events
        self._process: Process | None = None
        self._listener: threading.Thread | None = None

    def listen_to(self, process: Process) -> None:
        """Begin to listen to a process, in a thread, and start its timeout."""
        self._process = process
        self.restart_timeout()
        self._listener = threading.Thread(target=self._listen_to_process, daemon=True)
        self._listener.start()

    def send(self, line: bytes) -> None:
        """Send a line to the process."""
        if self._process is not None:
            self._process.send(line)

    def restart_timeout(self) -> None:
        """Start the timeout of the process again from now."""
        self.cancel_timeout()
        self._clock = threading.Timer(
            min(self.limit, threading.TIMEOUT_MAX), self._end_after_timeout
        )
        self._clock.daemon = True
        self._clock.start()

    def cancel_timeout(self) -> None:
        """Cancel the timeout of the process, which only waits now."""
        if self._clock is not None:
            self._clock.cancel()

    def end_and_return_status(self) -> int | None:
        """Kill the process and its group, close its pipes, and return the exit status."""
        self.cancel_timeout()
        if self._process is None:
            return 0
        self._process.kill()
        status = self._process.wait_for_exit_status()
        if self._listener is not None:
            self._listener.join(timeout=1)
        self._process.close_pipes()
        return status

    def on_line(self, line: bytes) -> None:
        """Handle a line that the process wrote; subclasses define how."""
        raise NotImplementedError

    def last_stderr_line(self) -> str:
        """Return the last line that the process wrote to stderr, shortened; "" if there
        is none.
        """
        lines = [line for line in self.stderr_tail().splitlines() if line.strip()]
        return shorten_line(lines[-1], _QUOTED) if lines else ""

    def stderr_tail(self) -> str:
        """Return the end of what the process wrote to stderr."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - _TAIL))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def emit_event(self, event: str | None) -> None:
        """Report an event of the process to the listener; None means that the process
        has ended.
        """
        self.over |= event is None
        self._news(self, event)

    def _end_after_timeout(self) -> None:
        """Kill the process because its timeout is over, and report its end."""
        self.overdue = True
        if self._process is not None:
            self._process.kill()
        self.emit_event(None)

    def _listen_to_process(self) -> None:
        """Pass each line of the process to `on_line`, and report the end of the process."""
        if self._process is not None:
            for line in self._process.lines():
                self.on_line(line.strip())
        self.emit_event(None)


class ProcessEnd(NamedTuple):
    """The end of a process: its exit status, negative for a signal, and its last words.

    `overdue` says that its time was over.
    """

    status: int
    overdue: bool
    output: str

    @property
    def how_it_ended(self) -> str:
        """How the process ended, as text: "by SIGSEGV" or "with status 2".

        >>> ProcessEnd(-11, False, "").how_it_ended, ProcessEnd(2, False, "").how_it_ended
        ('by SIGSEGV', 'with status 2')
        """
        return _exit_status_text(self.status)


def _exit_status_text(status: int) -> str:
    """Return how a process ended, as text: "by SIGKILL" or "with status 1"."""
    return f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


class _SingleProcess(MonitoredProcess):
    """A process with one order, of which only the end is waited for."""

    def on_line(self, line: bytes) -> None:
        """Ignore the line: only the end of the process matters."""


def run_single_process(
    module: str, order: OrderFields, folder: Path, seconds: float
) -> ProcessEnd:
    """Run one order in a new process, wait for its end, and return its exit status and last
    output.

    `module` holds the other side of the conversation; `folder` gets the log of it. Whatever
    happens here, it ends with all that it started.
    """
    ended = threading.Event()

    def stop_waiting_at_process_end(_process: Any, event: str | None) -> None:
        """Handle an event of the process: at its end, stop waiting."""
        if event is None:
            ended.set()

    process = _SingleProcess(sys.executable, folder / "log", stop_waiting_at_process_end, seconds)
    process.listen_to(SpawnedProcess(sys.executable, module, process.log, dict(os.environ)))
    try:
        process.send(msgspec.json.encode(order))
        ended.wait()
    finally:
        status = process.end_and_return_status()
    output = process.stderr_tail()
    print_worker_stderr(output)
    return ProcessEnd(status or 0, process.overdue, output)


class Worker(MonitoredProcess):
    """A worker process: release it, and get its answer when it has ended.

    `limit` holds for building and for running, each.
    """

    def __init__(self, order: Order, python: str, log: Path, events: News, limit: float) -> None:
        super().__init__(python, log, events, limit)
        self.order = order
        self.tool = order.job.tool
        self.running = False
        self._status: int | None = None  # that of a parent that did not come to fork it

    def start(self, env: dict[str, str]) -> Failure | None:
        """Start the process of the worker and send its order; return a failure if it cannot be
        started, else None.
        """
        try:
            process = SpawnedProcess(self.python, "crossflops.workers.worker", self.log, env)
        except OSError as problem:
            return self.start_failure(problem)
        self.listen_to(process)
        self.send(msgspec.json.encode(self.order))
        return None

    def start_failure(self, problem: OSError) -> Failure:
        """Return the failure which says that the Python of the tool cannot be started."""
        return tool_failure(
            self.tool,
            "load",
            f"cannot start {self.python}: {problem.strerror}",
            f"give the path of a Python interpreter in which {self.tool} is installed",
        )

    def record_parent_end(self, parent: MonitoredProcess, status: int | None) -> None:
        """Record that the fork server ended before it forked this worker."""
        self.said, self.overdue, self.log = parent.said, parent.overdue, parent.log
        self._status = status

    def start_run(self) -> None:
        """Let the worker run its tool, and start its timeout."""
        self.running = True
        self.restart_timeout()
        self.send(b"go")

    def on_line(self, line: bytes) -> None:
        """Handle a line of the worker process: report it, and cancel the timeout if it
        is "ready".
        """
        if line not in _WORDS:
            return
        self.said = line.decode()
        if self.said == READY:
            self.cancel_timeout()
        self.emit_event(self.said)

    def read_answer(self) -> Profile | Failure:
        """Return the profile of the worker's tool, or its failure."""
        status = self.end_and_return_status() if self._process is not None else self._status
        answer = self._read_result_file()
        if isinstance(answer, Profile):
            return answer
        print_worker_stderr(self.stderr_tail())
        if answer is not None and not answer.message.startswith("SystemExit"):
            return answer  # an exception speaks for itself
        failed = answer or self._failure_of_end(status)
        return msgspec.structs.replace(failed, message=failed.message + self._last_line_quote())

    def _read_result_file(self) -> Profile | Failure | None:
        """Return the answer in the worker's result file, a profile or a failure; None if there is
        no file.
        """
        try:
            content = Path(self.order.answer_path).read_bytes()
            answer: Profile | Failure = msgspec.json.decode(content, type=_ANSWER)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as problem:
            return tool_failure(self.tool, "crash", f"cannot read its result: {problem}")
        if answer.tool != self.tool:
            return tool_failure(
                self.tool, "crash", f"the result is that of the tool {answer.tool}"
            )
        return answer

    def _failure_of_end(self, status: int | None) -> Failure:
        """Return the failure that says how the process ended: out of time, out of memory, killed
        or crashed.
        """
        doing = "running" if self.running else "building the model"
        if self.overdue:
            return tool_failure(self.tool, "time", f"stopped after {self.limit:g} s of {doing}")
        if not self.said:
            return tool_failure(
                self.tool,
                "load",
                f"{self.python} could not start the worker",
                f"install crossflops and the plugin of {self.tool} into that interpreter",
            )
        if says_memory_ran_out(self.stderr_tail()):
            return tool_failure(self.tool, "memory", f"ran out of memory while {doing}")
        if status == -signal.SIGKILL:
            hint = (
                "this often means that the system ran out of memory; give a smaller input, "
                "or run fewer tools"
            )
            return tool_failure(self.tool, "crash", f"was killed while {doing}", hint)
        if status is None:
            return tool_failure(self.tool, "crash", f"its process ended while {doing}")
        return tool_failure(
            self.tool, "crash", f"its process ended {_exit_status_text(status)} while {doing}"
        )

    def _last_line_quote(self) -> str:
        """Return " (last output: ...)" with the last line on stderr, or "" if there is none."""
        line = self.last_stderr_line()
        return f" (last output: {line})" if line else ""
