"""The fork server of many tools: `python -m crossflops.workers.parent`, started by `warm`.

It imports the framework, loads every tool, builds each model once (two where two are compared),
and forks a worker for each tool on a model, which shares all of that and whose changes stay its
own. A fork copies the thread that calls it and no other, so this process never has a second one.
Where the command itself has but one thread, this process is a fork of it, and has the framework
and the models from there.

The conversation, a line each: the parent says `hello`, reads its Orders as JSON, and says what
it does: `loading N` the tool of the N-th order, or `own N`, which could not be loaded here;
`building` the models; `refused N` where its model cannot be built, which is then the Failure of
that tool; `forked N PID`; and `ended N STATUS` of a worker. It ends with its workers, and at once
when the process that started it is gone. Should it end before it builds, the tool that was being
loaded is at fault.
"""

import contextlib
import gc
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from crossflops.errors import print_traceback
from crossflops.files import write_file
from crossflops.frontends import Source
from crossflops.frontends.pytorch.load.tool_replacements import replaceable_functions
from crossflops.ir.profile import Failure, Profile
from crossflops.limits import (
    address_space_bytes,
    end_when_pipe_closes,
    limit_memory,
    process_thread_count,
)
from crossflops.plugins.adapter import Adapter
from crossflops.plugins.failures import tool_failure
from crossflops.workers import worker
from crossflops.workers.conversation import Say, line_writer, serve_answer, take_streams
from crossflops.workers.jobs import Job, Order

# Read when a library is imported: none of them may start a pool of threads in the parent.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
REFUSED = "refused"  # the word for a tool whose model cannot be built
UNFIT = 3  # the exit status of a parent in which a tool or the model left what must not be shared
_PATIENCE = 1.0  # seconds in which threads that were told to end may do so
Ready = list[tuple[int, Order, Adapter]]


def main() -> None:
    """Run the fork server: read orders from stdin, fork a worker for each, and exit."""
    serve_orders({})


def serve_orders(sources: Mapping[int, Source]) -> NoReturn:
    """Load the tools, build the models and fork a worker for each order on stdin; `sources` are
    models that are built already.
    """
    requests, replies = take_streams()
    say = line_writer(replies)
    say("hello")
    orders = msgspec.json.decode(requests.readline(), type=list[Order])
    end_when_pipe_closes(requests, partial(_exit_at_once, 1))
    links = {end for order in orders for end in order.link or ()}
    for end in links:
        os.set_inheritable(end, False)
    first = orders[0]
    limit_memory(
        _address_space_limit(first.memory_limit) if sources else first.memory_limit,
        may_be_raised=True,
    )
    worker.extend_import_path(first.paths)
    say("importing")
    with worker.pausing_garbage_collection():
        _import_framework(first.job.framework)
        ready = _load_order_adapters(orders, say)
    if not ready:
        _exit_at_once(0)
    say("building")
    limit_memory(_address_space_limit(first.memory_limit), may_be_raised=True)
    built, ready = _build_order_models(ready, sources, say)
    if not ready:
        _exit_at_once(0)
    _wait_for_single_thread()
    numbers = _fork_workers(ready, built, {requests.fileno(), replies, *links}, say)
    for end in links:
        os.close(end)
    _reap_workers(numbers, say)
    _exit_at_once(0)


def _load_order_adapters(orders: list[Order], say: Say) -> Ready:
    """Load the tools of the orders; return the orders whose tool was loaded, each with its index
    and adapter.
    """
    ready: Ready = []
    before = _global_state()
    for model_index, order in enumerate(orders):
        say(f"loading {model_index}")
        adapter = _load_adapter(order.job)
        if _has_global_state_changed(before):
            sys.stderr.write(f"loading {order.job.tool} changes libraries that all tools share\n")
            _exit_at_once(UNFIT)
        _wait_for_single_thread()
        if adapter is None:
            say(f"own {model_index}")
        else:
            ready.append((model_index, order, adapter))
    return ready


def _build_order_models(
    ready: Ready, sources: Mapping[int, Source], say: Say
) -> tuple[dict[int, Source], Ready]:
    """Build the models of the orders; return the models by number, and the orders whose model
    could be built.
    """
    built = dict(sources)
    for job in {order.job.model: order.job for _, order, _ in ready}.values():
        if job.model in built:
            continue
        try:
            built[job.model] = worker.build_job_source(job)
        except BaseException as problem:  # a model may well call sys.exit
            print_traceback(problem)
            _fail_orders([row for row in ready if row[1].job.model == job.model], problem, say)
    return built, [row for row in ready if row[1].job.model in built]


def _fail_orders(ready: Ready, problem: BaseException, say: Say) -> None:
    """Write a failure as the answer to each of these orders, and report each order as refused."""
    for model_index, order, _ in ready:
        refusal = tool_failure(
            order.job.tool, "build", problem, worker.build_failure_hint(order.job)
        )
        write_file(Path(order.answer_path), msgspec.json.encode(refusal))
        say(f"{REFUSED} {model_index}")


