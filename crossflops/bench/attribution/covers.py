"""Which counted nodes each executed kernel stands for, and the table of both.

Every node belongs to the first kernel whose result depends on it. A kernel whose result is unknown
is taken together with the one that reads it.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from crossflops.bench.attribution.executed import Executed, ExecutedGraph, Origin, aliases
from crossflops.bench.attribution.kernels import KernelTime, KernelTimes
from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost, Counted, Ledger, Uncounted
from crossflops.report.bench import Aside, BenchPeak, KernelProfile, KernelRow


class Cover(NamedTuple):
    """Kernels that are taken together, and the keys of the nodes that they stand for.

    Nodes in bodies have the key of the holder before theirs, as in a ledger; those of `whole`
    stand for all that is in them, too.
    """

    kernels: tuple[str, ...]
    keys: tuple[str, ...]
    whole: tuple[str, ...] = ()


class Covers(NamedTuple):
    """All kernels, and the nodes that no kernel stands for.

    `folded` were computed when the model was loaded, `merged` do what another node does, `left`
    are the others: nothing that was executed depends on them.
    """

    kernels: tuple[Cover, ...]
    folded: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def covers(nodes: tuple[Node, ...], level: ExecutedGraph, prefix: str = "") -> Covers:
    """Join one level of the counted graph, and what is in its bodies, to what was executed."""
    work = _Claims(nodes, level)
    groups = work.groups()
    joined: list[Cover] = []
    inner: list[Covers] = []
    for kernels, claimed in groups:
        complete = []
        for node in claimed:
            holder = next((k for k in kernels if k.bodies and k.op == node.op.type), None)
            if node.bodies and holder is not None:
                inner += _bodies(node, holder, f"{prefix}{node.key}/")
            elif node.bodies:
                complete.append(f"{prefix}{node.key}")
        names, keys = tuple(k.name for k in kernels), (f"{prefix}{n.key}" for n in claimed)
        joined.append(Cover(names, tuple(keys), tuple(complete)))
    level_covers = Covers(tuple(joined), *(_keys(prefix, part) for part in work.rest()))
    every = (level_covers, *inner)
    return Covers(
        tuple(kernel for part in every for kernel in part.kernels),
        tuple(key for part in every for key in part.folded),
        tuple(key for part in every for key in part.merged),
        tuple(key for part in every for key in part.left),
    )


def _keys(prefix: str, nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(f"{prefix}{node.key}" for node in nodes)


def _bodies(node: Node, holder: Executed, prefix: str) -> Iterator[Covers]:
    for body in node.bodies:
        if body.name in holder.bodies:
            yield covers(body.nodes, holder.bodies[body.name], prefix)


class _Claims:
    """One level: who has been claimed by whom."""

    def __init__(self, nodes: tuple[Node, ...], level: ExecutedGraph) -> None:
        self._origin = Origin(nodes)
        self._level = level
        self._names: Mapping[str, str] = aliases(self._origin, level)
        self._open = {id(node): node for node in nodes}  # two nodes may bear one name
        self._folded: list[Node] = []
        made = set(self._names.values())
        self._merged = [
            self._open.pop(id(node))
            for node in self._origin.twins
            if not any(spec and spec.name in made for spec in node.outputs)
        ]
        for name in sorted(level.stored):
            self._folded += self._claim(name, None)

    def groups(self) -> Iterator[tuple[list[Executed], list[Node]]]:
        """Kernels with the nodes that they claim, in the order in which they run."""
        waiting: dict[str, list[Executed]] = {}  # by a value of unknown origin
        for kernel in self._level.nodes:
            together = [kernel]
            for name in kernel.inputs:
                together = waiting.pop(name, []) + together
            known = [self._names[name] for name in kernel.outputs if name in self._names]
            if known or not kernel.outputs:
                claimed = [node for name in known for node in self._claim(name, kernel)]
                yield together, claimed
            else:
                waiting[kernel.outputs[0]] = together
        for left in waiting.values():
            yield left, []

    def rest(self) -> tuple[list[Node], list[Node], list[Node]]:
        """What no kernel claimed: folded, merged, left."""
        left = list(self._open.values())
        folded = [node for node in left if node.constant]
        return self._folded + folded, self._merged, [node for node in left if not node.constant]

    def _claim(self, name: str, kernel: Executed | None) -> list[Node]:
        """The open nodes on which a value depends.

        What depends on no input is not the work of a kernel that only reads it: it was computed
        when the model was loaded.
        """
        claimed: list[Node] = []
        maker = self._origin.maker.get(name)
        constant = maker is not None and maker.constant
        todo = [name]
        while todo:
            node = self._origin.maker.get(todo.pop())
            if node is None or self._open.pop(id(node), None) is None:
                continue
            if node.constant and not constant and kernel is not None:
                self._folded.append(node)
            else:
                claimed.append(node)
            todo += self._origin.needs(node)
        return claimed


# The time of kernels and the cost of nodes, in one table.

_INTEGERS = ("QLinear", "Integer", "QGemm", "QAttention")  # in the names of their operators
_FOLDED = "computed when the model was loaded"
_MERGED = "done once for several nodes"
_SILENT = "no event tells that they ran"
_LEFT = "optimized away: nothing that ran depends on them"


class _Counts:
    """The counts of a ledger, each to be taken once."""

    def __init__(self, ledger: Ledger) -> None:
        self._open: dict[str, deque[Counted | Uncounted]] = defaultdict(deque)
        for count in ledger.counts:
            self._open[count.node.key].append(count)

    def take(self, keys: Iterable[str], whole: Iterable[str] = ()) -> list[Counted | Uncounted]:
        """Those of these keys, and all that is in those of `whole`."""
        inside = tuple(f"{key}/" for key in whole)
        taken = [self._open[key].popleft() for key in keys if self._open.get(key)]
        for key in [key for key in self._open if inside and key.startswith(inside)]:
            taken += self._open.pop(key)
        return taken

    def rest(self) -> list[Counted | Uncounted]:
        """Those that no kernel took."""
        return [count for counts in self._open.values() for count in counts]


def attributed(
    timed: KernelTimes, joined: Covers, ledger: Ledger, peak: BenchPeak | None, source: str
) -> KernelProfile:
    """Kernels with their time, what they stand for, and what that costs.

    The MACs of all rows and of what stands aside are those of the ledger, whatever was joined to
    what: every count is taken once.
    """
    counts, times = _Counts(ledger), {kernel.name: kernel for kernel in timed.kernels}
    rows: list[KernelRow] = []
    silent: list[Counted | Uncounted] = []
    for cover in joined.kernels:
        counted = counts.take(cover.keys, cover.whole)
        if taken := [times.pop(name) for name in cover.kernels if name in times]:
            rows.append(_row(taken, counted, peak))
        else:
            silent += counted
    rows += [_row([kernel], [], peak) for kernel in times.values()]  # in no graph that was joined
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
        runs=timed.runs,
        run_seconds=timed.run_seconds,
        outside_seconds=timed.run_seconds - every,
        named_seconds=named,
        added_seconds=every - named,
        kernels=tuple(rows),
        aside=tuple(_aside(why, counted) for why, counted in asides if counted),
    )


def _row(
    kernels: list[KernelTime], counts: list[Counted | Uncounted], peak: BenchPeak | None
) -> KernelRow:
    cost, precision = _cost(counts), _precision(counts)
    seconds = sum(kernel.seconds for kernel in kernels)
    rate = 2 * cost.macs / seconds if cost.macs and seconds > 0 else None
    most = None if peak is None else peak.rates.get(_ran(precision, kernels))
    return KernelRow(
        kernel=" + ".join(kernel.name for kernel in kernels),
        op=" + ".join(dict.fromkeys(kernel.op for kernel in kernels)),
        seconds=seconds,
        calls=max((kernel.calls for kernel in kernels), default=0.0),
        nodes=tuple(count.node.key for count in counts),
        does=_does(counts),
        macs=cost.macs,
        flops=cost.flops,
        bytes=cost.bytes_read + cost.bytes_written,
        precision=precision,
        rate=rate,
        share=rate / most if rate and most else None,
    )


def _ran(precision: str, kernels: Iterable[KernelTime]) -> str:
    """The precision that a kernel computed in: one of floats widens integers before it."""
    integers = any(mark in kernel.op for kernel in kernels for mark in _INTEGERS)
    return "float32" if "float" not in precision and precision and not integers else precision


def _does(counts: list[Counted | Uncounted]) -> str:
    """The operators, in the order of the graph, repeated ones once with their number."""
    tally: dict[str, int] = {}
    for count in reversed(counts):
        tally[str(count.node.op)] = tally.get(str(count.node.op), 0) + 1
    return " + ".join(name if times == 1 else f"{times} {name}" for name, times in tally.items())


def _cost(counts: Iterable[Counted | Uncounted]) -> Cost:
    return sum((count.cost for count in counts if isinstance(count, Counted)), ZERO)


def _precision(counts: Iterable[Counted | Uncounted]) -> str:
    """That of the contractions, all of them where they differ."""
    able = (count for count in counts if isinstance(count, Counted) and count.cost.macs)
    return ", ".join(dict.fromkeys(count.precision for count in able))


def _aside(why: str, counts: list[Counted | Uncounted]) -> Aside:
    cost = _cost(counts)
    keys = tuple(count.node.key for count in counts)
    return Aside(why=why, nodes=keys, macs=cost.macs, flops=cost.flops)
