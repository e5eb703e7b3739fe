"""The rule of thumb that a backward pass is twice the forward pass, and the causes why it is
wrong.
"""

from collections.abc import Mapping

import msgspec

from crossflops.ir.graph import Graph
from crossflops.ir.trace import Trace
from crossflops.ir.training import NO_STEP, Steps
from crossflops.ledger.training.weights import AllTrainable
from crossflops.ledger.training.work import count_training_step, total_work


class FlatDifference(msgspec.Struct, frozen=True):
    """MACs by which the exact count of a step differs from the rule of thumb, for one cause.

    `by_key` are those of single nodes.
    """

    cause: str
    macs: int
    by_key: Mapping[str, int] = {}


def rule_of_thumb_macs_and_differences(
    graph: Graph, trace: Trace, tokens: int
) -> tuple[int, tuple[FlatDifference, ...]]:
    """Return 3 x parameters x tokens, the MACs of the rule of thumb 6 N D, and its differences to
    3 x forward MACs, by cause.

    `tokens` D is 6 N D's. Parameters meet another number of tokens where they are looked up or
    added, tied, shared by windows or chosen by a router; attention multiplies no parameters.
    Source: Kaplan et al., 2001.08361, 2.1.
    """
    ideal = total_work(count_training_step(graph, AllTrainable(trace), cuts=False))
    thumb = 3 * graph.params * tokens
    by_cause = {
        "forward.parameters": 3 * ideal.weights.macs - thumb,
        "forward.attention": 3 * (ideal.forward.macs - ideal.weights.macs),
    }
    return thumb, tuple(FlatDifference(cause, macs) for cause, macs in by_cause.items() if macs)


def exact_step_differences_by_cause(
    graph: Graph, trace: Trace, exact: Steps
) -> tuple[FlatDifference, ...]:
    """Return the exact MACs of a training step minus 3 x those of its forward pass, by cause.

    Everything trained and nothing cut, against twice the forward pass: operands that need no
    gradient even so, such as the input of the first layer. Then what is cut, then what is frozen,
    then what is run again, then what custom functions do in a way of their own.
    """
    everything = AllTrainable(trace, exact)
    ideal = count_training_step(graph, everything, cuts=False).by_key
    reached = count_training_step(graph, everything).by_key
    derived = (exact.derived or exact).by_key
    by_cause: dict[str, dict[str, int]] = {}
    for key, step in exact.by_key.items():
        flat, full, trained = (known.get(key, NO_STEP) for known in (ideal, reached, derived))
        again = trained.checkpointed.macs
        causes = {
            "backward.first-layer": flat.backward.macs - 2 * flat.forward.macs,
            "backward.cut": full.backward.macs - flat.backward.macs,
            "backward.frozen": trained.backward.macs - full.backward.macs,
            "backward.attention-recomputed": trained.recomputed.macs - again,
            "backward.checkpoint": again,
            "backward.custom-function": step.macs - trained.macs,
        }
        for cause, macs in causes.items():
            by_cause.setdefault(cause, {})[key] = macs
    rows = (FlatDifference(cause, sum(by.values()), by) for cause, by in by_cause.items())
    return tuple(row for row in rows if any(row.by_key.values()))
