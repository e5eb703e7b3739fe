"""How much a contraction of one model is like one of the other, and an operation like another."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from crossflops.reconcile.models.contractions import Contraction
from crossflops.reconcile.models.reading import Operation
from crossflops.reconcile.models.sequence import Scores

# What makes two contractions alike, in points. Less than ENOUGH is no pair: it stands between a
# layer that was widened, or has another stride, and one that is something else.
KIND, WINDOW, CHANNELS, GEOMETRY, PLACES, PATH, ENOUGH = 10, 30, 25, 60, 20, 40, 60
_OTHER_GROUPS = -40  # a depthwise convolution is no ordinary one


class _Table:
    """A column of numbers for each fact of a sequence of contractions."""

    def __init__(self, ones: Sequence[Contraction], paths: dict[str, int]) -> None:
        kinds = [one.kind for one in ones]
        self.kind = np.array([paths.setdefault(f"kind {kind}", len(paths)) for kind in kinds])
        self.path = np.array([_named(paths, one.path) for one in ones])
        columns = [(one.taps, one.inner, one.outer, one.places, one.groups) for one in ones]
        facts = np.array(columns, np.float64).reshape(len(ones), 5)
        self.taps, self.inner, self.outer, self.rows, self.groups = facts.T


def _named(paths: dict[str, int], path: str) -> int:
    return paths.setdefault(f"path {path}", len(paths)) if path else 0


def contraction_scores(
    first: Sequence[Contraction], second: Sequence[Contraction]
) -> Callable[[int], Scores]:
    """Scores of a place of the first with all of the second.

    Equal weights weigh most, then the module's path, then equal windows and near channels.
    """
    paths = {"": 0}
    mine, theirs = _Table(first, paths), _Table(second, paths)
    depthwise = theirs.groups > 1

    def row(i: int) -> Scores:
        taps = theirs.taps == mine.taps[i]
        inner = _near(theirs.inner, mine.inner[i])
        outer = _near(theirs.outer, mine.outer[i])
        sums = theirs.taps * theirs.inner == mine.taps[i] * mine.inner[i]
        groups = theirs.groups == mine.groups[i]
        points = (
            KIND
            + WINDOW * taps
            + CHANNELS * (inner + outer)
            + GEOMETRY * (sums & groups & (outer == 1))
            + PLACES * _near(theirs.rows, mine.rows[i])
            + PATH * ((theirs.path == mine.path[i]) & (mine.path[i] != 0))
            + _OTHER_GROUPS * (depthwise != (mine.groups[i] > 1))
        )
        found = np.where((theirs.kind == mine.kind[i]) & (points >= ENOUGH), points, 0)
        return found.astype(np.int32)

    return row


def operation_scores(
    first: Sequence[Operation], second: Sequence[Operation], partner: dict[int, int]
) -> Callable[[int], Scores]:
    """Scores of an operation of the first with all of the second; `partner` pairs their owners.

    Only the same operators are alike: most with the same owner, then of one size.
    """
    names: dict[str, int] = {}
    ops = np.array([names.setdefault(one.op, len(names)) for one in second])
    sizes = np.array([one.size for one in second], np.float64)
    owners = np.array([one.owner for one in second])

    def row(i: int) -> Scores:
        one = first[i]
        owned = owners == partner.get(one.owner, -2)
        points = 20 + 50 * owned + 30 * (sizes == one.size)
        found = np.where(ops == names.get(one.op, -1), points, 0)
        return found.astype(np.int32)

    return row


def _near(many: NDArray[np.float64], one: float) -> NDArray[np.float64]:
    """The smaller of two numbers over the larger, 1 where both are equal."""
    larger = np.maximum(many, one)
    return np.where(larger > 0, np.minimum(many, one) / np.maximum(larger, 1), 1.0)
