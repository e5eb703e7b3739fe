"""The trees of a model of CatBoost, from its JSON.

Source: https://catboost.ai/docs/en/concepts/python-reference_catboost_save_model, and
catboost/libs/model/model_export/json_model_helpers.cpp
"""

from collections.abc import Mapping
from typing import Any

from crossflops.frontends.boosting.trees import LEAF, BoostedTrees, Tree, level_tree

_LOGISTIC = ("Logloss", "CrossEntropy", "MultiClassOneVsAll", "MultiLogloss")
_LABELS = ("Logloss", "CrossEntropy")
_PLAIN = ("FloatFeature", "OneHotFeature")  # splits of what a row has; others read statistics


def catboost_trees(content: Mapping[str, Any], name: str) -> BoostedTrees:
    """Return the trees in the content of a CatBoost model file. Raises KeyError or ValueError if
    the content has another form.
    """
    loss = _loss_name(content.get("model_info", {}))
    features = content["features_info"]
    count = sum(len(rows) for kind, rows in features.items() if kind in _FEATURES)
    _, bases = content.get("scale_and_bias", (1, [0]))
    outputs = max(len(bases), 1)
    kinds: list[str] = []
    if "oblivious_trees" in content:
        rows = content["oblivious_trees"]
        trees = tuple(
            level_tree(_feature_of_split(split) for split in row["splits"] or ()) for row in rows
        )
        kinds = [split["split_type"] for row in rows for split in row["splits"] or ()]
        values = sum(len(row["leaf_values"]) for row in rows)
    else:
        grown = [_tree_and_value_count(row, kinds) for row in content["trees"]]
        trees = tuple(tree for tree, _ in grown)
        values = sum(stored for _, stored in grown)
    is_label = loss in _LABELS or loss.startswith("MultiClass")
    transform = "LOGISTIC" if loss in _LOGISTIC else "SOFTMAX" if loss == "MultiClass" else "NONE"
    return BoostedTrees(
        library="catboost",
        name=name,
        features=count,
        trees=trees,
        outputs=outputs,
        width=outputs,
        groups=tuple(0 for _ in trees),
        classes=max(outputs, 2) if is_label else 0,
        transform=transform,
        has_base=any(bases),
        thresholds=len(kinds),
        values=values,
        dtype="float64",
        unknown=tuple(sorted(set(kinds) - set(_PLAIN))),
    )


_FEATURES = ("float_features", "categorical_features", "text_features", "embedding_features")


def _loss_name(info: Mapping[str, Any]) -> str:
    """Return the name of the loss that a CatBoost model was trained with, "" if the file does not
    say it.
    """
    params = info.get("params", {})
    if isinstance(params, str):
        import json

        params = json.loads(params)
    kind = params.get("loss_function", {}).get("type", "")
    return str(kind)


def _feature_of_split(split: Mapping[str, Any]) -> int:
    """Return the index of the numeric feature that a split of a tree tests; 0 if it tests another
    kind of feature.
    """
    return int(split.get("float_feature_index", 0))


def _tree_and_value_count(root: Mapping[str, Any], kinds: list[str]) -> tuple[Tree, int]:
    """Return (a tree, the number of values in its leaves) from nested nodes of a CatBoost file;
    append the type of each split to `kinds`.
    """
    features: list[int] = []
    left: list[int] = []
    right: list[int] = []
    values = 0
    todo: list[tuple[Mapping[str, Any], int, list[int]]] = [(root, -1, left)]
    while todo:
        node, parent, side = todo.pop()
        number = len(left)
        if parent >= 0:
            side[parent] = number
        features.append(0)
        left.append(LEAF)
        right.append(LEAF)
        if "split" in node:
            features[number] = _feature_of_split(node["split"])
            kinds.append(node["split"]["split_type"])
            todo += [(node["right"], number, right), (node["left"], number, left)]
        else:
            stored = node["value"]
            values += len(stored) if isinstance(stored, list) else 1
    return Tree(tuple(features), tuple(left), tuple(right)), values
