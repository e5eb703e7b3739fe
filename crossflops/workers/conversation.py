"""The messages between a helper process and its parent about one order, a line each.

It says `hello`, reads its order as JSON, and writes its answer to the file `result` that the order
names, under a temporary name first. A worker that has a tool to run says `ready` before that, and
waits for `go`. What it prints goes to stderr. It ends when it has answered, and at once, with all
that it started, when the process that asked is gone.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Protocol, TypeVar

import msgspec

from crossflops.files import write_file
from crossflops.limits import limit_memory

Say = Callable[[str], None]
Wait = Callable[[], None]


class OrderFields(Protocol):
    """The fields of every order: the file for the answer, and a limit of address space in
    bytes.
    """

    @property
    def answer_path(self) -> str:
        """The path of the file for the answer."""
        ...

    @property
    def memory_limit(self) -> int | None:
        """The limit of the address space in bytes, or None."""
        ...


AnyOrder = TypeVar("AnyOrder", bound=OrderFields)


def serve_order(kind: Any, compute_answer: Callable[[AnyOrder, Wait], Any]) -> NoReturn:
    """Read an order from stdin, write its answer to a file, and exit the process.

    `compute_answer(order, wait)` gives the answer; what runs for it may leave threads or atexit
    handlers behind that never end. `kind` is the type of the order.
    """
    requests, replies = take_streams()
    say = line_writer(replies)
    say("hello")
    order: AnyOrder = msgspec.json.decode(requests.readline(), type=kind)
    limit_memory(order.memory_limit)
    serve_answer(order.answer_path, requests, say, partial(compute_answer, order))


def serve_answer(
    result_path: str, requests: BinaryIO, say: Say, compute_answer: Callable[[Wait], Any]
) -> NoReturn:
    """Write the answer to the file `result_path`, and exit the process; the `wait` of
    `compute_answer(wait)` says "ready" and waits for "go".
    """
    released = threading.Event()
    threading.Thread(target=_listen_for_go, args=(requests, released), daemon=True).start()

    def say_ready_and_wait_for_go() -> None:
        """Send the parent the message that this process is ready, and wait for its line "go"."""
        say("ready")
        released.wait()

    write_file(Path(result_path), msgspec.json.encode(compute_answer(say_ready_and_wait_for_go)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def take_streams() -> tuple[BinaryIO, int]:
    """Return the stream of orders (from stdin) and the descriptor for replies (stdout); tools get
    the null device and stderr instead.

    The copies are not inherited by processes that a tool starts.
    """
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    return requests, replies


def line_writer(replies: int) -> Say:
    """Return a function that writes a line of text to this file descriptor at once."""

    def write_line_to_descriptor(event: str) -> None:
        """Write the text as a line to the file descriptor."""
        os.write(replies, f"{event}\n".encode())

    return write_line_to_descriptor


def _listen_for_go(requests: BinaryIO, released: threading.Event) -> None:
    """Set `released` when the line "go" arrives; end this process and its group when the parent
    closes the pipe.
    """
    while line := requests.readline():
        if line.strip() == b"go":
            released.set()
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
