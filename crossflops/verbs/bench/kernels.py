"""The time of one run, node by node, beside the count: of a run, or from a trace."""

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from crossflops.bench.covers import ExecutedGraph, attributed, covers, guessed, named, read
from crossflops.bench.kernels import KernelTimes, events, is_onnxruntime, kernels
from crossflops.bench.processes import bench as run
from crossflops.bench.session import LEVELS
from crossflops.bench.timing import FileOrder, Ran
from crossflops.bench.torch_trace import is_torch, matched
from crossflops.errors import CrossflopsError, InputError
from crossflops.hardware.rates.runs import COVERED
from crossflops.limits import TIMEOUT
from crossflops.render.pages.bench import impossible, too_fast
from crossflops.report.bench import Bench, BenchPeak, KernelProfile
from crossflops.report.report import InputInfo, ModelInfo
from crossflops.targets.request import Request
from crossflops.verbs.bench.runnable import ONNX, Runnable, runnable

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
    from crossflops.bench.peaks import measured

    try:
        machine = measured(again=again)
    except CrossflopsError as error:
        return error.message
    rates = {_DTYPES[name]: rate for name, rate in machine.peaks.items() if name in _DTYPES}
    source = f"measured on this machine with {machine.threads} threads: {machine.how}"
    if threads < machine.threads:
        if machine.one_thread is None:
            return f"it was measured with {machine.threads} threads alone"
        share = machine.one_thread * threads / rates["float32"]
        rates = {name: rate * share for name, rate in rates.items()}
        source = f"measured on this machine with one thread, times {threads}: {machine.how}"
    return BenchPeak(
        rates=rates, bandwidth=machine.bandwidth, source=source, is_peak=machine.is_peak
    )


def higher(first: BenchPeak, other: BenchPeak) -> BenchPeak:
    """The higher of both, by precision: a machine that was busy once can do more."""
    rates = {name: max(rate, other.rates.get(name, 0.0)) for name, rate in first.rates.items()}
    return BenchPeak(
        rates=rates, bandwidth=first.bandwidth, source=first.source, is_peak=first.is_peak
    )


RULE = "rates are 2 x MACs / seconds; additions, activations and the rest are in no rate"


def accounted(bench: Bench, ready: Runnable, ran: Ran, given: BenchPeak | None) -> Bench:
    """The bench with the profile of its kernels, what it rests on, and what cannot be true.

    Without a peak that is given, that of this machine is taken; where a kernel or a whole run was
    faster, it is measured once more, since the machine may have been busy the first time.
    """
    warnings = list(_doubts(bench, ready, ran))
    peak = given
    if peak is None:
        measured = own_peak(bench.threads)
        peak = None if isinstance(measured, str) else measured
        warnings += [f"no measured peak: {measured}"] if isinstance(measured, str) else []
    account = _against(bench, ready, ran, peak)
    if given is None and peak is not None and _above(account):
        again = own_peak(bench.threads, again=True)
        peak = peak if isinstance(again, str) else higher(peak, again)
        account = _against(bench, ready, ran, peak)
    errors = [*too_fast(account), *(impossible(account.profile, peak) if account.profile else ())]
    if account.profile is not None and account.profile.covered < COVERED:
        warnings.append(_uncovered(account.profile))
    return msgspec.structs.replace(
        account,
        errors=tuple(errors),
        assumptions=(RULE, *ready.notes, *([f"peak: {peak.source}"] if peak else [])),
        warnings=tuple(warnings),
    )


def _against(bench: Bench, ready: Runnable, ran: Ran, peak: BenchPeak | None) -> Bench:
    """The bench with its profile against a peak, and with what the profiler itself took."""
    profile, measurement = _profile(ready, ran, peak) if ran.profile else None, bench.measurement
    if profile is not None and measurement is not None:
        longer = min(
            max(profile.run_seconds - measurement.p50, 0.0), max(profile.outside_seconds, 0.0)
        )
        profile = msgspec.structs.replace(profile, profiler_seconds=longer)
    return msgspec.structs.replace(bench, peak=peak, profile=profile)


