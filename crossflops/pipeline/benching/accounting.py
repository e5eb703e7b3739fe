"""The time of one run, node by node, beside the count."""

from collections.abc import Iterator

import msgspec

from crossflops.core.bench import Bench, KernelProfile, Peak
from crossflops.measure.attribution.covers import covers
from crossflops.measure.attribution.executed import named, read
from crossflops.measure.attribution.kernels import events, kernels
from crossflops.measure.attribution.table import above, attributed, impossible
from crossflops.measure.attribution.torch_trace import matched
from crossflops.measure.order import Ran
from crossflops.pipeline.benching.denominator import higher, own_peak
from crossflops.pipeline.benching.runnable import Runnable

RULE = "rates are 2 x MACs / seconds; additions, activations and the rest are in no rate"


def accounted(bench: Bench, ready: Runnable, ran: Ran, given: Peak | None) -> Bench:
    """The bench with the profile of its kernels, what it rests on, and what cannot be true.

    Without a peak that is given, that of this machine is taken; where a kernel was faster, it is
    measured once more, since the machine may have been busy the first time.
    """
    warnings = list(_doubts(bench, ready, ran))
    peak = given
    if peak is None:
        own = own_peak(bench.threads)
        peak = None if isinstance(own, str) else own
        warnings += [f"no measured peak: {own}"] if isinstance(own, str) else []
    profile = _profile(ready, ran, peak) if ran.profile else None
    if given is None and peak is not None and profile is not None and above(profile):
        again = own_peak(bench.threads, again=True)
        peak = peak if isinstance(again, str) else higher(peak, again)
        profile = _profile(ready, ran, peak)
    return msgspec.structs.replace(
        bench,
        peak=peak,
        profile=profile,
        errors=tuple(impossible(profile, peak)) if profile else (),
        assumptions=(RULE, *ready.notes, *([f"peak: {peak.source}"] if peak else [])),
        warnings=tuple(warnings),
    )


def _doubts(bench: Bench, ready: Runnable, ran: Ran) -> Iterator[str]:
    if not ran.profile:
        yield f"no kernels: {ran.runtime} does not tell which nodes its time belongs to"
    measurement = bench.measurement
    if measurement is not None and not measurement.settled:
        yield "the runs did not settle: other work on the machine, or too few of them"
    if left := len(ready.counted.ledger.uncounted):
        yield f"{left} nodes are not counted: rates leave them out"


def _profile(ready: Runnable, ran: Ran, peak: Peak | None) -> KernelProfile:
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
