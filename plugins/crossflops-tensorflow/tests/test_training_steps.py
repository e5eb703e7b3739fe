"""What TensorFlow's profiler counts for a training step: derived by hand, and explained.

A product with a trained weight costs its forward MACs once more for the gradient of the weight,
and again for that of its input where something trained lies before it. The profiler counts 2 for
each that it has a formula for. The gradient of a bias is a sum.
"""

import pytest

from crossflops.errors import InputError
from crossflops.ir.trace import Setting
from crossflops.verbs.api import compare

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

pytestmark = pytest.mark.tensorflow
layers = keras.layers
UNIT, GRADIENTS, BY_STRIDES = "unit.mac-vs-flop", "scope.backward", "conv.backward-by-strides"
UNREGISTERED = "op.unregistered-zero"


def sequential(shape, *held):
    """These layers, one after the other."""
    return keras.Sequential([keras.Input(shape), *held])


def step(model, *shapes, **options):
    """The MACs of a training step, and the amounts by cause; nothing is left over."""
    inputs = tuple(tf.TensorSpec(shape) for shape in shapes)
    report = compare(model, inputs, train=True, tools=["tensorflow"], isolate=False, **options)
    assert report.residuals == {"tensorflow": 0}
    account = report.reconciliation("tensorflow")
    assert account.ours == report.training.macs
    assert account.theirs == account.ours + sum(row.amount for row in account.explanations)
    return report.training.macs, {row.cause: row.amount for row in account.explanations}


@pytest.mark.parametrize(
    ("frozen", "macs", "sums"),
    [
        ((), 350 + 350 + 140, 30 + 24),
        (("a",), 350 + 140, 24),
        (("b",), 350 + 210 + 140, 30),
        (("*.kernel",), 350 + 140, 30 + 24),
        (("*",), 350, 0),
    ],
)
def test_a_perceptron(frozen, macs, sums):
    """7 x 6 x 5 = 210 MACs and 7 x 5 x 4 = 140; biases of 35 and 28, their gradients over 7 rows.

    ReLU and its gradient are not registered.
    """
    model = sequential(
        (6,), layers.Dense(5, activation="relu", name="a"), layers.Dense(4, name="b")
    )
    expected = {UNIT: macs, "bias.linear": 63} | ({GRADIENTS: sums} if sums else {})
    assert step(model, (7, 6), frozen=frozen) == (macs, expected)


def test_convolutions_of_the_same_size():
    """2 x 64 x 4 x 27 = 13824 MACs, then by strides of 2 2 x 16 x 8 x 36 = 9216: exact."""
    model = sequential(
        (8, 8, 3),
        layers.Conv2D(4, 3, padding="same", use_bias=False),
        layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False),
    )
    macs = 2 * 13824 + 3 * 9216
    assert step(model, (2, 8, 8, 3)) == (macs, {UNIT: macs})


