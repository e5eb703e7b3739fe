"""The command's side of a fork server: the workers that it forks, and those that it could not
load.
"""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec

from crossflops.frontends import Source
from crossflops.frontends.conversion import remove_conversion_listeners
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute
from crossflops.workers.parent import REFUSED, THREADS, serve_orders
from crossflops.workers.process import (
    Background,
    ForkedProcess,
    GrandchildProcess,
    MonitoredProcess,
    News,
    Process,
    SpawnedProcess,
    Worker,
    can_fork_this_process,
)

OWN = "own"  # the word for a tool that could not be loaded in the parent
SWITCH = "CROSSFLOPS_FORK"  # 0: every tool has a process of its own
_STEPS = {"hello", "importing", "loading", "building"}  # whatever else is not the parent's
_MODULE = "crossflops.workers.parent"


def can_use_fork_servers() -> bool:
    """Return whether fork servers may be used: on Linux, unless CROSSFLOPS_FORK is 0."""
    return sys.platform == "linux" and os.environ.get(SWITCH) != "0"


def import_numpy_without_threads() -> None:
    """Import NumPy without the threads that it usually starts."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        importlib.import_module("numpy")
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def unfreeze_inherited_objects(collect: bool) -> None:
    """Let the garbage collector of a forked process collect the objects that it inherited.

    With `collect` it looks at once.
    """
    gc.unfreeze()
    if collect:
        gc.collect()


@contextlib.contextmanager
def limiting_pytorch_to_one_thread() -> Iterator[None]:
    """Limit PyTorch to one thread during the block, so that this process can be forked."""
    with contextlib.ExitStack() as restoring:
        with contextlib.suppress(Exception):  # the tools will say that it is not there
            torch: Any = importlib.import_module("torch")
            restoring.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        with contextlib.suppress(ImportError):  # the exporter's progress bars have a thread
            bars: Any = importlib.import_module("tqdm").tqdm
            restoring.enter_context(
                patching_attribute(bars, "monitor_interval", 0, inventory.BARS)
            )
        yield


def fork_background_computation(compute: Callable[[], Any]) -> Background:
    """Return a fork of this process that runs `compute()`, with half of the CPUs for PyTorch.

    This process must have imported PyTorch for itself: see `can_fork_this_process`.
    """

    def compute_in_background() -> Any:
        """Return `compute()`, called in the forked process with half of the CPUs for PyTorch."""
        remove_conversion_listeners()
        importlib.import_module("torch").set_num_threads(max(1, (os.cpu_count() or 1) // 2))
        return compute()

    return Background(compute_in_background)


def _serve_in_fork(sources: Mapping[int, Source]) -> NoReturn:
    """Serve the orders of a fork server in this forked process; `sources` are the models that are
    built already.
    """
    remove_conversion_listeners()
    serve_orders(sources)


class ForkServer(MonitoredProcess):
    """A process that loads the tools of its workers, builds their models, and forks them.

    `limit` are the seconds that each step may take. A worker that has been forked is listened
    to on its own; `waiting` are the others.
    """

    def __init__(
        self, workers: Sequence[Worker], python: str, log: Path, events: News, limit: float
    ) -> None:
        super().__init__(python, log, events, limit)
        self._workers = tuple(workers)
        self._links: dict[int, tuple[BinaryIO, BinaryIO]] = {}  # to and from each worker
        self._forked: dict[int, GrandchildProcess] = {}
        self._gone: set[int] = set()  # those that it will not fork
        self._step = ""

    @property
    def workers_to_fork(self) -> list[Worker]:
        """The workers that the fork server has not forked yet and may still fork."""
        placed = self._gone | set(self._forked)
        return [
            worker for model_index, worker in enumerate(self._workers) if model_index not in placed
        ]

    @property
    def worker_being_loaded(self) -> Worker | None:
        """The worker whose tool the fork server was loading last, or None if it was at another
        step.
        """
        event, _, model_index = self._step.partition(" ")
        return self._workers[int(model_index)] if event == "loading" else None

    def start(self, env: dict[str, str], sources: Mapping[int, Source]) -> None:
        """Start the fork server, and send it the orders of its workers.

        With `sources`, models of its orders by number, it is a fork of this process where that can
        be. Raises OSError where the interpreter cannot be started.
        """
        other: list[int] = []
        for model_index, worker in enumerate(self._workers):
            requests, to_worker = os.pipe()
            from_worker, replies = os.pipe()
            self._links[model_index] = os.fdopen(to_worker, "wb", 0), os.fdopen(from_worker, "rb")
            other += (requests, replies)
            worker.order = msgspec.structs.replace(
                worker.order,
                link=(requests, replies),
                log=str(worker.log),
                variables={name: env[name] for name in THREADS if name in env},
            )
        single = {**env, **dict.fromkeys(THREADS, "1")}
        process: Process
        try:
            if sources and can_fork_this_process():
                process = ForkedProcess(partial(_serve_in_fork, sources), self.log, other)
            else:
                process = SpawnedProcess(self.python, _MODULE, self.log, single, other)
        finally:
            for end in other:
                os.close(end)
        self.listen_to(process)
        self.send(msgspec.json.encode([worker.order for worker in self._workers]))

    def on_line(self, line: bytes) -> None:
        """Handle a line of the fork server: its present step, or the start, the end or the refusal
        of a worker.
        """
        event, *numbers = line.decode(errors="replace").split()
        if event == "forked":
            model_index, process = map(int, numbers)
            self._forked[model_index] = GrandchildProcess(process, *self._links.pop(model_index))
            self._workers[model_index].listen_to(self._forked[model_index])
            self.cancel_timeout()
        elif event == "ended":
            model_index, status = map(int, numbers)
            self._forked[model_index].on_exit(status)
            self._workers[model_index].emit_event(None)  # a copy of it may keep its pipe open
        elif event == REFUSED:
            self._gone.add(int(numbers[0]))
            self._workers[int(numbers[0])].emit_event(None)  # its failure is written
        elif event == OWN:
            self._gone.add(int(numbers[0]))
            self.emit_event(line.decode())
        elif event in _STEPS:
            self.said = "hello"
            self._step = line.decode()
            self.restart_timeout()

    def worker_of_event(self, event: str) -> Worker:
        """Return the worker whose index is in an event line of the fork server."""
        return self._workers[int(event.split()[1])]

    def end_and_return_status(self) -> int | None:
        """End the fork server and return its exit status."""
        status = super().end_and_return_status()
        for forked in self._forked.values():
            forked.stop_waiting_for_exit()
        for link in self._links.values():
            for end in link:
                end.close()
        return status
