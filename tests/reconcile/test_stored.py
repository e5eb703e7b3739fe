"""Parameters of tools that add up initializers: from ours to theirs, each tensor under a cause."""

import numpy as np
import onnx
import pytest

from crossflops.frontends import Source
from crossflops.frontends.onnx import OnnxFile
from crossflops.ir.trace import Setting
from crossflops.reconcile.parameters import reconcile_stored_parameters
from crossflops.tools.registry import parse_convention
from crossflops.verbs.compare.tool_file import ToolInputFile
from crossflops.verbs.count import count_source
from tests.onnx_files import parsed, saved, with_weights

TOOLS = ("onnx-tool", "onnx-opcounter")


def explained(path, tool, ours=None):
    """The explanation of what a tool should print of a file."""
    file = OnnxFile(path=path, inlined=False)
    mine = count_source(Source(file, (), {}), Setting(), ())
    stock = ToolInputFile(file, path).tensors_in_file(mine)
    return reconcile_stored_parameters(
        parse_convention(tool).parameters, mine.graph.params if ours is None else ours, stock
    )


def amounts(account):
    """Amounts by cause."""
    return {explanation.cause: explanation.amount for explanation in account.explanations}


NORMED = (
    "g (float[1,3,4,4] x, float[8,3,1,1] w, float[8] s, float[8] b, float[8] m, float[8] v)"
    " => (float[?,?,?,?] y) <int64[4] shape = {1, 8, 4, 4}, float half = {0.5},"
    " float[2] alone = {1, 2}> { c = Conv(x, w) n = BatchNormalization(c, s, b, m, v)"
    " r = Reshape(n, shape) y = Mul(r, half) }"
)
CONSTANT = (
    "g (float[2,3] x) => (float[2,2] y)"
    " { w = Constant<value = float[3,2] {1, 2, 3, 4, 5, 6}>() y = MatMul(x, w) }"
)


def test_statistics_constants_and_what_nobody_takes(tmp_path):
    """24 + 16 weights; 16 statistics, a shape of 4, a scalar, 2 elements that no node takes."""
    path = saved(tmp_path, with_weights(NORMED, "w", "s", "b", "m", "v"))
    account = explained(path, "onnx-opcounter")
    assert (account.ours, account.predicted) == (40, 40 + 16 + 5 + 2)
    expected = {"params.statistics": 16, "params.constant": 5, "params.unused": 2}
    assert amounts(account) == expected
    used = explained(path, "onnx-tool")
    assert (used.ours, used.predicted) == (40, 40 + 16 + 4)
    assert amounts(used) == {"params.statistics": 16, "params.constant": 4}
    [constant] = [
        explanation for explanation in used.explanations if explanation.cause == "params.constant"
    ]
    assert constant.parameters == ("shape",)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_weight_in_a_node_is_none(tmp_path, tool):
    """Neither looks at the values of Constant nodes."""
    account = explained(saved(tmp_path, parsed(CONSTANT)), tool)
    assert (account.ours, account.predicted) == (6, 0)
    assert amounts(account) == {"params.no-initializer": -6}


@pytest.mark.parametrize("tool", TOOLS)
def test_packed_weights_are_counted_by_the_byte(tmp_path, tool):
    """32 x 4 weights of 4 bits in 64 bytes, and 4 scales."""
    model = parsed(
        "g (float[2,32] x, uint8[4,1,16] w, float[4] s) => (float[2,4] y)"
        " { y = com.microsoft.MatMulNBits<K = 32, N = 4, bits = 4, block_size = 32>(x, w, s) }"
    )
    for name, value in (("w", np.ones((4, 1, 16), "uint8")), ("s", np.ones(4, "float32"))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        model.graph.input.remove(
            next(graph_input for graph_input in model.graph.input if graph_input.name == name)
        )
    account = explained(saved(tmp_path, model), tool)
    assert (account.ours, account.predicted) == (128, 68)
    assert amounts(account) == {"params.packed": -64, "params.constant": 4}


def test_another_file_comes_first(tmp_path):
    """A model of 100 parameters, and a file of 6 that are no initializers."""
    account = explained(saved(tmp_path, parsed(CONSTANT)), "onnx-tool", ours=100)
    assert amounts(account) == {"graph.other-file": -94, "params.no-initializer": -6}


@pytest.mark.tools
@pytest.mark.parametrize("tool", TOOLS)
def test_the_tools_print_it(tmp_path, tool):
    """What is predicted is what the installed tool says."""
    pytest.importorskip(tool.replace("-", "_"))
    path = saved(tmp_path, with_weights(NORMED, "w", "s", "b", "m", "v"))
    if tool == "onnx-tool":
        import onnx_tool

        graph = onnx_tool.Model(path).graph
        graph.graph_reorder_nodes()
        graph.shape_infer()
        graph.profile()
        printed = graph.params
    else:
        import onnx_opcounter

        printed = onnx_opcounter.calculate_params(onnx.load(path))
    assert explained(path, tool).predicted == printed
