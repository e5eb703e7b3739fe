"""The time of one run, node by node, beside the count."""

from collections.abc import Iterator

import msgspec

from crossflops.core.bench import Bench, KernelProfile, Peak
from crossflops.core.measurement import Measurement
from crossflops.hardware.rates.sanity import COVERED
from crossflops.measure.attribution.covers import covers
from crossflops.measure.attribution.executed import named, read
from crossflops.measure.attribution.kernels import events, kernels
from crossflops.measure.attribution.table import REASONS, above, attributed, impossible
from crossflops.measure.attribution.torch_trace import matched
from crossflops.measure.order import Ran
from crossflops.pipeline.benching.denominator import higher, own_peak
from crossflops.pipeline.benching.runnable import Runnable

RULE = "rates are 2 x MACs / seconds; additions, activations and the rest are in no rate"


def accounted(bench: Bench, ready: Runnable, ran: Ran, given: Peak | None) -> Bench:
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


def _against(bench: Bench, ready: Runnable, ran: Ran, peak: Peak | None) -> Bench:
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
