"""The parent's side of one worker process."""

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path
from queue import SimpleQueue

import msgspec

from crossflops.errors import relay
from crossflops.ir.profile import Failure, Profile
from crossflops.plugins.failures import failure, shortened, speaks_of_memory
from crossflops.workers.jobs import Order

_TAIL = 8192  # bytes of a tool's output that are looked at
_QUOTED = 160  # characters of it that a message quotes
_ANSWER = Profile | Failure
READY = "ready"
_WORDS = {b"hello", READY.encode()}  # whatever else stands there is not the worker's


class Worker:
    """A worker process: start it, let it go, kill it, and have its answer when it has ended.

    What it says arrives in `news` as (worker, word), and (worker, None) when it has ended.
    `limit` are the seconds that building and running may take, each: a clock of its own runs
    whenever the worker works, and kills it, whatever other processes are busy with.
    """

    def __init__(
        self,
        order: Order,
        python: str,
        log: Path,
        news: "SimpleQueue[tuple[Worker, str | None]]",
        limit: float,
    ) -> None:
        self.order = order
        self.tool = order.job.tool
        self.python = python
        self.said = ""
        self.running = False
        self.overdue = False
        self._limit = limit
        self._clock: threading.Timer | None = None
        self._log = log
        self._news = news
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None

    def start(self, env: dict[str, str]) -> Failure | None:
        """Start the process in a group of its own, and give it its order.

        -P keeps the current directory off the front of sys.path.
        """
        command = [self.python, "-P", "-m", "crossflops.workers.worker"]
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=env,
                    start_new_session=True,
                )
        except OSError as problem:
            return failure(
                self.tool,
                "load",
                f"cannot start {self.python}: {problem.strerror}",
                f"give the path of a Python interpreter in which {self.tool} is installed",
            )
        self._wind()
        self._send(msgspec.json.encode(self.order))
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        return None

    def go(self) -> None:
        """Let the tool start. Its time counts from here."""
        self.running = True
        self._wind()
        self._send(b"go")

    def _wind(self) -> None:
        self._clock = threading.Timer(min(self._limit, threading.TIMEOUT_MAX), self._run_out)
        self._clock.daemon = True
        self._clock.start()

    def _rest(self) -> None:
        if self._clock is not None:
            self._clock.cancel()

    def _run_out(self) -> None:
        """Its time is over. What it started in another group may keep its pipe open: say so."""
        self.overdue = True
        self.kill()
        self._news.put((self, None))

    def kill(self) -> None:
        """Kill the process and all that it started and that stayed in its group."""
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def close(self) -> int:
        """Kill what is left, reap the process, release the pipes; the exit status."""
        self._rest()
        if self._process is None:
            return 0
        self.kill()
        status = self._process.wait()
        if self._listener is not None:
            self._listener.join(timeout=1)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return status

    def answer(self) -> Profile | Failure:
        """What the worker found, or what became of it."""
        status = self.close()
        found = self._result()
        if isinstance(found, Profile):
            return found
        relay(self._tail())
        if found is not None and not found.message.startswith("SystemExit"):
            return found  # an exception speaks for itself
        told = found or self._fate(status)
        return msgspec.structs.replace(told, message=told.message + self._quoted())

    def _result(self) -> Profile | Failure | None:
        try:
            content = Path(self.order.result).read_bytes()
            found: Profile | Failure = msgspec.json.decode(content, type=_ANSWER)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as problem:
            return failure(self.tool, "crash", f"its answer cannot be read: {problem}")
        if found.tool != self.tool:
            return failure(self.tool, "crash", f"the answer is that of {found.tool}")
        return found

    def _fate(self, status: int) -> Failure:
        """Why a process ended without an answer."""
        doing = "running" if self.running else "building the model"
        if self.overdue:
            return failure(self.tool, "time", f"stopped after {self._limit:g} s of {doing}")
        if not self.said:
            return failure(
                self.tool,
                "load",
                f"{self.python} could not start the worker",
                f"install crossflops and the plugin of {self.tool} into that interpreter",
            )
        if speaks_of_memory(self._tail()):
            return failure(self.tool, "memory", f"ran out of memory while {doing}")
        if status == -signal.SIGKILL:
            hint = "often the system ran out of memory: give a smaller input, or run fewer tools"
            return failure(self.tool, "crash", f"was killed while {doing}", hint)
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return failure(self.tool, "crash", f"its process ended {how} while {doing}")

    def _quoted(self) -> str:
        lines = [line for line in self._tail().splitlines() if line.strip()]
        return f" (last output: {shortened(lines[-1], _QUOTED)})" if lines else ""

    def _tail(self) -> str:
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - _TAIL))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def _send(self, line: bytes) -> None:
        """Write a line to the worker. One that is gone is noticed by the listener."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(line + b"\n")
                self._process.stdin.flush()

    def _heard(self, word: str) -> None:
        self.said = word
        if word == READY:
            self._rest()
        self._news.put((self, word))

    def _listen(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            for line in self._process.stdout:
                word = line.strip()
                if word in _WORDS:
                    self._heard(word.decode())
        self._news.put((self, None))
