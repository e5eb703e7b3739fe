"""Run the verb `table`: count several models for a paper, one row for each."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import msgspec

from crossflops.errors import InputError
from crossflops.ir.measurement import Unfit
from crossflops.limits import physical_memory_bytes, usable_cpus
from crossflops.report.papers import PaperRow, PaperTable
from crossflops.report.quantity import count_with_noun
from crossflops.targets.request import Request
from crossflops.targets.target import restoring_imports
from crossflops.verbs.table_rows import CountedRow, count_row
from crossflops.workers.series import run_series


@restoring_imports()
def build_paper_table(
    requests: Sequence[tuple[str, Request]],
    tools: Sequence[str],
    digits: int,
    on_progress: Callable[[str], None],
    latency: bool = False,
    jobs: int = 1,
) -> PaperTable:
    """Return a table with one row for each model and one column for each tool; with `latency` the
    models are also timed.

    Each is also counted by the conventions of `tools`; one that cannot count a model leaves its
    cell empty, and the row says why. With `latency` each is run in onnxruntime, when all are
    counted; so is one that does not run. Up to `jobs` models of frameworks are counted side by
    side, each in a process. Raises what counting raises, and MissingExtraError without
    onnxruntime.
    """
    rows: list[PaperRow] = []
    editions: dict[str, str] = {}
    made_with: dict[str, str] = {}
    for counted in _count_rows(requests, tools, on_progress, jobs):
        rows.append(counted.row)
        editions |= counted.editions
        made_with |= counted.made_with
    where = ""
    if latency:
        rows, where = _time_paper_rows(rows, [request for _, request in requests], on_progress)
    named = tuple(dict.fromkeys(tool for row in rows for tool in row.by_tool))
    return PaperTable(
        rows=tuple(rows), tools=named, editions=editions, digits=digits, latency=where,
        made_with=made_with,
    )  # fmt: skip


def _count_rows(
    requests: Sequence[tuple[str, Request]],
    tools: Sequence[str],
    on_progress: Callable[[str], None],
    jobs: int,
) -> Iterator[CountedRow]:
    """Yield the row of each model in the given order; models of frameworks are counted in `jobs`
    parallel processes.
    """
    elsewhere = [(name, request, tools) for name, request in requests if not request.is_file]
    if jobs == 1 or len(elsewhere) < _SIDE_BY_SIDE:
        elsewhere = []
    names = [name for name, *_ in elsewhere]
    with closing(run_series(count_row, elsewhere, names, min(jobs, len(names) or 1))) as series:
        for name, request in requests:
            on_progress(f"counting {name}")
            if elsewhere and not request.is_file:
                yield next(series)
            else:
                yield count_row(name, request, tools)


def choose_jobs(models: int) -> int:
    """Return how many models to count in parallel: limited by CPUs, memory, and half the number of
    models.

    At most the CPUs that this process may use, one for each 4 GiB of memory, and one for every
    two models: a process takes seconds to import a framework.
    """
    memory = physical_memory_bytes()
    bounds = [usable_cpus(), models // 2]
    if memory is not None:
        bounds.append(memory // _MEMORY_OF_A_MODEL)
    return max(1, min(bounds))


def reject_jobs_without_effect(requests: Sequence[Request]) -> None:
    """Raise InputError if --jobs has no effect: there are fewer than two models of a framework."""
    if sum(not request.is_file for request in requests) < _SIDE_BY_SIDE:
        raise InputError(
            "--jobs has no effect: only models of a framework (such as PyTorch) are counted in "
            "parallel, and there are fewer than two",
            "leave out --jobs",
        )


_SIDE_BY_SIDE = 2
_MEMORY_OF_A_MODEL = 4 * 1024**3  # bytes


def _time_paper_rows(
    rows: Sequence[PaperRow], requests: Sequence[Request], on_progress: Callable[[str], None]
) -> tuple[list[PaperRow], str]:
    """Return (rows with the median latency of each model in seconds, text how it was measured)."""
    from crossflops.verbs.bench import Conditions, default_thread_count, measure_on_given_inputs

    timed: list[PaperRow] = []
    where: list[str] = []
    for row, request in zip(rows, requests, strict=True):
        on_progress(f"running {row.target}")
        ran = measure_on_given_inputs(msgspec.structs.replace(request, observe=True), Conditions())
        if isinstance(ran, Unfit):
            note = f"did not run ({ran.stage}): {ran.message}"
            timed.append(msgspec.structs.replace(row, notes=(*row.notes, note)))
            continue
        assert ran.measurement is not None
        timed.append(msgspec.structs.replace(row, latency_seconds=ran.measurement.p50))
        where.append(
            f"{ran.runtime} on {ran.device}, {count_with_noun(default_thread_count(), 'thread')}"
        )
        if not ran.measurement.settled:
            note = "its latency was not yet stable when it was timed"
            timed[-1] = msgspec.structs.replace(timed[-1], notes=(*row.notes, note))
    indices = ", ".join(dict.fromkeys(where)) or "no model ran"
    return timed, f"median of the runs after a warm-up, in {indices}"
