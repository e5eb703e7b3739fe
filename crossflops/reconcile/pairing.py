"""Pair the contractions of two models: one with one, or several with one.

Of the other operations, which do, and why the others do not.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from crossflops.ir.reconciliation import Shift
from crossflops.reconcile.contractions import WEIGHTED, AlignableModel, Contraction, Operation
from crossflops.reconcile.steps import BATCH, BIAS, ELSE

# The order-preserving alignment of two sequences with the largest sum of scores.

Scores = NDArray[np.int32]


def index_pairs_of_alignment(
    first: int, second: int, scores: Callable[[int], Scores]
) -> list[tuple[int, int]]:
    """Return pairs of indices of two sequences, in ascending order on both sides, with the largest
    sum of scores.

    `scores(i)` are those of place i of the first sequence with every place of the second; what
    is not above zero is no pair. A place may stay alone, which costs nothing. Time is in
    proportion to first x second, a row at once; memory a bit for each pair of places, twice.

    best[i][j] = max(best[i-1][j], best[i][j-1], best[i-1][j-1] + score(i, j)), where the second
    of these makes a row the running maximum of the two others.
    (S. B. Needleman, C. D. Wunsch, J. Mol. Biol. 48 (1970) 443, with gaps at no cost.)
    """
    best = np.zeros(second + 1, np.int64)
    paired, from_above = [], []
    for i in range(first):
        row = scores(i)
        taken = np.where(row > 0, best[:-1] + row, -1)
        new = np.zeros_like(best)
        new[1:] = np.maximum.accumulate(np.maximum(taken, best[1:]))
        paired.append(np.packbits(taken == new[1:]))
        from_above.append(np.packbits(best[1:] == new[1:]))
        best = new
    return _backtrack_pairs(paired, from_above, second)


def _backtrack_pairs(
    paired: list[NDArray[np.uint8]], from_above: list[NDArray[np.uint8]], second: int
) -> list[tuple[int, int]]:
    """Return the pairs (index in the first sequence, index in the second) on the best path, found
    from its end backwards.
    """
    pairs_back: list[tuple[int, int]] = []
    i, j = len(paired) - 1, second - 1
    while i >= 0 and j >= 0:
        if _bit_is_set(paired[i], j):
            pairs_back.append((i, j))
            i, j = i - 1, j - 1
        elif _bit_is_set(from_above[i], j):
            i -= 1
        else:
            j -= 1
    return pairs_back[::-1]


def _bit_is_set(row: NDArray[np.uint8], index: int) -> bool:
    """Return whether bit number `index` is 1 in a row of packed bits."""
    return bool(row[index >> 3] >> (7 - (index & 7)) & 1)


# How much a contraction of one model is like one of the other, and an operation like another.

# What makes two contractions alike, in points. Less than ENOUGH is no pair: it stands between a
# layer that was widened, or has another stride, and one that is something else.
KIND, WINDOW, CHANNELS, GEOMETRY, PLACES, PATH, ENOUGH = 10, 30, 25, 60, 20, 40, 60
_OTHER_GROUPS = -40  # a depthwise convolution is no ordinary one


class _Table:
    """The properties of a sequence of contractions as arrays, one array for each property."""

    def __init__(self, ones: Sequence[Contraction], paths: dict[str, int]) -> None:
        kinds = [contraction.kind for contraction in ones]
        self.kind = np.array([paths.setdefault(f"kind {kind}", len(paths)) for kind in kinds])
        self.path = np.array([_path_number(paths, contraction.path) for contraction in ones])
        columns = [
            (
                contraction.taps,
                contraction.inner,
                contraction.outer,
                contraction.places,
                contraction.groups,
            )
            for contraction in ones
        ]
        facts = np.array(columns, np.float64).reshape(len(ones), 5)
        self.taps, self.inner, self.outer, self.rows, self.groups = facts.T


def _path_number(paths: dict[str, int], path: str) -> int:
    """Return the number of a module path, 0 for the empty path; a new path gets the next one."""
    return paths.setdefault(f"path {path}", len(paths)) if path else 0


def similarity_rows_of_contractions(
    first: Sequence[Contraction], second: Sequence[Contraction]
) -> Callable[[int], Scores]:
    """Return a function from an index in `first` to an array: how similar that contraction is to
    each one of `second`, in points; 0 means no pair.

    Equal weights weigh most, then the module's path, then equal windows and near channels.
    """
    paths = {"": 0}
    own, other = _Table(first, paths), _Table(second, paths)
    depthwise = other.groups > 1

    def similarities_to_each_second_contraction(i: int) -> Scores:
        """Return the points of contraction `i` of `first` with each contraction of `second`."""
        taps = other.taps == own.taps[i]
        inner = _ratio_similarity(other.inner, own.inner[i])
        outer = _ratio_similarity(other.outer, own.outer[i])
        sums = other.taps * other.inner == own.taps[i] * own.inner[i]
        groups = other.groups == own.groups[i]
        points = (
            KIND
            + WINDOW * taps
            + CHANNELS * (inner + outer)
            + GEOMETRY * (sums & groups & (outer == 1))
            + PLACES * _ratio_similarity(other.rows, own.rows[i])
            + PATH * ((other.path == own.path[i]) & (own.path[i] != 0))
            + _OTHER_GROUPS * (depthwise != (own.groups[i] > 1))
        )
        scores = np.where((other.kind == own.kind[i]) & (points >= ENOUGH), points, 0)
        return scores.astype(np.int32)

    return similarities_to_each_second_contraction


def similarity_rows_of_operations(
    first: Sequence[Operation], second: Sequence[Operation], partner: dict[int, int]
) -> Callable[[int], Scores]:
    """Return a function from an index in `first` to an array: how similar that operation is to
    each one of `second`, in points; 0 means no pair.

    `partner` maps contractions of `first` to those of `second`, by index.

    `partner` pairs the owners.

    Only the same operators are alike: most with the same owner, then of one size.
    """
    names: dict[str, int] = {}
    ops = np.array([names.setdefault(operation.op, len(names)) for operation in second])
    sizes = np.array([operation.size for operation in second], np.float64)
    owners = np.array([operation.owner for operation in second])

    def similarities_to_each_second_operation(i: int) -> Scores:
        """Return the points of operation `i` of `first` with each operation of `second`."""
        operation = first[i]
        owned = owners == partner.get(operation.owner, -2)
        points = 20 + 50 * owned + 30 * (sizes == operation.size)
        scores = np.where(ops == names.get(operation.op, -1), points, 0)
        return scores.astype(np.int32)

    return similarities_to_each_second_operation


def _ratio_similarity(many: NDArray[np.float64], value: float) -> NDArray[np.float64]:
    """Return for each number in `many` the ratio of it and `value`, the smaller divided by the
    larger: 1 if both are equal.
    """
    larger = np.maximum(many, value)
    return np.where(larger > 0, np.minimum(many, value) / np.maximum(larger, 1), 1.0)


_MOST = 1024  # contractions that may together be one, such as the steps of a loop
_FARTHEST = 256  # of them from where the last such run ended


class Group(msgspec.Struct, frozen=True):
    """Indices of contractions that are paired, in the first and in the second model; one of them
    is () without a partner.
    """

    first: tuple[int, ...]
    second: tuple[int, ...]


def pair_contractions(
    first: Sequence[Contraction], second: Sequence[Contraction]
) -> tuple[Group, ...]:
    """Return groups of paired contractions; each contraction of both models is in exactly one
    group, in the order of the first model.

    The best order-preserving alignment comes first. What it leaves is paired across it where the
    weights are alike (parallel branches are written down in any order); then several that are
    together what one is on the other side (queries, keys and values) become one group.
    """
    partner = dict(
        index_pairs_of_alignment(
            len(first), len(second), similarity_rows_of_contractions(first, second)
        )
    )
    partner = _prefer_pairs_of_equal_contractions(first, second, partner)
    partner |= _pairs_of_equal_weights(first, second, partner)
    merged = list(_groups_of_one_and_consecutive(first, second, partner))
    for group in merged:
        for index in group.first:
            partner.pop(index, None)
        for index, other in list(partner.items()):
            if other in group.second:
                del partner[index]
    own = set(partner).union(*(group.first for group in merged))
    second_indices = set(partner.values()).union(*(group.second for group in merged))
    groups = [Group((i,), (j,)) for i, j in partner.items()]
    groups += merged
    groups += [Group((i,), ()) for i in range(len(first)) if i not in own]
    groups += [Group((), (j,)) for j in range(len(second)) if j not in second_indices]
    return _sort_groups(groups)


def _sort_groups(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Return the groups in the order of the first model; a group of the second model alone follows
    the group before it in that model.

    Sort the groups by the first model; those of the second alone follow their predecessor there.
    """
    known = list(groups)
    both = sorted(
        (group.second[0], group.first[0]) for group in known if group.first and group.second
    )
    heads = [head for head, _ in both]

    def group_order_key(group: Group) -> tuple[int, int]:
        """Return the sort key of a group: (index in the first model, index in the second model or
        -1).
        """
        if group.first:
            return group.first[0], -1
        before = bisect_left(heads, group.second[0])
        return (both[before - 1][1] if before else -1), group.second[0]

    return tuple(sorted(known, key=group_order_key))


