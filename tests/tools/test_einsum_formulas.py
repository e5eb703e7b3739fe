"""The MACs of an einsum, exact and as fvcore estimates them."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossflops.tools import contractions, fvcore
from tests.tools.amounts import amount


def einsum(formula, equation, *shapes):
    """An einsum by its equation; the result's shape plays no part."""
    inputs = {f"tensors.{place}": shape for place, shape in enumerate(shapes)}
    return amount(
        formula, "aten.einsum.default", inputs, [()], call_settings={"equation": equation}
    )


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("bij,bjk->bik", [(2, 10, 8), (2, 8, 10)], 1600),
        ("ij,j->ij", [(3, 4), (4,)], 0),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 6)], 3 * 4 * 5 + 3 * 5 * 6),
        ("...ij,...jk->...ik", [(2, 3, 4, 5), (2, 3, 5, 6)], 2 * 3 * 4 * 5 * 6),
        ("...ij,jk->...ik", [(7, 4, 5), (5, 6)], 7 * 4 * 5 * 6),
        ("ij, jk", [(3, 4), (4, 5)], 60),
        ("ii", [(3, 3)], 0),
    ],
)
def test_an_einsum_contracts_pair_by_pair(equation, shapes, expected):
    """From left to right; a product without a sum is no contraction."""
    assert einsum(contractions.exact_einsum_macs, equation, *shapes) == expected


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("abc,abd->acd", [(2, 10, 8), (2, 10, 7)], 2 * 10 * 8 * 7),
        ("xyz,xzw->xwy", [(2, 10, 8), (2, 8, 7)], 2 * 10 * 8 * 7),
        ("nchw,co->nohw", [(2, 3, 4, 5), (3, 6)], 2 * 3 * 4 * 5 * 6),
    ],
)
def test_fvcores_einsum_is_exact_where_four_digits_suffice(equation, shapes, expected):
    """Two equations are known, under any letters; a small cost is printed whole."""
    assert einsum(fvcore.fvcore_einsum_macs, equation, *shapes) == expected


def test_fvcores_einsum_keeps_four_digits():
    """457 x 2367 x 457 = 494 345 583 MACs are printed as 9.887e+08 operations, and halved."""
    assert einsum(fvcore.fvcore_einsum_macs, "ij,jk->ik", (457, 2367), (2367, 457)) == 494_350_000


labels = st.sampled_from("abcd")


@given(
    st.lists(labels, max_size=3, unique=True),
    st.lists(labels, max_size=3, unique=True),
    st.data(),
)
@settings(max_examples=60)
def test_an_einsum_of_two_equals_a_loop(left, right, data):
    """One multiply-accumulate per combination of labels, where anything is summed over both.

    Labels of one operand alone that the result does not need are summed before, by additions.
    """
    everything = sorted(set(left) | set(right))
    result = [label for label in everything if data.draw(st.booleans())]
    extent = {label: data.draw(st.integers(1, 3)) for label in everything}
    shared = set(left) & set(right)
    taking_part = [label for label in everything if label in result or label in shared]
    loop = 0
    if any(label not in result for label in taking_part):
        loop = sum(1 for _ in itertools.product(*(range(extent[label]) for label in taking_part)))
    macs = einsum(
        contractions.exact_einsum_macs,
        f"{''.join(left)},{''.join(right)}->{''.join(result)}",
        tuple(extent[label] for label in left),
        tuple(extent[label] for label in right),
    )
    assert macs == loop
