"""One tool, one process: `python -m crossflops.workers.worker`, driven by `pool`.

The conversation, a line each: the worker says `hello`, reads an Order as JSON, loads the tool,
builds the model, and says `ready`. It then waits for `go`, because the prediction has to be
fixed before the tool starts. It writes its answer, Profile or Failure, under a temporary name,
renames it to the one that the order gives, and ends. It ends at once when the parent is gone.

A worker that a warm parent forked (`crossflops.workers.parent`) has its tool and its model
already, and holds the rest of the same conversation.
"""

import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec
from msgspec import UNSET

from crossflops.errors import ValuesNeededError, print_traceback
from crossflops.files import write
from crossflops.frontends import Source, frontend_of
from crossflops.ir.profile import Failure, Profile
from crossflops.ir.provenance import FAKE, META, REAL, WeightsKind
from crossflops.limits import limit_memory
from crossflops.plugins import discovery
from crossflops.plugins.adapter import Adapter
from crossflops.plugins.failures import Stage, failure
from crossflops.workers import jobs
from crossflops.workers.jobs import Job, Order
from crossflops.workers.observe import observe, rejected

Say = Callable[[str], None]
_TRY_VALUES = "it ran on fake tensors: --weights real gives it values, where they fit in memory"


def main() -> None:
    """Hold the conversation on what were stdin and stdout, and leave without clean-up.

    A tool may leave threads or atexit handlers behind that never end.
    """
    requests, replies = take_streams()
    say = speaker(replies)
    say("hello")
    order = msgspec.json.decode(requests.readline(), type=Order)
    limit_memory(order.memory)
    extend_path(order.paths)
    serve(order, requests, say, answer)


def serve(
    order: Order,
    requests: BinaryIO,
    say: Say,
    answered: Callable[[Job, Callable[[], None]], Profile | Failure],
) -> NoReturn:
    """Write what `answered(job, wait)` gives, where `wait` says `ready` and waits for `go`."""
    released = threading.Event()
    threading.Thread(target=_listen, args=(requests, released), daemon=True).start()

    def wait() -> None:
        say("ready")
        released.wait()

    write(Path(order.result), msgspec.json.encode(answered(order.job, wait)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def answer(job: Job, wait: Callable[[], None]) -> Profile | Failure:
    """Do the job: load, build, call `wait`, then run the tool."""
    stage: Stage = "load"
    hint = ""
    try:
        adapter = adapter_of(job)
        if isinstance(adapter, Failure):
            return adapter
        with uncollected():
            adapter.load()
        stage, hint = "build", hint_of(job)
        source = built(job)
    except BaseException as problem:  # a tool may well call sys.exit
        print_traceback(problem)
        return failure(job.tool, stage, problem, hint)
    return ask(job, wait, adapter, source)


def ask(job: Job, wait: Callable[[], None], adapter: Adapter, source: Source) -> Profile | Failure:
    """Run a tool that is loaded on a model that is built, after `wait` was called.

    Where values turn out to be needed, on one that is built with them, if nobody forbade it.
    """
    stage: Stage = "build"
    hint = hint_of(job)
    try:
        if not adapter.accepts(source.model):
            return rejected(adapter, source.model)
        wait()
        stage, hint = "run", _TRY_VALUES if source.weights == FAKE else ""
        try:
            return _observed(job, adapter, source)
        except ValuesNeededError as error:
            if job.target is None or job.weights is not None:
                raise
            reason = error.message
        stage, hint = "build", hint_of(job)
        source = built(msgspec.structs.replace(job, weights=REAL))
        stage, hint = "run", ""
        again = _observed(job, adapter, source)
        return msgspec.structs.replace(again, weights=WeightsKind(REAL, reason))
    except BaseException as problem:  # a tool may well call sys.exit
        print_traceback(problem)
        return failure(job.tool, stage, problem, hint)


def _observed(job: Job, adapter: Adapter, source: Source) -> Profile:
    setting = msgspec.structs.replace(job.setting, fake=source.weights == FAKE or UNSET)
    return observe(adapter, source.model, source.args, source.kwargs, setting)


def built(job: Job) -> Source:
    """The model of a job with its positional and keyword inputs."""
    if job.onnx_path is not None:
        return Source(Path(job.onnx_path), (), {})
    if job.pickle_path is not None:
        return _unpacked(job)
    if job.target is None:
        raise ValueError("the job names neither a target nor a pickle")
    from crossflops import targets
    from crossflops.targets import weights

    def load(values: bool) -> Source:
        return targets.load(
            job.target or "",
            job.arguments,
            job.inputs,
            job.inputs_file,
            job.allow_pickle,
            sizes=job.sizes,
            values=values,
        )

    return weights.built(load, job.weights)[0]


def _unpacked(job: Job) -> Source:
    """The model that the caller gave; where it has no values, as a tool can run it."""
    source = Source(*jobs.unpack(Path(job.pickle_path or "")))
    frontend = frontend_of(source.model)
    if job.weights != FAKE or frontend is None:
        return source
    return frontend.hollowed(msgspec.structs.replace(source, weights=META))


def hint_of(job: Job) -> str:
    """What to do where the model of a job cannot be built."""
    return jobs.HINT if job.pickle_path else ""


def adapter_of(job: Job) -> Adapter | Failure:
    """The adapter that the job names, or that its tool has in this environment."""
    if job.adapter is None:
        return discovery.load(job.tool)
    return discovery.load_value(job.tool, job.adapter)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """In this context modules are imported: what they make stays, and none of it is garbage.

    Looking for some after every 700 objects takes a third of the time. A fork, too, shares only
    what its collector leaves alone: https://docs.python.org/3/library/gc.html#gc.freeze
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def extend_path(paths: tuple[str, ...]) -> None:
    """Look for modules there, too, after everything of this interpreter."""
    sys.path.extend(path for path in paths if path not in sys.path)


def take_streams() -> tuple[BinaryIO, int]:
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
    return requests, replies


def speaker(replies: int) -> Say:
    """What writes a line to a file descriptor, at once."""

    def say(word: str) -> None:
        os.write(replies, f"{word}\n".encode())

    return say


def _listen(requests: BinaryIO, released: threading.Event) -> None:
    """Hear `go`; end with all that was started when the parent is gone, which closes the pipe."""
    while line := requests.readline():
        if line.strip() == b"go":
            released.set()
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