def _load_adapter(job: Job) -> Adapter | None:
    """Return the loaded adapter of a job, or None if it cannot be loaded."""
    try:
        adapter = worker.find_job_adapter(job)
        if isinstance(adapter, Failure):
            return None
        adapter.load()
    except BaseException as problem:  # a tool may well call sys.exit
        print_traceback(problem)
        return None
    return adapter


def _import_framework(name: str) -> None:
    """Import a framework if it is installed, and limit PyTorch to one thread."""
    if name:
        with contextlib.suppress(Exception):  # the tools will say that it is not there
            importlib.import_module(name)
    _set_pytorch_threads(1)


def _set_pytorch_threads(model_index: int) -> None:
    """Set the number of threads of PyTorch, if PyTorch is imported."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(model_index)


def _global_state() -> tuple[Any, ...]:
    """Return the current folder, PyTorch's default type, and the functions that a tool could
    replace.
    """
    torch = sys.modules.get("torch")
    dtype = None if torch is None else torch.get_default_dtype()
    return os.getcwd(), dtype, replaceable_functions()


def _has_global_state_changed(before: tuple[Any, ...]) -> bool:
    """Return whether the current folder, PyTorch's default type or a function of PyTorch differs
    from `before`.
    """
    *settings, known = before
    *settings_now, known_now = _global_state()
    if settings != settings_now:
        return True
    return any(
        known_now.get(key) is not function and not _is_pytorch_function(known_now.get(key))
        for key, function in known.items()
    )


def _is_pytorch_function(function: Any) -> bool:
    """Return whether the function's code is in the package torch."""
    torch = sys.modules["torch"]
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(os.path.dirname(torch.__file__ or ""))


def _wait_for_single_thread() -> None:
    """Wait until this process has only one thread; exit the process if that takes longer than a
    second.
    """
    end = time.monotonic() + _PATIENCE
    while process_thread_count() > 1:
        if time.monotonic() > end:
            sys.stderr.write(
                f"{process_thread_count()} threads are running, and a forked process would not "
                "have them\n"
            )
            _exit_at_once(UNFIT)
        time.sleep(0.01)


def _fork_workers(
    ready: Ready, sources: Mapping[int, Source], native: set[int], say: Say
) -> dict[int, int]:
    """Fork a worker for each order; return the index of the order by the id of the process.

    `native` are the ends of conversations, of which a worker keeps its own. None begins before all
    are forked, so that what a tool does to this process costs no other.
    """
    numbers = {}
    gate, to_gate = os.pipe()
    gc.freeze()  # the models, too, are shared while no worker's collector writes to it
    for model_index, order, adapter in ready:
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if not process:
            os.close(to_gate)
            os.read(gate, 1)  # which ends when nobody holds the other end
            source = sources[order.job.model]
            _run_forked_worker(
                order,
                {*native, gate},
                partial(worker.run_when_permitted, adapter=adapter, source=source),
            )
        numbers[process] = model_index
        say(f"forked {model_index} {process}")
    os.close(gate)
    os.close(to_gate)
    return numbers


def _run_forked_worker(
    order: Order,
    native: set[int],
    answered: Callable[[Job, Callable[[], None]], Profile | Failure],
) -> NoReturn:
    """Run one order in this forked process, in a process group of its own, and exit."""
    try:
        requests, replies = order.link or (0, 1)
        os.setsid()
        for end in native:
            if end not in (requests, replies):
                os.close(end)
        log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)
        limit_memory(_address_space_limit(order.memory_limit))
        for name in THREADS:
            os.environ.pop(name, None)
        os.environ.update(order.variables)
        requested = order.variables.get(THREADS[0], "")
        _set_pytorch_threads(int(requested) if requested.isdecimal() and int(requested) else 1)
        say = line_writer(replies)
        say("hello")
        serve_answer(
            order.answer_path, os.fdopen(requests, "rb"), say, partial(answered, order.job)
        )
    except BaseException as problem:
        sys.stderr.write(f"{type(problem).__name__}: {problem}\n")
    finally:
        _exit_at_once(1)


def _reap_workers(order_by_process: dict[int, int], say: Say) -> None:
    """Wait until all workers have ended, report each end, and kill the processes that a worker
    left behind.
    """
    while order_by_process:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        if ended is None:
            continue
        if ended.si_pid in order_by_process:
            with contextlib.suppress(OSError):
                os.killpg(ended.si_pid, signal.SIGKILL)
        _, status = os.waitpid(ended.si_pid, 0)
        if ended.si_pid in order_by_process:
            say(f"ended {order_by_process.pop(ended.si_pid)} {os.waitstatus_to_exitcode(status)}")


def _address_space_limit(memory: int | None) -> int | None:
    """Return a limit of the address space in bytes: `memory` plus what this process uses already;
    None for no limit.
    """
    return None if memory is None else memory + address_space_bytes()


def _exit_at_once(status: int) -> NoReturn:
    """Flush stdout and stderr, and exit the process without any cleanup."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
