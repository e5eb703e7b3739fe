"""A node with the inputs or attributes of another opset: the message names that opset."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import crossflops
from crossflops.errors import OperandError
from tests.onnx_files import saved

WHOLE, FLOATS = np.int64, np.float32
# Since which opset an operator has its forms: the page "Operators" of ONNX, its history of each.
CASES = [
    ("Split", 13, {"num_outputs": 2}, [], "from opset 18 on"),
    ("Split", 18, {"split": [1, 1]}, [], "in opsets 1 to 12"),
    ("Split", 11, {}, [WHOLE([1, 1])], "from opset 13 on"),
    ("ReduceSum", 11, {}, [WHOLE([1])], "from opset 13 on"),
    ("ReduceSum", 13, {"axes": [1]}, [], "in opsets 1 to 12"),
    ("ReduceMean", 18, {"axes": [1]}, [], "in opsets 1 to 17"),
    ("Unsqueeze", 13, {"axes": [0]}, [], "in opsets 1 to 12"),
    ("Squeeze", 11, {}, [WHOLE([0])], "from opset 13 on"),
    ("Clip", 11, {"max": 6.0}, [], "in opsets 1 to 10"),
    ("Clip", 6, {}, [FLOATS(0)], "from opset 11 on"),
    ("Pad", 11, {"pads": [0, 0, 1, 1]}, [], "in opsets 2 to 10"),
    ("Pad", 9, {}, [WHOLE([0, 0, 1, 1])], "from opset 11 on"),
    ("Slice", 10, {"starts": [0], "ends": [1]}, [], "in opsets 1 to 9"),
    ("TopK", 11, {"k": 1}, [], "in opsets 1 to 9"),
    ("TopK", 9, {}, [WHOLE([1])], "from opset 10 on"),
    ("Dropout", 12, {"ratio": 0.3}, [], "in opsets 1 to 11"),
    ("Resize", 10, {"antialias": 1}, [FLOATS([]), FLOATS([1, 2])], "from opset 18 on"),
    ("Resize", 13, {}, [FLOATS([1, 2])], "in opset 10"),  # its scales: the region from 11 on
    ("Resize", 10, {}, [FLOATS([]), FLOATS([1, 2])], "from opset 11 on"),
    ("BatchNormalization", 9, {"spatial": 1}, [FLOATS([1, 1])] * 4, "in opsets 1 to 8"),
    ("Add", 7, {"broadcast": 1, "axis": 0}, [FLOATS([1, 1])], "in opsets 1 to 6"),
    ("Softmax", 13, {"nowhere": 1}, [], "no opset allows these inputs and attributes of Softmax"),
]


def one_node(operator, opset, attributes, operands):
    """A file of one node, whose operands after the first are stored."""
    stored = [numpy_helper.from_array(np.array(of), f"w{at}") for at, of in enumerate(operands)]
    results = ["y", "z"] if operator in ("Split", "TopK") else ["y"]
    read = ["x", *(tensor.name for tensor in stored)]
    node = helper.make_node(operator, read, results, **attributes)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph([node], "g", given, made, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@pytest.mark.filterwarnings("ignore:shape inference")  # which says it in its own words, too
@pytest.mark.parametrize(("operator", "opset", "attributes", "operands", "words"), CASES)
def test_of_another_opset(operator, opset, attributes, operands, words, tmp_path):
    """It is refused, with the opset that the file declares and those that have this form."""
    path = saved(tmp_path, one_node(operator, opset, attributes, operands))
    with pytest.raises(OperandError, match=operator) as caught:
        crossflops.count(path)
    assert f"the file declares opset {opset}, and" in caught.value.hint
    assert words in caught.value.hint


def test_an_operator_of_another_opset(tmp_path):
    """It is not counted, and nobody is sent to a runtime that refuses it."""
    report = crossflops.count(saved(tmp_path, one_node("Gelu", 13, {}, [])))
    assert "before version 20" in report.uncounted[0].reason
    assert not report.warnings
