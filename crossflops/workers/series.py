"""Call one function with many arguments, in parallel processes; results come in the order of the
arguments.

In: a function of a module, and arguments that can be pickled. Out: its results, and the warnings
of crossflops that it gave. A process ends with this one, and with the first that raises.
"""

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

from crossflops import threads
from crossflops.errors import CrossflopsError, CrossflopsWarning
from crossflops.limits import end_when_pipe_closes
from crossflops.operators.formula_sources import (
    formula_locations_for_workers,
    load_formulas_for_process,
)

_STDOUT, _STDERR = 1, 2


class _Answer(NamedTuple):
    """The result of a call, and the text, the file and the line of each warning."""

    result: Any
    warnings: tuple[tuple[str, str, int], ...]


def run_series(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    names: Sequence[str],
    jobs: int,
) -> Generator[Any, None, None]:
    """Call the function in parallel processes, once for each tuple of arguments; yield the results
    in their order.

    Args:
        function: one of a module, which processes import.
        arguments: those of each call.
        names: what a message calls each of them.
        jobs: how many processes run at a time.

    Raises what a call raises, in the order of the arguments, and CrossflopsError where a process
    was ended from outside.
    """
    context = multiprocessing.get_context("spawn")  # a fork has half of what a framework started
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        jobs,
        context,
        initializer=_initialize_series_process,
        initargs=(formula_locations_for_workers(),),
    )
    futures: list[Future[_Answer]] = []
    try:
        futures += [pool.submit(_call_with_warnings, function, provided) for provided in arguments]
        for name, future in zip(names, futures, strict=True):
            yield _series_result(name, future)
    finally:
        if not all(future.done() for future in futures):
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
        pool.shutdown(wait=True, cancel_futures=True)


def _series_result(name: str, future: "Future[_Answer]") -> Any:
    """Return the result of a call in another process, and repeat here the warnings that
    it issued.
    """
    try:
        answer = future.result()
    except BrokenProcessPool as error:
        raise CrossflopsError(
            f"{name}: the process that counted the model was killed, perhaps because of its "
            "memory use",
            "count one model at a time (--jobs 1), or leave out this model",
        ) from error
    for text, file, line in answer.warnings:
        warnings.warn_explicit(text, CrossflopsWarning, file, line)
    return answer.result


# In a process of its own.


def _initialize_series_process(formulas: tuple[str, ...]) -> None:
    """Prepare a process of the series: stdout goes to stderr, Ctrl-C is ignored, and it ends with
    its parent.

    The formulas of the command hold here, too.
    """
    os.dup2(_STDERR, _STDOUT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    parent = multiprocessing.parent_process()
    if os.name == "posix" and parent is not None:
        end_when_pipe_closes(parent.sentinel, lambda: os._exit(1))
    load_formulas_for_process(formulas)


def _call_with_warnings(function: Callable[..., Any], provided: tuple[Any, ...]) -> _Answer:
    """Call the function; return its result together with the warnings that it issued."""
    with threads.record_warnings(CrossflopsWarning) as seen:
        result = function(*provided)
    texts = tuple((str(item.message), item.filename, item.lineno) for item in seen)
    return _Answer(result, texts)
