"""Turn the trace and the ledger of a forward pass into those of a training step.

Each operator call is joined by one for its gradients and, where something runs again, by one for
that. They stand beneath the same calls, so that a tool's rules and the walk to its number go over
a step as they go over a forward pass.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping

from msgspec.structs import replace

from crossflops.ir.ledger import Cost, CountedNode, Ledger
from crossflops.ir.trace import Call, Trace
from crossflops.ir.training import (
    AGAIN,
    BEGUN,
    GRADIENTS,
    NO_STEP,
    SCORES,
    Steps,
    gradient_call_key,
    rerun_call_key,
    rerun_stop_call_key,
    score_rerun_key,
)


def extend_by_training_step(trace: Trace, ledger: Ledger, exact: Steps) -> tuple[Trace, Ledger]:
    """Return the trace and the ledger extended by the backward pass and the recomputation of a
    training step, in MACs.

    What a checkpoint runs again is a call of the same operator. Where the trace itself has calls
    that do the work of a call beside it, each has an equal part of it.
    """
    times = Counter(key for call in trace.calls for key in call.of)
    more = tuple(
        part
        for count in _counts_beyond_forward(ledger, exact)
        for part in _equal_count_parts(count, times)
    )
    worked = {count.node.call for count in more}
    begun = {key for call in trace.observed for key in call.of}
    calls = [
        replace(call, key=part)
        for above in trace.calls
        for call in (above, *_calls_of_training_step(above, worked, begun, has_reruns=bool(times)))
        for part in _keys_of_call_parts(call.key, times)
    ]
    keys = {call.key for call in calls}
    names = {key: iter(_keys_of_call_parts(key, times)) for key in times}
    calls = [replace(call, of=tuple(next(names[key]) for key in call.of)) for call in calls]

    def with_of_limited_to_trace(call: Call) -> Call:
        """Return the call with `of` limited to calls that are in the trace."""
        return replace(call, of=tuple(key for key in call.of if key in keys))

    return (
        replace(
            trace,
            calls=tuple(map(with_of_limited_to_trace, calls)),
            observed=tuple(map(with_of_limited_to_trace, trace.observed)),
        ),
        replace(ledger, counts=(*ledger.counts, *more)),
    )


def _keys_of_call_parts(key: str, times: Mapping[str, int]) -> list[str]:
    """Return the key of a call and, if several calls do its work, a key for each further part:
    "KEY, part 2".
    """
    return [key, *(f"{key}, part {number}" for number in range(2, times.get(key, 0) + 1))]


def _equal_count_parts(count: CountedNode, times: Mapping[str, int]) -> Iterator[CountedNode]:
    """Yield the count of a node in equal parts, one for each call that does its work; the first
    part has the remainder.
    """
    names = _keys_of_call_parts(count.node.call, times)
    share, rest = divmod(count.cost.macs, len(names))
    for index, call in enumerate(names):
        key = count.node.key if not index else f"{count.node.key}, part {index + 1}"
        node = replace(count.node, key=key, call=call)
        yield replace(count, node=node, cost=Cost(macs=share + (0 if index else rest)))


def _counts_beyond_forward(ledger: Ledger, exact: Steps) -> Iterator[CountedNode]:
    """Yield counts of the MACs that a training step adds to each node: gradients, recomputed
    scores, reruns in checkpoints.
    """
    for count in ledger.counted:
        step = exact.by_key.get(count.node.key, NO_STEP)
        rerun = step.checkpointed.macs
        parts: tuple[tuple[Callable[[str], str], int], ...] = (
            (gradient_call_key, step.backward.macs),
            (score_rerun_key, step.recomputed.macs - rerun),
            (rerun_call_key, rerun),
        )
        for name, macs in parts:
            if macs:
                node = replace(count.node, key=name(count.node.key), call=name(count.node.call))
                yield replace(count, node=node, cost=Cost(macs=macs), converter_macs=0)


def _calls_of_training_step(
    above: Call, worked: Container[str], begun: Container[str], has_reruns: bool
) -> Iterator[Call]:
    """Yield the calls that a training step adds to an operator call: its gradients and, if it has
    any, its recomputation.

    Where the trace tells what runs again, a tool's rules are about its calls, and about no other.
    """
    if above.level != "operator":
        return
    above = replace(above, of=())
    yield replace(above, key=gradient_call_key(above.key), target=f"{GRADIENTS}{above.target}")
    if score_rerun_key(above.key) in worked:
        yield replace(above, key=score_rerun_key(above.key), target=f"{SCORES}{above.target}")
    rerun = replace(above, key=rerun_call_key(above.key))
    if rerun.key in worked:
        yield replace(rerun, target=f"{AGAIN}{above.target}") if has_reruns else rerun
    elif rerun.key in begun:  # what a policy saved is handed out
        yield replace(rerun, target=f"{BEGUN}{above.target}")
    if rerun_stop_call_key(above.key) in begun:
        yield replace(above, key=rerun_stop_call_key(above.key), target=f"{BEGUN}{above.target}")
