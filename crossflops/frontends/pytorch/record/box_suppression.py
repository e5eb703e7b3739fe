"""ONNX's NonMaxSuppression in NumPy: the result of ONNX's reference, without its loop over pairs.

The reference compares each candidate with each selected box in Python, which took a tenth of the
count of a detector. Here one selected box is compared with all candidates at once.
Source: ONNX's operator NonMaxSuppression-11; onnx/reference/ops/op_non_max_suppression.py.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np


def suppress_boxes(
    boxes: Any,
    scores: Any,
    limit: Any = None,
    iou_threshold: Any = None,
    score_threshold: Any = None,
    *,
    center_point_box: int = 0,
) -> Any:
    """Return the selected boxes as rows (batch, class, box), an int64 array.

    Args:
        boxes: coordinates, (batch, boxes, 4).
        scores: scores, (batch, classes, boxes).
        limit: the largest number of boxes of one class; 0 by default.
        iou_threshold: a box is left out if its intersection over union with a selected one is
            larger; 0 by default.
        score_threshold: a box is left out unless its score is larger; None selects by no score.
        center_point_box: 1 if coordinates are (x center, y center, width, height).
    """
    most = max(int(_first_value(limit, 0)), 0)
    threshold = _first_value(iou_threshold, 0.0)
    rows = []
    for batch, classes in enumerate(scores):
        corners = _box_corners(boxes[batch], center_point_box)
        for kind, of_class in enumerate(classes):
            order = np.argsort(-of_class, kind="stable")
            if score_threshold is not None and np.size(score_threshold):
                order = order[of_class[order] > _first_value(score_threshold, 0.0)]
            selected = _boxes_by_score(corners, order, threshold)
            rows += [(batch, kind, box) for box in islice(selected, most)]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _first_value(array: Any, default: float) -> Any:
    """Return the first element of an array; `default` if there is none."""
    return default if array is None or not np.size(array) else np.ravel(array)[0]


def _box_corners(boxes: Any, center_point_box: int) -> Any:
    """Return the boxes as rows (smaller x, smaller y, larger x, larger y)."""
    if center_point_box:
        half = boxes[:, 2:] / 2
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    first, second = boxes[:, [1, 0]], boxes[:, [3, 2]]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=1)


def _boxes_by_score(corners: Any, order: Any, threshold: Any) -> Iterator[int]:
    """Yield the indices of the boxes that no better box suppresses, best first."""
    low, high = corners[:, :2], corners[:, 2:]
    areas = np.prod(high - low, axis=1)
    while len(order):
        best, order = order[0], order[1:]
        yield int(best)
        sides = np.minimum(high[best], high[order]) - np.maximum(low[best], low[order])
        common = np.where((sides > 0).all(axis=1), np.prod(sides, axis=1), 0)
        union = areas[best] + areas[order] - common
        has_area = (common > 0) & (areas[best] > 0) & (areas[order] > 0) & (union > 0)
        overlap = np.divide(common, union, out=np.zeros_like(common), where=has_area)
        order = order[~(has_area & (overlap > threshold))]
