"""`export --verify` of estimators: their methods beside the file in onnxruntime."""

import numpy as np
import pytest

from crossflops.errors import InputError
from crossflops.verbs.api import export
from tests.exported import EVERY

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")
pytest.importorskip("onnxruntime")

from tests.estimators import data, fitted, made
from tests.frontends.sklearn.test_sweep import NAMES, REFUSED, UNCOUNTED, WITHOUT_KERNEL

pytestmark = pytest.mark.sklearn
X, Y = data()
ROWS = (X[:7] * 1.07).astype(np.float32)
UNVERIFIED = {
    "MultiOutputClassifier": "returns lists of arrays",
    "VotingClassifier": "no method of VotingClassifier returns the output 'probabilities'",
    "CountVectorizer": "has text inputs",
}
# For each kind of output one: labels, probabilities, scores, distances, one or several numbers.
SOME = (
    "LogisticRegression", "LinearSVC", "IsolationForest", "KMeans", "NearestNeighbors", "Ridge",
    "MultiOutputRegressor", "PLSRegression", "RFE", "SelectFromModel", "PCA", "Pipeline",
    "QuadraticDiscriminantAnalysis", "OrdinalEncoder", "LabelEncoder", "GaussianProcessRegressor",
    "GridSearchCV", "ColumnTransformer", "TargetEncoder",
)  # fmt: skip
WITHOUT = {*REFUSED, *UNCOUNTED, *WITHOUT_KERNEL, *UNVERIFIED} - {"KNNImputer"}


def verified(model, inputs, folder):
    """Return what `verify` finds of an estimator."""
    return export(model, inputs, to="onnx", file=folder / "out.onnx", verify=True).agreement


@pytest.mark.parametrize("name", sorted({*NAMES} - WITHOUT) if EVERY else SOME)
def test_a_file_agrees_with_the_methods(name, tmp_path):
    """Of seven rows, or labels, that are made up."""
    model, texts = fitted(name)
    agreement = verified(model, [f"7{text.removeprefix('1')}" for text in texts], tmp_path)
    assert agreement.is_proven, agreement
    assert agreement.outputs


@pytest.mark.parametrize("name", UNVERIFIED)
def test_what_no_method_gives_is_refused(name, tmp_path):
    """Votes, lists of probabilities, and text."""
    model, texts = fitted(name)
    with pytest.raises(InputError, match=UNVERIFIED[name]):
        verified(model, texts, tmp_path)


def test_what_a_file_loses_is_seen(tmp_path, monkeypatch):
    """Where nothing is refused: the exponential of a prediction is left out."""
    model = made("HistGradientBoostingRegressor", loss="poisson", max_iter=5).fit(X, Y + 1)
    monkeypatch.setattr("crossflops.frontends.sklearn.lost_settings.LOST", ())
    assert not verified(model, ROWS, tmp_path).holds


TWO = (
    *("LinearSVC", "SVC", "NuSVC", "RidgeClassifier", "Perceptron", "LogisticRegression"),
    *("LinearDiscriminantAnalysis", "GaussianNB"),
)
WIDE = ("LinearDiscriminantAnalysis", "LogisticRegression", "SVC")  # as float64, too


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "float32") for name in TWO), *((name, "float64") for name in WIDE)],
)
def test_two_classes_with_names(name, kind, tmp_path):
    """Labels are text; of one score the file may have two, and the method one."""
    model = made(name).fit(X, np.where(Y > 0, "many", "none"))
    agreement = verified(model, ROWS.astype(kind), tmp_path)
    assert agreement.is_proven, agreement
    assert len(agreement.outputs) == 2


def test_columns_of_a_frame(tmp_path):
    """By name, of two types."""
    pandas = pytest.importorskip("pandas")
    kinds = np.arange(30) % 3
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": kinds})
    columns = made(
        "ColumnTransformer",
        transformers=[
            ("scaled", made("StandardScaler"), ["a", "b"]),
            ("kind", made("OneHotEncoder"), ["kind"]),
        ],
    )
    model = made("Pipeline", steps=[("columns", columns), ("last", made("LogisticRegression"))])
    assert verified(model.fit(frame, Y), frame, tmp_path).is_proven
    assert verified(model, ["a=5x1", "b=5x1", "kind=5x1:int64"], tmp_path).is_proven
