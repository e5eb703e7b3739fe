"""Settings of estimators that skl2onnx does not write: a reviewed list, by a sweep of settings.

The outputs of a file were compared with those of the estimator, for several values of each
setting of the usual estimators. What is here computes something else, and is refused.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from crossflops.errors import NormalizeError


class Loss(NamedTuple):
    """A setting that a file loses, of estimators of this class where `holds`."""

    estimator: str
    holds: Callable[[Any], bool]
    setting: str
    lost: str


def _has_indicator(model: Any) -> bool:
    indicator = getattr(model, "indicator_", None)
    return indicator is not None and len(indicator.features_) > 0


def _votes(model: Any) -> bool:
    """Whether the estimators in it have labels alone, and no probabilities."""
    return not all(hasattr(inner, "predict_proba") for inner in model.estimators_)


def _scores_are_lost(model: Any) -> bool:
    """Return whether the model calibrates scores where skl2onnx writes probabilities.

    skl2onnx/operator_converters/calibrated_classifier_cv.py reads the second output of the
    estimator, which of these is never its `decision_function`.
    """
    inner = model.calibrated_classifiers_[0].estimator
    writes_probabilities = type(inner).__name__ in (
        "QuadraticDiscriminantAnalysis",
        "Pipeline",
    ) or getattr(inner, "probability", False)
    return bool(writes_probabilities) and hasattr(inner, "decision_function")


_NEIGHBOURS = "their distances weigh otherwise"
LOST = (
    Loss("Normalizer", lambda m: m.norm == "max", "norm='max'", "a magnitude is its value"),
    Loss(
        "HistGradientBoostingRegressor",
        lambda m: m.loss in ("poisson", "gamma"),
        "a loss on a logarithm",
        "the exponential is left out",
    ),
    Loss("SimpleImputer", _has_indicator, "add_indicator=True", "the indicators are left out"),
    *(
        Loss(
            name,
            lambda m: m.weights == "distance" and m.n_neighbors > 1,
            "weights='distance'",
            _NEIGHBOURS,
        )
        for name in ("KNeighborsClassifier", "KNeighborsRegressor")
    ),
    Loss(
        "CalibratedClassifierCV",
        lambda m: m.method == "isotonic",
        "method='isotonic'",
        "the nearest threshold is taken, and nothing between two is interpolated",
    ),
    Loss(
        "CalibratedClassifierCV",
        _scores_are_lost,
        "an estimator that has both scores and probabilities",
        "probabilities are calibrated in place of the scores",
    ),
    Loss("BaggingClassifier", _votes, "estimators without probabilities", "votes are mixed up"),
)


def refuse_lost_settings(estimators: Iterable[Any]) -> None:
    """Raises NormalizeError for the first estimator of which something would be lost."""
    for model in estimators:
        for loss in LOST:
            if type(model).__name__ == loss.estimator and loss.holds(model):
                raise NormalizeError(
                    f"skl2onnx writes another model for {loss.estimator} with {loss.setting}: "
                    f"{loss.lost}",
                    "set that otherwise, or count the estimators around it",
                )
