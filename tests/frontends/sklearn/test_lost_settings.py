"""What skl2onnx does not write of an estimator is refused; what it writes, the file computes."""

import numpy as np
import pytest

from crossflops.errors import NormalizeError
from crossflops.frontends import build_model_program
from crossflops.frontends.inputs import ProvidedInputs
from crossflops.ir.trace import Setting
from crossflops.targets import model_source

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")

from tests.estimators import data, made

pytestmark = pytest.mark.sklearn
X, Y = data()
X = np.asarray(X, np.float32)
ROWS = (X[:5] * 1.07).astype(np.float32)
HOLED = np.where(np.arange(X.size).reshape(X.shape) % 7 == 0, np.nan, X).astype(np.float32)


def ridge():
    """A classifier without probabilities."""
    return made("RidgeClassifier")


def quadratic():
    """A classifier whose scores are no probabilities, and which has both."""
    return made("QuadraticDiscriminantAnalysis")


def in_steps(last):
    """A pipeline in a pipeline."""
    inner = made("Pipeline", steps=[("scaled", made("StandardScaler")), ("last", last)])
    return made("Pipeline", steps=[("inner", inner)])


def search(name):
    """A search for the better of two estimators."""
    return made("GridSearchCV", estimator=made(name), param_grid={"C": [0.1, 1.0]}, cv=2)


def against_rest(name):
    """One estimator for each class."""
    return made("OneVsRestClassifier", estimator=made(name))


# An estimator, a setting that is lost with its value, one that is not, and what is asked.
CASES = [
    ("Normalizer", {"norm": "max"}, {"norm": "l1"}, "transform"),
    ("HistGradientBoostingRegressor", {"loss": "poisson"}, {"loss": "squared_error"}, "predict"),
    ("HistGradientBoostingRegressor", {"loss": "gamma"}, {"loss": "absolute_error"}, "predict"),
    ("KNeighborsClassifier", {"weights": "distance"}, {"weights": "uniform"}, "predict_proba"),
    ("KNeighborsRegressor", {"weights": "distance"}, {"weights": "uniform"}, "predict"),
    ("BaggingClassifier", {"estimator": ridge}, {"estimator": None}, "predict_proba"),
    (
        "CalibratedClassifierCV",
        {"estimator": quadratic},
        {"estimator": ridge},
        "predict_proba",
    ),
    *(
        ("CalibratedClassifierCV", {"estimator": lost}, {"estimator": kept}, "predict_proba")
        for lost, kept in (
            (lambda: in_steps(quadratic()), lambda: in_steps(ridge())),
            (lambda: search("LogisticRegression"), lambda: made("LogisticRegression")),
            (lambda: against_rest("LinearSVC"), lambda: against_rest("LogisticRegression")),
        )
    ),
    ("SimpleImputer", {"add_indicator": True}, {"add_indicator": False}, "transform"),
]


def fitted(name, settings):
    """The estimator, small and fitted."""
    more = {"max_iter": 5} if name.startswith("Hist") else {}
    more |= {"n_estimators": 2} if name.startswith("Bagging") else {}
    values = {key: value() if callable(value) else value for key, value in settings.items()}
    given = HOLED if name == "SimpleImputer" else X
    return made(name, **more, **values).fit(given, np.asarray(Y) + (1 if "Hist" in name else 0))


def differs(model, asked):
    """Whether the file gives another result than the method."""
    onnxruntime = pytest.importorskip("onnxruntime")
    rows = HOLED[:5] if type(model).__name__ == "SimpleImputer" else ROWS
    data = build_model_program(model_source(model, ProvidedInputs(values=rows)), Setting())[0]
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    result = session.run(None, {session.get_inputs()[0].name: rows})[-1]
    want = np.asarray(getattr(model, asked)(rows))
    return result.size != want.size or not np.allclose(result.reshape(want.shape), want, atol=1e-3)


@pytest.mark.parametrize(("name", "lost", "kept", "asked"), CASES)
def test_a_setting_that_is_lost_is_refused(name, lost, kept, asked, monkeypatch):
    """And one that is not is counted, with a file that computes the same."""
    model = fitted(name, lost)
    with pytest.raises(NormalizeError, match=f"converts {name} incorrectly with"):
        differs(model, asked)
    inside = made("Pipeline", steps=[("last", model)])
    with pytest.raises(NormalizeError, match=f"converts {name} incorrectly with"):
        build_model_program(model_source(inside, ProvidedInputs(values=ROWS)), Setting())
    assert not differs(fitted(name, kept), asked)
    monkeypatch.setattr("crossflops.frontends.sklearn.lost_settings.LOST", ())
    assert differs(model, asked)  # else the list holds what is lost no more
