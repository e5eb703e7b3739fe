"""Calibrated classifiers: what the file computes, and what an isotonic calibration costs."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")

from sklearn.calibration import CalibratedClassifierCV
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC

import crossflops
from crossflops.frontends import build_model_program
from crossflops.frontends.inputs import ProvidedInputs
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import model_source
from tests.exported import differences

pytestmark = pytest.mark.sklearn
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 4)).astype(np.float32)
NOISY = X[:, 0] + RANDOM.normal(size=120) / 2
LABELS = {2: (NOISY > 0).astype(int), 3: np.digitize(NOISY, [-0.5, 0.5])}
ROWS = (RANDOM.normal(size=(40, 4)) * 2).astype(np.float32)  # some are beyond all thresholds
INNER = {
    "SVC": lambda: SVC(),
    "NuSVC": lambda: NuSVC(nu=0.2),
    "LinearSVC": lambda: LinearSVC(),
    "GaussianNB": lambda: GaussianNB(),
    "scaled SVC": lambda: make_pipeline(StandardScaler(), SVC()),
    "scaled LinearSVC": lambda: make_pipeline(StandardScaler(), LinearSVC()),
    "scaled LogisticRegression": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "scaled GaussianNB": lambda: make_pipeline(StandardScaler(), GaussianNB()),
    "pipelines": lambda: make_pipeline(make_pipeline(StandardScaler(), SGDClassifier())),
}


@pytest.mark.parametrize("classes", LABELS)
@pytest.mark.parametrize("method", ["isotonic", "sigmoid"])
@pytest.mark.parametrize("name", INNER)
def test_the_file_calibrates_the_scores_of_the_estimator(name, method, classes):
    """Not its probabilities where it has both, as scikit-learn asks for `decision_function`."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = CalibratedClassifierCV(INNER[name](), method=method, cv=2).fit(X, LABELS[classes])
    data = build_model_program(model_source(model, ProvidedInputs(values=ROWS)), Setting())[0]
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    labels, result = session.run(None, {session.get_inputs()[0].name: ROWS})
    np.testing.assert_allclose(result, model.predict_proba(ROWS), atol=1e-4)
    assert (labels == model.predict(ROWS)).mean() > 0.9  # of equal probabilities either is one


def test_a_line_is_found_and_followed(tmp_path):
    """By hand: for each row and fold a score, a place between two ends, a search, and the line
    y0 + (y1 - y0) / (x1 - x0) * (x - x0); then 1 - y, the mean of the folds and the larger one.
    """
    model = CalibratedClassifierCV(LinearSVC(), method="isotonic", cv=2).fit(X, LABELS[2])
    compares = 1
    for fold in model.calibrated_classifiers_:
        points = len(fold.calibrators[0].X_thresholds_)
        compares += 1 + 2 + int(np.ceil(np.log2(points + 1)))
    work = crossflops.count(model, ROWS).totals
    assert work.macs == 40 * 2 * 4
    assert work.adds == 40 * (2 * (1 + 4 + 1) + 2)
    assert (work.muls, work.divs) == (40 * 2, 40 * (2 + 2))
    assert work.compares == 40 * compares
    assert differences(model, ROWS, tmp_path) == {}


@pytest.mark.parametrize("points", [1, 2, 3])
def test_few_thresholds(points):
    """One is a constant, whatever the score: nothing is computed."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = CalibratedClassifierCV(LinearSVC(), method="isotonic", cv=2).fit(X, LABELS[2])
    few = IsotonicRegression(out_of_bounds="clip").fit(np.arange(points), np.arange(points) / 4)
    assert len(few.X_thresholds_) == points
    for fold in model.calibrated_classifiers_:
        fold.calibrators = [few]
    data, graph, _ = build_model_program(
        model_source(model, ProvidedInputs(values=ROWS)), Setting()
    )
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    result = session.run(None, {session.get_inputs()[0].name: ROWS})[1]
    np.testing.assert_allclose(result, model.predict_proba(ROWS), atol=1e-6)
    assert count(graph).total.muls == (0 if points == 1 else 40 * 2)
