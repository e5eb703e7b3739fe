"""What skl2onnx refuses although nothing in it changes the prediction."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

_IDENTITY = ("passthrough", None)


def best(estimator: Any) -> Any:
    """What a search predicts with, where skl2onnx does not know the search itself."""
    from skl2onnx._supported_operators import sklearn_operator_name_map

    while type(estimator) not in sklearn_operator_name_map and hasattr(
        estimator, "best_estimator_"
    ):
        estimator = estimator.best_estimator_
    return estimator


@contextmanager
def mended(estimators: Iterable[Any]) -> Iterator[None]:
    """While this is open, skl2onnx takes these estimators; afterwards they are as they were.

    Steps of a pipeline that pass their input through are left out, a search is its best
    estimator, and how a vote would `transform` is not asked, since it predicts.
    """
    with ExitStack() as stack:
        stack.enter_context(_whole_numbers())
        for one in estimators:
            for name, value in _changed(one):
                stack.enter_context(patch.object(one, name, value))
        yield


def _changed(estimator: Any) -> Iterator[tuple[str, Any]]:
    if getattr(estimator, "flatten_transform", False):
        yield "flatten_transform", False
    steps = getattr(estimator, "steps", None)
    if isinstance(steps, list):
        kept = [(name, best(one)) for name, one in steps if one not in _IDENTITY]
        if kept and any(one is not two for (_, one), (_, two) in zip(kept, steps, strict=False)):
            yield "steps", kept


@contextmanager
def _whole_numbers() -> Iterator[None]:
    """Truth values in a list of whole numbers are such numbers, which ONNX wants.

    skl2onnx/common/tree_ensemble.py gives nodes_missing_value_tracks_true as truth values.
    """
    from skl2onnx.common import _container

    make_node = _container.make_node

    def made(*given: Any, **attributes: Any) -> Any:
        return make_node(*given, **{name: _as_whole(one) for name, one in attributes.items()})

    with patch.object(_container, "make_node", made):
        yield


def _as_whole(value: Any) -> Any:
    if isinstance(value, list | tuple) and any(isinstance(one, bool) for one in value):
        return [int(one) for one in value]
    return value
