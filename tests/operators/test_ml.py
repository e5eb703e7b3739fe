"""Kernel machines, linear models and feature operators of ai.onnx.ml."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.errors import OperandError
from crossflops.ir.ledger import ZERO, Cost, CountedNode, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import Tally, few, numbers, small, total, work

ML = "ai.onnx.ml::"


def kernel_loop(tally, x, vector, kind):
    """The kernels of scikit-learn's support vector machines, on counted scalars."""
    if kind == "RBF":
        differences = [a - b for a, b in zip(x, vector, strict=True)]
        return (total([difference * difference for difference in differences]) * -0.5).exp()
    product = tally.dot(x, vector)
    if kind == "LINEAR":
        return product
    moved = product * 0.5 + 1.0
    return moved.tanh() if kind == "SIGMOID" else moved.pow(2)


@few
@given(small, small, small, st.sampled_from(["LINEAR", "POLY", "RBF", "SIGMOID"]), st.data())
def test_svm_regressor_is_its_loop(rows, columns, vectors, kind, data):
    """A row meets every support vector, and the weights of these add up."""
    tally = Tally()
    x, v = (numbers(data.draw, n, columns) for n in (rows, vectors))
    support = tally.array(v)
    weights = tally.array(numbers(data.draw, vectors))
    for row in tally.array(x):
        kernels = [kernel_loop(tally, row, vector, kind) for vector in support]
        tally.dot(weights, kernels) + 1.0
    regressor = to_node(
        f"{ML}SVMRegressor",
        [(rows, columns)],
        [(rows, 1)],
        n_supports=vectors,
        support_vectors=tuple(v.ravel().tolist()),
        kernel_type=kind,
    )
    assert work(regressor) == tally.cost


@few
@given(small, small, st.integers(1, 4), st.booleans(), st.data())
def test_linear_regressor_is_its_loop(rows, columns, targets, shifted, data):
    """Every target is a dot product, and an intercept where there are any."""
    tally = Tally()
    x, w = numbers(data.draw, rows, columns), numbers(data.draw, targets, columns)
    for row in tally.array(x):
        for weights in tally.array(w):
            score = tally.dot(row, weights)
            if shifted:
                score + 1.0
    attrs = {"coefficients": tuple(w.ravel().tolist()), "targets": targets}
    attrs |= {"intercepts": (1.0,) * targets} if shifted else {}
    regressor = to_node(f"{ML}LinearRegressor", [(rows, columns)], [(rows, targets)], **attrs)
    assert work(regressor) == tally.cost


def test_svm_classifier_by_hand():
    """3 classes of 2, 1 and 1 vectors: 4 kernels; 3 decisions sum 2 * 4 products in all."""
    attrs = {"vectors_per_class": (2, 1, 1), "support_vectors": (0.0,) * 20, "kernel_type": "RBF"}
    classifier = to_node(f"{ML}SVMClassifier", [(2, 5)], ["2:int64", (2, 3)], **attrs)
    # a kernel of 5 features: 9 adds, 6 muls, exp; 3 decisions (add, compare); 2 compares at last.
    expected = Cost(macs=8, adds=36 + 3, muls=24, specials=4, compares=3 + 2) * 2
    assert work(classifier) == expected
    graded = to_node(
        f"{ML}SVMClassifier", [(2, 5)], ["2:int64", (2, 3)], prob_a=(1.0,) * 3, **attrs
    )
    assert work(graded) == expected + Cost(muls=3, adds=3, specials=3) * 2
    assert count_node(graded).exactness == "estimate"


