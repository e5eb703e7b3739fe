"""Keras models that store something while they run, and layers with sizes of their own."""

import numpy as np
import pytest

import crossflops
from crossflops.errors import NormalizeError
from crossflops.frontends import build_model_program, with_control
from crossflops.ir.graph import Control
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import source_from_object

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")
keras = pytest.importorskip("keras")

pytestmark = pytest.mark.tensorflow
layers = keras.layers

STEPS = (2, 5, 16)
LSTM = 2 * 5 * 4 * (16 * 8 + 8 * 8)  # batch x steps x gates x (kernel + recurrent kernel)


def model_of(shape, *stack, dtype="float32"):
    """A model of these layers on inputs with a batch that is fixed."""
    return keras.Sequential([layers.Input(batch_shape=shape, dtype=dtype), *stack])


def counted(model, shape, training=False, dtype="float32"):
    """The bytes of the ONNX model, its graph, and the MACs with no node left out."""
    source = source_from_object(model, tf.TensorSpec(shape, dtype))
    data, graph, _ = build_model_program(source, Setting(training=training))
    ledger = count(graph)
    assert not ledger.uncounted
    return data, graph, ledger.total.macs


@pytest.mark.parametrize(
    "layer", [layers.LSTM(8, stateful=True), layers.LSTM(8, dropout=0.2, recurrent_dropout=0.2)]
)
def test_a_layer_with_a_state(layer):
    """Its state, or the seed of its dropout, is no result: what runs is counted in full."""
    assert counted(model_of(STEPS, layer), STEPS)[2] == LSTM


def test_training():
    """Batch normalization stores its averages, dropout draws: neither is a contraction."""
    shape = (2, 8, 8, 3)
    stack = (layers.Conv2D(4, 3), layers.BatchNormalization(), layers.Dropout(0.3))
    assert counted(model_of(shape, *stack), shape, training=True)[2] == 2 * 36 * 4 * 27


def test_what_a_function_stores_is_refused():
    """Without Keras nobody knows what would be read after it."""
    state = tf.Variable(tf.zeros((2, 2)))

    @tf.function
    def run(x):
        state.assign_add(x)
        return x @ state

    with pytest.raises(NormalizeError) as caught:
        counted(run, (2, 2))
    assert caught.value.message.startswith("the model writes its variables while it runs")


@pytest.mark.parametrize(("kernel", "padding"), [(4, "valid"), (2, "same")])
def test_outputs_beyond_the_windows_of_a_transposed_convolution(kernel, padding):
    """One output more than windows reach, at the end: the same values as those of Keras."""
    runtime = pytest.importorskip("onnxruntime")
    shape, more = (2, 8, 8, 6), {"output_padding": 1} if padding == "valid" else {}
    model = model_of(shape, layers.Conv2DTranspose(5, kernel, 3, padding, **more))
    data, _, macs = counted(model, shape)
    assert macs == 2 * 64 * 6 * 5 * kernel**2
    image = np.random.default_rng(0).normal(size=shape).astype("float32")
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {session.get_inputs()[0].name: image})
    assert np.allclose(output, model.predict(image, verbose=0), atol=1e-5)


def test_the_depth_of_a_one_hot():
    """A class of 10, and a dense layer of 10 x 4 on both examples."""
    model = model_of(
        (2, 1), layers.CategoryEncoding(10, "one_hot"), layers.Dense(4), dtype="int64"
    )
    assert counted(model, (2, 1), dtype="int64")[2] == 2 * 10 * 4


def test_the_greatest_of_many():
    """5 of 30 values, and a dense layer of 5 x 4 on both examples."""
    best = layers.Lambda(lambda x: keras.ops.top_k(x, 5)[0])
    assert counted(model_of((2, 30), best, layers.Dense(4)), (2, 30))[2] == 2 * 5 * 4


def test_constants_are_no_parameters():
    """A model without layers that hold weights has none, whatever constants it reads."""
    x = keras.Input((6,))
    model = keras.Model(x, keras.ops.matmul(x, keras.ops.ones((6, 3))))
    _, graph, macs = counted(model, (2, 6))
    assert (graph.params, macs) == (0, 36)


def test_a_quantized_layer_has_its_parameters():
    """As many whole numbers as it had weights, a scale for each unit, and the bias."""
    model = model_of((2, 4), layers.Dense(8))
    model.quantize("int8")
    assert counted(model, (2, 4))[1].params == 4 * 8 + 8 + 8


