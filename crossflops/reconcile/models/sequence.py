"""The order-preserving alignment of two sequences with the largest sum of scores."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.int32]


def aligned(first: int, second: int, scores: Callable[[int], Scores]) -> list[tuple[int, int]]:
    """Pairs of places, ascending on both sides, whose scores have the largest sum.

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
    return _traced(paired, from_above, second)


def _traced(
    paired: list[NDArray[np.uint8]], from_above: list[NDArray[np.uint8]], second: int
) -> list[tuple[int, int]]:
    """The way back, which takes a pair wherever one is on a best way."""
    found: list[tuple[int, int]] = []
    i, j = len(paired) - 1, second - 1
    while i >= 0 and j >= 0:
        if _bit(paired[i], j):
            found.append((i, j))
            i, j = i - 1, j - 1
        elif _bit(from_above[i], j):
            i -= 1
        else:
            j -= 1
    return found[::-1]


def _bit(row: NDArray[np.uint8], place: int) -> bool:
    return bool(row[place >> 3] >> (7 - (place & 7)) & 1)