def test_convolutions_without_padding():
    """2 x 49 x 4 x 27 = 10584 MACs and 2 x 9 x 8 x 36 = 5184.

    The profiler takes 2 x 81 x 4 x 27 for the gradient of the first filter, and for both of the
    second convolution 2 x 49 / 4 x 8 x 36.
    """
    model = sequential(
        (9, 9, 3),
        layers.Conv2D(4, 3, use_bias=False),
        layers.Conv2D(8, 3, strides=2, use_bias=False),
    )
    macs, amounts = step(model, (2, 9, 9, 3))
    more = (2 * 81 * 4 * 27 - 10584) + 2 * (2 * 49 * 8 * 36 // 4 - 5184)
    assert macs == 2 * 10584 + 3 * 5184
    assert amounts == {BY_STRIDES: more, UNIT: macs + more}


def test_a_depthwise_convolution():
    """64 x 3 x 4 = 768 MACs and 36 x 4 x 9 = 1296, whose two gradients are not registered."""
    model = sequential(
        (8, 8, 3), layers.Conv2D(4, 1, use_bias=False), layers.DepthwiseConv2D(3, use_bias=False)
    )
    macs, amounts = step(model, (1, 8, 8, 3))
    assert macs == 2 * 768 + 3 * 1296
    assert amounts == {UNREGISTERED: -2 * 1296, UNIT: 2 * 768 + 1296}


def test_a_transposed_convolution():
    """25 x 4 x 6 x 9 = 5400 MACs, forward and for the filter; strides divide the size."""
    layer = layers.Conv2DTranspose(6, 3, strides=2, padding="same", use_bias=False)
    assert step(sequential((5, 5, 4), layer), (1, 5, 5, 4)) == (10800, {UNIT: 10800})


def test_a_grouped_convolution():
    """36 x 8 x 2 x 9 = 5184 MACs in a function, and its gradient in another one."""
    layer = layers.Conv2D(8, 3, groups=2, use_bias=False)
    macs, amounts = step(sequential((8, 8, 4), layer), (1, 8, 8, 4))
    assert (macs, amounts) == (10368, {"graph.function-not-inlined": -10368})


def test_batch_normalization_in_training():
    """64 x 3 x 4 = 768 MACs, forward and for the filter; the rest is no product."""
    model = sequential((8, 8, 3), layers.Conv2D(4, 1, use_bias=False), layers.BatchNormalization())
    macs, amounts = step(model, (1, 8, 8, 3), setting=Setting(training=True))
    assert (macs, amounts[UNIT]) == (1536, 1536)
    assert amounts.keys() <= {UNIT, GRADIENTS, "norm.batch"}


def test_recurrent_layers():
    """4 gates of 2 x 3 x (4 + 3) = 168 MACs for 5 steps, their weights, and 360 for the state.

    Unrolled they all count, but for the gradient of the first state, which is not needed there;
    in a loop TensorFlow does not know how large the weights are.
    """
    macs, amounts = step(sequential((5, 4), layers.LSTM(3)), (2, 5, 4))
    assert macs == 2 * 840 + 360
    assert amounts["control.loop-body-once"] == -macs
    unrolled = 2 * 840 + 360 * 4 // 5
    macs, amounts = step(sequential((5, 4), layers.LSTM(3, unroll=True)), (2, 5, 4))
    assert amounts[UNIT] == unrolled
    assert macs + amounts.get("graph.unknown-shape", 0) == unrolled


def test_a_network():
    """MobileNetV2, half of it frozen: every difference has a cause."""
    model = keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, weights=None, classes=10)
    for frozen in ((), ("block_1*", "block_2*")):
        macs, amounts = step(model, (1, 32, 32, 3), frozen=frozen)
        assert macs > 0
        assert amounts[UNREGISTERED] < 0


def test_parameters_that_are_inputs():
    """x W1 tanh W2 of 2 x 3 x 5 and 2 x 5 x 4: gradients of W1, of W2 and of the tanh."""
    function = tf.function(lambda a, b, x: tf.tanh(x @ a) @ b, autograph=False)
    shapes = (3, 5), (5, 4), (2, 3)
    macs, amounts = step(function, *shapes, trainable=["0", "1"])
    assert (macs, amounts) == (70 + 40 + 70, {UNIT: 70 + 40 + 70})
    macs, amounts = step(function, *shapes, trainable=["1"])
    assert (macs, amounts) == (70 + 40, {UNIT: 70 + 40})
    with pytest.raises(InputError, match="has no parameters"):
        step(function, *shapes)


def test_a_loss_of_some_outputs():
    """2 x 4 x 5 MACs, then 2 x 5 x 6 towards the loss and 2 x 5 x 7 beside it."""
    x = keras.Input((4,))
    hidden = layers.Dense(5, use_bias=False)(x)
    heads = {
        name: layers.Dense(size, use_bias=False)(hidden) for name, size in (("a", 6), ("b", 7))
    }
    model = keras.Model(x, heads)
    macs, amounts = step(model, (2, 4), loss=lambda results: tf.reduce_sum(results["a"]))
    assert macs == 40 + 60 + 70 + 60 + 60 + 40
    assert amounts == {UNIT: macs}


def test_in_a_worker(tmp_path):
    """The tool has what is frozen, and shows what is beneath each layer."""
    (tmp_path / "small.py").write_text(
        "import keras\n\n\ndef make():\n"
        "    sizes = {'a': 5, 'b': 3}.items()\n"
        "    layers = [keras.layers.Dense(n, use_bias=False, name=name) for name, n in sizes]\n"
        "    return keras.Sequential([keras.Input((4,)), *layers])\n"
    )
    report = compare(
        f"{tmp_path / 'small.py'}:make", "2x4", train=True, frozen=["a"], tools=["tensorflow"]
    )
    account = report.reconciliation("tensorflow")
    assert (account.theirs, account.residual) == (2 * (40 + 30 + 30), 0)
    assert {row.path: row.theirs for row in account.by_path} == {"": 200, "a": 80, "b": 120}
