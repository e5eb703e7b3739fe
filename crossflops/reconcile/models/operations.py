"""Operations beside the contractions: which stand for each other, and why the others do not."""

from collections.abc import Iterator, Sequence

import msgspec

from crossflops.ir.alignment import Shift
from crossflops.reconcile.models.pairing import Group, aligned, operation_scores
from crossflops.reconcile.models.reading import Layers, Operation
from crossflops.reconcile.models.steps import BATCH, BIAS, ELSE

MISSING, WRITTEN, FOLDED = "model.layer-missing", "model.representation", "model.norm-folded"
_NORM = "BatchNormalization"


class Beside(msgspec.Struct, frozen=True):
    """The shifts of every group by its operations, and which of these belong to it on each side.

    An operation of the second model belongs where the one is that it stands for.
    """

    shifts: tuple[tuple[Shift, ...], ...]
    first: tuple[tuple[Operation, ...], ...]
    second: tuple[tuple[Operation, ...], ...]


def beside(
    first: Layers, second: Layers, groups: Sequence[Group], own: Sequence[list[Shift]]
) -> Beside:
    """Pair the operations, and say why those differ that do not stand for each other equally."""
    homes = _homes(groups, 0, first), _homes(groups, 1, second)
    partner = {i: group.second[0] for group in groups if group.second for i in group.first}
    mine, theirs = first.operations, second.operations
    pairs = dict(aligned(len(mine), len(theirs), operation_scores(mine, theirs, partner)))
    found: list[list[Shift]] = [[] for _ in groups]
    for i, j in pairs.items():
        place = homes[1][j] = homes[0][i]
        found[place] += _pair(mine[i], theirs[j], (first.batch, second.batch), own[place])
    left = _by_home(mine, homes[0], set(pairs)), _by_home(theirs, homes[1], set(pairs.values()))
    for place, group in enumerate(groups):
        ones, others = left[0].get(place, []), left[1].get(place, [])
        if ones or others:
            found[place] += _alone(_why(group, ones, others, own[place]), ones, others, own[place])
    both = _by_home(mine, homes[0], set()), _by_home(theirs, homes[1], set())
    return Beside(
        tuple(map(tuple, found)),
        *(tuple(tuple(side.get(place, ())) for place in range(len(groups))) for side in both),
    )


def _homes(groups: Sequence[Group], side: int, layers: Layers) -> list[int]:
    """The number of the group of every operation's owner."""
    of_owner = {
        place: number
        for number, group in enumerate(groups)
        for place in (group.second if side else group.first)
    }
    return [of_owner[one.owner] for one in layers.operations]


def _by_home(
    ones: Sequence[Operation], homes: list[int], without: set[int]
) -> dict[int, list[Operation]]:
    found: dict[int, list[Operation]] = {}
    for place, one in enumerate(ones):
        if place not in without:
            found.setdefault(homes[place], []).append(one)
    return found


def _resized(own: Sequence[Shift]) -> str:
    """Why a layer has another size, "" where it has not; the batch comes last."""
    causes = sorted((one.cause for one in own if one.macs), key=lambda cause: cause == BATCH)
    return causes[0] if causes else ""


def _pair(
    mine: Operation, theirs: Operation, batches: tuple[int, int], own: Sequence[Shift]
) -> list[Shift]:
    """Two of one operator: of another size for the reason for which their layer is."""
    flops, params = theirs.flops - mine.flops, theirs.params - mine.params
    if not flops and not params:
        return []
    batched = theirs.size * batches[0] == mine.size * batches[1] != mine.size * batches[0]
    cause = BATCH if batched else _resized(own) or ELSE
    return [Shift(cause=cause, flops=flops, params=params)]


def _why(group: Group, ones: list[Operation], others: list[Operation], own: list[Shift]) -> str:
    """Why operations of a layer have no partner."""
    if not group.first or not group.second:
        return MISSING
    norms = [one for one in (*ones, *others) if one.op == _NORM]
    if norms and not (ones and others) and any(one.cause == BIAS for one in own):
        return FOLDED
    split = any(one.cause == WRITTEN for one in own)
    if (ones and others) or split or all(one.constant for one in (*ones, *others)):
        return WRITTEN
    return ELSE


def _alone(
    cause: str, ones: list[Operation], others: list[Operation], own: Sequence[Shift]
) -> Iterator[Shift]:
    """Operations without a partner: first at the other size, then in the other form."""
    flops = sum(one.flops for one in others) - sum(one.flops for one in ones)
    sizes = [max((one.size for one in side), default=0) for side in (ones, others)]
    grows = _resized(own)
    if cause == WRITTEN and all(sizes) and sizes[0] != sizes[1] and grows:
        before = sum(one.flops for one in ones)
        grown = before * sizes[1] // sizes[0] - before
        yield Shift(cause=grows, flops=grown)
        flops -= grown
    params = sum(one.params for one in others) - sum(one.params for one in ones)
    told = "" if cause == MISSING else _told(ones, others)
    if cause == WRITTEN and params:  # a scale that one of them lacks is no other way to write it
        yield Shift(cause=ELSE, params=params, note="with other parameters")
        params = 0
    yield Shift(cause=cause, flops=flops, params=params, note=told)


def _told(ones: list[Operation], others: list[Operation]) -> str:
    def named(found: list[Operation]) -> str:
        return ", ".join(dict.fromkeys(one.op for one in found))

    if ones and others:
        return f"{named(ones)} -> {named(others)}"
    return f"only in the {'first' if ones else 'second'}: {named(ones or others)}"


def told_by_norm(own: Sequence[Shift], more: Sequence[Shift]) -> list[Shift]:
    """The shifts of a layer; a bias in place of a normalization belongs to that."""
    folded = any(one.cause == FOLDED for one in more)
    return [
        msgspec.structs.replace(one, cause=FOLDED) if folded and one.cause == BIAS else one
        for one in (*own, *more)
    ]
