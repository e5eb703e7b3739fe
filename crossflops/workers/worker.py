"""One tool, one process: `python -m crossflops.workers.worker`, driven by `pool`.

The conversation, a line each: the worker says `hello`, reads an Order as JSON, loads the tool,
builds the model, and says `ready`. It then waits for `go`, because the prediction has to be
fixed before the tool starts. It writes its answer, Profile or Failure, under a temporary name,
renames it to the one that the order gives, and ends. It ends at once when the parent is gone.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from crossflops.errors import print_traceback
from crossflops.ir.profile import Failure, Profile
from crossflops.plugins import discovery
from crossflops.plugins.adapter import Adapter
from crossflops.plugins.failures import Stage, failure
from crossflops.workers import jobs
from crossflops.workers.jobs import Job, Order
from crossflops.workers.limits import limit_memory
from crossflops.workers.observe import observe, rejected


def main() -> None:
    """Hold the conversation on what were stdin and stdout, and leave without clean-up.

    A tool may leave threads or atexit handlers behind that never end.
    """
    requests, say = _take_streams()
    say("hello")
    order = msgspec.json.decode(requests.readline(), type=Order)
    limit_memory(order.memory)
    sys.path.extend(path for path in order.paths if path not in sys.path)

    released = threading.Event()
    threading.Thread(target=_listen, args=(requests, released), daemon=True).start()

    def wait() -> None:
        say("ready")
        released.wait()

    _write(answer(order.job, wait), Path(order.result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def answer(job: Job, wait: Callable[[], None]) -> Profile | Failure:
    """Do the job: load, build, call `wait`, then run the tool."""
    stage: Stage = "load"
    hint = ""
    try:
        adapter = _adapter(job)
        if isinstance(adapter, Failure):
            return adapter
        adapter.load()
        stage, hint = "build", jobs.HINT if job.pickle_path else ""
        model, args, kwargs = built(job)
        if not adapter.accepts(model):
            return rejected(adapter, model)
        wait()
        stage, hint = "run", ""
        return observe(adapter, model, args, kwargs, job.setting)
    except BaseException as problem:  # a tool may well call sys.exit
        print_traceback(problem)
        return failure(job.tool, stage, problem, hint)


def built(job: Job) -> jobs.Contents:
    """The model of a job with its positional and keyword inputs."""
    if job.onnx_path is not None:
        return Path(job.onnx_path), (), {}
    if job.pickle_path is not None:
        return jobs.unpack(Path(job.pickle_path))
    if job.target is None:
        raise ValueError("the job names neither a target nor a pickle")
    from crossflops import targets

    source = targets.load(
        job.target,
        job.arguments,
        job.inputs,
        job.inputs_file,
        job.allow_pickle,
        sizes=job.sizes,
    )
    return source.model, source.args, source.kwargs


def _adapter(job: Job) -> Adapter | Failure:
    if job.adapter is None:
        return discovery.load(job.tool)
    return discovery.load_value(job.tool, job.adapter)


def _take_streams() -> tuple[BinaryIO, Callable[[str], None]]:
    """Keep stdin and stdout for the conversation; tools find nothing to read, and write to stderr.

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

    def say(word: str) -> None:
        os.write(replies, f"{word}\n".encode())

    return requests, say


def _listen(requests: BinaryIO, released: threading.Event) -> None:
    """Hear `go`; end with all that was started when the parent is gone, which closes the pipe."""
    while line := requests.readline():
        if line.strip() == b"go":
            released.set()
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _write(found: Profile | Failure, result: Path) -> None:
    """Write the answer so that a reader of the file finds all of it, or no file."""
    unfinished = result.with_suffix(".part")
    unfinished.write_bytes(msgspec.json.encode(found))
    unfinished.replace(result)


if __name__ == "__main__":
    main()
