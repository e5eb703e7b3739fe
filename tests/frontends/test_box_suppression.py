"""Selected boxes are those that ONNX's reference implementation selects."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from crossflops.frontends.pytorch.record.box_suppression import suppress_boxes


@pytest.mark.parametrize("center_point_box", [0, 1])
@pytest.mark.parametrize("seed", range(10))
def test_selected_boxes_are_those_of_the_reference(seed, center_point_box):
    """The same rows in the same order: with equal scores, equal boxes, and boxes without area."""
    random = np.random.default_rng(seed)
    boxes = random.uniform(0, 4, (2, 30, 4)).astype(np.float32)
    boxes[:, 5] = boxes[:, 4]  # equal boxes
    boxes[:, 7, 2:] = boxes[:, 7, :2]  # without area, as corners
    scores = random.integers(0, 9, (2, 3, 30)).astype(np.float32)  # with equal ones
    limits = (
        np.array([random.integers(0, 12)], dtype=np.int64),
        np.array([random.uniform(0, 0.6)], dtype=np.float32),
        *([np.array([2.5], dtype=np.float32)] if seed % 2 else []),
    )
    inputs = (boxes, scores, *limits)
    expected = _reference_selection(inputs, center_point_box)
    result = suppress_boxes(*inputs, center_point_box=center_point_box)
    np.testing.assert_array_equal(result, expected.reshape(-1, 3))


def test_no_box_is_selected_without_a_limit():
    """The limit of boxes of a class is 0 by default."""
    boxes, scores = np.zeros((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    assert suppress_boxes(boxes, scores).shape == (0, 3)


def _reference_selection(inputs, center_point_box):
    """Return the rows that ONNX's reference selects."""
    names = [f"input{index}" for index in range(len(inputs))]
    node = helper.make_node(
        "NonMaxSuppression", names, ["selected"], center_point_box=center_point_box
    )
    graph = helper.make_graph(
        [node],
        "boxes",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)
            for name, array in zip(names, inputs, strict=True)
        ],
        [helper.make_tensor_value_info("selected", TensorProto.INT64, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))[0]
