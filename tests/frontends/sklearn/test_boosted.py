"""Models of XGBoost and LightGBM inside estimators of scikit-learn: trees by a walk of their own.

A row is compared once at each level of each tree, and once for each other class.
"""

import json

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")
pytest.importorskip("xgboost")
pytest.importorskip("lightgbm")

import lightgbm
import xgboost
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import crossflops
from crossflops.errors import CrossflopsError

pytestmark = pytest.mark.sklearn

ROWS, FEATURES = 5, 4
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(80, FEATURES)).astype(np.float32)
VALUES = X[:, 1] + RANDOM.normal(size=80)
TWO, THREE = (VALUES > 0).astype(int), np.arange(80) % 3


def xgb(kind: str, **settings):
    """A small model of XGBoost, not fitted."""
    return getattr(xgboost, f"XGB{kind}")(n_estimators=3, max_depth=2, n_jobs=1, **settings)


def lgbm(kind: str):
    """A small model of LightGBM, not fitted."""
    return getattr(lightgbm, f"LGBM{kind}")(n_estimators=3, verbose=-1, n_jobs=1)


def sum_of_depths(model) -> int:
    """The sum of the depths of all trees, from what the library itself dumps."""

    def depth(node: dict) -> int:
        below = node.get("children") or [
            node[side] for side in ("left_child", "right_child") if side in node
        ]
        return 1 + max(map(depth, below)) if below else 0

    if hasattr(model, "get_booster"):
        return sum(
            depth(json.loads(text)) for text in model.get_booster().get_dump(dump_format="json")
        )
    return sum(depth(tree["tree_structure"]) for tree in model.booster_.dump_model()["tree_info"])


def count(model):
    """The report of a fitted estimator for five rows; nothing is uncounted."""
    report = crossflops.count(model, [f"{ROWS}x{FEATURES}"])
    assert not report.uncounted
    return report


def check_trees(report, members, others: int) -> None:
    """Assert that the trees in a report are those of its members, each compared as in its dump."""
    alone = [count(member) for member in members]
    for member, own in zip(members, alone, strict=True):
        assert own.totals.compares == ROWS * (sum_of_depths(member) + others)
    rows = [row for row in report.nodes if row.node.startswith("BoostedTrees")]
    assert sorted(row.flops for row in rows) == sorted(own.flops for own in alone)


TEXTS = np.array(["a", "b"])[TWO]
PIPED = {
    "xgboost": (xgb("Classifier"), TWO, 1),
    "xgboost-values": (xgb("Regressor"), VALUES, 0),
    "lightgbm-texts": (lgbm("Classifier"), TEXTS, 1),
    "lightgbm-values": (lgbm("Regressor"), VALUES, 0),
}


@pytest.mark.parametrize("name", PIPED)
def test_a_pipeline_has_the_trees_and_the_scaler(name):
    """The scaler subtracts and multiplies once for each element; all else is that of the model."""
    model, target, others = PIPED[name]
    model.fit(X, target)
    whole, alone = count(make_pipeline(StandardScaler().fit(X), model)), count(model)
    assert whole.totals.compares == ROWS * (sum_of_depths(model) + others)
    assert whole.totals.compares == alone.totals.compares
    assert whole.totals.adds - alone.totals.adds == ROWS * FEATURES
    assert whole.totals.muls - alone.totals.muls == ROWS * FEATURES
    assert whole.totals.specials == alone.totals.specials
    assert whole.params == alone.params + 2 * FEATURES


def test_a_linear_booster_multiplies_in_a_pipeline_too():
    """Four coefficients for each row."""
    model = make_pipeline(StandardScaler(), xgb("Regressor", booster="gblinear")).fit(X, VALUES)
    assert count(model).macs == ROWS * FEATURES


def test_stacked_classifiers_feed_a_linear_model():
    """Of two classes each gives one column, so the last model multiplies two numbers a row."""
    model = StackingClassifier([("x", xgb("Classifier")), ("l", lgbm("Classifier"))]).fit(X, TWO)
    report = count(model)
    assert report.macs == ROWS * 2
    check_trees(report, model.estimators_, 1)


def test_probabilities_of_three_classes_are_three_columns():
    """Trees and a linear model of 3 classes: 3 x 4 weights, then 3 x 6 of the last model."""
    parts = [("x", xgb("Classifier")), ("linear", LogisticRegression())]
    assert count(StackingClassifier(parts).fit(X, THREE)).macs == ROWS * (3 * FEATURES + 3 * 6)


ENSEMBLES = {
    "voting": (VotingRegressor([("x", xgb("Regressor")), ("l", lgbm("Regressor"))]), VALUES, 0),
    "stacking": (
        StackingRegressor([("x", xgb("Regressor")), ("l", lgbm("Regressor"))]),
        VALUES,
        0,
    ),
    "classes": (
        VotingClassifier([("x", xgb("Classifier")), ("l", lgbm("Classifier"))], voting="soft"),
        TWO,
        1,
    ),
    "bagging": (BaggingRegressor(xgb("Regressor"), n_estimators=2), VALUES, 0),
    "targets": (MultiOutputRegressor(lgbm("Regressor")), np.stack([VALUES, -VALUES], 1), 0),
}


@pytest.mark.parametrize("name", ENSEMBLES)
def test_members_of_ensembles_are_counted_once_each(name):
    """By the dump of each fitted member; the template that an ensemble copied has no trees."""
    model, target, others = ENSEMBLES[name]
    members = model.fit(X, target).estimators_
    check_trees(count(model), members, others)


def test_calibrated_trees():
    """Two folds; the calibration itself is that of scikit-learn."""
    model = CalibratedClassifierCV(xgb("Classifier"), cv=2).fit(X, TWO)
    members = [fold.estimator for fold in model.calibrated_classifiers_]
    check_trees(count(model), members, 1)


@pytest.mark.parametrize("piped", [False, True])
def test_the_best_model_of_a_search(piped):
    """Is what is counted, alone and at the end of a pipeline."""
    inner, name = xgb("Regressor"), "max_depth"
    if piped:
        inner, name = make_pipeline(StandardScaler(), inner), "xgbregressor__max_depth"
    search = GridSearchCV(inner, {name: [1, 3]}, cv=2).fit(X, VALUES)
    best = search.best_estimator_[-1] if piped else search.best_estimator_
    assert count(search).totals.compares == ROWS * sum_of_depths(best)


def test_trees_are_a_module_of_their_own():
    """The step has its name in the pipeline, and its numbers."""
    model = make_pipeline(StandardScaler(), xgb("Regressor")).fit(X, VALUES)
    modules = {row.path: row for row in count(model).modules}
    assert modules["xgbregressor"].params == count(model[-1]).params > 0


def test_what_was_registered_for_skl2onnx_is_left():
    """A count registers its own converters for its time alone."""
    from skl2onnx._supported_operators import sklearn_operator_name_map as names

    before = dict(names)
    count(make_pipeline(StandardScaler(), xgb("Regressor")).fit(X, VALUES))
    assert names == before


def test_linear_leaves_are_refused():
    """They are refused in a pipeline as they are alone."""
    model = lightgbm.LGBMRegressor(n_estimators=2, linear_tree=True, verbose=-1)
    with pytest.raises(CrossflopsError, match="linear_tree"):
        count(make_pipeline(StandardScaler(), model).fit(X, VALUES))
