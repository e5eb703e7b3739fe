"""Trees of ai.onnx.ml."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.ledger import Cost, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import few, small, work

ML = "ai.onnx.ml::"
# Trees by hand: a leaf is (), an inner node the pair of its branches.
trees = st.recursive(st.just(()), lambda inner: st.tuples(inner, inner), max_leaves=8)


def tables(forest):
    """The node tables of a forest, and the keys of its leaves."""
    rows, leaves = [], []

    def add(tree, subtree, number):
        following = number + 1
        if not subtree:
            rows.append((tree, number, 0, 0, "LEAF"))
            leaves.append((tree, number))
            return following
        yes = following
        no = add(tree, subtree[0], yes)
        following = add(tree, subtree[1], no)
        rows.append((tree, number, yes, no, "BRANCH_LEQ"))
        return following

    for tree, root in enumerate(forest):
        add(tree, root, 0)
    names = ("treeids", "nodeids", "truenodeids", "falsenodeids", "modes")
    columns = zip(*rows, strict=True)
    return {f"nodes_{name}": c for name, c in zip(names, columns, strict=True)}, leaves


def depths(tree):
    """How many comparisons lead to each leaf."""
    return [1 + d for branch in tree for d in depths(branch)] if tree else [0]


@few
@given(st.lists(trees, min_size=1, max_size=3), small)
def test_a_forest_costs_its_longest_walks(forest, rows):
    """The bound is a walk to the deepest leaf of every tree, exact if no leaf is less deep."""
    attrs, leaves = tables(forest)
    targets = {"target_treeids": tuple(t for t, _ in leaves), "n_targets": 1}
    attrs |= targets | {"target_nodeids": tuple(n for _, n in leaves)}
    ensemble = to_node(f"{ML}TreeEnsembleRegressor-3", [(rows, 4)], [(rows, 1)], **attrs)
    longest = sum(max(depths(tree)) for tree in forest)
    assert work(ensemble) == Cost(compares=rows * longest, adds=rows * len(forest))
    even = all(len(set(depths(tree))) == 1 for tree in forest)
    assert count_node(ensemble).exactness == ("exact" if even else "bound")


def test_leaves_that_differ_in_what_they_hold_give_a_bound():
    """A leaf with two values and a leaf with one: the longer one counts."""
    attrs, _ = tables([((), ())])
    attrs |= {"class_treeids": (0, 0, 0), "class_nodeids": (1, 1, 2), "class_ids": (0, 1, 0)}
    attrs |= {"classlabels_int64s": (0, 1), "base_values": (0.5, 0.5)}
    ensemble = to_node(f"{ML}TreeEnsembleClassifier-3", [(3, 4)], ["3:int64", (3, 2)], **attrs)
    # 3 rows: 1 compare in the tree, 1 for the larger class; 2 values of the leaf and 2 of before.
    assert work(ensemble) == Cost(compares=6, adds=12)
    assert count_node(ensemble).exactness == "bound"


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
    ensemble = to_node(f"{ML}TreeEnsemble", [(5, 4)], [(5, 1)], **ROOTED, **attrs)
    assert work(ensemble) == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodes_truenodeids": (0, 0, 3)}, "its own descendant"),
        ({"nodes_truenodeids": (7, 0, 3)}, "does not exist"),
        ({"nodes_trueleafs": (0, 1)}, "equally long"),
        ({"aggregate_function": 9}, "aggregate_function"),
        ({"post_transform": "ROOT"}, "post_transform"),
    ],
)
def test_a_forest_that_is_none_is_uncounted(change, words):
    """A cycle, a missing node or tables of several lengths end with a reason."""
    gap = count_node(to_node(f"{ML}TreeEnsemble", [(5, 4)], [(5, 1)], **{**ROOTED, **change}))
    assert isinstance(gap, UncountedNode)
    assert words in gap.reason


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
    assert work(to_node(f"{ML}TreeEnsemble", [(1, 4)], [(1, 1)], **attrs)).compares == depth