def _contraction_signature(contraction: Contraction) -> tuple[str | int, ...]:
    """Return the sizes that two contractions with equal weights have in common: (kind, taps,
    inner, outer, groups).
    """
    return (
        contraction.kind,
        contraction.taps,
        contraction.inner,
        contraction.outer,
        contraction.groups,
    )


def _signature_with_output_positions(contraction: Contraction) -> tuple[str | int, ...]:
    """Return the sizes of `_contraction_signature` and the number of output positions."""
    return (*_contraction_signature(contraction), contraction.places)


def _prefer_pairs_of_equal_contractions(
    first: Sequence[Contraction], second: Sequence[Contraction], partner: dict[int, int]
) -> dict[int, int]:
    """Return {index in first: index in second}, where an unequal pair is replaced if both of its
    contractions have an equal partner elsewhere.

    Where one end alone has an equal, the pair stays, and the equal is left to others.
    """
    loose = {
        i: j
        for i, j in partner.items()
        if _signature_with_output_positions(first[i])
        != _signature_with_output_positions(second[j])
        and not first[i].path == second[j].path != ""
    }
    while loose:
        kept = {i: j for i, j in partner.items() if i not in loose}
        more = _pairs_of_equal_weights(first, second, kept, exact=True)
        taken = set(more.values())
        stay = [i for i, j in loose.items() if i not in more or j not in taken]
        if not stay:
            return kept | more
        for i in stay:
            del loose[i]
    return partner