class Named(keras.Model):
    """Takes one dict of inputs."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(8)

    def call(self, inputs):
        """A product, and a sum."""
        return self.dense(inputs["x"]) + inputs["z"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_dict_of_inputs(wrapped):
    """By name, as the command line gives them, or as the one argument that the model takes."""
    given = {"x": tf.TensorSpec((2, 4)), "z": tf.TensorSpec((2, 8))}
    source = source_from_object(Named(), (given,) if wrapped else given)
    assert count(build_model_program(source, Setting())[1]).total.macs == 2 * 4 * 8


def test_a_list_of_inputs():
    """As a functional model of several inputs takes them."""
    inputs = [keras.Input((4,)), keras.Input((6,))]
    model = keras.Model(
        inputs, layers.Concatenate()([layers.Dense(8)(tensor) for tensor in inputs])
    )
    source = source_from_object(model, ([tf.TensorSpec((2, 4)), tf.TensorSpec((2, 6))],))
    assert count(build_model_program(source, Setting())[1]).total.macs == 2 * (4 + 6) * 8


def test_how_often_a_loop_runs():
    """Three products of 4 x 4 by 4 x 4, where data decides."""
    loop = tf.function(lambda x: tf.while_loop(lambda y: y[0, 0] < 5, lambda y: (y @ y,), (x,))[0])
    source = source_from_object(loop, tf.TensorSpec((4, 4)))
    (node,) = count(build_model_program(source, Setting())[1]).uncounted
    with_trips = with_control(source, Control({node.node.key: 3}))
    assert count(build_model_program(with_trips, Setting())[1]).total.macs == 3 * 4 * 4 * 4


def recurrent(layer):
    """A model of one layer on 5 steps of 4."""
    x = keras.Input((5, 4))
    return keras.Model(x, layer(x))


def body_of_loop(x):
    """A state that starts as zeros, multiplied in five runs: [1,8] x [8,8], and x is added."""
    weights = tf.ones((8, 8))
    start = tf.constant(0), tf.zeros((1, 8))
    return tf.while_loop(
        lambda i, h: i < 5, lambda i, h: (i + 1, tf.tanh(tf.matmul(h, weights) + x)), start
    )[1]


@pytest.mark.parametrize(
    ("model", "shape", "constant"),
    [
        (recurrent(layers.LSTM(8)), (1, 5, 4), 4 * 64),
        (recurrent(layers.LSTM(8, unroll=True)), (1, 5, 4), 4 * 64),
        (recurrent(layers.GRU(8)), (1, 5, 4), 3 * 64),
        (recurrent(layers.GRU(8, reset_after=False)), (3, 5, 4), 3 * 2 * 64),
        (recurrent(layers.SimpleRNN(8)), (1, 5, 4), 64),
        (recurrent(layers.Bidirectional(layers.LSTM(8))), (1, 5, 4), 2 * 4 * 64),
        (tf.function(body_of_loop, input_signature=[tf.TensorSpec((1, 8))]), (1, 8), 64),
    ],
)
def test_the_products_of_the_first_state_alone_are_constant(model, shape, constant):
    """Gates x batch x 8 x 8 in the first step; a GRU that resets before has x in one of them."""
    _, graph, _ = build_model_program(source_from_object(model, tf.TensorSpec(shape)), Setting())
    assert sum(count.constant_cost.macs for count in count(graph).counted) == constant


@pytest.mark.parametrize(
    ("start", "body", "products"),
    [
        (lambda x, w: x @ w, lambda x, w, y, z: (x, z), 1),
        (lambda x, w: x * 2, lambda x, w, y, z: (x, y @ w), 3),
        (lambda x, w: x * 2, lambda x, w, y, z: (x, z + y @ w), 3),
    ],
)
def test_a_loop_hands_a_value_from_outside_on(start, body, products):
    """[1,4] x [4,4], once before the loop or in each of its three runs."""
    weights = tf.ones((4, 4))

    @tf.function
    def model(x):
        return tf.while_loop(
            lambda i, *_: i < 3,
            lambda i, y, z: (i + 1, *body(x, weights, y, z)),
            (0, start(x, weights), x),
        )[1:]

    assert crossflops.count(model, tf.TensorSpec((1, 4))).totals.macs == products * 16


UNREAD = {  # loops of three runs with products of a state that nobody reads: 2 x 4 x 4 in each
    "beside": lambda x, w: tf.while_loop(
        lambda i, a, b: i < 3, lambda i, a, b: (i + 1, a @ w, b @ w), (0, x, x)
    )[1],
    "read by another": lambda x, w: tf.while_loop(
        lambda i, a, b, c: i < 3, lambda i, a, b, c: (i + 1, a @ w, b @ w, c + b), (0, x, x, x)
    )[1],
    "scan": lambda x, w: tf.scan(
        lambda states, _: (states[0] @ w, states[1] @ w), tf.range(3), (x, x)
    )[0][-1],
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_state_that_nobody_reads_is_no_work(name):
    """TensorFlow does not run it: a loop with a large product there takes no time."""
    model = tf.function(lambda x: UNREAD[name](x, tf.ones((4, 4))))
    report = crossflops.compare(
        model, np.ones((2, 4), np.float32), tools=["tensorflow"], isolate=False
    )
    assert report.macs == 3 * 2 * 4 * 4
    assert report.residuals == {"tensorflow": 0}


def test_a_state_that_the_condition_reads_is_work():
    """It decides how often the loop runs."""

    def model(x):
        w = tf.ones((4, 4))
        return tf.while_loop(
            lambda i, a, b: tf.logical_and(i < 3, tf.reduce_sum(b) < 1e9),
            lambda i, a, b: (i + 1, a @ w, b @ w),
            (0, x, x),
        )[1]

    report = crossflops.count(tf.function(model), np.ones((2, 4), np.float32))
    assert report.macs == 2 * 3 * 2 * 4 * 4
