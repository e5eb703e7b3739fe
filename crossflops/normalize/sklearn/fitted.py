"""What has to hold before an estimator can be converted: skl2onnx is there, and it is fitted."""

from typing import Any

from crossflops.errors import InputError, MissingExtraError

_INSTALL = "pip install 'crossflops[sklearn]'"


def require(model: Any) -> None:
    """Raises MissingExtraError without skl2onnx, InputError for what was never fitted."""
    try:
        __import__("skl2onnx")
    except ImportError as error:
        raise MissingExtraError(
            "skl2onnx is needed to convert a model of scikit-learn", _INSTALL
        ) from error
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise InputError(
            f"{type(model).__name__} is not fitted, and has no weights to count with",
            "let the callable return it after .fit(X, y)",
        ) from error
    except TypeError:  # what has no fit needs none
        pass
