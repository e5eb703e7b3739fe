"""What skl2onnx writes that an estimator does not compute stands apart from its count."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")

from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    RidgeClassifier,
    SGDClassifier,
)
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
ONCE = [SGDClassifier(), SGDClassifier(loss="log_loss"), Perceptron()]  # written as they are


def totals(model, rows=1):
    """The totals of a fitted estimator."""
    return crossflops.count(model, (np.zeros((rows, FEATURES), np.float32),)).totals


@pytest.mark.parametrize("model", LINEAR, ids=lambda model: type(model).__name__)
def test_two_classes_take_one_column_of_weights(model):
    """decision_function is X @ coef_.T + intercept_, and coef_ has one row of 3 features."""
    work = totals(model.fit(X, TWO), rows=5)
    assert work.macs == 5 * FEATURES
    assert work.converter_macs == 5 * FEATURES  # the same column again, negated


@pytest.mark.parametrize("model", ONCE, ids=str)
def test_a_column_that_is_written_once_is_counted_once(model):
    """Of these skl2onnx negates the score, and no weights."""
    work = totals(model.fit(X, TWO), rows=5)
    assert (work.macs, work.converter_macs) == (5 * FEATURES, 0)


@pytest.mark.parametrize("model", [*LINEAR, *ONCE], ids=str)
def test_more_classes_take_all_of_theirs(model):
    """Three columns of three features."""
    work = totals(model.fit(X, THREE))
    assert (work.macs, work.converter_macs) == (3 * FEATURES, 0)


@pytest.mark.parametrize("own", [LogisticRegression(), LinearSVC(), SGDClassifier()], ids=str)
def test_estimators_within_others_are_counted_once_each(own):
    """Two folds, each a linear model of two classes, or of three. Calibration multiplies none."""
    model = CalibratedClassifierCV(own, cv=2)
    two, three = totals(model.fit(X, TWO)), totals(model.fit(X, THREE))
    assert (two.macs, three.macs) == (2 * FEATURES, 2 * 3 * FEATURES)
    twice = 0 if isinstance(own, SGDClassifier) else 2 * FEATURES
    assert (two.converter_macs, three.converter_macs) == (twice, 0)


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
    work = totals(model)
    assert work.macs == ROWS
    assert work.converter_macs == shapes * ROWS


def test_a_kernel_of_products_keeps_them():
    """X @ X_train.T beside K @ alpha_."""
    kernel = DotProduct() + WhiteKernel()
    model = GaussianProcessRegressor(kernel, optimizer=None).fit(X, X @ [1, 2, 3])
    assert totals(model).macs == ROWS * FEATURES + ROWS


@pytest.mark.parametrize(
    ("kernel", "products", "shapes"), [(None, 0, 1), (RBF(), 0, 0), (DotProduct(), FEATURES, 0)]
)
def test_a_classifier_by_a_gaussian_process(kernel, products, shapes):
    """For each of 5 rows x with K* = K(X_train, x), ROWS elements (sklearn: _gpc.py).

    K* @ (y - pi) and v @ v, one MAC for each of its elements; v solves L v = W K*: an LU and two
    triangular systems per row. Without a kernel it is a constant times RBF.
    """
    model = GaussianProcessClassifier(kernel, optimizer=None).fit(X, TWO)
    report = crossflops.count(model, (np.zeros((5, FEATURES), np.float32),))
    assert not report.uncounted
    assert report.totals.macs == 5 * ROWS * (2 + products)
    assert report.totals.converter_macs == 5 * ROWS * shapes
    (solved,) = (node for node in report.nodes if "solve" in node.op)
    lower = ROWS * (ROWS - 1) // 2
    eliminated = lower + 2 * sum(n * n for n in range(ROWS))
    assert solved.flops == eliminated + 5 * (4 * lower + ROWS)