def _pairs_of_equal_weights(
    first: Sequence[Contraction],
    second: Sequence[Contraction],
    partner: dict[int, int],
    exact: bool = False,
) -> dict[int, int]:
    """Return {index in first: index in second} for contractions without a partner that have
    weights of equal sizes, the nearest first.

    With `exact` they also need equally many output positions.
    """
    key = _signature_with_output_positions if exact else _contraction_signature
    taken = sorted(partner.values())
    left: dict[tuple[str | int, ...], list[tuple[int, int]]] = {}
    for j in sorted(set(range(len(second))) - set(taken)):
        left.setdefault(key(second[j]), []).append((bisect_left(taken, j), j))
    heads = sorted(partner)
    more = {}
    for i in sorted(set(range(len(first))) - set(partner)):
        choice = left.get(key(first[i]))
        if choice:
            rank = bisect_left(heads, i)
            best = min(
                choice,
                key=lambda candidate: (
                    first[i].path != second[candidate[1]].path,
                    abs(candidate[0] - rank),
                ),
            )
            choice.remove(best)
            more[i] = best[1]
    return more


def _groups_of_one_and_consecutive(
    first: Sequence[Contraction], second: Sequence[Contraction], partner: dict[int, int]
) -> Iterator[Group]:
    """Yield groups that pair one contraction of a model with several consecutive ones of the other
    that do the same work.

    Not where two of them have a partner each: these are as many layers of other widths.
    """
    equal = {
        i
        for i, j in partner.items()
        if _contraction_signature(first[i]) == _contraction_signature(second[j])
    }
    taken = {partner[i] for i in equal}
    anchors = sorted(equal), sorted(taken)
    own = [i for i in range(len(first)) if i not in equal]
    other = [j for j in range(len(second)) if j not in taken]
    gaps = (
        _indices_by_anchors_before(own, anchors[0]),
        _indices_by_anchors_before(other, anchors[1]),
    )
    near = partner.keys() - equal, set(partner.values()) - taken  # paired with what is not equal
    gone: tuple[set[int], set[int]] = set(), set()
    for gap in sorted(gaps[0].keys() & gaps[1].keys()):
        of_first, of_second = gaps[0][gap], gaps[1][gap]
        for index, run in _index_and_run_pairs(first, of_first, second, of_second):
            if len(near[1].intersection(run)) < 2:
                gone[0].add(index)
                gone[1].update(run)
                yield Group((index,), run)
        of_first = [i for i in of_first if i not in gone[0]]
        of_second = [j for j in of_second if j not in gone[1]]
        for index, run in _index_and_run_pairs(second, of_second, first, of_first):
            if len(near[0].intersection(run)) < 2:
                yield Group(run, (index,))


