"""The same small models in PyTorch, Keras and Flax have equal MACs and equal parameters.

The numbers are those of the layers, by hand; every framework that is installed is held to them.
"""

import importlib

import pytest

from crossflops.frontends import normalize
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import source_from_object

pytestmark = pytest.mark.frameworks

BATCH, SIDE = 2, 16
WIDTH, HEADS, INSIDE, LENGTH = 16, 4, 64, 6

# places x channels x taps: a side of 16, after the pool 8, after the stride 4
CNN_MACS = BATCH * (16 * 16 * 8 * 27 + 4 * 4 * 16 * 72 + 16 * 10)
CNN_PARAMS = (8 * 27 + 8) + 2 * 8 + (16 * 72 + 16) + (16 * 10 + 10)
# four projections, scores and their sums, two layers
BLOCK_MACS = BATCH * LENGTH * (4 * WIDTH * WIDTH + 2 * LENGTH * WIDTH + 2 * WIDTH * INSIDE)
BLOCK_PARAMS = 4 * (WIDTH * WIDTH + WIDTH) + 2 * 2 * WIDTH + 2 * WIDTH * INSIDE + INSIDE + WIDTH


def torch_cnn():
    """PyTorch: channels first."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    return model, torch.randn(BATCH, 3, SIDE, SIDE)


def torch_block():
    """PyTorch's own layer."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    layer = torch.nn.TransformerEncoderLayer(
        WIDTH, HEADS, INSIDE, activation="gelu", batch_first=True, norm_first=True
    )
    return layer, torch.randn(BATCH, LENGTH, WIDTH)


def keras_cnn():
    """Keras on TensorFlow: channels last."""
    tf, keras = pytest.importorskip("tensorflow"), pytest.importorskip("keras")
    pytest.importorskip("tf2onnx")
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((SIDE, SIDE, 3)),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(2),
            layers.Conv2D(16, 3, strides=2, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )
    return model, tf.TensorSpec((BATCH, SIDE, SIDE, 3))


def keras_block():
    """The layers of the block, put together."""
    tf, keras = pytest.importorskip("tensorflow"), pytest.importorskip("keras")
    pytest.importorskip("tf2onnx")
    layers = keras.layers
    given = layers.Input((LENGTH, WIDTH))
    x = layers.LayerNormalization()(given)
    x = given + layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(x, x)
    y = layers.Dense(INSIDE, activation="gelu")(layers.LayerNormalization()(x))
    model = keras.Model(given, x + layers.Dense(WIDTH)(y))
    return model, tf.TensorSpec((BATCH, LENGTH, WIDTH))


def flax_cnn():
    """Flax NNX: channels last."""
    models, spec, rngs = _flax()
    return models.SmallCNN(rngs), spec((BATCH, SIDE, SIDE, 3), "float32")


def flax_block():
    """The layers of the block, put together."""
    models, spec, rngs = _flax()
    return models.Block(WIDTH, HEADS, INSIDE, rngs), spec((BATCH, LENGTH, WIDTH), "float32")


def _flax():
    jax, nnx = pytest.importorskip("jax"), pytest.importorskip("flax.nnx")
    pytest.importorskip("jax2onnx")
    return importlib.import_module("tests.flax_models"), jax.ShapeDtypeStruct, nnx.Rngs(0)


@pytest.mark.parametrize("made", [torch_cnn, keras_cnn, flax_cnn])
def test_small_cnn(made):
    """Convolutions of the same shapes, wherever their channels are."""
    hold(*made(), CNN_MACS, CNN_PARAMS)


@pytest.mark.parametrize("made", [torch_block, keras_block, flax_block])
def test_small_transformer(made):
    """One product for three projections, three for them, or four Einsums."""
    hold(*made(), BLOCK_MACS, BLOCK_PARAMS)


def hold(model, given, macs, params):
    """These MACs and parameters, and no node without a count."""
    graph, _ = normalize(source_from_object(model, given), Setting())
    ledger = count(graph)
    assert not ledger.uncounted
    assert ledger.total.macs == macs
    assert graph.params == params
