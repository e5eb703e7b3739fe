"""Einstein sums against loops that perform them on counted scalars."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.ledger import Cost
from crossflops.testing.graphs import to_node
from tests.operators.scalars import Tally, few, numbers, values, work


def einsum_pair(tally, a, rows_a, b, rows_b, needed):
    """One pair of an Einstein sum: own labels are summed, then all that are left are looped.

    A label of one element sums nothing, so it goes before the loop: what is left is a product.
    """
    long_a, long_b = longer(a, rows_a), longer(b, rows_b)
    a, rows_a = summed(a, rows_a, long_b | needed)
    b, rows_b = summed(b, rows_b, long_a | needed)
    sizes = dict(zip(rows_a, a.shape, strict=True)) | dict(zip(rows_b, b.shape, strict=True))
    kept = [label for label in sizes if label in needed]
    y = tally.array(np.zeros([sizes[label] for label in kept]))
    for at in product(*(range(extent) for extent in sizes.values())):
        place = dict(zip(sizes, at, strict=True))
        factor = a[tuple(place[label] for label in rows_a)]
        other = b[tuple(place[label] for label in rows_b)]
        into = tuple(place[label] for label in kept)
        y[into] = factor * other if len(kept) == len(sizes) else tally.mac(y[into], factor, other)
    return y, kept


def longer(a, rows):
    """The labels that stand for more than one element."""
    return {label for label, extent in zip(rows, a.shape, strict=True) if extent > 1}


def summed(a, rows, needed):
    """The diagonal of repeated labels, then the sum over labels that nobody needs."""
    for label in dict.fromkeys(rows):
        while rows.count(label) > 1:
            first = rows.index(label)
            second = rows.index(label, first + 1)
            a = np.diagonal(a, axis1=first, axis2=second)
            rows = [*rows[:first], *rows[first + 1 : second], *rows[second + 1 :], label]
    for label in [label for label in rows if label not in needed]:
        axis = rows.index(label)
        parts = np.moveaxis(a, axis, 0)
        a = np.asarray(parts[0], dtype=object)
        for part in parts[1:]:
            a = np.asarray(a + part, dtype=object)
        rows = [*rows[:axis], *rows[axis + 1 :]]
    return a, rows


SIZES = {"a": 2, "b": 3, "c": 1, "d": 2}
words = st.lists(st.sampled_from("abcd"), max_size=3).map("".join)


@few
@given(st.lists(words, min_size=1, max_size=3), st.data())
def test_einsum_is_its_loop(terms, data):
    """Einsum counts what the loops do, pair after pair, whatever the labels."""
    labels = sorted(set("".join(terms)))
    out = data.draw(st.permutations(labels).map(lambda p: "".join(p[: len(p) // 2 + 1])))
    arrays = [numbers(data.draw, *(SIZES[label] for label in term)) for term in terms]
    equation = f"{','.join(terms)}->{out}"
    tally = Tally()
    left, rows = tally.array(arrays[0]), list(terms[0])
    if len(terms) == 1:
        left, rows = summed(left, rows, set(out))
    for i, term in enumerate(terms[1:], start=2):
        needed = set(out).union(*terms[i:])
        left, rows = einsum_pair(tally, left, rows, tally.array(arrays[i - 1]), list(term), needed)
    y = np.transpose(left, [rows.index(label) for label in out])
    assert np.allclose(values(y), np.einsum(equation, *arrays), atol=1e-6)
    einsum = to_node("Einsum", [a.shape for a in arrays], [y.shape], equation=equation)
    assert work(einsum) == tally.cost


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("...ij,...jk->...ik", [(7, 2, 3, 5), (1, 2, 5, 4)], Cost(macs=7 * 2 * 3 * 5 * 4)),
        ("...ij,...jk->...ik", [(7, 2, 5), (5, 4)], Cost(macs=7 * 2 * 5 * 4)),
        (" ij , jk ", [(2, 3), (3, 4)], Cost(macs=24)),
        ("ba", [(2, 3)], Cost()),
        ("ii", [(3, 3)], Cost(adds=2)),
        ("ii->i", [(3, 3)], Cost()),
        ("i,j->ij", [(2,), (3,)], Cost(muls=6)),
        ("...i->...", [(4, 5)], Cost(adds=16)),
        ("ij,k->k", [(2, 3), (4,)], Cost(adds=5, muls=4)),
    ],
)
def test_einsum_by_hand(equation, shapes, expected):
    """Ellipsis, diagonal, implicit output and spaces read as numpy reads them."""
    out = np.einsum(equation, *(np.zeros(shape) for shape in shapes)).shape
    assert work(to_node("Einsum", shapes, [out], equation=equation)) == expected
