"""Files that are exported of Keras models: they run, and have the parameters of the model."""

import numpy as np
import pytest

from crossflops import count
from crossflops.errors import InputError
from crossflops.frontends import converted
from crossflops.ir.trace import Setting
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


# Functions of an input of whose operations tf2onnx loses attributes, and the shape of it.
MENDED = {
    "moving average": (
        lambda x: tf.raw_ops.FusedBatchNormV3(
            x=x, scale=[1.0, 2.0], offset=[0.0, 1.0], mean=[5.0, 5.0], variance=[9.0, 9.0],
            exponential_avg_factor=0.3, is_training=True,
        )[0],
        (2, 3, 3, 2),
    ),
    "rows for one place": (lambda x: tf.scatter_nd([[0], [0], [2]], x, [4, 5]), (3, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", MENDED)
def test_what_a_translation_would_lose_is_in_the_file(name, tmp_path):
    """A norm reads its batch, whatever its moving average is; scattered rows add up."""
    function, shape = MENDED[name]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    path = str(tmp_path / "model.onnx")
    export(tf.function(function), x, to="onnx", file=path)
    np.testing.assert_allclose(run(path, x), function(x), rtol=1e-4, atol=1e-5)


UNCONVERTED = {
    "ResizeArea": lambda x: tf.image.resize(x, (2, 2), method="area"),
    "FusedBatchNormV3": lambda x: tf.raw_ops.FusedBatchNormV3(
        x=x, scale=[1.0, 2.0], offset=[0.0, 1.0], mean=[], variance=[], is_training=True
    )[:2],
}


@pytest.mark.parametrize("kind", UNCONVERTED)
def test_what_no_translation_has_is_named(kind):
    """One element is no average of an area; ONNX's norm returns no statistics of a batch."""
    report = count(tf.function(UNCONVERTED[kind]), np.zeros((2, 3, 3, 2), np.float32))
    assert kind in str(report.uncounted)


# Layers that work otherwise in training, and the shape of their input.
TRAINED = {
    "norm": (layers.BatchNormalization(momentum=0.3, epsilon=0.2), (2, 4, 4, 3)),
    "norm of rows": (layers.BatchNormalization(scale=False), (6, 3)),
    "drawn": (layers.Dropout(0.5), (2, 8)),
}


@pytest.mark.parametrize("name", TRAINED)
def test_a_file_of_a_layer_in_training_is_verified(name, tmp_path):
    """A norm reads the statistics of its batch; what is drawn is not compared."""
    pytest.importorskip("onnxruntime")
    layer, shape = TRAINED[name]
    model = keras.Sequential([layers.Input(batch_shape=shape), layer])
    x = np.random.default_rng(0).normal(3, 2, size=shape).astype(np.float32)
    file = tmp_path / "model.onnx"
    agreement = export(
        model, x, to="onnx", file=file, verify=True, setting=Setting(training=True)
    ).agreement
    assert agreement.holds, agreement
    assert [output.drawn for output in agreement.outputs] == [name == "drawn"]