def _above(bench: Bench) -> bool:
    return bool(bench.above_peak or (bench.profile and bench.profile.above_peak))


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
        calls = matched(trace, ready.counted.trace, ran.dropped)
        return attributed(calls.kernels, calls.covers, ledger, peak, source)
    times = kernels(trace, ran.dropped)
    level = named(read(ran.graph), [(kernel.name, kernel.op) for kernel in times.kernels])
    joined = covers(ready.counted.graph.nodes, level)
    return attributed(times, joined, ledger, peak, source)


# A trace that somebody wrote before -> the time of its kernels beside the count of a model.

_OWN = "torch"


def read_trace(request: Request, trace: str, peak: BenchPeak | None = None) -> Bench:
    """The kernels of a trace of onnxruntime or of torch.profiler, joined to the model's nodes.

    Nothing is run, but onnxruntime, where it is there, is asked which graph it makes of the file:
    only that tells the kernels which it puts in. Raises InputError for what is no such trace.
    """
    traced = events(trace)
    if not is_onnxruntime(traced) and not is_torch(traced):
        raise InputError(
            f"the trace {trace} has no kernels of onnxruntime and no operators of PyTorch",
            "give a profile of one of these",
        )
    if request.is_file and not is_onnxruntime(traced):
        raise InputError(
            "a trace of PyTorch tells operators, and a file does not say which calls these were",
            "give the model as file.py:callable",
        )
    with tempfile.TemporaryDirectory(prefix="crossflops-", ignore_cleanup_errors=True) as folder:
        ready = runnable(request, folder, ONNX if is_onnxruntime(traced) else _OWN)
        profile, notes = _profile_of_trace(ready, traced, trace, peak)
    return _bench(ready, profile, notes, trace, peak)


def _profile_of_trace(
    ready: Runnable, traced: list[dict[str, Any]], trace: str, peak: BenchPeak | None
) -> tuple[KernelProfile, tuple[str, ...]]:
    ledger = ready.counted.ledger
    if not is_onnxruntime(traced):
        calls = matched(traced, ready.counted.trace, 0)
        return attributed(calls.kernels, calls.covers, ledger, peak, trace), ()
    times = kernels(traced, 0)
    level, note = _executed(ready, times)
    joined = covers(ready.counted.graph.nodes, level)
    return attributed(times, joined, ledger, peak, trace), (note,)


def _executed(ready: Runnable, times: KernelTimes) -> tuple[ExecutedGraph, str]:
    """The graph that ran: of those that onnxruntime makes the one with the most of its kernels."""
    ran = [(kernel.name, kernel.op) for kernel in times.kernels]
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
        ran = run(order, TIMEOUT, ready.folder)
    except CrossflopsError:  # no onnxruntime here
        return None
    return read(ran.graph) if isinstance(ran, Ran) and ran.graph else None


def _bench(
    ready: Runnable,
    profile: KernelProfile,
    notes: Sequence[str],
    trace: str,
    peak: BenchPeak | None,
) -> Bench:
    graph, ledger = ready.counted.graph, ready.counted.ledger
    inputs = tuple(InputInfo(spec.name, spec.dtype, spec.shape or ()) for spec in graph.inputs)
    assumptions = (RULE, *ready.notes, *notes, *([f"peak: {peak.source}"] if peak else []))
    bench = Bench(
        model=ModelInfo(name=graph.name, digest=graph.digest, inputs=inputs, opset=graph.opset),
        batch=ready.batch,
        macs=ledger.total.macs,
        flops=ledger.total.flops,
        macs_by_precision=ledger.macs_by_precision,
        runtime=f"trace {trace}",
        device="",
        threads=0,
        curve=(),
        peak=peak,
        profile=profile,
        assumptions=assumptions,
        errors=tuple(impossible(profile, peak)),
    )
    if profile.macs == bench.macs and profile.named_seconds:
        return bench
    warning = "no kernel of the trace stands for a node of this model: is it the right one?"
    return msgspec.structs.replace(bench, warnings=(warning,))
