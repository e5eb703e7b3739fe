"""`export --verify` of models of Keras and functions of TensorFlow: onnxruntime beside a run."""

import numpy as np
import pytest

from crossflops.frontends.tensorflow.observe import outputs
from crossflops.ir.trace import Setting
from crossflops.verbs.api import export

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytest.importorskip("tf2onnx")
pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.tensorflow
ROWS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
IMAGE = np.random.default_rng(0).normal(size=(2, 6, 6, 3)).astype(np.float32)


def verified(model, x, folder, training=False):
    """Return how far the file and the model agree."""
    return export(
        model, x, to="onnx", file=folder / "out.onnx", verify=True,
        setting=Setting(training=training),
    ).agreement  # fmt: skip


@pytest.mark.parametrize("training", [False, True], ids=["eval", "training"])
def test_a_normalized_convolution_is_held_in_both_modes(training, tmp_path):
    """In training it takes the statistics of the batch, which the file does as well."""
    model = keras.Sequential(
        [
            keras.Input((6, 6, 3)),
            keras.layers.Conv2D(4, 3, strides=2, padding="same"),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
        ]
    )
    agreement = verified(model, IMAGE, tmp_path, training)
    assert agreement.holds
    assert [output.relative < 1e-5 for output in agreement.outputs] == [True]


def test_a_loop_is_held(tmp_path):
    """Both directions of an LSTM, and a GRU behind them."""
    model = keras.Sequential(
        [
            keras.Input((5, 4)),
            keras.layers.Bidirectional(keras.layers.LSTM(3, return_sequences=True)),
            keras.layers.GRU(2),
        ]
    )
    steps = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
    assert verified(model, steps, tmp_path).holds


def test_several_outputs_are_compared(tmp_path):
    """Floats to noise, whole numbers and truth values exactly."""

    @tf.function
    def function(x):
        return {"sum": tf.reduce_sum(x, 1), "best": tf.argmax(x, 1), "positive": x > 0}

    agreement = verified(function, ROWS, tmp_path)
    assert agreement.holds
    assert len(agreement.outputs) == 3


def test_what_is_drawn_is_not_compared(tmp_path):
    """Dropout in training draws: its output depends on random numbers, which is said."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.5)])
    agreement = verified(model, ROWS, tmp_path, training=True)
    assert [output.drawn for output in agreement.outputs] == [True]


def test_another_function_is_found(tmp_path, monkeypatch):
    """Where the model that runs is another than the one that was exported."""
    traced = outputs.trace_tensorflow_model
    monkeypatch.setattr(
        outputs,
        "trace_tensorflow_model",
        lambda _model, *rest: traced(tf.function(lambda x: 2.0 * x), *rest),
    )
    assert not verified(tf.function(lambda x: x + 0.0), ROWS, tmp_path).holds
