"""Run the verb `sweep`: count what the store does not have, and return the rows of the suite."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import InputError
from crossflops.limits import TIMEOUT
from crossflops.report.quantity import count_with_noun
from crossflops.report.sweep import (
    NATIVE,
    Sweep,
    SweepRow,
    case_name,
    find_changes,
)
from crossflops.verbs.provenance import framework_versions
from crossflops.verbs.sweep.items import (
    CountedCase,
    SweepTask,
    count_case,
    failure_rows_of_case,
    record_case_rows,
)
from crossflops.verbs.sweep.keys import RowKey, ToolVersions, find_row_keys
from crossflops.verbs.sweep.published import match_published_figures
from crossflops.verbs.sweep.store import SweepStore
from crossflops.verbs.sweep.suite import Suite, SuiteItem, read_suite
from crossflops.verbs.table import choose_jobs
from crossflops.workers.warm_executor import WarmExecutor, WorkerEndedError

Progress = Callable[[str], None]
_WAITING = 4  # calls for each worker that are handed over at a time: their keys are known by then
ItemKeys = list[tuple[SuiteItem, tuple[RowKey, ...]]]


class SweepChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a sweep.

    `store` is the folder of the rows, `compare_to` that of an earlier sweep or "". `only` are
    patterns of targets, `limit` is the largest number of cases. `jobs` is how many cases are
    counted at a time, None for what the machine allows, `timeout` the seconds that one may take,
    and `memory` the bytes of address space of each tool, None for those of the machine. With
    `retry_failures` a row that the store has without a number is counted again. With `executor`
    it counts the cases.
    """

    store: str
    only: tuple[str, ...] = ()
    limit: int | None = None
    jobs: int | None = None
    timeout: float = TIMEOUT
    memory: int | None = None
    retry_failures: bool = False
    compare_to: str = ""
    executor: Any = None


def run_sweep(
    suite: str | Path | Mapping[str, Any],
    choice: SweepChoice,
    on_progress: Progress = lambda _: None,
) -> Sweep:
    """Return the rows of a suite; those that the store does not have are counted and recorded.

    Raises InputError for an invalid suite, for a pattern that matches nothing and for a folder
    that is not a store, UnknownNameError for a tool that is not installed.
    """
    read = read_suite(suite)
    store = SweepStore(Path(choice.store))
    earlier = _read_earlier_store(choice.compare_to) if choice.compare_to else ()
    items = _choose_items(read, choice)
    versions = ToolVersions()
    item_keys = [(item, find_row_keys(item, versions)) for item in items]
    if choice.retry_failures:
        store.remove_failures([key.digest for _, keys in item_keys for key in keys])
    stored_keys = store.row_keys()
    tasks = [
        task
        for item, keys in item_keys
        if (task := _task_for_missing_rows(item, keys, stored_keys, choice))
    ]
    if tasks:
        store.make_index()
    _count_tasks(tasks, len(items), choice, on_progress)
    rows = list(_read_rows(item_keys, store))
    tools = dict.fromkeys(row.tool for row, _ in rows if row.tool != NATIVE)
    return Sweep(
        suite=read.name,
        rows=tuple(row for row, _ in rows),
        tools=tuple(tools),
        left_out=len(read.items) - len(items),
        compared_to=choice.compare_to,
        changes=find_changes(rows, earlier) if choice.compare_to else (),
        published=match_published_figures(read.published, [row for row, _ in rows]),
        made_with=framework_versions(is_file=True),
    )


def _read_earlier_store(folder: str) -> list[tuple[SweepRow, dict[str, str]]]:
    """Return the rows of another store with their versions; raise InputError if it is not one."""
    if not SweepStore(Path(folder)).exists:
        raise InputError(
            f"{folder} is not the store of a sweep", "give the folder of an earlier --store"
        )
    return [_decode_row(content) for content in SweepStore(Path(folder)).read_rows()]


def _decode_row(content: Mapping[str, Any]) -> tuple[SweepRow, dict[str, str]]:
    """Return (row, versions of the packages by name) from the JSON that a store has of a row."""
    return msgspec.convert(content["row"], SweepRow), dict(content["versions"])


def _choose_items(suite: Suite, choice: SweepChoice) -> list[SuiteItem]:
    """Return the items that --only and --limit choose; raise InputError for a pattern that
    matches none.
    """
    for pattern in choice.only:
        if not any(_is_chosen(item, [pattern]) for item in suite.items):
            raise InputError(
                f"--only {pattern} matches no model of the suite",
                "correct the pattern, or leave out --only",
            )
    items = [item for item in suite.items if not choice.only or _is_chosen(item, choice.only)]
    return items if choice.limit is None else items[: choice.limit]


def _is_chosen(item: SuiteItem, patterns: Sequence[str]) -> bool:
    """Return whether a pattern matches the target of an item, or its name without a library."""
    target = item.case.target
    names = (target, target.rpartition(":")[2])
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _task_for_missing_rows(
    item: SuiteItem, keys: tuple[RowKey, ...], stored_keys: set[str], choice: SweepChoice
) -> SweepTask | None:
    """Return the task that counts the rows that are not recorded, None if all are."""
    missing = tuple(key for key in keys if key.digest not in stored_keys)
    if not missing:
        return None
    is_local = choice.executor is None
    return SweepTask(
        case=item.case,
        target=item.case.target if is_local else _with_absolute_path(item.case.target),
        keys=missing,
        store=str(Path(choice.store).resolve()) if is_local else "",
        is_alone=is_local,
        timeout=choice.timeout,
        memory=choice.memory,
    )


