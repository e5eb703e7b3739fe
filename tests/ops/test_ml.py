"""Trees, kernel machines, linear models and feature operators of ai.onnx.ml."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.core.cost import ZERO, Cost
from crossflops.core.ledger import Counted, Uncounted
from crossflops.count import count_node
from crossflops.testing.graphs import node
from tests.ops.scalars import Tally, few, numbers, small, total, work

ML = "ai.onnx.ml::"
# Trees by hand: a leaf is (), an inner node the pair of its branches.
trees = st.recursive(st.just(()), lambda inner: st.tuples(inner, inner), max_leaves=8)


def tables(forest):
    """The node tables of a forest, and the keys of its leaves."""
    rows, leaves = [], []

    def add(tree, one, number):
        following = number + 1
        if not one:
            rows.append((tree, number, 0, 0, "LEAF"))
            leaves.append((tree, number))
            return following
        yes = following
        no = add(tree, one[0], yes)
        following = add(tree, one[1], no)
        rows.append((tree, number, yes, no, "BRANCH_LEQ"))
        return following

    for tree, one in enumerate(forest):
        add(tree, one, 0)
    names = ("treeids", "nodeids", "truenodeids", "falsenodeids", "modes")
    columns = zip(*rows, strict=True)
    return {f"nodes_{name}": c for name, c in zip(names, columns, strict=True)}, leaves


def depths(one):
    """How many comparisons lead to each leaf."""
    return [1 + d for branch in one for d in depths(branch)] if one else [0]


@few
@given(st.lists(trees, min_size=1, max_size=3), small)
def test_a_forest_costs_its_longest_walks(forest, rows):
    """The bound is a walk to the deepest leaf of every tree, exact if no leaf is less deep."""
    attrs, leaves = tables(forest)
    targets = {"target_treeids": tuple(t for t, _ in leaves), "n_targets": 1}
    attrs |= targets | {"target_nodeids": tuple(n for _, n in leaves)}
    one = node(f"{ML}TreeEnsembleRegressor-3", [(rows, 4)], [(rows, 1)], **attrs)
    longest = sum(max(depths(tree)) for tree in forest)
    assert work(one) == Cost(compares=rows * longest, adds=rows * len(forest))
    even = all(len(set(depths(tree))) == 1 for tree in forest)
    assert count_node(one).exactness == ("exact" if even else "bound")


def test_leaves_that_differ_in_what_they_hold_give_a_bound():
    """A leaf with two values and a leaf with one: the longer one counts."""
    attrs, _ = tables([((), ())])
    attrs |= {"class_treeids": (0, 0, 0), "class_nodeids": (1, 1, 2), "class_ids": (0, 1, 0)}
    attrs |= {"classlabels_int64s": (0, 1), "base_values": (0.5, 0.5)}
    one = node(f"{ML}TreeEnsembleClassifier-3", [(3, 4)], ["3:int64", (3, 2)], **attrs)
    # 3 rows: 1 compare in the tree, 1 for the larger class; 2 values of the leaf and 2 of before.
    assert work(one) == Cost(compares=6, adds=12)
    assert count_node(one).exactness == "bound"


# The root 0 leads to node 1 and leaf 2, node 1 to leaves 0 and 1; then a tree of node 2 alone.
ROOTED = {
    "tree_roots": (0, 2),
    "nodes_truenodeids": (1, 0, 3),
    "nodes_trueleafs": (0, 1, 1),
    "nodes_falsenodeids": (2, 1, 3),
    "nodes_falseleafs": (1, 1, 1),
}


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({}, Cost(compares=15, adds=10)),
        ({"aggregate_function": 0, "n_targets": 2}, Cost(compares=15, adds=10, divs=10)),
        ({"aggregate_function": 3}, Cost(compares=15 + 10)),
        ({"post_transform": 2}, Cost(compares=15, adds=10, specials=5)),
    ],
)
def test_ensemble_of_version_5_by_hand(attrs, expected):
    """5 rows take 2 + 1 compares; a tree that is one leaf is written with equal branches."""
    one = node(f"{ML}TreeEnsemble", [(5, 4)], [(5, 1)], **ROOTED, **attrs)
    assert work(one) == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodes_truenodeids": (0, 0, 3)}, "below itself"),
        ({"nodes_truenodeids": (7, 0, 3)}, "not there"),
        ({"nodes_trueleafs": (0, 1)}, "equally long"),
        ({"aggregate_function": 9}, "aggregate_function"),
        ({"post_transform": "ROOT"}, "post_transform"),
    ],
)
def test_a_forest_that_is_none_is_uncounted(change, words):
    """A cycle, a missing node or tables of several lengths end with a reason."""
    found = count_node(node(f"{ML}TreeEnsemble", [(5, 4)], [(5, 1)], **{**ROOTED, **change}))
    assert isinstance(found, Uncounted)
    assert words in found.reason


def test_a_long_chain_is_walked_without_recursion():
    """A tree of 20 000 levels is 20 000 compares."""
    depth = 20000
    attrs = {
        "tree_roots": (0,),
        "nodes_truenodeids": (*range(1, depth), 0),
        "nodes_trueleafs": (*[0] * (depth - 1), 1),
        "nodes_falsenodeids": tuple(range(depth)),
        "nodes_falseleafs": (1,) * depth,
    }
    assert work(node(f"{ML}TreeEnsemble", [(1, 4)], [(1, 1)], **attrs)).compares == depth


def kernel_loop(tally, x, vector, kind):
    """The kernels of scikit-learn's support vector machines, on counted scalars."""
    if kind == "RBF":
        differences = [a - b for a, b in zip(x, vector, strict=True)]
        return (total([each * each for each in differences]) * -0.5).exp()
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
        kernels = [kernel_loop(tally, row, one, kind) for one in support]
        tally.dot(weights, kernels) + 1.0
    one = node(
        f"{ML}SVMRegressor",
        [(rows, columns)],
        [(rows, 1)],
        n_supports=vectors,
        support_vectors=tuple(v.ravel().tolist()),
        kernel_type=kind,
    )
    assert work(one) == tally.cost


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
    one = node(f"{ML}LinearRegressor", [(rows, columns)], [(rows, targets)], **attrs)
    assert work(one) == tally.cost


