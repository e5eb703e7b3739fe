"""A file of an estimator costs what the estimator does, whatever skl2onnx wrote for it.

Some of the estimators that are converted; with CROSSFLOPS_EVERY_EXPORT=1 all.
"""

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")

from tests.estimators import data, fitted, made
from tests.exported import differences, some
from tests.frontends.sklearn.test_sweep import NAMES, REFUSED

pytestmark = pytest.mark.sklearn
ALWAYS = ("GaussianProcessRegressor", "GaussianProcessClassifier", "Pipeline")


# skl2onnx declares the labels of one row as [1], and writes nodes that give [1, 1].
@pytest.mark.filterwarnings("ignore:shape mismatch for 'label'")
@pytest.mark.parametrize("name", some(sorted({*NAMES} - {*REFUSED}), ALWAYS, 12))
def test_a_file_costs_what_the_estimator_does(name, tmp_path):
    """All kinds of work, parameters, and what has no count."""
    model, inputs = fitted(name)
    assert differences(model, inputs, tmp_path) == {}


def test_two_classes_have_one_column_in_the_file(tmp_path):
    """skl2onnx writes the column of weights a second time: 4 products, not 8, of the scores."""
    x, y = data()
    model = made("LogisticRegression").fit(x, y % 2)
    assert differences(model, ["1x4"], tmp_path) == {}
