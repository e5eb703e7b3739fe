"""What a graph must be before it is counted."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from crossflops.errors import CrossflopsWarning, TargetError
from crossflops.load import read_onnx_model
from tests.onnx_files import parsed, saved


def relu(source, target, name=""):
    """A node with one input and one output."""
    return helper.make_node("Relu", [source], [target], name=name or target)


def model(*nodes, outputs=("y",), initializers=()):
    """A model with an input x of 3 floats."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, [3])],
        [value(name, TensorProto.FLOAT, None) for name in outputs],
        initializers,
    )
    return helper.make_model(graph)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (model(relu("a", "b"), relu("b", "a"), outputs=()), "'b' depends on its own result"),
        (model(relu("y", "y")), "'y' depends on its own result"),
        (
            model(relu("x", "y", "first"), relu("x", "y", "second")),
            "'second' produces 'y' a second time",
        ),
        (model(relu("x", "x")), "'x' produces 'x' a second time"),
        (model(relu("nowhere", "y")), "'y' reads 'nowhere', which no node or input provides"),
        (model(relu("x", "z")), "no node produces the output 'y' of 'g'"),
        (model(), "no nodes"),
        (onnx.ModelProto(), "no nodes"),
    ],
)
def test_a_graph_that_is_none_is_refused(broken, words, tmp_path):
    """Cycles, doubles and gaps are errors that name the node."""
    broken.ir_version = 8
    with pytest.raises(TargetError, match=words):
        read_onnx_model(saved(tmp_path, broken))


def test_nodes_in_any_order_are_sorted(tmp_path):
    """A graph without cycles is put in order, and nothing else changes."""
    shuffled = model(relu("b", "y"), relu("x", "a"), relu("a", "b"))
    nodes = read_onnx_model(saved(tmp_path, shuffled)).graph.node
    assert [node.name for node in nodes] == ["a", "b", "y"]


def test_a_value_that_a_body_takes_from_around_it_counts_for_the_order(tmp_path):
    """A node stands behind those whose results its subgraph reads."""
    branch = parsed(
        "g (bool c, float[3] x) => (y) { y = If(c) <"
        "then_branch = t () => (p) { p = Relu(a) }, else_branch = e () => (q) { q = Relu(a) }> "
        "a = Relu(x) }"
    )
    nodes = read_onnx_model(saved(tmp_path, branch)).graph.node
    assert [node.op_type for node in nodes] == ["Relu", "If"]


@pytest.mark.parametrize("first", ["value_floats", "value"])
def test_a_constant_of_two_values_has_its_first(first, tmp_path):
    """As in onnxruntime 1.31, which gives 5 or 3 for these; the reader is told."""
    values = {"value_floats": [5.0], "value": numpy_helper.from_array(np.float32([3.0]))}
    constant = helper.make_node("Constant", [], ["y"], name="c")
    for name in sorted(values, key=first.__ne__):
        constant.attribute.append(helper.make_attribute(name, values[name]))
    with pytest.warns(CrossflopsWarning, match=f"'c' .* the first, '{first}', is used"):
        (kept,) = read_onnx_model(saved(tmp_path, model(constant))).graph.node
    assert [attribute.name for attribute in kept.attribute] == [first]


@pytest.mark.parametrize("dims", [[-5], [2**62, 2**62], [1] * 100])
def test_dimensions_that_no_tensor_has_are_refused(dims, tmp_path):
    """Negative, overflowing and endless shapes of stored tensors are errors that name it."""
    stored = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)
    broken = model(helper.make_node("Add", ["x", "w"], ["y"]), initializers=[stored])
    with pytest.raises(TargetError, match="'w' has"):
        read_onnx_model(saved(tmp_path, broken))


def test_a_small_payload_of_another_size_is_refused(tmp_path):
    """A tensor that claims 10^18 elements and holds four bytes is an error that names it."""
    stored = TensorProto(name="w", data_type=1, dims=[10**9, 10**9], raw_data=b"1234")
    broken = model(helper.make_node("MatMul", ["x", "w"], ["y"]), initializers=[stored])
    with pytest.raises(TargetError, match="'w' declares 1000000000x1000000000 float32"):
        read_onnx_model(saved(tmp_path, broken))
