"""A trace that somebody wrote before -> the time of its kernels beside the count of a model."""

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from crossflops.core.bench import Bench, KernelProfile, Peak
from crossflops.core.report import InputInfo, ModelInfo
from crossflops.core.trace import Setting
from crossflops.errors import CrossflopsError, InputError
from crossflops.measure.attribution.covers import covers
from crossflops.measure.attribution.executed import Level, guessed, named, read
from crossflops.measure.attribution.kernels import Kernels, events, is_onnxruntime, kernels
from crossflops.measure.attribution.table import attributed, impossible
from crossflops.measure.attribution.torch_trace import is_torch, matched
from crossflops.measure.benching import bench as run
from crossflops.measure.order import FileOrder, Ran
from crossflops.measure.session import LEVELS
from crossflops.normalize.request import asked_for
from crossflops.normalize.targets import imports_restored
from crossflops.pipeline.benching.accounting import RULE
from crossflops.pipeline.benching.runnable import ONNX, Runnable, runnable
from crossflops.pipeline.provenance import asked, made_with
from crossflops.pipeline.rating.shares import by_precision

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
    peak: Peak | None = None,
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
        profile, notes = _profile(ready, found, trace, dropped, peak)
    made = _bench(ready, profile, notes, trace, peak)
    return msgspec.structs.replace(
        made,
        request=asked("bench", request, made.model, flags, target, arguments),
        made_with=made_with(request.is_file),
    )


def _profile(
    ready: Runnable, found: list[dict[str, Any]], trace: str, dropped: int, peak: Peak | None
) -> tuple[KernelProfile, tuple[str, ...]]:
    ledger = ready.counted.ledger
    if not is_onnxruntime(found):
        own = matched(found, ready.counted.trace, dropped)
        return attributed(own.kernels, own.covers, ledger, peak, trace), ()
    times = kernels(found, dropped)
    level, note = _executed(ready, times)
    joined = covers(ready.counted.graph.nodes, level)
    return attributed(times, joined, ledger, peak, trace), (note,)


def _executed(ready: Runnable, times: Kernels) -> tuple[Level, str]:
    """The graph that ran: of those that onnxruntime makes the one with the most of its kernels."""
    ran = [(one.name, one.op) for one in times.kernels]
    names = {name for name, _ in ran}
    best: tuple[int, str, Level] | None = None
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


def _made(ready: Runnable, optimization: str) -> Level | None:
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
    ready: Runnable, profile: KernelProfile, notes: Sequence[str], trace: str, peak: Peak | None
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
