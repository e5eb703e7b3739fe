"""The onnx_opcounter adapter: what calculate_macs and calculate_params print of a file."""

from pathlib import Path

import pytest
from crossflops_onnx_opcounter import OnnxOpcounter

from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path
from crossflops.testing.file_probes import FileProbe, file_probes

pytestmark = pytest.mark.tools


def profile(folder, name):
    """What the adapter says of a file probe."""
    path = file_probes()[name].write(folder)
    return OnnxOpcounter().profile(path, (), {}, Setting())


def test_it_is_found_by_its_name():
    """The value of the entry point leads to a whole adapter."""
    adapter = load_adapter_from_path("onnx-opcounter", "crossflops_onnx_opcounter:OnnxOpcounter")
    assert adapter.name == "onnx-opcounter"


def test_it_takes_files_alone():
    """A path, and no model."""
    assert OnnxOpcounter().accepts(Path("model.onnx"))
    assert not OnnxOpcounter().accepts(object())


def test_a_convolution_without_its_bias(tmp_path):
    """2x4x64 results, each 27 products; no entries."""
    printed = profile(tmp_path, "conv_with_bias")
    assert (printed.total, type(printed.total)) == (2 * 4 * 64 * 27, int)
    assert printed.entries == ()
    assert printed.params == 4 * 27 + 4


def test_what_it_does_not_know_counts_its_results(tmp_path):
    """An LSTM is 5x1x2x4 of them, a branch 3x5, whatever is computed."""
    assert profile(tmp_path, "lstm_with_bias").total == 40
    assert profile(tmp_path, "loop").total == 9


def test_what_it_raises_on(tmp_path):
    """An input of int32 has no place in its table, cubic resizing no number."""
    with pytest.raises(KeyError):
        profile(tmp_path, "input_of_whole_numbers")
    with pytest.raises(TypeError):
        profile(tmp_path, "resize_cubic")


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    """Where shape inference fails it runs the file in onnxruntime, which it writes as well."""
    probe = FileProbe("wrong", "g (float[2,3] x) => (float[7] y) { y = Relu(x) }", 0)
    path, here = probe.write(tmp_path), tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    printed = OnnxOpcounter().profile(path, (), {}, Setting())
    assert printed.total == 6
    assert not list(here.iterdir())


@pytest.mark.parametrize("result", ["float[2,64]", "float[7]"])
def test_large_weights_stay_in_the_file(tmp_path, monkeypatch, result):
    """Also where it runs the file in onnxruntime: 2x40 by 40x64, and all parameters."""
    import numpy as np
    import onnx

    body = f"g (float[2,40] x) => ({result} y) {{ y = MatMul(x, w) }}"
    path = FileProbe("large", body, 0).write(tmp_path)
    model = onnx.load(path)
    weights = np.ones((40, 64), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, path)
    whole = OnnxOpcounter().profile(path, (), {}, Setting())
    monkeypatch.setattr("crossflops_onnx_opcounter.adapter._LARGE", 0)
    apart = OnnxOpcounter().profile(path, (), {}, Setting())
    assert (apart.total, apart.params) == (whole.total, whole.params) == (2 * 40 * 64, 40 * 64)
