"""The time of one run, node by node, beside the count: of a run, or from a trace."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from crossflops.bench.attribution.covers import REASONS, above, attributed, covers, impossible
from crossflops.bench.attribution.executed import ExecutedGraph, guessed, named, read
from crossflops.bench.attribution.kernels import KernelTimes, events, is_onnxruntime, kernels
from crossflops.bench.attribution.torch_trace import is_torch, matched
from crossflops.bench.benching import bench as run
from crossflops.bench.order import FileOrder, Ran
from crossflops.bench.session import LEVELS
from crossflops.errors import CrossflopsError, InputError
from crossflops.hardware.rates.measured import COVERED
from crossflops.ir.measurement import Measurement
from crossflops.ir.trace import Setting
from crossflops.report.bench import Bench, BenchPeak, KernelProfile
from crossflops.report.report import InputInfo, ModelInfo
from crossflops.targets.request import asked_for
from crossflops.targets.target import imports_restored
from crossflops.verbs.bench.runnable import ONNX, Runnable, runnable
from crossflops.verbs.efficiency.shares import by_precision
from crossflops.verbs.provenance import asked, made_with

# What this machine can do, as the denominator of what ran on it.

_DTYPES = {  # precision of a peak -> that of the count
    "fp32": "float32",
    "fp64": "float64",
    "fp16": "float16",
    "bf16": "bfloat16",
    "int8": "int8",  # with signs and without
}


def own_peak(threads: int, again: bool = False) -> BenchPeak | str:
    """The measured peak with so many threads, or why there is none.

    Measured with all CPUs, and its FP32 rate with one: with fewer than all, and more than one, the
    rate of one times their number is taken, which is the most that they can do. `again` measures
    anew what was kept.
    """
    from crossflops.bench.machine.peaks import measured

    try:
        found = measured(again=again)
    except CrossflopsError as error:
        return error.message
    rates = {_DTYPES[name]: rate for name, rate in found.peaks.items() if name in _DTYPES}
    source = f"measured on this machine with {found.threads} threads: {found.how}"
    if threads < found.threads:
        if found.one_thread is None:
            return f"it was measured with {found.threads} threads alone"
        share = found.one_thread * threads / rates["float32"]
        rates = {name: rate * share for name, rate in rates.items()}
        source = f"measured on this machine with one thread, times {threads}: {found.how}"
    return BenchPeak(rates=rates, bandwidth=found.bandwidth, source=source, is_peak=found.is_peak)


def higher(one: BenchPeak, other: BenchPeak) -> BenchPeak:
    """The higher of both, by precision: a machine that was busy once can do more."""
    rates = {name: max(rate, other.rates.get(name, 0.0)) for name, rate in one.rates.items()}
    return BenchPeak(rates=rates, bandwidth=one.bandwidth, source=one.source, is_peak=one.is_peak)


RULE = "rates are 2 x MACs / seconds; additions, activations and the rest are in no rate"


def accounted(bench: Bench, ready: Runnable, ran: Ran, given: BenchPeak | None) -> Bench:
    """The bench with the profile of its kernels, what it rests on, and what cannot be true.

    Without a peak that is given, that of this machine is taken; where a kernel or a whole run was
    faster, it is measured once more, since the machine may have been busy the first time.
    """
    warnings = list(_doubts(bench, ready, ran))
    peak = given
    if peak is None:
        own = own_peak(bench.threads)
        peak = None if isinstance(own, str) else own
        warnings += [f"no measured peak: {own}"] if isinstance(own, str) else []
    found = _against(bench, ready, ran, peak)
    if given is None and peak is not None and _above(found):
        again = own_peak(bench.threads, again=True)
        peak = peak if isinstance(again, str) else higher(peak, again)
        found = _against(bench, ready, ran, peak)
    errors = [*too_fast(found), *(impossible(found.profile, peak) if found.profile else ())]
    if found.profile is not None and found.profile.covered < COVERED:
        warnings.append(_uncovered(found.profile))
    return msgspec.structs.replace(
        found,
        errors=tuple(errors),
        assumptions=(RULE, *ready.notes, *([f"peak: {peak.source}"] if peak else [])),
        warnings=tuple(warnings),
    )


def _against(bench: Bench, ready: Runnable, ran: Ran, peak: BenchPeak | None) -> Bench:
    """The bench with its profile against a peak, and with what the profiler itself took."""
    profile, one = _profile(ready, ran, peak) if ran.profile else None, bench.measurement
    if profile is not None and one is not None:
        longer = min(max(profile.run_seconds - one.p50, 0.0), max(profile.outside_seconds, 0.0))
        profile = msgspec.structs.replace(profile, profiler_seconds=longer)
    return msgspec.structs.replace(bench, peak=peak, profile=profile)


def _above(bench: Bench) -> bool:
    return bool([*too_fast(bench), *(above(bench.profile) if bench.profile else ())])


def too_fast(bench: Bench) -> Iterator[str]:
    """Batches at which the whole model was faster than the peak."""
    rows = (one for one in bench.curve if isinstance(one, Measurement))
    for one in rows if bench.peak is not None and bench.peak.is_peak else ():
        if (share := bench.share(one) or 0.0) > 1:
            yield f"batch {one.batch} ran at {100 * share:.0f} % of the peak: {REASONS}"


def _uncovered(profile: KernelProfile) -> str:
    rest = profile.run_seconds - profile.profiler_seconds
    added = 100 * profile.added_seconds / rest
    between = 100 * max(profile.outside_seconds - profile.profiler_seconds, 0.0) / rest
    return (
        f"nodes account for {100 * profile.covered:.1f} % of a run's time: {added:.1f} % is in "
        f"kernels that the runtime put in, {between:.1f} % between kernels, which weighs in short "
        "runs"
    )


def _doubts(bench: Bench, ready: Runnable, ran: Ran) -> Iterator[str]:
    if not ran.profile:
        yield f"no kernels: {ran.runtime} does not tell which nodes its time belongs to"
    measurement = bench.measurement
    if measurement is not None and not measurement.settled:
        yield "the runs did not settle: other work on the machine, or too few of them"
    if left := len(ready.counted.ledger.uncounted):
        yield f"{left} nodes are not counted: rates leave them out"


def _profile(ready: Runnable, ran: Ran, peak: BenchPeak | None) -> KernelProfile:
    assert ran.profile is not None
    trace, ledger = events(ran.profile), ready.counted.ledger
    source = f"the profile of {ran.runtime}"
    if ran.graph is None:
        found = matched(trace, ready.counted.trace, ran.dropped)
        return attributed(found.kernels, found.covers, ledger, peak, source)
    times = kernels(trace, ran.dropped)
    level = named(read(ran.graph), [(one.name, one.op) for one in times.kernels])
    joined = covers(ready.counted.graph.nodes, level)
    return attributed(times, joined, ledger, peak, source)


# A trace that somebody wrote before -> the time of its kernels beside the count of a model.

_SECONDS = 300.0
_OWN = "torch"


@imports_restored()
def read_trace(
    target: Any,
    inputs: Any = (),
    *,
    trace: str,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    allow_pickle: bool = False,
    peak: BenchPeak | None = None,
    dropped: int = 0,
    flags: Mapping[str, Any] = {},
) -> Bench:
    """The kernels of a trace of onnxruntime or of torch.profiler, joined to the model's nodes.

    Nothing is run, but onnxruntime, where it is there, is asked which graph it makes of the file:
    only that tells the kernels which it puts in. Raises InputError for what is no such trace.
    """
    found = events(trace)
    request = asked_for(
        target, inputs, None, setting, arguments,
        allow_pickle=allow_pickle, dims=dims, trips=trips, branches=branches,
    )  # fmt: skip
    if not is_onnxruntime(found) and not is_torch(found):
        raise InputError(
            f"the trace {trace} has no kernels of onnxruntime and no operators of PyTorch",
            "give a profile of one of these",
        )
    if request.is_file and not is_onnxruntime(found):
        raise InputError(
            "a trace of PyTorch tells operators, and a file does not say which calls these were",
            "give the model as file.py:callable",
        )
    with tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True) as folder:
        ready = runnable(request, None, folder, ONNX if is_onnxruntime(found) else _OWN)
        profile, notes = _profile_of_trace(ready, found, trace, dropped, peak)
    made = _bench(ready, profile, notes, trace, peak)
    return msgspec.structs.replace(
        made,
        request=asked("bench", request, made.model, flags, target, arguments),
        made_with=made_with(request.is_file),
    )


def _profile_of_trace(
    ready: Runnable, found: list[dict[str, Any]], trace: str, dropped: int, peak: BenchPeak | None
) -> tuple[KernelProfile, tuple[str, ...]]:
    ledger = ready.counted.ledger
    if not is_onnxruntime(found):
        own = matched(found, ready.counted.trace, dropped)
        return attributed(own.kernels, own.covers, ledger, peak, trace), ()
    times = kernels(found, dropped)
    level, note = _executed(ready, times)
    joined = covers(ready.counted.graph.nodes, level)
    return attributed(times, joined, ledger, peak, trace), (note,)


def _executed(ready: Runnable, times: KernelTimes) -> tuple[ExecutedGraph, str]:
    """The graph that ran: of those that onnxruntime makes the one with the most of its kernels."""
    ran = [(one.name, one.op) for one in times.kernels]
    names = {name for name, _ in ran}
    best: tuple[int, str, ExecutedGraph] | None = None
    for optimization in LEVELS:
        level = _made(ready, optimization)
        if level is None:
            break
        level = named(level, ran)
        same = len(names & {node.name for node in level.everywhere()})
        if best is None or same > best[0]:
            best = (same, optimization, level)
        if same == len(names):
            break
    if best is None or 2 * best[0] < len(names):
        what = "the kernels are known by their names alone: no graph of onnxruntime has them"
        return guessed(ready.counted.graph.nodes, ran), what
    what = f"the graph is that of optimization {best[1]}, with {best[0]} of {len(names)} kernels"
    return best[2], what


def _made(ready: Runnable, optimization: str) -> ExecutedGraph | None:
    order = FileOrder(
        path=ready.path, dims=ready.dims, specs=ready.specs, allocated=ready.hollow,
        batch=ready.batch, optimization=optimization, threads=1, unrun=True, folder=ready.folder,
    )  # fmt: skip
    try:
        found = run(order, _SECONDS, ready.folder)
    except CrossflopsError:  # no onnxruntime here
        return None
    return read(found.graph) if isinstance(found, Ran) and found.graph else None


def _bench(
    ready: Runnable,
    profile: KernelProfile,
    notes: Sequence[str],
    trace: str,
    peak: BenchPeak | None,
) -> Bench:
    graph, ledger = ready.counted.graph, ready.counted.ledger
    inputs = tuple(InputInfo(one.name, one.dtype, one.shape or ()) for one in graph.inputs)
    said = (RULE, *ready.notes, *notes, *([f"peak: {peak.source}"] if peak else []))
    found = Bench(
        model=ModelInfo(name=graph.name, digest=graph.digest, inputs=inputs, opset=graph.opset),
        batch=ready.batch,
        macs=ledger.total.macs,
        flops=ledger.total.flops,
        macs_by_precision=by_precision(ledger),
        runtime=f"trace {trace}",
        device="",
        threads=0,
        curve=(),
        peak=peak,
        profile=profile,
        assumptions=said,
        errors=tuple(impossible(profile, peak)),
    )
    if profile.macs == found.macs and profile.named_seconds:
        return found
    warning = "no kernel of the trace stands for a node of this model: is it the right one?"
    return msgspec.structs.replace(found, warnings=(warning,))
