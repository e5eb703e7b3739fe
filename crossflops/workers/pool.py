"""Run several tools at a time, each in a worker process: forked from a fork server, or started
alone.
"""

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import msgspec

from crossflops.frontends import Source
from crossflops.ir.profile import Failure, Profile
from crossflops.limits import TIMEOUT, physical_memory_bytes, usable_cpus
from crossflops.plugins.failures import tool_failure
from crossflops.workers import jobs
from crossflops.workers.jobs import Job, Order
from crossflops.workers.parent import UNFIT
from crossflops.workers.process import READY, Worker
from crossflops.workers.warm import ForkServer, can_use_fork_servers

_LARGE = 100_000_000  # bytes of a file
_INSTALLED = {"site-packages", "dist-packages"}  # of whichever environment
Answer = tuple[str, Profile | Failure]
SingleThreadContext = Callable[[], contextlib.AbstractContextManager[None]]


class Workers:
    """Worker processes that load their tool and build their model while the caller goes on.

    ::

        with Workers(jobs) as workers:  # they start, build, and wait
            ...  # export, count, fix the predictions
            for tool, answer in workers.iterate_results():  # they run, and finish
                ...

    Released tools run before the results are read, while the caller still works, one fewer at a
    time.

    Jobs without a target are on one of the `contents`, by the number `Job.model`: a model object
    with its positional and keyword inputs, which is pickled once, on entry. Whatever becomes of a
    worker is a Failure of its tool and never an exception here.

    `timeout` is in seconds, and holds for building and for running, each; `memory` in bytes of
    address space of one worker, by default what the machine has, on top of what it inherits
    from a parent; `interpreters` names the Python of a tool where it is not this one; `at_once`
    is how many tools run at a time, by default one per CPU.

    Tools of one interpreter are forked from one parent, which imports the framework and what the
    tools import, and builds each model once, where the system can do that and there are at least
    two. `fork` says it otherwise: True for a single tool too, False for none. `tell` gets a line
    when a tool that could have been forked gets a process of its own instead.

    `built` are the models that jobs with a target would build, built in this process, by number:
    where that has one thread in the context `still`, the parent is a fork of it.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        contents: Mapping[int, jobs.Contents] | None = None,
        timeout: float = TIMEOUT,
        memory: int | None = None,
        interpreters: Mapping[str, str] | None = None,
        at_once: int | None = None,
        fork: bool | None = None,
        on_progress: Callable[[str], None] | None = None,
        built: Mapping[int, Source] | None = None,
        single_threaded: SingleThreadContext = contextlib.nullcontext,
    ) -> None:
        self._jobs = tuple(jobs)
        self._contents = contents or {}
        self._timeout = timeout
        self._memory = memory or physical_memory_bytes()
        self._interpreters = dict(interpreters or {})
        self._at_once = at_once or usable_cpus()
        self._fork = can_use_fork_servers() if fork is None else fork
        self._fewest = 1 if fork or built else 2
        self._built = built or {}
        self._single_threaded = single_threaded
        self._on_progress = on_progress or (lambda _line: None)
        self._env: dict[str, str] = {}
        self._news: SimpleQueue[tuple[Any, str | None]] = SimpleQueue()
        self._active: list[Worker] = []
        self._released: list[Worker] = []  # those that may run
        self._slots = self._at_once - 1  # how many run at a time: the caller works as well
        self._start_lock = threading.Lock()
        self._parents: list[ForkServer] = []
        self._results: list[tuple[int, Answer]] = []  # by the model, not yet given
        self._folder = Path()
        self._scratch = contextlib.ExitStack()

    def __enter__(self) -> "Workers":
        """Start the worker processes; if one cannot start, end all and raise its error."""
        scratch = tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True)
        self._folder = Path(self._scratch.enter_context(scratch))
        try:
            self._start_all_workers()
        except BaseException:
            self._end_all_processes()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all worker processes."""
        self._end_all_processes()

    def iterate_results(self, model: int = 0) -> Iterator[Answer]:
        """Run the tools of a model; yield each tool with its profile or failure, as they
        finish.
        """
        self._slots += 1
        try:
            yield from self._iterate_answers(model)
        finally:
            self._slots -= 1

    def release_tools(self, model: int, tools: Collection[str]) -> None:
        """Allow these tools to run on a model as soon as a CPU is free."""
        with self._start_lock:
            cleared = [worker for worker in self._workers_of_model(model) if worker.tool in tools]
            self._released += [worker for worker in cleared if worker not in self._released]
        self._start_ready_workers()

    def _iterate_answers(self, model: int) -> Iterator[Answer]:
        """Yield the answers of a model's workers, as they finish; release those that are not
        released yet.
        """
        while True:
            for row in [row for row in self._results if row[0] == model]:
                self._results.remove(row)
                yield row[1]
            living = self._workers_of_model(model)
            if not living:
                return
            self.release_tools(model, {worker.tool for worker in living})
            who, event = self._news.get()
            if isinstance(who, ForkServer):
                self._on_parent_event(who, event)
            elif event is None and who in self._active:
                self._remove_and_store_answer(who, who.read_answer())

    def cancel_tools(self, model: int) -> None:
        """End all workers of a model that have not finished."""
        dropped = self._workers_of_model(model)
        for worker in dropped:
            self._remove_worker(worker)
        for worker in dropped:
            worker.end_and_return_status()
        if not self._active:  # no thread listens any more: this process may be forked again
            for parent in self._parents:
                parent.end_and_return_status()
            self._parents.clear()

    def _start_all_workers(self) -> None:
        """Start all workers: forked from a fork server for each group, or alone."""
        threads = max(1, usable_cpus() // max(1, min(len(self._jobs), self._at_once)))
        self._env = {"OMP_NUM_THREADS": str(threads), **os.environ}
        obstacles = self._write_model_files()
        workers = []
        for model_index, job in enumerate(self._jobs):
            if job.needs_contents and job.model in obstacles:
                refused = tool_failure(job.tool, "build", obstacles[job.model], jobs.HINT)
                self._results.append((job.model, (job.tool, refused)))
            else:
                workers.append(self._make_worker(model_index, job))
        self._active = list(workers)
        # Parents first: whoever is started alone is listened to by a thread, and no fork has one.
        for siblings in sorted(_forkable_groups(workers), key=_need_own_processes):
            if len(siblings) < self._fewest or _need_own_processes(siblings):
                self._start_own_processes(siblings)
            elif self._fork:
                self._start_fork_server(siblings)
            else:
                self._on_progress("forking is disabled: starting one process per tool (slower)")
                self._start_own_processes(siblings)
        self._built = {}

    def _start_own_processes(self, workers: Sequence[Worker]) -> None:
        """Start a process of its own for each of these workers."""
        for worker in workers:
            refused = worker.start(self._env)
            if refused is not None:
                self._remove_and_store_answer(worker, refused)

    def _start_fork_server(self, workers: Sequence[Worker]) -> None:
        """Start a fork server that forks all of these workers."""
        log = self._folder / f"parent{len(self._parents)}.log"
        parent = ForkServer(workers, workers[0].python, log, self._on_event, self._timeout)
        try:
            with self._single_threaded():
                parent.start(self._env, self._built if parent.python == sys.executable else {})
        except OSError as problem:
            parent.end_and_return_status()
            for worker in workers:
                self._remove_and_store_answer(worker, worker.start_failure(problem))
        else:
            self._parents.append(parent)

    def _remove_and_store_answer(self, worker: Worker, answer: Profile | Failure) -> None:
        """Remove a worker, and store the answer of its tool."""
        self._remove_worker(worker)
        self._results.append((worker.order.job.model, (worker.tool, answer)))

    def _remove_worker(self, worker: Worker) -> None:
        """Remove a worker from the active and from the released workers."""
        with self._start_lock:
            self._active.remove(worker)
            if worker in self._released:
                self._released.remove(worker)

    def _workers_of_model(self, model: int) -> list[Worker]:
        """Return the active workers of the model with this number."""
        return [worker for worker in self._active if worker.order.job.model == model]

    def _on_event(self, who: Any, event: str | None) -> None:
        """Handle an event of a worker or a fork server: queue it, and start workers that are
        ready.
        """
        self._news.put((who, event))
        self._start_ready_workers()

    def _on_parent_event(self, parent: ForkServer, event: str | None) -> None:
        """Handle an event of a fork server: start a worker that it could not load alone, or clean
        up after the server's end.

        A parent that ended as it loaded a tool leaves that tool to itself, and the others to
        another parent. One that found itself unfit to fork leaves all to themselves. Else its
        end, as it built the model, is that of all whom it did not fork.
        """
        if event is not None:
            self._start_own_processes([parent.worker_of_event(event)])
            return
        if parent not in self._parents:  # its clock and its pipe have both told its end
            return
        status, waiting = parent.end_and_return_status(), parent.workers_to_fork
        self._parents.remove(parent)
        waiting = [worker for worker in waiting if worker in self._active]
        culprit = parent.worker_being_loaded
        if culprit in waiting:
            reason = parent.last_stderr_line() or "it cannot be loaded together with other tools"
            self._on_progress(f"starting a separate process for {culprit.tool} (slower): {reason}")
            waiting.remove(culprit)
            self._start_own_processes([culprit])
            if waiting:
                self._start_fork_server(waiting)
        elif status == UNFIT and not parent.overdue:
            self._on_progress(
                f"starting one process per tool (slower): {parent.last_stderr_line()}"
            )
            self._start_own_processes(waiting)
        else:
            for worker in waiting:
                worker.record_parent_end(parent, status)
                self._remove_and_store_answer(worker, worker.read_answer())

    def _end_all_processes(self) -> None:
        """End all workers and fork servers, and remove the folder of results."""
        with self._start_lock:
            self._released.clear()
        for worker in self._active:
            worker.end_and_return_status()
        for parent in self._parents:
            parent.end_and_return_status()
        for worker in self._active:
            worker.end_and_return_status()  # those that a parent forked in the meantime
        self._active.clear()
        self._parents.clear()
        self._scratch.close()

    def _start_ready_workers(self) -> None:
        """Start the released workers that are ready, up to the number of free CPUs.

        It is called by whatever thread has news. Those that read a file come last, and of a large
        one when all others have ended: each holds the weights for itself, and several times, where
        the others share them.
        """
        with self._start_lock:
            going = [worker for worker in self._released if not worker.over]
            free = max(0, self._slots - sum(worker.running for worker in going))
            ready = [worker for worker in going if worker.said == READY and not worker.running]
            sharing = any(worker.order.job.onnx_path is None for worker in going)
            for worker in sorted(ready, key=_file_size)[:free]:
                if not (sharing and _file_size(worker) > _LARGE):
                    worker.start_run()

    def _make_worker(self, model_index: int, job: Job) -> Worker:
        """Return a worker for a job, with its Python, result file, log and timeout."""
        python = self._interpreters.get(job.tool, sys.executable)
        if job.needs_contents:
            job = msgspec.structs.replace(job, pickle_path=str(self._model_file_path(job.model)))
        order = Order(
            job=job,
            answer_path=str(self._folder / f"{model_index}.json"),
            paths=_worker_import_paths(python, job),
            memory_limit=self._memory,
        )
        log = self._folder / f"{model_index}.log"
        return Worker(order, python, log, self._on_event, self._timeout)

    def _write_model_files(self) -> dict[int, BaseException | str]:
        """Write the model objects that workers need to files; return the errors by the number of
        the model.
        """
        obstacles: dict[int, BaseException | str] = {}
        for model in {job.model for job in self._jobs if job.needs_contents}:
            if model not in self._contents:
                obstacles[model] = "the job has neither a target nor a model"
                continue
            try:
                jobs.write_model_contents(self._model_file_path(model), self._contents[model])
            except Exception as problem:
                obstacles[model] = problem
        return obstacles

    def _model_file_path(self, model: int) -> Path:
        """Return the path of the file that holds the model object with this number."""
        return self._folder / f"model{model}"


def _forkable_groups(workers: Sequence[Worker]) -> Iterator[list[Worker]]:
    """Yield groups of workers that one fork server can fork: of the same Python, framework and
    ONNX file.
    """
    groups: dict[tuple[Any, ...], list[Worker]] = {}
    for worker in workers:
        job = worker.order.job
        key = worker.python, job.framework, job.own_process, job.onnx_path
        groups.setdefault(key, []).append(worker)
    yield from groups.values()


def _need_own_processes(siblings: Sequence[Worker]) -> bool:
    """Return whether each tool of this group needs its own process."""
    return siblings[0].order.job.own_process


def _file_size(worker: Worker) -> int:
    """Return the size in bytes of the ONNX file that a worker reads; 0 without a file."""
    path = worker.order.job.onnx_path
    return os.path.getsize(path) if path and os.path.exists(path) else 0


def _worker_import_paths(python: str, job: Job) -> tuple[str, ...]:
    """Return the folders that a worker appends to its sys.path.

    Another interpreter gets nothing of this one's installation, only what the user added.
    """
    here = [os.path.abspath(path) for path in sys.path]  # "" is the current directory
    if python != sys.executable:
        owners = tuple(os.path.join(owner, "") for owner in (sys.prefix, sys.base_prefix))
        here = [path for path in here if not path.startswith(owners)]
        here = [path for path in here if _INSTALLED.isdisjoint(Path(path).parts)]
    if job.target is not None:
        here.append(os.getcwd())
    return tuple(dict.fromkeys(here))
