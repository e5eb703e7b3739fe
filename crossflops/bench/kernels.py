"""From the profile that onnxruntime writes: the time of every kernel in one run.

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
from crossflops.files import read_file_bytes

_KERNEL = "_kernel_time"
_RUNS = ("model_run", "SequentialExecutor::Execute")
MICRO = 1e-6
_HINT = "give a profile of onnxruntime (SessionOptions.enable_profiling) or of torch.profiler"


class KernelTime(NamedTuple):
    """A kernel: `seconds` of its own in one run, without nested kernels, and `calls` in one."""

    name: str
    op: str
    seconds: float
    calls: float


class KernelTimes(NamedTuple):
    """All kernels in the order in which they first ran; seconds of a run, means over `runs`."""

    kernels: tuple[KernelTime, ...]
    run_seconds: float
    runs: int


class _Event(NamedTuple):
    name: str
    op: str
    begin: float
    end: float
    thread: Any


def read_trace_events(path: str) -> list[dict[str, Any]]:
    """Return the events of a trace file (Chrome's JSON, plain or gzipped). Raises InputError."""
    try:
        data = read_file_bytes(Path(path))
        if not data.strip():
            raise InputError(f"the trace {path} is empty", _HINT)
        content = json.loads(data)
    except OSError as error:
        message = f"cannot read the trace {path}: {error.strerror or error}"
        raise InputError(message, _HINT) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"the trace {path} is not valid JSON: {error}", _HINT) from error
    content = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(content, list):
        raise InputError(f"the trace {path} has no list of events", _HINT)
    return [event for event in content if isinstance(event, dict)]


def is_onnxruntime_trace(trace: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the events of a trace come from onnxruntime."""
    return any(str(event.get("name", "")).endswith(_KERNEL) for event in trace)


def mean_kernel_times(trace: Sequence[Mapping[str, Any]], dropped: int = 0) -> KernelTimes:
    """Return the mean time of each kernel in an onnxruntime profile, without the first `dropped`
    runs.

    Of the runs, the half whose time is nearest to the median counts. Raises InputError where no
    whole run is in it.
    """
    try:
        runs = _onnxruntime_run_spans(trace)[dropped:] or _onnxruntime_run_spans(trace)
        ran = [_to_kernel_event(event) for event in trace if _is_kernel(event)]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the trace has a damaged event: {error!r}", _HINT) from error
    if not runs or not ran:
        raise InputError("the trace contains no complete run", _HINT)
    return _mean_kernel_seconds(runs_nearest_to_median(runs), ran)


def _is_kernel(event: Mapping[str, Any]) -> bool:
    """Return whether an event of onnxruntime records a run of a kernel."""
    return event.get("cat") == "Node" and str(event.get("name", "")).endswith(_KERNEL)


def event_span_microseconds(event: Mapping[str, Any]) -> tuple[float, float]:
    """Return (begin, end) of a trace event in microseconds. Raises ValueError, KeyError or
    TypeError on a damaged event.
    """
    begin, duration = float(event["ts"]), float(event["dur"])
    if not (isfinite(begin) and 0 <= duration < inf):
        raise ValueError(f"it begins at {begin} and takes {duration}")
    return begin, begin + duration


def _onnxruntime_run_spans(trace: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return (begin, end) of each model run in an onnxruntime trace, in microseconds."""
    for name in _RUNS:
        if spans := sorted(
            event_span_microseconds(event) for event in trace if event.get("name") == name
        ):
            return spans
    return []


def _to_kernel_event(event: Mapping[str, Any]) -> _Event:
    """Return a kernel event of onnxruntime as a tuple: name, operator, begin, end and thread."""
    op = str(event.get("args", {}).get("op_name", ""))
    name = str(event["name"]).removesuffix(_KERNEL)
    return _Event(name, op, *event_span_microseconds(event), (event.get("pid"), event.get("tid")))


def runs_nearest_to_median(runs: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return those half of the runs whose durations are nearest to the median, in their order."""
    middle = median(end - begin for begin, end in runs)
    nearest = sorted(runs, key=lambda run: abs(run[1] - run[0] - middle))
    return sorted(nearest[: (len(runs) + 1) // 2])


def _mean_kernel_seconds(runs: list[tuple[float, float]], ran: list[_Event]) -> KernelTimes:
    """Return the mean seconds and the mean number of calls of each kernel over the runs."""
    seconds: dict[str, float] = {}
    calls: dict[str, int] = defaultdict(int)
    ops = {}
    for event, alone in _own_microseconds(ran):
        if any(begin <= event.begin <= end for begin, end in runs):
            seconds[event.name] = seconds.get(event.name, 0.0) + alone
            calls[event.name] += 1
            ops[event.name] = event.op
    count = len(runs)
    return KernelTimes(
        tuple(
            KernelTime(name, ops[name], total * MICRO / count, calls[name] / count)
            for name, total in seconds.items()
        ),
        sum(end - begin for begin, end in runs) * MICRO / count,
        count,
    )


def _own_microseconds(ran: Iterable[_Event]) -> list[tuple[_Event, float]]:
    """Return each kernel event with its own duration in microseconds, without the kernels nested
    in it.
    """
    order = sorted(ran, key=lambda event: (event.begin, -event.end))
    alone = [event.end - event.begin for event in order]
    enclosing: dict[Any, list[int]] = defaultdict(list)
    for index, event in enumerate(order):
        stack = enclosing[event.thread]
        while stack and order[stack[-1]].end <= event.begin:
            stack.pop()
        if stack and event.end <= order[stack[-1]].end:
            alone[stack[-1]] -= event.end - event.begin
        stack.append(index)
    return list(zip(order, alone, strict=True))
