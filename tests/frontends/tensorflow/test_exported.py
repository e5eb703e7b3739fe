"""Files that are exported of Keras models: they run, and have the parameters of the model."""

import numpy as np
import pytest

from crossflops import count
from crossflops.errors import InputError
from crossflops.frontends import converted
from crossflops.verbs.api import export

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")
keras = pytest.importorskip("keras")

pytestmark = pytest.mark.tensorflow
layers = keras.layers

# Layers, the shape of their input, and the parameters by hand.
MODELS = {
    # 3 x 3 x 3 x 4 + 4, two trained numbers and two statistics of each channel, 4 x 5 + 5
    "convolution": (
        [
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5),
        ],
        (2, 8, 8, 3),
        112 + 8 + 25,
    ),
    # kernel 3 x 18, recurrent 6 x 18, two biases of 18
    "gru": ([layers.GRU(6)], (2, 5, 3), 54 + 108 + 36),
    # two directions of 3 x 4 + 4 x 4 + 4
    "both ways": ([layers.Bidirectional(layers.SimpleRNN(4))], (2, 5, 3), 2 * 32),
    # four gates of 4 filters of 3 x 3 over 2 and over 4 channels, and a bias
    "convlstm": (
        [layers.ConvLSTM2D(4, 3, padding="same")],
        (2, 3, 6, 6, 2),
        16 * 9 * 2 + 16 * 9 * 4 + 16,
    ),
}


def run(path, x):
    """Return what the file computes: by onnxruntime where it is installed, else by onnx."""
    try:
        from onnxruntime import InferenceSession
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        model = ReferenceEvaluator(path)
        return model.run(None, {model.input_names[0]: x})[0]
    session = InferenceSession(path)
    return session.run(None, {session.get_inputs()[0].name: x})[0]


@pytest.mark.parametrize("name", MODELS)
def test_the_file_is_the_model(name, tmp_path):
    """It computes the same, costs the same, and has the parameters, as they are stored."""
    stack, shape, params = MODELS[name]
    model = keras.Sequential([layers.Input(batch_shape=shape), *stack])
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    path = str(tmp_path / "model.onnx")
    export(model, x, to="onnx", file=path)
    np.testing.assert_allclose(run(path, x), model(x), rtol=1e-4, atol=1e-5)
    of_model, of_file = count(model, x), count(path)
    assert of_file.totals.params == of_model.totals.params == params
    assert of_file.memory.param_bytes == of_model.memory.param_bytes == 4 * params
    assert (of_file.macs, of_file.flops) == (of_model.macs, of_model.flops)


def test_weights_that_no_file_holds_are_refused(tmp_path, monkeypatch):
    """Before anything is converted; nothing is written."""
    monkeypatch.setattr(converted, "LARGEST", 100)
    model = keras.Sequential([layers.Input(batch_shape=(1, 8)), layers.Dense(4)])
    with pytest.raises(InputError, match="the weights take 144 bytes"):
        export(model, np.zeros((1, 8), np.float32), to="onnx", file=tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
