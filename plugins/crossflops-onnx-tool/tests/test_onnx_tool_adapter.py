"""The onnx-tool adapter: what it prints of a file, node by node."""

from pathlib import Path

import pytest
from crossflops_onnx_tool import OnnxTool

from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path
from crossflops.testing.file_probes import file_probes

pytestmark = pytest.mark.tools


def profile(folder, name):
    """What the adapter says of a file probe."""
    path = file_probes()[name].write(folder)
    return OnnxTool().profile(path, (), {}, Setting())


def test_it_is_found_by_its_name():
    """The value of the entry point leads to a whole adapter."""
    assert load_adapter_from_path("onnx-tool", "crossflops_onnx_tool:OnnxTool").name == "onnx-tool"


def test_it_takes_files_alone():
    """A path, and no model."""
    assert OnnxTool().accepts(Path("model.onnx"))
    assert not OnnxTool().accepts(object())


def test_a_convolution_and_its_bias(tmp_path):
    """2x4x64 results, each 27 products and one addition; 112 stored numbers."""
    printed = profile(tmp_path, "conv_with_bias")
    assert (printed.total, type(printed.total)) == (2 * 4 * 64 * 28, int)
    assert [(entry.path, entry.amount) for entry in printed.entries] == [("Conv_0", 14336)]
    assert printed.params == 4 * 27 + 4
    assert (printed.printed_as, printed.setting) == ("MACs", Setting())


def test_a_bias_without_a_name_is_counted_too(tmp_path):
    """The tool counts the inputs that are listed."""
    assert profile(tmp_path, "conv_with_a_nameless_bias").total == 2 * 4 * 64 * 28


def test_gates_are_weighed(tmp_path):
    """10 rows: 16 x 10 products, 32 biases, 180 for each of 4 units."""
    assert profile(tmp_path, "lstm_with_bias").total == 10 * (160 + 32 + 180 * 4)


def test_tanh_counts_twice_its_weight(tmp_path):
    """`ratio` 2 x 38 for each of 24 elements: 76, not 38."""
    assert profile(tmp_path, "file_Tanh").total == 24 * 76


def test_it_raises_where_it_has_no_class(tmp_path):
    """It warns when it reads the operator, and raises when it infers shapes."""
    with pytest.raises(NotImplementedError):
        profile(tmp_path, "attention")
