"""The time of one run, node by node, beside the count."""

import msgspec

from crossflops.core.bench import Bench, Peak
from crossflops.core.measurement import Measurement
from crossflops.measure.attribution import attributed, impossible
from crossflops.measure.covers import covers
from crossflops.measure.executed import named, read
from crossflops.measure.kernels import events, kernels
from crossflops.measure.order import Ran
from crossflops.pipeline.runnable import Runnable

_RULE = "rates are 2 x MACs / seconds; additions, activations and the rest are in no rate"


def accounted(bench: Bench, ready: Runnable, ran: Ran, peak: Peak | None) -> Bench:
    """The bench with the profile of its kernels, what it rests on, and what cannot be true."""
    ledger = ready.counted.ledger
    assumptions, warnings = [_RULE, *ready.notes], []
    found = msgspec.structs.replace(bench, peak=peak)
    if ran.profile and ran.graph:
        times = kernels(events(ran.profile), ran.dropped)
        level = named(read(ran.graph), [(one.name, one.op) for one in times.kernels])
        joined = covers(ready.counted.graph.nodes, level)
        source = f"the profile of {ran.runtime}"
        profile = attributed(times, joined, ledger, peak, source)
        found = msgspec.structs.replace(
            found, profile=profile, errors=tuple(impossible(profile, peak))
        )
    if ledger.uncounted:
        warnings.append(f"{len(ledger.uncounted)} nodes are not counted: rates leave them out")
    measurement = found.measurement
    if isinstance(measurement, Measurement) and not measurement.settled:
        warnings.append("the runs did not settle: other work on the machine, or too few of them")
    if peak is not None:
        assumptions.append(f"peak: {peak.source}")
    return msgspec.structs.replace(found, assumptions=tuple(assumptions), warnings=tuple(warnings))
