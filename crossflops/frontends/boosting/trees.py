"""Boosted trees of all three libraries: tables of nodes, and what is done with leaves."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

LEAF = -1  # as a child: a node has none


class Tree(NamedTuple):
    """A tree as tables: by node its feature and its children, `LEAF` of a leaf.

    Nodes may share children: of a tree that asks the same on one level, a level is one node.
    """

    features: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def leaves(self) -> Sequence[int]:
        """The nodes without children."""
        return [node for node, child in enumerate(self.left) if child == LEAF]


class BoostedTrees(msgspec.Struct, frozen=True, kw_only=True):
    """The trees of a model, and how their leaves become its result.

    `features` is the width of a row. A leaf has `width` values, which are added to one of
    `outputs` scores (`groups` has the score of each tree, where a leaf has one value). With
    `classes` the result is a label of so many. `transform` is that of ai.onnx.ml ("LOGISTIC"), or
    "EXP". `weighted` trees have a factor each, `averaged` ones are divided by their number.
    `thresholds` and `values` are the numbers that the file stores, of the type `dtype`. `linear`
    is the number of coefficients of a model without trees. `unknown` are kinds of work that the
    trees need and that have no formula.
    """

    library: str
    name: str
    features: int
    trees: tuple[Tree, ...] = ()
    outputs: int = 1
    width: int = 1
    groups: tuple[int, ...] = ()
    classes: int = 0
    transform: str = "NONE"
    has_base: bool = False
    weighted: bool = False
    averaged: bool = False
    thresholds: int = 0
    values: int = 0
    dtype: str = "float32"
    linear: int = 0
    unknown: tuple[str, ...] = ()


def level_tree(features: Iterable[int]) -> Tree:
    """Return a tree in which all nodes of one depth test the same feature, stored as one node for
    each depth: features[0] at the root.
    """
    asked = tuple(features)
    children = (*range(1, len(asked) + 1), LEAF)
    return Tree((*asked, 0), children, children)
