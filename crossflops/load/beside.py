"""Run a second process that has ONNX's C++ library, and may read a file ahead of its use.

What crashes or hangs in the library ends that process alone. One that is started early reads the
file, and makes the schemas of all operators, while this one imports what counts it.
"""

import atexit
import contextlib
import marshal
import os
import select
import struct
import time
from collections.abc import Callable
from typing import Any, NoReturn

from crossflops.limits import trim_memory
from crossflops.load.protobuf import (
    SCHEMA,
    look_up_schema_or_version,
    onnx_cpp_library,
    replace_schema_look_up,
)
from crossflops.threads import filter_warnings

_MEMORY, _MEMORY_PER_BYTE = 192 << 20, 48
_LARGEST = 1 << 28
_LENGTH = struct.Struct("<Q")
_INFER = "infer"


class OnnxHelperProcess:
    """A fork of this process that sends the result of `first`, and then answers requests.

    It is gone when this process is, or when it is ended.
    """

    def __init__(self, make_first_answer: Callable[[], bytes]) -> None:
        """Fork a child that sends the result of `make_first_answer` and then answers requests by
        pipes.
        """
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        # Threads of a framework do not follow the child, which calls no framework.
        with (
            filter_warnings("ignore", DeprecationWarning),
            filter_warnings("ignore", RuntimeWarning),
        ):
            self._child = os.fork()
        if not self._child:
            _serve_requests(make_first_answer, requests, answers)
        os.close(requests)
        os.close(answers)
        self._open = True

    def receive_answer(self, seconds: float | None = None) -> bytes | None:
        """Return the process's next answer; b"" if it ended, None if too late or too large."""
        return _receive_message(self._answers, seconds)

    def send_request(self, *words: Any, data: bytes = b"") -> None:
        """Send a request with its words (as marshal) and data to the process."""
        with contextlib.suppress(BrokenPipeError):  # there will be no answer
            _send_message(self._requests, marshal.dumps(words))
            if data:
                _send_message(self._requests, data)

    def send_inference_request(self, data: bytes, strict: bool, follow: bool) -> None:
        """Send the process a request for shape inference of a model; it answers this only once."""
        self.send_request(_INFER, strict, follow, data=data)

    def look_up_schema_or_version(self, *words: Any) -> Any:
        """Return an operator's schema or a domain's newest version, if possible by the process."""
        if not self._open:
            return look_up_schema_or_version(*words)
        self.send_request(*words)
        answer = self.receive_answer()
        return marshal.loads(answer) if answer else look_up_schema_or_version(*words)

    def close_pipes(self) -> None:
        """Stop sending requests, so that the process ends by itself."""
        if self._open:
            self._open = False
            os.close(self._requests)
            os.close(self._answers)

    def wait_for_exit_status(self, kill_first: bool) -> int:
        """Wait until the process has ended and return its exit status; kill it first if
        `kill_first`.
        """
        if not self._child:
            return 0
        if kill_first:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, 9)
        self.close_pipes()
        child, self._child = self._child, 0
        return os.waitpid(child, 0)[1]


_reading: dict[str, OnnxHelperProcess] = {}  # who reads a file ahead, until somebody asks for it
_ready: list[OnnxHelperProcess] = []  # who has read it, and can infer
_asked: list[OnnxHelperProcess] = []  # whom the library is asked of


def start_file_reader(path: str, read: Callable[[], bytes]) -> None:
    """Start a process that runs `read` for the file `path`; `receive_file_read_ahead` returns its
    result.
    """
    _reading[path] = OnnxHelperProcess(read)
    atexit.register(_reading[path].wait_for_exit_status, kill_first=True)


def receive_file_read_ahead(path: str) -> bytes | None:
    """Return the bytes that another process read ahead of a file; None if none did."""
    other = _reading.pop(path, None)
    data = other.receive_answer() if other else None
    if other and data:
        replace_schema_look_up(other.look_up_schema_or_version)
        _ready.append(other)
        _asked.append(other)
    elif other:
        other.wait_for_exit_status(kill_first=True)
    return data or None


def take_inference_process() -> OnnxHelperProcess | None:
    """Return a process that can infer shapes, and forget it; None if no process is left."""
    return _ready.pop() if _ready else None


def release_file_readers() -> None:
    """Let the processes that read files ahead end by themselves, while the graph is counted."""
    _ready.clear()
    while _asked:
        _asked.pop().close_pipes()


def infer_model_shapes(data: bytes, strict: bool, follow: bool) -> bytes:
    """Return b"+" and the model with inferred shapes, or b"-" and the error of ONNX's library."""
    try:
        model: bytes = onnx_cpp_library().shape_inference.infer_shapes(data, False, strict, follow)
        return b"+" + model
    except Exception as error:
        return b"-" + (str(error) or type(error).__name__).encode()


def infer_shapes_within_limits(data: bytes, strict: bool, follow: bool) -> bytes:
    """Return the result of `infer_model_shapes`, with the memory of this process limited."""
    _limit_memory_growth(_MEMORY + _MEMORY_PER_BYTE * len(data))
    return infer_model_shapes(data, strict, follow)


def _serve_requests(
    make_first_answer: Callable[[], bytes], requests: int, answers: int
) -> NoReturn:
    """Serve requests as the forked child: answer each by a pipe, then exit.

    It holds nothing open by whose end others know that the command has ended.
    """
    try:
        low, high = sorted((requests, answers))
        os.closerange(0, low)
        os.closerange(low + 1, high)
        os.closerange(high + 1, os.sysconf("SC_OPEN_MAX"))
        _send_message(answers, make_first_answer())
        # makes all of them, while nobody waits
        look_up_schema_or_version(SCHEMA, "", "Identity", 1)
        while words := _receive_message(requests):
            name, *arguments = marshal.loads(words)
            if name == _INFER:
                _send_message(
                    answers,
                    infer_shapes_within_limits(_receive_message(requests) or b"", *arguments),
                )
                trim_memory()  # the count comes now, and takes as much as inference did
            else:
                _send_message(answers, marshal.dumps(look_up_schema_or_version(name, *arguments)))
    finally:
        os._exit(0)


def _limit_memory_growth(nbytes: int) -> None:
    """Limit the address space of this process to its size plus `nbytes`, on Linux."""
    with contextlib.suppress(OSError, ValueError, ImportError):
        import resource

        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[0])
        most = pages * resource.getpagesize() + nbytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _send_message(pipe: int, message: bytes) -> None:
    """Write a message to a pipe: its length, then all of its bytes."""
    for part in (_LENGTH.pack(len(message)), message):
        left = memoryview(part)
        while left:
            left = left[os.write(pipe, left) :]


def _receive_message(pipe: int, seconds: float | None = None) -> bytes | None:
    """Return the next message of a pipe; b"" at its end, None if too late or too large."""
    deadline = None if seconds is None else time.monotonic() + seconds
    parts: list[bytes] = []
    left, length = _LENGTH.size, None
    while left:
        if deadline is not None:
            time_left = max(0.0, deadline - time.monotonic())
            if not select.select([pipe], [], [], time_left)[0]:
                return None
        part = os.read(pipe, min(left, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        left -= len(part)
        if not left and length is None:
            (length,) = _LENGTH.unpack(b"".join(parts))
            parts, left = [], length
            if length > _LARGEST:
                return None
    return b"".join(parts)
