"""From the exact count of a training step to a tool that takes the forward pass three times."""

from collections.abc import Mapping

from msgspec import UNSET
from msgspec.structs import replace

from crossflops.ir.profile import Profile
from crossflops.ir.reconciliation import Explanation, Reconciliation

_RULE = "the tool takes the forward pass three times"


def thrice(
    forward: Reconciliation, exact: int, differences: Mapping[str, int], profile: Profile
) -> Reconciliation:
    """The way from the `exact` MACs of a step to three times what the tool counts forward.

    `differences` are MACs by cause that lead from three times the native forward pass to the step.
    The modules have no rows: what they have of the differences is not told apart.
    """
    to_rule = [
        Explanation(cause=cause, amount=-macs, calls=(), reference=_RULE, macs=-macs)
        for cause, macs in differences.items()
    ]
    threefold = [
        replace(
            row, amount=3 * row.amount, macs=UNSET if row.macs is UNSET else 3 * int(row.macs or 0)
        )
        for row in forward.explanations
    ]
    return replace(
        forward,
        ours=exact,
        theirs=profile.total,
        predicted=3 * forward.predicted,
        explanations=(*to_rule, *threefold),
        by_path=(),
    )
