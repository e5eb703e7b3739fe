"""From a trace of torch.profiler: the operators that ran, and the recorded calls that they are.

Operators are events of the category `cpu_op` (`aten::conv2d`); one that was called within another
lies in its span. A run is a span named `model_run` or, as torch.profiler's schedule writes it,
`ProfilerStep#N`; without either, the whole trace is one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from crossflops.bench.covers import Cover, Covers
from crossflops.bench.kernels import (
    MICRO,
    KernelTime,
    KernelTimes,
    event_span_microseconds,
    runs_nearest_to_median,
)
from crossflops.errors import InputError
from crossflops.ir.trace import Trace

_HINT = "give a trace of torch.profiler with CPU activities (prof.export_chrome_trace)"


class RanOperator(NamedTuple):
    """An outermost operator of a run, with all operators that it calls."""

    name: str
    begin: float
    end: float


class TraceMatch(NamedTuple):
    """The kernels of a trace, joined to the nodes of the graph."""

    kernels: KernelTimes
    covers: Covers


def is_torch_trace(trace: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the events of a trace come from PyTorch."""
    return any(event.get("cat") == "cpu_op" for event in trace)


def match_torch_operators(
    trace: Sequence[Mapping[str, Any]], model: Trace, dropped: int = 0
) -> TraceMatch:
    """Match the operators in a torch.profiler trace with the recorded calls of the model, by names
    and order.

    Names in both that follow one another are matched; what stands between two matches on both
    sides is taken together. Raises InputError for a trace without operators, and for a model
    whose calls were not recorded.
    """
    calls = [
        call
        for call in model.calls
        if call.level == "operator" and _is_pytorch_operator(call.target)
    ]
    if not calls:
        raise InputError(
            "a trace of PyTorch cannot be matched with this model, whose graph does not record "
            "PyTorch operators",
            "give the PyTorch model as file.py:callable",
        )
    try:
        ops = _outermost_operators(trace)
        runs = _torch_run_spans(trace, ops)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the trace has a damaged event: {error!r}", _HINT) from error
    if not ops:
        raise InputError("the trace contains no PyTorch operators", _HINT)
    kept = runs_nearest_to_median(runs[dropped:] or runs)
    return _join_run_operators([_operators_in_span(ops, *run) for run in kept], kept, calls)


def _is_pytorch_operator(target: str) -> bool:
    """Return whether the target of a call is an operator of PyTorch, not of TensorFlow."""
    return "." in target and not target.startswith("tf")


def _outermost_operators(trace: Sequence[Mapping[str, Any]]) -> list[RanOperator]:
    """Return the operators of the thread with the most operators, without those that ran inside
    another operator.
    """
    threads: dict[Any, list[RanOperator]] = defaultdict(list)
    for event in trace:
        if event.get("cat") == "cpu_op" and event.get("ph", "X") == "X":
            threads[event.get("pid"), event.get("tid")].append(
                RanOperator(str(event["name"]), *event_span_microseconds(event))
            )
    busiest = max(threads.values(), key=len) if threads else []
    outermost: list[RanOperator] = []
    for op in sorted(busiest, key=lambda op: (op.begin, -op.end)):
        if not outermost or op.begin >= outermost[-1].end:
            outermost.append(op)
    return outermost


def _torch_run_spans(
    trace: Sequence[Mapping[str, Any]], ops: list[RanOperator]
) -> list[tuple[float, float]]:
    """Return (begin, end) in microseconds of each step in a trace, or of all operators if it marks
    no steps.
    """
    for name in ("model_run", "ProfilerStep#"):
        spans = [
            event_span_microseconds(event)
            for event in trace
            if str(event.get("name", "")).startswith(name)
            and event.get("cat") == "user_annotation"
        ]
        if spans:
            return sorted(spans)
    return [(ops[0].begin, max(op.end for op in ops))] if ops else []


def _operators_in_span(ops: list[RanOperator], begin: float, end: float) -> list[RanOperator]:
    """Return the operators that begin between these two times."""
    return [op for op in ops if begin <= op.begin <= end]


def _join_run_operators(
    runs: list[list[RanOperator]], spans: list[tuple[float, float]], calls: Sequence[Any]
) -> TraceMatch:
    """Return the operators of the first run, with their mean seconds over all runs, matched to the
    model's calls.
    """
    first = runs[0]
    names = _number_repeated_names(op.name for op in first)
    seconds = [0.0] * len(first)
    for ops in runs:
        matcher = SequenceMatcher(None, [o.name for o in first], [o.name for o in ops], False)
        for block in matcher.get_matching_blocks():
            for offset in range(block.size):
                op = ops[block.b + offset]
                seconds[block.a + offset] += (op.end - op.begin) * MICRO / len(runs)
    kernels = [
        KernelTime(name, op.name, time, 1.0)
        for name, op, time in zip(names, first, seconds, strict=True)
    ]
    groups = list(
        _align_operator_names(
            [op.name for op in first], [_profiler_operator_name(c.target) for c in calls]
        )
    )
    joined = [
        Cover(tuple(names[i] for i in ops), tuple(key for c in called for key in calls[c].nodes))
        for ops, called in groups
        if ops
    ]
    left = tuple(
        key for ops, called in groups if not ops for c in called for key in calls[c].nodes
    )
    run_seconds = sum(end - begin for begin, end in spans) * MICRO / len(spans)
    return TraceMatch(
        KernelTimes(tuple(kernels), run_seconds, len(runs)), Covers(tuple(joined), left=left)
    )


def _align_operator_names(ran: list[str], called: list[str]) -> Iterator[tuple[range, range]]:
    """Yield pairs of index ranges, into `ran` and into `called`, that belong together; one range
    may be empty.
    """
    for tag, a, b, c, d in SequenceMatcher(None, ran, called, False).get_opcodes():
        if tag == "equal":
            yield from ((range(a + n, a + n + 1), range(c + n, c + n + 1)) for n in range(b - a))
        elif tag == "delete":
            yield from ((range(n, n + 1), range(0)) for n in range(a, b))
        else:
            yield range(a, b), range(c, d)


def _profiler_operator_name(target: str) -> str:
    """Return the name that an operator has in traces: "aten::conv2d" for "aten.conv2d.default"."""
    space, _, rest = target.partition(".")
    return f"{space}::{rest.partition('.')[0]}"


def _number_repeated_names(names: Iterable[str]) -> list[str]:
    """Return each name with the number of its occurrence: "conv 1", "conv 2"."""
    turns: Counter[str] = Counter()
    numbered = []
    for name in names:
        turns[name] += 1
        numbered.append(f"{name} {turns[name]}")
    return numbered
