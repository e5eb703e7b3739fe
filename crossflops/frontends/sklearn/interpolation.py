"""Write isotonic calibration as scikit-learn computes it: linear between two thresholds.

skl2onnx/operator_converters/calibrated_classifier_cv.py takes the value at the nearest threshold.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute


@contextmanager
def writing_isotonic_as_interpolation(points: dict[str, int], empty: set[str]) -> Iterator[None]:
    """Return a context in which skl2onnx writes isotonic calibrations as interpolation.

    `points` gets the nodes that give the results, with the number of thresholds, and `empty` the
    other nodes that make them.
    """
    module: Any = importlib.import_module("skl2onnx.operator_converters.calibrated_classifier_cv")

    def interpolate_isotonic(
        scope: Any, container: Any, model: Any, scores: str, index: int, dtype: Any, kind: Any
    ) -> str:
        """Add nodes that calibrate the scores of one class; return the name of their result."""
        written = _Writer(scope, container, module.TensorProto, dtype)
        first = len(container.nodes)
        calibrator = model.calibrators[index]
        result, last = written.interpolate_scores(
            written.clip_scores(scores, calibrator), calibrator
        )
        names = [node.name for node in container.nodes[first:] if node.op_type != "Clip"]
        if last:
            points[last] = len(calibrator.X_thresholds_)
        empty.update(name for name in names if name != last)
        return result

    with patching_attribute(
        module, "_transform_isotonic", interpolate_isotonic, inventory.CALIBRATIONS
    ):
        yield


class _Writer:
    """A writer of nodes into a conversion of skl2onnx, with unique names."""

    def __init__(self, scope: Any, container: Any, kinds: Any, dtype: Any) -> None:
        """Take skl2onnx's scope and container, ONNX's element types and the scores' dtype."""
        self._scope = scope
        self._container = container
        self._dtype = dtype
        self._kind = kinds.DOUBLE if dtype == np.float64 else kinds.FLOAT
        self._whole = kinds.INT64

    def clip_scores(self, scores: str, calibrator: Any) -> str:
        """Add a Clip of the scores to the range of the thresholds; return its result's name."""
        ends = (calibrator.X_min_, calibrator.X_max_)
        return self._add_node(
            "Clip", scores, *(self._store_numbers(self._dtype(end), []) for end in ends)
        )

    def interpolate_scores(self, scores: str, calibrator: Any) -> tuple[str, str]:
        """Add nodes that interpolate scores; return names of the result and of the last node ("").

        One threshold has one value for all scores: no node interpolates. Thresholds that are equal
        in the type of the scores have no line between them.
        """
        at = np.asarray(calibrator.X_thresholds_, self._dtype)
        values = np.asarray(calibrator.y_thresholds_, self._dtype)
        widths, heights = np.diff(at), np.diff(values)
        slopes = np.divide(heights, widths, out=np.zeros_like(widths), where=widths > 0)
        if len(at) == 1:
            slopes = np.zeros_like(values)
        lines = self._add_threshold_count(scores, at[1:-1])
        starts, bases, rises = (
            self._add_node("Gather", self._store_numbers(numbers, [len(numbers)]), lines)
            for numbers in (at[: len(slopes)], values[: len(slopes)], slopes)
        )
        steps = self._add_node("Mul", self._add_node("Sub", scores, starts), rises)
        result = self._add_node("Add", steps, bases)
        return result, self._container.nodes[-1].name if len(at) > 1 else ""

    def _add_threshold_count(self, scores: str, inner: Any) -> str:
        """Add nodes that count the inner thresholds up to each score; return the result's name."""
        reached = self._add_node(
            "GreaterOrEqual", scores, self._store_numbers(inner, [1, len(inner)])
        )
        ones = self._add_node("Cast", reached, to=self._whole)
        along = self._scope.get_unique_variable_name("along")
        self._container.add_initializer(along, self._whole, [1], [1])
        return self._add_node("ReduceSum", ones, along, keepdims=1)

    def _store_numbers(self, numbers: Any, shape: list[int]) -> str:
        """Add a stored tensor of these numbers and this shape, and return its name."""
        name: str = self._scope.get_unique_variable_name("calibration")
        stored = np.ravel(numbers).tolist()
        self._container.add_initializer(name, self._kind, shape, stored)
        return name

    def _add_node(self, operator: str, *operands: str, **attributes: Any) -> str:
        """Add a node with this operator and these inputs, and return the name of its result."""
        result: str = self._scope.get_unique_variable_name(f"calibration_{operator.lower()}")
        name = self._scope.get_unique_operator_name(f"Calibration{operator}")
        version = 16 if operator == "GreaterOrEqual" else 13
        self._container.add_node(
            operator, list(operands), result, name=name, op_version=version, **attributes
        )
        return result