def _indices_by_anchors_before(indices: Iterable[int], anchors: list[int]) -> dict[int, list[int]]:
    """Return {number of anchors before an index: these indices}; both lists are sorted."""
    by_gap: dict[int, list[int]] = {}
    for index in indices:
        by_gap.setdefault(bisect_left(anchors, index), []).append(index)
    return by_gap


def _index_and_run_pairs(
    ones: Sequence[Contraction], first: list[int], others: Sequence[Contraction], second: list[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield (index of a contraction in `ones`, indices of consecutive ones in `others` that
    together have its MACs and weights).
    """
    start = 0
    for i in first:
        for begin in range(start, min(len(second), start + _FARTHEST)):
            run = _indices_of_run_with_equal_macs(ones[i], others, second[begin : begin + _MOST])
            if len(run) > 1:
                yield i, run
                start = begin + len(run)
                break


def _indices_of_run_with_equal_macs(
    contraction: Contraction, others: Sequence[Contraction], other: list[int]
) -> tuple[int, ...]:
    """Return the indices of the first consecutive contractions in `other` that together have the
    MACs and weights of `contraction`; () if there are none.

    It does as many MACs for each example with as many weights, of which those that are used
    again, as by steps of a loop, count once. Where layers stand for a layer, or products for a
    product, each has to be a part of it: sums of powers of two are equal by chance all too often.
    """
    requested, size = (
        contraction.macs // contraction.batch,
        contraction.weight_elements or contraction.weights,
    )
    macs = stored = fresh = 0
    for length, j in enumerate(other, 1):
        part = others[j]
        if part.kind == contraction.kind and not _can_be_piece_of(part, contraction):
            return ()
        macs += part.macs // part.batch
        stored += part.weight_elements or part.weights
        fresh += part.params if contraction.kind != WEIGHTED else part.weights
        if macs == requested and size in (stored, fresh):
            return tuple(other[:length])
        if macs > requested:
            return ()
    return ()


def _can_be_piece_of(part: Contraction, contraction: Contraction) -> bool:
    """Return whether `part` can be a piece of `contraction`, with fewer output channels or fewer
    rows and otherwise equal sizes.
    """
    if part.kind == WEIGHTED:
        return (part.taps, part.inner, part.places) == (
            contraction.taps,
            contraction.inner,
            contraction.places,
        )
    return (part.inner, part.outer) == (contraction.inner, contraction.outer)


MISSING, WRITTEN, FOLDED = "model.layer-missing", "model.representation", "model.norm-folded"
_NORM = "BatchNormalization"


class OperationShifts(msgspec.Struct, frozen=True):
    """For each group of contractions: the differences of the operations in it, and these
    operations in both models.

    An operation of the second model belongs where the one is that it stands for.
    """

    shifts: tuple[tuple[Shift, ...], ...]
    first: tuple[tuple[Operation, ...], ...]
    second: tuple[tuple[Operation, ...], ...]


def pair_operations(
    first: AlignableModel,
    second: AlignableModel,
    groups: Sequence[Group],
    shifts: Sequence[list[Shift]],
) -> OperationShifts:
    """Return the differences between the operations of both models, for each group of
    contractions, each with its cause.
    """
    owners = (
        _group_index_of_each_operation(groups, 0, first),
        _group_index_of_each_operation(groups, 1, second),
    )
    partner = {i: group.second[0] for group in groups if group.second for i in group.first}
    own, other = first.operations, second.operations
    pairs = dict(
        index_pairs_of_alignment(
            len(own), len(other), similarity_rows_of_operations(own, other, partner)
        )
    )
    by_group: list[list[Shift]] = [[] for _ in groups]
    for i, j in pairs.items():
        index = owners[1][j] = owners[0][i]
        by_group[index] += _operation_pair_shifts(
            own[i], other[j], (first.batch, second.batch), shifts[index]
        )
    left = (
        _operations_by_group(own, owners[0], set(pairs)),
        _operations_by_group(other, owners[1], set(pairs.values())),
    )
    for index, group in enumerate(groups):
        ones, others = left[0].get(index, []), left[1].get(index, [])
        if ones or others:
            by_group[index] += _shifts_without_partner(
                _cause_without_partner(group, ones, others, shifts[index]),
                ones,
                others,
                shifts[index],
            )
    both = (
        _operations_by_group(own, owners[0], set()),
        _operations_by_group(other, owners[1], set()),
    )
    return OperationShifts(
        tuple(map(tuple, by_group)),
        *(tuple(tuple(side.get(index, ())) for index in range(len(groups))) for side in both),
    )


def _group_index_of_each_operation(
    groups: Sequence[Group], side: int, layers: AlignableModel
) -> list[int]:
    """Return for each operation of a model the index of the group that has its contraction; `side`
    is 0 for the first model, 1 for the second.
    """
    of_owner = {
        index: number
        for number, group in enumerate(groups)
        for index in (group.second if side else group.first)
    }
    return [of_owner[operation.owner] for operation in layers.operations]


def _operations_by_group(
    ones: Sequence[Operation], owners: list[int], without: set[int]
) -> dict[int, list[Operation]]:
    """Return {group index: operations in it}, without the operations whose index is in
    `without`.
    """
    by_home: dict[int, list[Operation]] = {}
    for index, operation in enumerate(ones):
        if index not in without:
            by_home.setdefault(owners[index], []).append(operation)
    return by_home


def _cause_of_mac_change(shifts: Sequence[Shift]) -> str:
    """Return the cause by which the MACs of a layer changed, "" if they did not; the batch size
    only if there is no other.
    """
    causes = sorted(
        (shift.cause for shift in shifts if shift.macs), key=lambda cause: cause == BATCH
    )
    return causes[0] if causes else ""


def _operation_pair_shifts(
    first: Operation, second: Operation, batches: tuple[int, int], shifts: Sequence[Shift]
) -> list[Shift]:
    """Return the difference in FLOPs and parameters between two paired operations, with its cause;
    [] if there is none.
    """
    flops, params = second.flops - first.flops, second.params - first.params
    if not flops and not params:
        return []
    batched = second.size * batches[0] == first.size * batches[1] != first.size * batches[0]
    cause = BATCH if batched else _cause_of_mac_change(shifts) or ELSE
    return [Shift(cause=cause, flops=flops, params=params)]


def _cause_without_partner(
    group: Group, ones: list[Operation], others: list[Operation], shifts: list[Shift]
) -> str:
    """Return the cause for the operations of a group that only one of the two models has."""
    if not group.first or not group.second:
        return MISSING
    norms = [item for item in (*ones, *others) if item.op == _NORM]
    if norms and not (ones and others) and any(item.cause == BIAS for item in shifts):
        return FOLDED
    split = any(item.cause == WRITTEN for item in shifts)
    if (ones and others) or split or all(item.constant for item in (*ones, *others)):
        return WRITTEN
    return ELSE


def _shifts_without_partner(
    cause: str, ones: list[Operation], others: list[Operation], shifts: Sequence[Shift]
) -> Iterator[Shift]:
    """Yield the differences in FLOPs and parameters that operations without a partner make, first
    those of a changed size.

    The next one changes the form of the operations.
    """
    flops = sum(operation.flops for operation in others) - sum(
        operation.flops for operation in ones
    )
    sizes = [max((operation.size for operation in side), default=0) for side in (ones, others)]
    grows = _cause_of_mac_change(shifts)
    if cause == WRITTEN and all(sizes) and sizes[0] != sizes[1] and grows:
        before = sum(operation.flops for operation in ones)
        grown = before * sizes[1] // sizes[0] - before
        yield Shift(cause=grows, flops=grown)
        flops -= grown
    params = sum(operation.params for operation in others) - sum(
        operation.params for operation in ones
    )
    words = "" if cause == MISSING else _operation_difference_text(ones, others)
    if cause == WRITTEN and params:  # a scale that one of them lacks is no other way to write it
        yield Shift(cause=ELSE, params=params, note="with other parameters")
        params = 0
    yield Shift(cause=cause, flops=flops, params=params, note=words)


def _operation_difference_text(ones: list[Operation], others: list[Operation]) -> str:
    """Return a text that names the operators on both sides, "A -> B", or says which model alone
    has them.
    """

    def operator_names_text(operations: list[Operation]) -> str:
        """Return the names of the operators, each once, joined by commas."""
        return ", ".join(dict.fromkeys(operation.op for operation in operations))

    if ones and others:
        return f"{operator_names_text(ones)} -> {operator_names_text(others)}"
    return f"only in the {'first' if ones else 'second'}: {operator_names_text(ones or others)}"


def with_bias_moved_to_norm(shifts: Sequence[Shift], more: Sequence[Shift]) -> list[Shift]:
    """Return all differences of a layer (`shifts` and `more`); if a norm was folded into the
    layer, its bias gets that cause.
    """
    folded = any(shift.cause == FOLDED for shift in more)
    return [
        msgspec.structs.replace(shift, cause=FOLDED) if folded and shift.cause == BIAS else shift
        for shift in (*shifts, *more)
    ]
