"""The profile that onnxruntime writes -> the time of every kernel in one run.

Events as https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html has them:
`model_run` for each run, and in it one `<node>_kernel_time` for each kernel, in microseconds.
Those of the nodes in a subgraph lie within that of the node that holds it.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from crossflops.errors import InputError
from crossflops.report.compressed import contents

_KERNEL = "_kernel_time"
_RUNS = ("model_run", "SequentialExecutor::Execute")
MICRO = 1e-6
_HINT = "give a profile of onnxruntime (SessionOptions.enable_profiling) or of torch.profiler"


class Kernel(NamedTuple):
    """A kernel: `seconds` of its own in one run, without those inside it, and `calls` in one."""

    name: str
    op: str
    seconds: float
    calls: float


class Kernels(NamedTuple):
    """All kernels in the order in which they first ran; seconds of a run, means over `runs`."""

    kernels: tuple[Kernel, ...]
    run_seconds: float
    runs: int


class _Event(NamedTuple):
    name: str
    op: str
    begin: float
    end: float
    thread: Any


def events(path: str) -> list[dict[str, Any]]:
    """The events of a trace in Chrome's JSON, plain or gzipped. Raises InputError."""
    try:
        data = contents(Path(path))
        if not data.strip():
            raise InputError(f"the trace {path} is empty", _HINT)
        found = json.loads(data)
    except OSError as error:
        what = f"the trace {path} cannot be read: {error.strerror or error}"
        raise InputError(what, _HINT) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"the trace {path} is no JSON: {error}", _HINT) from error
    found = found.get("traceEvents") if isinstance(found, dict) else found
    if not isinstance(found, list):
        raise InputError(f"the trace {path} has no list of events", _HINT)
    return [one for one in found if isinstance(one, dict)]


def is_onnxruntime(trace: Iterable[Mapping[str, Any]]) -> bool:
    """Whether these are events of onnxruntime."""
    return any(str(one.get("name", "")).endswith(_KERNEL) for one in trace)


def kernels(trace: Sequence[Mapping[str, Any]], dropped: int = 0) -> Kernels:
    """The kernels of a profile, without the first `dropped` runs.

    Of the runs, the half whose time is nearest to the median counts. Raises InputError where no
    whole run is in it.
    """
    try:
        runs = _runs(trace)[dropped:] or _runs(trace)
        found = [_kernel(one) for one in trace if _is_kernel(one)]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"an event of the trace is damaged: {error!r}", _HINT) from error
    if not runs or not found:
        raise InputError("there is no whole run in the trace", _HINT)
    return _means(middle(runs), found)


def _is_kernel(one: Mapping[str, Any]) -> bool:
    return one.get("cat") == "Node" and str(one.get("name", "")).endswith(_KERNEL)


def span(one: Mapping[str, Any]) -> tuple[float, float]:
    """When an event begins and ends, in microseconds. Raises KeyError, TypeError, ValueError."""
    begin, duration = float(one["ts"]), float(one["dur"])
    if not (isfinite(begin) and 0 <= duration < inf):
        raise ValueError(f"it begins at {begin} and takes {duration}")
    return begin, begin + duration


def _runs(trace: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    for name in _RUNS:
        if found := sorted(span(one) for one in trace if one.get("name") == name):
            return found
    return []


def _kernel(one: Mapping[str, Any]) -> _Event:
    op = str(one.get("args", {}).get("op_name", ""))
    name = str(one["name"]).removesuffix(_KERNEL)
    return _Event(name, op, *span(one), (one.get("pid"), one.get("tid")))


def middle(runs: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The half of the runs, at least one, whose time is nearest to the median."""
    middle = median(end - begin for begin, end in runs)
    nearest = sorted(runs, key=lambda run: abs(run[1] - run[0] - middle))
    return sorted(nearest[: (len(runs) + 1) // 2])


def _means(runs: list[tuple[float, float]], found: list[_Event]) -> Kernels:
    seconds: dict[str, float] = {}
    calls: dict[str, int] = defaultdict(int)
    ops = {}
    for event, own in _own_times(found):
        if any(begin <= event.begin <= end for begin, end in runs):
            seconds[event.name] = seconds.get(event.name, 0.0) + own
            calls[event.name] += 1
            ops[event.name] = event.op
    count = len(runs)
    return Kernels(
        tuple(
            Kernel(name, ops[name], total * MICRO / count, calls[name] / count)
            for name, total in seconds.items()
        ),
        sum(end - begin for begin, end in runs) * MICRO / count,
        count,
    )


def _own_times(found: Iterable[_Event]) -> list[tuple[_Event, float]]:
    """Each kernel in the order in which they began, with its time without those within it."""
    order = sorted(found, key=lambda one: (one.begin, -one.end))
    own = [one.end - one.begin for one in order]
    around: dict[Any, list[int]] = defaultdict(list)
    for place, one in enumerate(order):
        stack = around[one.thread]
        while stack and order[stack[-1]].end <= one.begin:
            stack.pop()
        if stack and one.end <= order[stack[-1]].end:
            own[stack[-1]] -= one.end - one.begin
        stack.append(place)
    return list(zip(order, own, strict=True))
