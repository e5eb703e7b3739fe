"""The time of kernels and the cost of nodes, in one table."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

from crossflops.core.bench import Aside, KernelProfile, KernelRow, Peak
from crossflops.core.cost import ZERO, Cost
from crossflops.core.ledger import Counted, Ledger, Uncounted
from crossflops.measure.attribution.covers import Covers
from crossflops.measure.attribution.kernels import Kernel, Kernels

_INTEGERS = ("QLinear", "Integer", "QGemm", "QAttention")  # in the names of their operators
_FOLDED = "computed when the model was loaded"
_MERGED = "done once for several nodes"
_SILENT = "no event tells that they ran"
_LEFT = "optimized away: nothing that ran depends on them"

REASONS = (
    "was the peak measured on a busier machine or with fewer threads, is the time that of a "
    "launch alone, or was work left out?"
)


class _Counts:
    """The counts of a ledger, each to be taken once."""

    def __init__(self, ledger: Ledger) -> None:
        self._open: dict[str, deque[Counted | Uncounted]] = defaultdict(deque)
        for one in ledger.counts:
            self._open[one.node.key].append(one)

    def take(self, keys: Iterable[str], whole: Iterable[str] = ()) -> list[Counted | Uncounted]:
        """Those of these keys, and all that is in those of `whole`."""
        inside = tuple(f"{one}/" for one in whole)
        found = [self._open[key].popleft() for key in keys if self._open.get(key)]
        for key in [one for one in self._open if inside and one.startswith(inside)]:
            found += self._open.pop(key)
        return found

    def rest(self) -> list[Counted | Uncounted]:
        """Those that nobody took."""
        return [one for counts in self._open.values() for one in counts]


def attributed(
    found: Kernels, joined: Covers, ledger: Ledger, peak: Peak | None, source: str
) -> KernelProfile:
    """Kernels with their time, what they stand for, and what that costs.

    The MACs of all rows and of what stands aside are those of the ledger, whatever was joined to
    what: every count is taken once.
    """
    counts, times = _Counts(ledger), {one.name: one for one in found.kernels}
    rows: list[KernelRow] = []
    silent: list[Counted | Uncounted] = []
    for cover in joined.kernels:
        counted = counts.take(cover.keys, cover.whole)
        if taken := [times.pop(name) for name in cover.kernels if name in times]:
            rows.append(_row(taken, counted, peak))
        else:
            silent += counted
    rows += [_row([one], [], peak) for one in times.values()]  # in no graph that was joined
    asides = [
        (_SILENT, silent),
        (_FOLDED, counts.take(joined.folded, joined.folded)),
        (_MERGED, counts.take(joined.merged, joined.merged)),
        (_LEFT, [*counts.take(joined.left, joined.left), *counts.rest()]),
    ]
    named = sum(row.seconds for row in rows if row.nodes)
    every = sum(row.seconds for row in rows)
    return KernelProfile(
        source=source,
        runs=found.runs,
        run_seconds=found.run_seconds,
        outside_seconds=found.run_seconds - every,
        named_seconds=named,
        added_seconds=every - named,
        kernels=tuple(rows),
        aside=tuple(_aside(why, counted) for why, counted in asides if counted),
    )


def _row(kernels: list[Kernel], counts: list[Counted | Uncounted], peak: Peak | None) -> KernelRow:
    cost, precision = _cost(counts), _precision(counts)
    seconds = sum(one.seconds for one in kernels)
    rate = 2 * cost.macs / seconds if cost.macs and seconds > 0 else None
    most = None if peak is None else peak.rates.get(_ran(precision, kernels))
    return KernelRow(
        kernel=" + ".join(one.name for one in kernels),
        op=" + ".join(dict.fromkeys(one.op for one in kernels)),
        seconds=seconds,
        calls=max((one.calls for one in kernels), default=0.0),
        nodes=tuple(one.node.key for one in counts),
        does=_does(counts),
        macs=cost.macs,
        flops=cost.flops,
        bytes=cost.bytes_read + cost.bytes_written,
        precision=precision,
        rate=rate,
        share=rate / most if rate and most else None,
    )


def _ran(precision: str, kernels: Iterable[Kernel]) -> str:
    """The precision that a kernel computed in: one of floats widens integers before it."""
    integers = any(mark in one.op for one in kernels for mark in _INTEGERS)
    return "float32" if "float" not in precision and precision and not integers else precision


def _does(counts: list[Counted | Uncounted]) -> str:
    """The operators, in the order of the graph, repeated ones once with their number."""
    tally: dict[str, int] = {}
    for one in reversed(counts):
        tally[str(one.node.op)] = tally.get(str(one.node.op), 0) + 1
    return " + ".join(name if times == 1 else f"{times} {name}" for name, times in tally.items())


def _cost(counts: Iterable[Counted | Uncounted]) -> Cost:
    return sum((one.cost for one in counts if isinstance(one, Counted)), ZERO)


def _precision(counts: Iterable[Counted | Uncounted]) -> str:
    """That of the contractions, all of them where they differ."""
    able = (one for one in counts if isinstance(one, Counted) and one.cost.macs)
    return ", ".join(dict.fromkeys(one.precision for one in able))


def _aside(why: str, counts: list[Counted | Uncounted]) -> Aside:
    cost = _cost(counts)
    keys = tuple(one.node.key for one in counts)
    return Aside(why=why, nodes=keys, macs=cost.macs, flops=cost.flops)


def above(profile: KernelProfile) -> list[KernelRow]:
    """The kernels that were faster than the peak."""
    return [row for row in profile.kernels if row.share is not None and row.share > 1]


def impossible(profile: KernelProfile, peak: Peak | None) -> Iterator[str]:
    """What cannot be true: kernels above the peak, kernels that take longer than the run."""
    for row in above(profile) if peak is not None and peak.is_peak else ():
        yield f"{row.kernel} ran at {100 * (row.share or 0):.0f} % of the peak: {REASONS}"
    if profile.outside_seconds < 0:
        over = -100 * profile.outside_seconds / profile.run_seconds
        yield (
            f"the kernels took {over:.1f} % longer than the run around them: they ran side by "
            "side, or the device was not synchronized"
        )