def test_svm_classifier_by_hand():
    """3 classes of 2, 1 and 1 vectors: 4 kernels; 3 decisions sum 2 * 4 products in all."""
    attrs = {"vectors_per_class": (2, 1, 1), "support_vectors": (0.0,) * 20, "kernel_type": "RBF"}
    one = node(f"{ML}SVMClassifier", [(2, 5)], ["2:int64", (2, 3)], **attrs)
    # a kernel of 5 features: 9 adds, 6 muls, exp; 3 decisions (add, compare); 2 compares at last.
    expected = Cost(macs=8, adds=36 + 3, muls=24, specials=4, compares=3 + 2) * 2
    assert work(one) == expected
    graded = node(f"{ML}SVMClassifier", [(2, 5)], ["2:int64", (2, 3)], prob_a=(1.0,) * 3, **attrs)
    assert work(graded) == expected + Cost(muls=3, adds=3, specials=3) * 2
    assert count_node(graded).exactness == "estimate"


X = (2, 3)
CASES = [
    # one column of weights for two classes, or one per class.
    (
        node(
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
        node(
            f"{ML}SVMClassifier",
            [X],
            ["2:int64", (2, 2)],
            coefficients=(1.0,) * 6,
            classlabels_ints=(0, 1),
        ),
        Cost(macs=12, adds=4, compares=2),
    ),
    (node(f"{ML}Scaler", [X], [X], scale=(1.0,), offset=(0.0,)), Cost(adds=6, muls=6)),
    (node(f"{ML}Normalizer", [X], [X], norm="MAX"), Cost(compares=4, divs=6)),
    (node(f"{ML}Normalizer", [X], [X], norm="L1"), Cost(compares=6, adds=4, divs=6)),
    (node(f"{ML}Normalizer", [X], [X], norm="L2"), Cost(muls=6, adds=4, specials=2, divs=6)),
    (node(f"{ML}Normalizer", [(3,)], [(3,)], norm="MAX"), Cost(compares=2, divs=3)),
    (node(f"{ML}Binarizer", [X], [X]), Cost(compares=6)),
    (node(f"{ML}Imputer", [X], [X]), Cost(compares=6)),
    (node(f"{ML}LabelEncoder", ["2:int64"], ["2:int64"]), ZERO),
    (node(f"{ML}ZipMap", [X], [None]), ZERO),
]


@pytest.mark.parametrize(("one", "expected"), CASES, ids=lambda v: str(getattr(v, "op", "")))
def test_work_by_kind(one, expected):
    """Each operation is counted once, by its kind."""
    assert work(one) == expected


def test_a_model_that_yields_maps_is_counted():
    """ZipMap has an output that is no tensor: it moves nothing that has a size."""
    found = count_node(node(f"{ML}ZipMap", [X], [None]))
    assert isinstance(found, Counted)
    assert (found.cost.bytes_read, found.cost.bytes_written) == (0, 0)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (node(f"{ML}LinearRegressor", [X], [(2, 1)], coefficients=(1.0,)), "coefficients"),
        (node(f"{ML}SVMRegressor", [X], [(2, 1)], n_supports=2), "support vectors"),
        (node(f"{ML}SVMRegressor", [X], [(2, 1)], kernel_type="COSINE"), "COSINE"),
        (node(f"{ML}Normalizer", [X], [X], norm="L3"), "L3"),
        (node(f"{ML}Normalizer", [(1, 2, 3)], [(1, 2, 3)]), "rank"),
    ],
)
def test_what_cannot_be_known_is_uncounted_with_a_reason(one, words):
    """A node whose attributes do not fit gets a reason that names what is wrong."""
    found = count_node(one)
    assert isinstance(found, Uncounted)
    assert words in found.reason


def test_the_loops_are_what_they_say():
    """The kernel loop gives the numbers of the kernels, so its work is their work."""
    tally = Tally()
    x, v = tally.array([1.0, 2.0]), tally.array([0.5, -1.0])
    assert kernel_loop(tally, x, v, "RBF").value == pytest.approx(math.exp(-0.5 * 9.25))
    assert kernel_loop(tally, x, v, "SIGMOID").value == pytest.approx(np.tanh(0.25))
