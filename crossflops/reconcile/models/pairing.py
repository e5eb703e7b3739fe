"""Which contractions of two models stand for each other: one by one, or several for one."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from crossflops.reconcile.models.contractions import WEIGHTED, Contraction
from crossflops.reconcile.models.sequence import aligned
from crossflops.reconcile.models.similarity import contraction_scores

_MOST = 1024  # contractions that may together be one, such as the steps of a loop
_FARTHEST = 256  # of them from where the last such run ended


class Group(msgspec.Struct, frozen=True):
    """Places on both sides that stand for each other; one side is empty where none does."""

    first: tuple[int, ...]
    second: tuple[int, ...]


def paired(first: Sequence[Contraction], second: Sequence[Contraction]) -> tuple[Group, ...]:
    """Every contraction of both models in one group, in the order of the first.

    The best order-preserving alignment comes first. What it leaves is paired across it where the
    weights are alike (parallel branches are written down in any order); then several that are
    together what one is on the other side (queries, keys and values) become one group.
    """
    found = dict(aligned(len(first), len(second), contraction_scores(first, second)))
    found = _crossed(first, second, found)
    found |= _across(first, second, found)
    merged = list(_merged(first, second, found))
    for group in merged:
        for place in group.first:
            found.pop(place, None)
        for place, other in list(found.items()):
            if other in group.second:
                del found[place]
    mine = set(found).union(*(group.first for group in merged))
    theirs = set(found.values()).union(*(group.second for group in merged))
    groups = [Group((i,), (j,)) for i, j in found.items()]
    groups += merged
    groups += [Group((i,), ()) for i in range(len(first)) if i not in mine]
    groups += [Group((), (j,)) for j in range(len(second)) if j not in theirs]
    return _ordered(groups)


def _ordered(groups: Iterable[Group]) -> tuple[Group, ...]:
    """In the order of the first; what only the second has stands behind what it has before it."""
    known = list(groups)
    both = sorted((one.second[0], one.first[0]) for one in known if one.first and one.second)
    heads = [head for head, _ in both]

    def place(one: Group) -> tuple[int, int]:
        if one.first:
            return one.first[0], -1
        before = bisect_left(heads, one.second[0])
        return (both[before - 1][1] if before else -1), one.second[0]

    return tuple(sorted(known, key=place))


def _shape(one: Contraction) -> tuple[str | int, ...]:
    return one.kind, one.taps, one.inner, one.outer, one.groups


def _exact(one: Contraction) -> tuple[str | int, ...]:
    return (*_shape(one), one.places)


def _crossed(
    first: Sequence[Contraction], second: Sequence[Contraction], found: dict[int, int]
) -> dict[int, int]:
    """The pairs, those given up whose ends both have an equal elsewhere: branches that cross.

    Where one end alone has an equal, the pair stays, and the equal is left to others.
    """
    loose = {
        i: j
        for i, j in found.items()
        if _exact(first[i]) != _exact(second[j]) and not first[i].path == second[j].path != ""
    }
    while loose:
        kept = {i: j for i, j in found.items() if i not in loose}
        more = _across(first, second, kept, exact=True)
        taken = set(more.values())
        stay = [i for i, j in loose.items() if i not in more or j not in taken]
        if not stay:
            return kept | more
        for i in stay:
            del loose[i]
    return found


def _across(
    first: Sequence[Contraction],
    second: Sequence[Contraction],
    found: dict[int, int],
    exact: bool = False,
) -> dict[int, int]:
    """Pairs of equal weights, if `exact` on as many places, among what is left: the nearest."""
    key = _exact if exact else _shape
    taken = sorted(found.values())
    left: dict[tuple[str | int, ...], list[tuple[int, int]]] = {}
    for j in sorted(set(range(len(second))) - set(taken)):
        left.setdefault(key(second[j]), []).append((bisect_left(taken, j), j))
    heads = sorted(found)
    more = {}
    for i in sorted(set(range(len(first))) - set(found)):
        choice = left.get(key(first[i]))
        if choice:
            rank = bisect_left(heads, i)
            best = min(
                choice, key=lambda one: (first[i].path != second[one[1]].path, abs(one[0] - rank))
            )
            choice.remove(best)
            more[i] = best[1]
    return more


def _merged(
    first: Sequence[Contraction], second: Sequence[Contraction], found: dict[int, int]
) -> Iterator[Group]:
    """Runs that are, together, one contraction of the other side that has no equal there.

    Not where two of them have a partner each: these are as many layers of other widths.
    """
    equal = {i for i, j in found.items() if _shape(first[i]) == _shape(second[j])}
    taken = {found[i] for i in equal}
    anchors = sorted(equal), sorted(taken)
    mine = [i for i in range(len(first)) if i not in equal]
    theirs = [j for j in range(len(second)) if j not in taken]
    gaps = _gaps(mine, anchors[0]), _gaps(theirs, anchors[1])
    near = found.keys() - equal, set(found.values()) - taken  # paired with what is not equal
    gone: tuple[set[int], set[int]] = set(), set()
    for gap in sorted(gaps[0].keys() & gaps[1].keys()):
        here, there = gaps[0][gap], gaps[1][gap]
        for one, run in _runs(first, here, second, there):
            if len(near[1].intersection(run)) < 2:
                gone[0].add(one)
                gone[1].update(run)
                yield Group((one,), run)
        here = [i for i in here if i not in gone[0]]
        there = [j for j in there if j not in gone[1]]
        for one, run in _runs(second, there, first, here):
            if len(near[0].intersection(run)) < 2:
                yield Group(run, (one,))


def _gaps(places: Iterable[int], anchors: list[int]) -> dict[int, list[int]]:
    """The places by the number of anchors before them."""
    found: dict[int, list[int]] = {}
    for place in places:
        found.setdefault(bisect_left(anchors, place), []).append(place)
    return found


def _runs(
    ones: Sequence[Contraction], mine: list[int], others: Sequence[Contraction], theirs: list[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """A contraction, and a run on the other side with as many MACs and as many weights."""
    start = 0
    for i in mine:
        for begin in range(start, min(len(theirs), start + _FARTHEST)):
            run = _run(ones[i], others, theirs[begin : begin + _MOST])
            if len(run) > 1:
                yield i, run
                start = begin + len(run)
                break


def _run(one: Contraction, others: Sequence[Contraction], theirs: list[int]) -> tuple[int, ...]:
    """The shortest run from the first of these that comes to one contraction, if one does.

    It does as many MACs for each example with as many weights, of which those that are used
    again, as by steps of a loop, count once. Where layers stand for a layer, or products for a
    product, each has to be a part of it: sums of powers of two are equal by chance all too often.
    """
    wanted, size = one.macs // one.batch, one.stored or one.weights
    macs = stored = fresh = 0
    for length, j in enumerate(theirs, 1):
        part = others[j]
        if part.kind == one.kind and not _is_part(part, one):
            return ()
        macs += part.macs // part.batch
        stored += part.stored or part.weights
        fresh += part.params if one.kind != WEIGHTED else part.weights
        if macs == wanted and size in (stored, fresh):
            return tuple(theirs[:length])
        if macs > wanted:
            return ()
    return ()


def _is_part(part: Contraction, one: Contraction) -> bool:
    """Whether it gives some of the outputs of the other, or some of its rows."""
    if part.kind == WEIGHTED:
        return (part.taps, part.inner, part.places) == (one.taps, one.inner, one.places)
    return (part.inner, part.outer) == (one.inner, one.outer)
