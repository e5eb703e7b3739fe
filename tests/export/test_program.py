"""PyTorch models: the graph that is counted, with its weights."""

import os

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from crossflops.errors import CrossflopsError
from crossflops.export.program import save_program
from crossflops.frontends.pytorch.program import record_and_convert_torch
from crossflops.verbs.api import count, export
from tests.models import EVAL, Apply, nn, torch

pytestmark = pytest.mark.torch


def run(path, inputs):
    """Return what the file computes: by onnxruntime where it is installed, else by onnx."""
    try:
        from onnxruntime import InferenceSession
    except ImportError:
        model = ReferenceEvaluator(path)
        return model.run(None, dict(zip(model.input_names, inputs, strict=True)))
    session = InferenceSession(path)
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def attention(self, x):
    """Self-attention over eight steps."""
    return self.inner(x, x, x)[0]


MODELS = {
    "convolutions": (
        nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
            nn.Linear(72, 5), nn.Softmax(-1),
        ),
        (2, 3, 8, 8),
    ),
    "attention": (
        Apply(attention, inner=nn.MultiheadAttention(16, 4, batch_first=True)), (2, 8, 16),
    ),
    "recurrent": (Apply(lambda self, x: self.inner(x)[0], inner=nn.LSTM(4, 6)), (5, 2, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_the_file_is_valid_and_computes_what_the_model_does(name, tmp_path):
    """onnx.checker takes it, the results are the model's, and the count is that of the model."""
    model, shape = MODELS[name]
    model = model.eval()
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    path = str(tmp_path / "out.onnx")
    export(model, x, to="onnx", file=path, annotate=True)
    onnx.checker.check_model(path, full_check=True)
    (output,) = run(path, [x.numpy()])
    np.testing.assert_allclose(output, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert count(path).macs == count(model, x).macs
    written = onnx.load(path)
    macs = [
        int(prop.value) for node in written.graph.node for prop in node.metadata_props
        if prop.key == "crossflops.macs"
    ]  # fmt: skip
    assert len(macs) == len(written.graph.node)
    assert sum(macs) == count(model, x).macs
    assert b"stack_trace" not in written.SerializeToString()


def test_large_weights_lie_beside_the_model(tmp_path):
    """Beyond the limit of protobuf they go to a file of external data, and are found there."""
    model, x = nn.Linear(64, 64), torch.ones(1, 64)
    exported, _, _ = record_and_convert_torch(model, (x,), {}, EVAL)
    target = tmp_path / "big.onnx"
    assert save_program(exported, target, {}, limit=1000) == [target, tmp_path / "big.onnx.data"]
    assert sorted(os.listdir(tmp_path)) == ["big.onnx", "big.onnx.data"]
    assert (tmp_path / "big.onnx").stat().st_size < 64 * 64 * 4
    (output,) = run(str(target), [x.numpy()])
    np.testing.assert_allclose(output, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_weights_that_are_not_there(tmp_path):
    """A model on the meta device counts, but cannot be written; nothing is left behind."""
    with torch.device("meta"):
        model, x = nn.Linear(64, 64), torch.ones(1, 64)
    with pytest.raises(CrossflopsError, match="is on the meta device"):
        export(model, x, to="onnx", file=tmp_path / "out.onnx")
    assert os.listdir(tmp_path) == []


def test_a_buffer_without_values_is_not_written(tmp_path):
    """Zeros in its place would be another model."""
    model = nn.BatchNorm1d(4).eval()
    model.running_mean = torch.empty(4, device="meta")
    with pytest.raises(CrossflopsError, match="'running_mean' is on the meta device"):
        export(model, torch.ones(2, 4), to="onnx", file=tmp_path / "out.onnx")
    assert os.listdir(tmp_path) == []


def test_node_data_has_the_names_of_the_exported_nodes(tmp_path):
    """What is shown over the file is about its nodes."""
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.ones(1, 4)
    export(model, x, to="onnx", file=tmp_path / "out.onnx")
    export(model, x, to="model-explorer", file=tmp_path / "out.json")
    names = [node.name for node in onnx.load(tmp_path / "out.onnx").graph.node]
    results = __import__("json").loads((tmp_path / "out.json").read_text())["results"]
    assert list(results) == names
    assert results[names[0]] == {"value": 12}