X = (2, 3)
CASES = [
    # one column of weights for two classes, or one per class.
    (
        to_node(
            f"{ML}LinearClassifier",
            [X],
            ["2:int64", (2, 2)],
            coefficients=(1.0,) * 6,
            intercepts=(0.0,) * 2,
            classlabels_ints=(0, 1),
            post_transform="SOFTMAX",
        ),
        Cost(macs=12, adds=4 + 4 + 2, compares=2 + 2, specials=4, divs=4),
    ),
    (
        to_node(
            f"{ML}SVMClassifier",
            [X],
            ["2:int64", (2, 2)],
            coefficients=(1.0,) * 6,
            classlabels_ints=(0, 1),
        ),
        Cost(macs=12, adds=4, compares=2),
    ),
    (to_node(f"{ML}Scaler", [X], [X], scale=(1.0,), offset=(0.0,)), Cost(adds=6, muls=6)),
    (to_node(f"{ML}Normalizer", [X], [X], norm="MAX"), Cost(compares=4, divs=6)),
    (to_node(f"{ML}Normalizer", [X], [X], norm="L1"), Cost(compares=6, adds=4, divs=6)),
    (to_node(f"{ML}Normalizer", [X], [X], norm="L2"), Cost(muls=6, adds=4, specials=2, divs=6)),
    (to_node(f"{ML}Normalizer", [(3,)], [(3,)], norm="MAX"), Cost(compares=2, divs=3)),
    (to_node(f"{ML}Binarizer", [X], [X]), Cost(compares=6)),
    (to_node(f"{ML}Imputer", [X], [X]), Cost(compares=6)),
    (to_node(f"{ML}LabelEncoder", ["2:int64"], ["2:int64"]), ZERO),
    (to_node(f"{ML}ZipMap", [X], [None]), ZERO),
]


@pytest.mark.parametrize(("one", "expected"), CASES, ids=lambda v: str(getattr(v, "op", "")))
def test_work_by_kind(one, expected):
    """Each operation is counted once, by its kind."""
    assert work(one) == expected


def test_a_model_that_yields_maps_is_counted():
    """ZipMap has an output that is no tensor: it moves nothing that has a size."""
    counted = count_node(to_node(f"{ML}ZipMap", [X], [None]))
    assert isinstance(counted, CountedNode)
    assert (counted.cost.bytes_read, counted.cost.bytes_written) == (0, 0)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (to_node(f"{ML}SVMRegressor", [X], [(2, 1)], kernel_type="COSINE"), "COSINE"),
        (to_node(f"{ML}Normalizer", [X], [X], norm="L3"), "L3"),
    ],
)
def test_what_cannot_be_known_is_uncounted_with_a_reason(one, words):
    """A node whose attributes do not fit gets a reason that names what is wrong."""
    gap = count_node(one)
    assert isinstance(gap, UncountedNode)
    assert words in gap.reason


def test_the_loops_are_what_they_say():
    """The kernel loop gives the numbers of the kernels, so its work is their work."""
    tally = Tally()
    x, v = tally.array([1.0, 2.0]), tally.array([0.5, -1.0])
    assert kernel_loop(tally, x, v, "RBF").value == pytest.approx(math.exp(-0.5 * 9.25))
    assert kernel_loop(tally, x, v, "SIGMOID").value == pytest.approx(np.tanh(0.25))


# onnxruntime 1.31 refuses each: it names the features and the numbers that are stored.
@pytest.mark.parametrize(
    ("one", "words"),
    [
        (
            to_node(f"{ML}LinearRegressor", [X], [(2, 1)], coefficients=(1.0,)),
            "3 features, .* 1 coef",
        ),
        (
            to_node(f"{ML}SVMRegressor", [X], [(2, 1)], n_supports=2),
            "3 features, but the 2 stored support",
        ),
        (to_node(f"{ML}Normalizer", [(1, 2, 3)], [(1, 2, 3)]), "rank 3, but needs 1 or 2"),
        (
            to_node(f"{ML}Scaler", [X], [X], offset=(1.0, 2.0)),
            "3 features, .*'offset' has 2 numbers",
        ),
    ],
)
def test_features_that_a_model_was_not_made_for_are_refused(one, words):
    """What was fitted to other features cannot run on these."""
    with pytest.raises(OperandError, match=words):
        count_node(one)
