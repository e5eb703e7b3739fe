"""Chains of estimators and regressions of scaled targets, which skl2onnx has no converters for.

Work is counted by hand, and compared with that of each estimator alone; a run of the file gives
the predictions of the estimator.
"""

import numpy as np
import pytest

import crossflops
from crossflops.errors import NormalizeError

pytestmark = pytest.mark.sklearn
FEATURES, ROWS = 4, 2


def make_data():
    """Features, three targets, and three targets of two classes."""
    random = np.random.default_rng(0)
    rows, targets = random.random((40, FEATURES)), random.random((40, 3))
    return rows, targets, (targets > 0.5).astype(int)


def run_file(model, dtype, folder):
    """The rows, and what the exported file predicts for them in onnxruntime."""
    runtime = pytest.importorskip("onnxruntime")
    rows = make_data()[0][:ROWS].astype(dtype)
    crossflops.export(model, rows, to="onnx", file=folder / "model.onnx")
    session = runtime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return rows, session.run(None, {session.get_inputs()[0].name: rows})[0]


@pytest.mark.parametrize("order", [None, [2, 0, 1]])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_chain_of_regressions(order, dtype, tmp_path):
    """The n-th reads n predictions as well: 4 + 5 + 6 for each row; its FLOPs have a bias each."""
    from sklearn.linear_model import LinearRegression
    from sklearn.multioutput import RegressorChain

    features, targets, _ = make_data()
    model = RegressorChain(LinearRegression(), order=order).fit(features, targets)
    report = crossflops.count(model, [f"{ROWS}x{FEATURES}:{dtype}"])
    assert (report.macs, report.uncounted) == (ROWS * 15, ())
    assert report.flops == ROWS * (2 * 15 + 3)
    rows, result = run_file(model, dtype, tmp_path)
    np.testing.assert_allclose(result, model.predict(rows), rtol=1e-4)


def test_a_chain_of_classifiers(tmp_path):
    """Its predictions are labels, as numbers for the next one; also behind a scaler."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multioutput import ClassifierChain
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    features, _, classes = make_data()
    model = ClassifierChain(LogisticRegression()).fit(features, classes)
    assert crossflops.count(model, [f"{ROWS}x{FEATURES}"]).macs == ROWS * 15
    rows, result = run_file(model, "float32", tmp_path)
    np.testing.assert_array_equal(result, model.predict(rows))
    pipeline = make_pipeline(StandardScaler(), ClassifierChain(LogisticRegression()))
    pipeline.fit(features, classes)
    assert crossflops.count(pipeline, [f"{ROWS}x{FEATURES}"]).macs == ROWS * 15


@pytest.mark.parametrize("kind", ["Regressor", "Classifier"])
def test_a_chain_of_boosted_trees(kind):
    """As much as its models alone, each on the features that it reads."""
    lightgbm = pytest.importorskip("lightgbm")
    from sklearn import multioutput

    features, targets, classes = make_data()
    trees = getattr(lightgbm, f"LGBM{kind}")(
        n_estimators=3, num_leaves=4, min_child_samples=2, verbose=-1
    )
    chain = getattr(multioutput, f"{kind}Chain")(trees)
    chain.fit(features, targets if kind == "Regressor" else classes)
    alone = [
        crossflops.count(model, [f"{ROWS}x{FEATURES + index}"])
        for index, model in enumerate(chain.estimators_)
    ]
    report = crossflops.count(chain, [f"{ROWS}x{FEATURES}"])
    assert report.flops == sum(count.flops for count in alone) > 0
    assert report.macs == 0
    assert not report.uncounted


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_scaled_target(dtype, tmp_path):
    """4 for each row, then a bias, a factor and a mean."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.linear_model import LinearRegression
    from sklearn.preprocessing import StandardScaler

    features, targets, _ = make_data()
    model = TransformedTargetRegressor(LinearRegression(), transformer=StandardScaler())
    model.fit(features, targets[:, 0])
    report = crossflops.count(model, [f"{ROWS}x{FEATURES}:{dtype}"])
    assert (report.macs, report.flops) == (ROWS * 4, ROWS * (2 * 4 + 3))
    rows, result = run_file(model, dtype, tmp_path)
    np.testing.assert_allclose(result.ravel(), model.predict(rows), rtol=1e-4)


def test_other_chains_are_refused():
    """A target that a function transforms has no converter, and the message names it."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.linear_model import LinearRegression

    features, targets, _ = make_data()
    model = TransformedTargetRegressor(
        LinearRegression(), func=np.log1p, inverse_func=np.expm1
    ).fit(features, targets[:, 0])
    with pytest.raises(NormalizeError, match=r"FunctionTransformer\.inverse_transform"):
        crossflops.count(model, [f"{ROWS}x{FEATURES}"])
