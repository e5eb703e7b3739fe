"""What skl2onnx writes that an estimator does not compute stands apart from its count."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")

from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeClassifier
from sklearn.svm import LinearSVC

import crossflops

pytestmark = pytest.mark.sklearn

ROWS, FEATURES = 60, 3
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, FEATURES)).astype(np.float32)
TWO, THREE = (X[:, 0] > 0).astype(int), np.arange(ROWS) % 3
LINEAR = [
    LogisticRegression(),
    LogisticRegressionCV(cv=3),
    RidgeClassifier(),
    LinearSVC(),
    LinearDiscriminantAnalysis(),
]


def totals(model, rows=1):
    """The totals of a fitted estimator."""
    return crossflops.count(model, (np.zeros((rows, FEATURES), np.float32),)).totals


@pytest.mark.parametrize("model", LINEAR, ids=lambda one: type(one).__name__)
def test_two_classes_take_one_column_of_weights(model):
    """decision_function is X @ coef_.T + intercept_, and coef_ has one row of 3 features."""
    found = totals(model.fit(X, TWO), rows=5)
    assert found.macs == 5 * FEATURES
    assert found.converter_macs == 5 * FEATURES  # the same column again, negated


@pytest.mark.parametrize("model", LINEAR, ids=lambda one: type(one).__name__)
def test_more_classes_take_all_of_theirs(model):
    """Three columns of three features."""
    found = totals(model.fit(X, THREE))
    assert (found.macs, found.converter_macs) == (3 * FEATURES, 0)


def test_estimators_within_others_are_counted_once_each():
    """Two folds, each a linear model of two classes."""
    model = CalibratedClassifierCV(LogisticRegression(), cv=2).fit(X, TWO)
    found = totals(model)
    assert (found.macs, found.converter_macs) == (2 * FEATURES, 2 * FEATURES)


@pytest.mark.parametrize(
    ("kernel", "shapes"),
    [
        (RBF(), 0),
        (RBF() + WhiteKernel(), 1),
        (ConstantKernel() * RBF(), 1),
        (ConstantKernel() * RBF() + WhiteKernel(), 2),
    ],
    ids=str,
)
def test_a_kernel_without_products_has_none(kernel, shapes):
    """K(X, X_train) @ alpha_ alone multiplies: one MAC for each of the rows that were fitted.

    skl2onnx makes the shape of a WhiteKernel, and of a constant, by a product of two vectors of
    zeros: one more MAC for each of these rows.
    """
    model = GaussianProcessRegressor(kernel, optimizer=None).fit(X, X @ [1, 2, 3])
    found = totals(model)
    assert found.macs == ROWS
    assert found.converter_macs == shapes * ROWS


def test_a_kernel_of_products_keeps_them():
    """X @ X_train.T beside K @ alpha_."""
    kernel = DotProduct() + WhiteKernel()
    model = GaussianProcessRegressor(kernel, optimizer=None).fit(X, X @ [1, 2, 3])
    assert totals(model).macs == ROWS * FEATURES + ROWS
