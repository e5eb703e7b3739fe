"""From the exact count of a training step to a tool that takes the forward pass three times."""

from collections.abc import Iterator, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from crossflops.ir.ledger import Ledger
from crossflops.ir.profile import Profile
from crossflops.ir.reconciliation import Explanation, PathRow, Reconciliation
from crossflops.ir.trace import Trace
from crossflops.reconcile.walk import around, home

_RULE = "the tool takes the forward pass three times"


def thrice(
    forward: Reconciliation,
    trace: Trace,
    ledger: Ledger,
    differences: Mapping[str, Mapping[str, int]],
    profile: Profile,
) -> Reconciliation:
    """The way from the exact MACs of a step to three times what the tool counts forward.

    `trace` and `ledger` are those of the native forward pass, `differences` the MACs by cause and
    node that lead from three times that pass to the step.
    """
    totals = {cause: sum(by_key.values()) for cause, by_key in differences.items()}
    to_rule = [
        Explanation(cause=cause, amount=-macs, calls=(), reference=_RULE, macs=-macs)
        for cause, macs in totals.items()
        if macs
    ]
    threefold = [
        replace(
            row, amount=3 * row.amount, macs=UNSET if row.macs is UNSET else 3 * int(row.macs or 0)
        )
        for row in forward.explanations
    ]
    return replace(
        forward,
        ours=3 * ledger.total.macs + sum(totals.values()),
        theirs=profile.total,
        predicted=3 * forward.predicted,
        explanations=(*to_rule, *threefold),
        by_path=tuple(_rows(forward, trace, _by_path(trace, ledger, differences), profile)),
    )


def _by_path(
    trace: Trace, ledger: Ledger, differences: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """MACs by cause of all beneath each module."""
    homes = {count.node.key: around(home(count.node, trace)) for count in ledger.counted}
    by_path: dict[str, dict[str, int]] = {}
    for cause, by_key in differences.items():
        for key, macs in by_key.items():
            for path in homes.get(key, ()):
                of_path = by_path.setdefault(path, {})
                of_path[cause] = of_path.get(cause, 0) + macs
    return by_path


def _rows(
    forward: Reconciliation,
    trace: Trace,
    rule: Mapping[str, Mapping[str, int]],
    profile: Profile,
) -> Iterator[PathRow]:
    """Each module with all beneath it: what it has of the differences, and thrice the tool's."""
    known = {row.path: row for row in forward.by_path}
    printed = {entry.path: entry.amount for entry in profile.entries}
    for module in trace.modules:
        path = module.path
        if not module.names or (path not in known and not rule.get(path)):
            continue
        before = known.get(path, PathRow(path=path, ours=0, predicted=0))
        to_rule = rule.get(path, {})
        causes = {cause: -macs for cause, macs in to_rule.items() if macs}
        yield PathRow(
            path=path,
            ours=3 * before.ours + sum(to_rule.values()),
            predicted=3 * before.predicted,
            theirs=printed.get(path),
            causes=causes | {cause: 3 * amount for cause, amount in (before.causes or {}).items()},
        )
