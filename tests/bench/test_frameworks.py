"""Small models that run in their own framework, each where it is installed."""

import json

import pytest

from crossflops.cli import main
from crossflops.report.bench import Bench

TORCH = """
import torch
def net():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                               torch.nn.Linear(4 * 36, 5))
"""
KERAS = """
import keras
def net():
    return keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(5, activation="relu")])
"""
JAX = """
def net():
    import jax.numpy as jnp
    return lambda x, w: jnp.tanh(x @ w)
"""


def ran(tmp_path, text, *arguments, expected=0):
    """The bench of the model in a file, with few runs."""
    (tmp_path / "net.py").write_text(text)
    file = tmp_path / "bench.json"
    runs = [] if "--trace" in arguments else ["--seconds", "0.1", "--threads", "1"]
    quick = [*runs, "--peak-tflops", "1000", "-o", str(file)]
    assert main(["bench", f"{tmp_path / 'net.py'}:net", *arguments, *quick]) == expected
    return Bench.from_json(file.read_bytes()) if not expected else None


@pytest.mark.torch
def test_pytorch_tells_the_time_of_every_call(tmp_path, capsys):
    """2 x (4 x 27 x 36 + 144 x 5); the trace that was left has memory and shapes, and is read."""
    pytest.importorskip("torch", reason="the extra [torch] is not installed")
    trace = tmp_path / "trace.json"
    shape = ["--input", "1x3x8x8"]
    bench = ran(
        tmp_path, TORCH, *shape, "--runtime", "torch", "--batch", "2", "--write-trace", str(trace)
    )
    assert bench.macs == bench.profile.macs == 2 * (4 * 27 * 36 + 144 * 5)
    ops = {row.op: row for row in bench.profile.kernels}
    assert (ops["aten::conv2d"].macs, ops["aten::linear"].macs) == (2 * 4 * 27 * 36, 2 * 144 * 5)
    assert ops["aten::relu"].does == "Relu"
    events = json.loads(trace.read_text())["traceEvents"]
    assert any(event.get("name") == "[memory]" for event in events)
    assert any("Input Dims" in event.get("args", {}) for event in events)
    again = ran(tmp_path, TORCH, "--input", "2x3x8x8", "--trace", str(trace))
    assert [row.nodes for row in again.profile.kernels] == [
        row.nodes for row in bench.profile.kernels
    ]
    ran(tmp_path, TORCH, *shape, "--runtime", "jax", expected=2)
    assert "own framework is torch" in capsys.readouterr().err


@pytest.mark.tensorflow
def test_keras_runs_as_a_function(tmp_path):
    """4 x 8 x 5, and a trace for TensorBoard."""
    pytest.importorskip("tensorflow", reason="the extra [tensorflow] is not installed")
    folder = tmp_path / "logs"
    bench = ran(
        tmp_path, KERAS, "--input", "4x8", "--runtime", "keras", "--write-trace", str(folder)
    )
    assert (bench.macs, bench.batch, bench.profile) == (4 * 8 * 5, 4, None)
    assert list(folder.rglob("*.xplane.pb"))


@pytest.mark.jax
def test_jax_runs_compiled(tmp_path):
    """4 x 8 x 5."""
    pytest.importorskip("jax2onnx", reason="the extra [jax] is not installed")
    bench = ran(tmp_path, JAX, "--input", "4x8", "--input", "8x5", "--runtime", "jax")
    assert (bench.macs, bench.device, bench.profile) == (4 * 8 * 5, "cpu", None)
