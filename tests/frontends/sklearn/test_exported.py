"""Files that are exported of estimators: the parameters are those of the estimator."""

import pytest

from crossflops import count
from crossflops.verbs.api import export

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")

from tests.estimators import data, fitted, made

pytestmark = pytest.mark.sklearn

NAMES = (
    "GaussianProcessRegressor", "GaussianNB", "KMeans", "LinearSVC", "MLPClassifier", "Pipeline",
    "RandomForestClassifier", "SVC", "StandardScaler", "VotingClassifier",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_file_has_the_parameters_of_its_estimator(name, tmp_path):
    """Number and bytes as scikit-learn stores them, whatever skl2onnx wrote."""
    model, inputs = fitted(name)
    path = str(tmp_path / "model.onnx")
    export(model, inputs, to="onnx", file=path)
    of_model, of_file = count(model, inputs), count(path)
    assert of_file.totals.params == of_model.totals.params
    assert of_file.memory.param_bytes == of_model.memory.param_bytes


def test_two_classes_have_one_column(tmp_path):
    """4 coefficients and an intercept of float32, as X; skl2onnx writes them twice."""
    x, y = data()
    model = made("LogisticRegression").fit(x, y % 2)
    path = str(tmp_path / "model.onnx")
    export(model, ["1x4"], to="onnx", file=path)
    report = count(path)
    assert (report.totals.params, report.memory.param_bytes) == (5, 20)
