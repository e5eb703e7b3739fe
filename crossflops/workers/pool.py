"""Several tools at once, each in a worker process of its own."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

import msgspec

from crossflops.ir.profile import Failure, Profile
from crossflops.plugins.failures import failure
from crossflops.workers import jobs
from crossflops.workers.jobs import Job, Order
from crossflops.workers.limits import physical_memory
from crossflops.workers.process import READY, Worker

TIMEOUT = 300.0
_MODEL = "model"  # the file that holds the pickled model
_INSTALLED = {"site-packages", "dist-packages"}  # of whichever environment
Answer = tuple[str, Profile | Failure]


class Workers:
    """Worker processes that load their tool and build their model while the caller goes on.

    ::

        with Workers(jobs) as workers:  # they start, build, and wait
            ...  # export, count, fix the predictions
            for tool, answer in workers.go():  # they run, and answer as they finish
                ...

    Jobs without a target share `contents`, the model object with its positional and keyword
    inputs, which is pickled once, on entry. Whatever becomes of a worker is a Failure of its
    tool and never an exception here.

    `timeout` is in seconds, and holds for building and for running, each; `memory` in bytes of
    address space of one worker, by default what the machine has; `interpreters` names the
    Python of a tool where it is not this one; `at_once` is how many tools run at a time, by
    default one per CPU.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        contents: jobs.Contents | None = None,
        timeout: float = TIMEOUT,
        memory: int | None = None,
        interpreters: Mapping[str, str] | None = None,
        at_once: int | None = None,
    ) -> None:
        self._jobs = tuple(jobs)
        self._contents = contents
        self._timeout = timeout
        self._memory = memory or physical_memory()
        self._interpreters = dict(interpreters or {})
        self._at_once = at_once or _cpus()
        self._news: SimpleQueue[tuple[Worker, str | None]] = SimpleQueue()
        self._living: list[Worker] = []
        self._early: list[Answer] = []
        self._folder = Path()
        self._scratch = contextlib.ExitStack()

    def __enter__(self) -> "Workers":
        scratch = tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True)
        self._folder = Path(self._scratch.enter_context(scratch))
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def go(self) -> Iterator[Answer]:
        """Let the tools run, and give tool and answer as they finish."""
        while self._early:
            yield self._early.pop(0)
        while self._living:
            self._admit()
            worker, word = self._news.get()
            if word is None and worker in self._living:
                self._living.remove(worker)
                yield worker.tool, worker.answer()

    def _start(self) -> None:
        threads = max(1, _cpus() // max(1, min(len(self._jobs), self._at_once)))
        env = {"OMP_NUM_THREADS": str(threads), **os.environ}
        obstacle = self._pack()
        for number, job in enumerate(self._jobs):
            if obstacle is not None and _needs_contents(job):
                told: Failure | None = failure(job.tool, "build", obstacle, jobs.HINT)
            else:
                worker = self._worker(number, job)
                told = worker.start(env)
                if told is None:
                    self._living.append(worker)
            if told is not None:
                self._early.append((job.tool, told))

    def _stop(self) -> None:
        for worker in self._living:
            worker.close()
        self._living.clear()
        self._scratch.close()

    def _admit(self) -> None:
        """Let waiting workers go, as many as may run at a time."""
        free = self._at_once - sum(worker.running for worker in self._living)
        waiting = [one for one in self._living if one.said == READY and not one.running]
        for worker in waiting[:free]:
            worker.go()

    def _worker(self, number: int, job: Job) -> Worker:
        python = self._interpreters.get(job.tool, sys.executable)
        if _needs_contents(job):
            job = msgspec.structs.replace(job, pickle_path=str(self._folder / _MODEL))
        order = Order(
            job=job,
            result=str(self._folder / f"{number}.json"),
            paths=_paths(python, job),
            memory=self._memory,
        )
        return Worker(order, python, self._folder / f"{number}.log", self._news, self._timeout)

    def _pack(self) -> BaseException | str | None:
        """Pickle the model object; what stood in the way, if anything did."""
        if not any(map(_needs_contents, self._jobs)):
            return None
        if self._contents is None:
            return "the job names no target, and no model was given"
        try:
            jobs.pack(self._folder / _MODEL, self._contents)
        except Exception as problem:
            return problem
        return None


def _needs_contents(job: Job) -> bool:
    return job.target is None and job.pickle_path is None and job.onnx_path is None


def _paths(python: str, job: Job) -> tuple[str, ...]:
    """Where the worker shall look for modules after everything of its own.

    Another interpreter gets nothing of this one's installation, only what the user added.
    """
    here = [os.path.abspath(path) for path in sys.path]  # "" is the current directory
    if python != sys.executable:
        homes = tuple(os.path.join(home, "") for home in (sys.prefix, sys.base_prefix))
        here = [path for path in here if not path.startswith(homes)]
        here = [path for path in here if _INSTALLED.isdisjoint(Path(path).parts)]
    if job.target is not None:
        here.append(os.getcwd())
    return tuple(dict.fromkeys(here))


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