def _with_absolute_path(target: str) -> str:
    """Return a target with the absolute path of its file: a worker may have another folder."""
    path, colon, name = target.rpartition(":")
    if Path(target).exists():
        return str(Path(target).resolve())
    if colon and Path(path).is_file():
        return f"{Path(path).resolve()}:{name}"
    prefix, colon, path = target.partition(":")
    if colon and path and Path(path).exists():
        return f"{prefix}:{Path(path).resolve()}"
    return target


# The counting.


def _count_tasks(
    tasks: Sequence[SweepTask], items: int, choice: SweepChoice, on_progress: Progress
) -> None:
    """Count the tasks in an executor, and record the rows of each as it ends."""
    pace = _Pace(items, len(tasks), on_progress)
    if not tasks:
        pace.report_end()
        return
    jobs = choice.jobs or choose_jobs(2 * len(tasks))
    with _open_executor(choice, min(jobs, len(tasks))) as executor:
        for task, result in _iterate_results(executor, tasks, jobs * _WAITING, choice):
            pace.report_case(task, result)
    pace.report_end()


@contextmanager
def _open_executor(choice: SweepChoice, jobs: int) -> Iterator[Executor]:
    """Yield the executor of the choice, or warm processes, which end with the block."""
    if choice.executor is not None:
        yield choice.executor
        return
    executor = WarmExecutor(jobs, choice.timeout)
    try:
        yield executor
        executor.shutdown()
    finally:
        executor.shutdown(cancel_futures=True)  # whatever an error or Ctrl-C has left


def _iterate_results(
    executor: Executor, tasks: Sequence[SweepTask], max_pending: int, choice: SweepChoice
) -> Iterator[tuple[SweepTask, CountedCase]]:
    """Run the tasks and yield each with its rows as soon as it ends; at most `max_pending` tasks
    are handed to the executor at a time.

    What still waits is cancelled where the caller stops.
    """
    left = iter(tasks)
    running: dict[Future[CountedCase], SweepTask] = {}
    try:
        while True:
            for task in left:
                running[executor.submit(count_case, task)] = task
                if choice.executor is None and len(running) >= max_pending:
                    break
            if not running:
                return
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                task = running.pop(future)
                yield task, _record_result(task, future, choice)
    finally:
        for future in running:
            future.cancel()


def _record_result(
    task: SweepTask, future: "Future[CountedCase]", choice: SweepChoice
) -> CountedCase:
    """Return the rows of a case that ended; they are recorded, unless its worker has done so.

    A worker that ended leaves failures. Raises what else went wrong outside of the model.
    """
    try:
        result = future.result()
    except WorkerEndedError as error:
        result = failure_rows_of_case(task, error.message)
    else:
        if choice.executor is None:
            return result
    record_case_rows(choice.store, result)
    return result


class _Pace:
    """Lines about the cases of a sweep: how many are done, at which rate, how long it still
    takes.
    """

    def __init__(self, items: int, tasks: int, on_progress: Progress) -> None:
        self._items = items
        self._reused = items - tasks
        self._tasks = tasks
        self._done = 0
        self._failed = 0
        self._begun = time.monotonic()
        self._on_progress = on_progress

    def report_case(self, task: SweepTask, result: CountedCase) -> None:
        """Report a case that ended."""
        self._done += 1
        self._failed += any(content["row"].get("failure") for content in result.contents.values())
        seconds = time.monotonic() - self._begun
        left = seconds / self._done * (self._tasks - self._done)
        self._on_progress(
            f"{self._reused + self._done} of {self._items}: {case_name(task.case)} "
            f"({_rate_text(self._done, seconds)}, {_duration_text(left)} left)"
        )

    def report_end(self) -> None:
        """Report what was counted in all."""
        seconds = time.monotonic() - self._begun
        words = [f"{count_with_noun(self._done, 'model')} counted in {_duration_text(seconds)}"]
        if self._done:
            words.append(_rate_text(self._done, seconds))
        if self._failed:
            words.append(f"{self._failed} with a failure")
        words.append(f"{self._reused} taken from the store")
        self._on_progress(f"{', '.join(words)}\n")


def _rate_text(cases: int, seconds: float) -> str:
    """Return how many cases end per second or per minute.

    >>> _rate_text(10, 4.0), _rate_text(10, 60.0)
    ('2.5 per s', '10 per min')
    """
    rate = cases / max(seconds, 1e-9)
    return f"{rate:.3g} per s" if rate >= 1 else f"{rate * 60:.3g} per min"


def _duration_text(seconds: float) -> str:
    """Return a duration as text.

    >>> _duration_text(3.2), _duration_text(200), _duration_text(8000)
    ('3 s', '3 min', '2.2 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# The rows.


def _read_rows(
    item_keys: ItemKeys, store: SweepStore
) -> Iterator[tuple[SweepRow, dict[str, str]]]:
    """Yield the rows of the items, each with its versions, from the store."""
    if not any(keys for _, keys in item_keys):
        return
    contents = store.read_contents([key.digest for _, keys in item_keys for key in keys])
    for item, keys in item_keys:
        for key in keys:
            row, versions = _decode_row(contents[key.digest])
            yield msgspec.structs.replace(row, family=item.family), versions
