"""List settings of estimators that skl2onnx loses; found by comparing outputs.

The outputs of a file were compared with those of the estimator, for several values of each
setting of the usual estimators. What is here computes something else, and is refused.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from crossflops.errors import NormalizeError


class Loss(NamedTuple):
    """A setting that skl2onnx loses, of estimators of this class for which `holds` is true."""

    estimator: str
    holds: Callable[[Any], bool]
    setting: str
    lost: str


def _has_missing_value_indicator(model: Any) -> bool:
    """Return whether a fitted imputer also outputs columns that mark missing values."""
    indicator = getattr(model, "indicator_", None)
    return indicator is not None and len(indicator.features_) > 0


def _lacks_probabilities(model: Any) -> bool:
    """Return whether an estimator of an ensemble has no method `predict_proba`."""
    return not all(hasattr(inner, "predict_proba") for inner in model.estimators_)


def _has_scores_that_skl2onnx_changes(model: Any) -> bool:
    """Return whether a model calibrates scores that skl2onnx computes in another way.

    skl2onnx/operator_converters/calibrated_classifier_cv.py reads the second output of the
    estimator, which for these is never its `decision_function`, nor for a search or one-vs-rest
    without probabilities. SVC(probability=False) has no probabilities; since scikit-learn 1.9 its
    default setting is a word.
    """
    inner = last_pipeline_step(model.calibrated_classifiers_[0].estimator)
    name = type(inner).__name__
    is_written_otherwise = (
        name == "QuadraticDiscriminantAnalysis"
        or hasattr(inner, "best_estimator_")
        or (name == "OneVsRestClassifier" and _lacks_probabilities(inner))
        or getattr(inner, "probability", False) is True
    )
    return is_written_otherwise and hasattr(inner, "decision_function")


def last_pipeline_step(estimator: Any) -> Any:
    """Return the last step of a (nested) pipeline, or the estimator itself if it is not one."""
    while steps := getattr(estimator, "steps", None):
        estimator = steps[-1][1]
    return estimator


_EQUAL = 0.5  # the threshold of two probabilities above which the second one is the larger
_NEIGHBOURS = "distances have other weights"
LOST = (
    Loss(
        "Normalizer", lambda m: m.norm == "max", "norm='max'", "absolute values are plain values"
    ),
    Loss(
        "HistGradientBoostingRegressor",
        lambda m: m.loss in ("poisson", "gamma"),
        "a loss on a logarithm",
        "the exponential is left out",
    ),
    Loss(
        "SimpleImputer",
        _has_missing_value_indicator,
        "add_indicator=True",
        "the indicators are left out",
    ),
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
        _has_scores_that_skl2onnx_changes,
        "an estimator whose scores it does not write",
        "probabilities or labels are calibrated in their place",
    ),
    Loss(
        "TunedThresholdClassifierCV",
        lambda m: m.best_threshold_ != _EQUAL,
        "a threshold that was found",
        "the label of the larger probability is given",
    ),
    Loss(
        "BaggingClassifier",
        _lacks_probabilities,
        "estimators without probabilities",
        "votes are mixed up",
    ),
)


def reject_lost_settings(estimators: Iterable[Any]) -> None:
    """Raise NormalizeError if one of the estimators has a setting that skl2onnx loses."""
    for model in estimators:
        for loss in LOST:
            if type(model).__name__ == loss.estimator and loss.holds(model):
                raise NormalizeError(
                    f"skl2onnx converts {loss.estimator} incorrectly with {loss.setting}: "
                    f"{loss.lost}",
                    "change that setting, or count the other estimators separately",
                )
