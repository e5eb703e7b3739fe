"""Operations beside the contractions: which stand for each other, and why the others do not."""

from collections.abc import Iterator, Sequence

import msgspec

from crossflops.ir.alignment import Shift
from crossflops.reconcile.models.pairing import Group, aligned, operation_scores
from crossflops.reconcile.models.reading import AlignableModel, Operation
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
    first: AlignableModel,
    second: AlignableModel,
    groups: Sequence[Group],
    own: Sequence[list[Shift]],
) -> Beside:
    """Pair the operations, and say why those differ that do not stand for each other equally."""
    homes = _homes(groups, 0, first), _homes(groups, 1, second)
    partner = {i: group.second[0] for group in groups if group.second for i in group.first}
    mine, theirs = first.operations, second.operations
    pairs = dict(aligned(len(mine), len(theirs), operation_scores(mine, theirs, partner)))
    by_group: list[list[Shift]] = [[] for _ in groups]
    for i, j in pairs.items():
        place = homes[1][j] = homes[0][i]
        by_group[place] += _pair(mine[i], theirs[j], (first.batch, second.batch), own[place])
    left = _by_home(mine, homes[0], set(pairs)), _by_home(theirs, homes[1], set(pairs.values()))
    for place, group in enumerate(groups):
        ones, others = left[0].get(place, []), left[1].get(place, [])
        if ones or others:
            by_group[place] += _alone(
                _why(group, ones, others, own[place]), ones, others, own[place]
            )
    both = _by_home(mine, homes[0], set()), _by_home(theirs, homes[1], set())
    return Beside(
        tuple(map(tuple, by_group)),
        *(tuple(tuple(side.get(place, ())) for place in range(len(groups))) for side in both),
    )


def _homes(groups: Sequence[Group], side: int, layers: AlignableModel) -> list[int]:
    """The number of the group of every operation's owner."""
    of_owner = {
        place: number
        for number, group in enumerate(groups)
        for place in (group.second if side else group.first)
    }
    return [of_owner[operation.owner] for operation in layers.operations]


def _by_home(
    ones: Sequence[Operation], homes: list[int], without: set[int]
) -> dict[int, list[Operation]]:
    by_home: dict[int, list[Operation]] = {}
    for place, operation in enumerate(ones):
        if place not in without:
            by_home.setdefault(homes[place], []).append(operation)
    return by_home


def _resized(own: Sequence[Shift]) -> str:
    """Why a layer has another size, "" where it has not; the batch comes last."""
    causes = sorted((shift.cause for shift in own if shift.macs), key=lambda cause: cause == BATCH)
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
    norms = [item for item in (*ones, *others) if item.op == _NORM]
    if norms and not (ones and others) and any(item.cause == BIAS for item in own):
        return FOLDED
    split = any(item.cause == WRITTEN for item in own)
    if (ones and others) or split or all(item.constant for item in (*ones, *others)):
        return WRITTEN
    return ELSE


def _alone(
    cause: str, ones: list[Operation], others: list[Operation], own: Sequence[Shift]
) -> Iterator[Shift]:
    """Operations without a partner: first at the other size, then in the other form."""
    flops = sum(operation.flops for operation in others) - sum(
        operation.flops for operation in ones
    )
    sizes = [max((operation.size for operation in side), default=0) for side in (ones, others)]
    grows = _resized(own)
    if cause == WRITTEN and all(sizes) and sizes[0] != sizes[1] and grows:
        before = sum(operation.flops for operation in ones)
        grown = before * sizes[1] // sizes[0] - before
        yield Shift(cause=grows, flops=grown)
        flops -= grown
    params = sum(operation.params for operation in others) - sum(
        operation.params for operation in ones
    )
    words = "" if cause == MISSING else _told(ones, others)
    if cause == WRITTEN and params:  # a scale that one of them lacks is no other way to write it
        yield Shift(cause=ELSE, params=params, note="with other parameters")
        params = 0
    yield Shift(cause=cause, flops=flops, params=params, note=words)


def _told(ones: list[Operation], others: list[Operation]) -> str:
    def named(operations: list[Operation]) -> str:
        return ", ".join(dict.fromkeys(operation.op for operation in operations))

    if ones and others:
        return f"{named(ones)} -> {named(others)}"
    return f"only in the {'first' if ones else 'second'}: {named(ones or others)}"


def told_by_norm(own: Sequence[Shift], more: Sequence[Shift]) -> list[Shift]:
    """The shifts of a layer; a bias in place of a normalization belongs to that."""
    folded = any(shift.cause == FOLDED for shift in more)
    return [
        msgspec.structs.replace(shift, cause=FOLDED) if folded and shift.cause == BIAS else shift
        for shift in (*own, *more)
    ]
