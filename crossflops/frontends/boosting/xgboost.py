"""The trees of a model of XGBoost, from its JSON.

Source: https://xgboost.readthedocs.io/en/stable/tutorials/saving_model.html, and
src/tree/io_utils.h of XGBoost.
"""

from collections.abc import Mapping
from typing import Any

from crossflops.errors import NormalizeError
from crossflops.frontends.boosting.trees import LEAF, BoostedTrees, Tree

_EXPONENTIAL = ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft")
_LOGISTIC = ("binary:logistic", "reg:logistic")
_LABELS = {"binary:logistic": 2, "binary:hinge": 2}


def xgboost_trees(content: Mapping[str, Any], name: str, rounds: int | None) -> BoostedTrees:
    """Return the trees in the content of an XGBoost model file; with `rounds` only those of the
    first boosting rounds. Raises KeyError or ValueError if the content has another form.

    Raises KeyError, ValueError for contents of another form.
    """
    learner = content["learner"]
    sizes, objective = learner["learner_model_param"], learner["objective"]["name"]
    booster = learner["gradient_booster"]
    classes, features = int(sizes["num_class"]), int(sizes["num_feature"])
    outputs = max(classes, int(sizes.get("num_target", 1)), 1)
    base = str(sizes.get("base_score", "0")).strip("[]")
    has_base = any(float(word) for word in base.split(",") if word.strip())
    transform = "NONE"
    if objective in _LOGISTIC:
        transform = "LOGISTIC"
    elif objective == "multi:softprob":
        transform = "SOFTMAX"
    elif objective in _EXPONENTIAL:
        transform = "EXP"
    facts: dict[str, Any] = {
        "library": "xgboost",
        "name": name,
        "features": features,
        "outputs": outputs,
        "classes": classes or _LABELS.get(objective, 0),
        "transform": transform,
    }
    if booster["name"] == "gblinear":
        weights = len(booster["model"]["weights"])
        return BoostedTrees(**facts, linear=weights, has_base=True)
    is_weighted = booster["name"] == "dart"
    model = booster["gbtree"]["model"] if is_weighted else booster["model"]
    rows, groups = model["trees"], [int(group) for group in model["tree_info"]]
    if rounds is not None:
        bounds = model.get("iteration_indptr")
        kept = int(bounds[rounds]) if bounds else rounds * outputs
        rows, groups = rows[:kept], groups[:kept]
    trees = tuple(_tree_from_row(row) for row in rows)
    width = max((int(row["tree_param"].get("size_leaf_vector", 1)) for row in rows), default=1)
    leaves = sum(len(tree.leaves) for tree in trees)
    return BoostedTrees(
        **facts,
        trees=trees,
        width=max(width, 1),
        groups=tuple(groups),
        has_base=has_base,
        weighted=is_weighted,
        thresholds=sum(len(tree.left) for tree in trees) - leaves,
        values=leaves * max(width, 1),
    )


def _tree_from_row(row: Mapping[str, Any]) -> Tree:
    """Return a tree from its entry in the file. Raises NormalizeError if a child index is out of
    range.
    """
    left, right = (tuple(map(int, row[f"{side}_children"])) for side in ("left", "right"))
    features = tuple(map(int, row["split_indices"]))
    if not len(left) == len(right) == len(features) or max((*left, *right), default=0) >= len(
        left
    ):
        raise NormalizeError(
            "a tree of the XGBoost model is damaged: a branch leads to a node that is missing",
            "save the model again with save_model, as .json or .ubj",
        )
    return Tree(
        features,
        tuple(child if child >= 0 else LEAF for child in left),
        tuple(child if child >= 0 else LEAF for child in right),
    )
