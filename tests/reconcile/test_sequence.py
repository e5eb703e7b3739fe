"""The alignment of two sequences, against a search through all of them."""

import itertools
import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossflops.reconcile.pairing import index_pairs_of_alignment

tables = st.integers(0, 5).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(-2, 6), min_size=width, max_size=width), max_size=5
    )
)


def best(table, width, i=0, j=0):
    """The largest sum of scores of pairs that cross nowhere, by trying everything."""
    if i >= len(table) or j >= width:
        return 0
    most = max(best(table, width, i + 1, j), best(table, width, i, j + 1))
    if table[i][j] > 0:
        most = max(most, table[i][j] + best(table, width, i + 1, j + 1))
    return most


@given(tables)
def test_no_other_alignment_is_better(table):
    """Pairs ascend on both sides, each has a score, and no choice has a larger sum."""
    width = len(table[0]) if table else 0
    pairs = index_pairs_of_alignment(len(table), width, lambda i: np.array(table[i], np.int32))
    assert all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(pairs))
    assert all(table[i][j] > 0 for i, j in pairs)
    assert sum(table[i][j] for i, j in pairs) == best(table, width)


def test_five_thousand_places_take_seconds():
    """Two sequences of 5000, of which every seventh of the first is missing in the second."""
    first = np.arange(5000) % 97
    second = np.delete(first, np.arange(0, 5000, 7))
    begun = time.perf_counter()
    pairs = index_pairs_of_alignment(
        5000, len(second), lambda i: (second == first[i]).astype(np.int32)
    )
    assert len(pairs) == len(second)
    assert time.perf_counter() - begun < 20
