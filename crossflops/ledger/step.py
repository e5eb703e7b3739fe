"""A trace and a ledger of the forward pass become those of a training step.

Each operator call is joined by one for its gradients and, where something runs again, by one for
that. They stand beneath the same calls, so that a tool's rules and the walk to its number go over
a step as they go over a forward pass.
"""

from collections.abc import Callable, Container, Iterator

from msgspec.structs import replace

from crossflops.ir.cost import Cost
from crossflops.ir.ledger import Counted, Ledger
from crossflops.ir.trace import Call, Trace
from crossflops.ir.training import (
    BEGUN,
    GRADIENTS,
    NO_STEP,
    SCORES,
    Steps,
    gradients_of,
    rerun_of,
    scores_of,
)


def with_step(trace: Trace, ledger: Ledger, exact: Steps) -> tuple[Trace, Ledger]:
    """The trace and the ledger with the MACs of the step, which are all that accounts are about.

    What a checkpoint runs again is a call of the same operator.
    """
    more = tuple(_counts(ledger, exact))
    worked = {count.node.call for count in more}
    begun = {key for call in trace.observed for key in call.of} - worked
    calls = [call for above in trace.calls for call in (above, *_calls(above, worked, begun))]
    keys = {call.key for call in calls}
    observed = tuple(
        replace(call, of=tuple(key for key in call.of if key in keys)) for call in trace.observed
    )
    return (
        replace(trace, calls=tuple(calls), observed=observed),
        replace(ledger, counts=(*ledger.counts, *more)),
    )


def _counts(ledger: Ledger, exact: Steps) -> Iterator[Counted]:
    """What is multiplied for each node beside its forward work."""
    for count in ledger.counted:
        step = exact.by_key.get(count.node.key, NO_STEP)
        rerun = step.checkpointed.macs
        parts: tuple[tuple[Callable[[str], str], int], ...] = (
            (gradients_of, step.backward.macs),
            (scores_of, step.recomputed.macs - rerun),
            (rerun_of, rerun),
        )
        for name, macs in parts:
            if macs:
                node = replace(count.node, key=name(count.node.key), call=name(count.node.call))
                yield replace(count, node=node, cost=Cost(macs=macs), converter_macs=0)


def _calls(above: Call, worked: Container[str], begun: Container[str]) -> Iterator[Call]:
    """What the step does for a call beside it: gradients of any operator, the rest where it is."""
    if above.level != "operator":
        return
    yield replace(above, key=gradients_of(above.key), target=f"{GRADIENTS}{above.target}")
    if scores_of(above.key) in worked:
        yield replace(above, key=scores_of(above.key), target=f"{SCORES}{above.target}")
    rerun = replace(above, key=rerun_of(above.key))
    if rerun.key in worked:
        yield rerun
    elif rerun.key in begun:
        yield replace(rerun, target=f"{BEGUN}{above.target}")
