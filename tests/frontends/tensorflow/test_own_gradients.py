"""Gradients that functions of TensorFlow bring themselves, and operations that have none.

Each count is that of the frozen graph of tf.GradientTape, of what its gradients need; or it is
named why the gradient is not followed.
"""

import pytest

import crossflops
from tests.laws.tensorflow_macs import executed, needed

pytestmark = pytest.mark.tensorflow
keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")
freezing = pytest.importorskip("tensorflow.python.framework.convert_to_constants")
SPEC = tf.TensorSpec((2, 3))


class OfFunction(tf.Module):
    """A function of x and of variables, as a tf.function."""

    def __init__(self, function, *shapes):
        super().__init__()
        self.function, self.held = function, [tf.Variable(tf.ones(shape)) for shape in shapes]

    @tf.function
    def __call__(self, x):
        return self.function(x, *self.held)


@tf.custom_gradient
def product(x, w):
    """A gradient with a product of its own for w."""

    def gradient(d):
        more = tf.matmul(x, tf.matmul(x, w), transpose_a=True)
        return tf.matmul(d, w, transpose_b=True), tf.matmul(x, d, transpose_a=True) + more

    return x @ w, gradient


@tf.custom_gradient
def cut(x):
    """No gradient."""
    return tf.identity(x), lambda _: None


@tf.custom_gradient
def straight(x):
    """The gradient goes through."""
    return tf.round(x), lambda d: d


@tf.custom_gradient
def hidden(x):
    """Two products in the gradient, and none in what it belongs to."""
    return tf.tanh(x), lambda d: tf.matmul(tf.matmul(d, x, transpose_b=True), x)


@tf.custom_gradient
def halved(x, w):
    """No gradient of w."""
    return x @ w, lambda d: (tf.matmul(d, w, transpose_b=True), None)


@tf.custom_gradient
def pair(x):
    """Two results."""
    return (tf.tanh(x), tf.sin(x)), lambda a, b: a + b


def elementwise(function):
    """x a, a function of that, and b."""
    return lambda: OfFunction(lambda x, a, b: function(x @ a) @ b, (3, 5), (5, 4))


def square(function):
    """A function of x, a [3,5] and b [5,5]."""
    return lambda: OfFunction(function, (3, 5), (5, 5))


def layered(function):
    """A model of Keras with a layer whose call is the function."""

    class Own(keras.layers.Layer):
        def call(self, x):
            return function(x)

    def model():
        x = keras.Input((3,))
        hidden = Own()(keras.layers.Dense(5)(x))
        return keras.Model(x, keras.layers.Dense(4)(hidden))

    return model


def second_order(x, a, b):
    """The gradient of a sum as the result."""
    with tf.GradientTape() as tape:
        hidden = x @ a
        tape.watch(hidden)
        total = tf.reduce_sum(tf.tanh(hidden @ b))
    return tape.gradient(total, hidden)


def closing_over(x, a, b):
    """What a function closes over gets no gradient from it."""
    hidden = x @ a
    scaled = tf.custom_gradient(lambda y: (y * hidden, lambda d: d * 2.0))
    return scaled(tf.sin(hidden)) @ b


TWICE = tf.function(lambda h, b: hidden(h) @ b)
EXACT = {
    "round": elementwise(tf.round),
    "floor": elementwise(tf.floor),
    "ceil": elementwise(tf.math.ceil),
    "rint": elementwise(tf.math.rint),
    "whole division": elementwise(lambda h: h // 2.0),
    "remainder": elementwise(lambda h: h % 2.0),
    "stopped": elementwise(tf.stop_gradient),
    "a cast": elementwise(lambda h: tf.cast(tf.cast(h, tf.int32), tf.float32)),
    "cut": elementwise(cut),
    "straight": elementwise(straight),
    "hidden": elementwise(hidden),
    "of two results": elementwise(lambda h: pair(h)[1]),
    "silu": elementwise(tf.nn.silu),
    "product": square(lambda x, a, b: product(tf.tanh(x @ a), tf.identity(b))),
    "product twice": square(
        lambda x, a, b: product(product(x @ a, tf.identity(b)), tf.identity(b))
    ),
    "halved": square(lambda x, a, b: halved(x @ a, tf.identity(b))),
    "a function in a function": square(
        lambda x, a, b: tf.function(lambda h: tf.function(straight)(h) @ b)(x @ a)
    ),
    "a function twice": square(lambda x, a, b: TWICE(TWICE(x @ a, b), b)),
    "a closure": square(closing_over),
    "recomputed": square(
        lambda x, a, b: tf.recompute_grad(lambda h: tf.tanh(tf.tanh(h) @ b) @ b)(x @ a)
    ),
    "a layer with hidden products": layered(hidden),
    "a layer that rounds": layered(keras.ops.round),
}
NAMED = {
    "sign": (elementwise(tf.sign), "zeros as the gradient of Sign"),
    "two results": (elementwise(lambda h: sum(pair(h))), "it has several results"),
    "within a checkpoint": (
        square(lambda x, a, b: tf.recompute_grad(lambda h: hidden(h) @ b)(x @ a)),
        "it is in a checkpoint",
    ),
    "in a loop": (
        square(
            lambda x, a, b: tf.while_loop(
                lambda i, _: i < 3, lambda i, h: (i + 1, straight(h) @ b), (0, x @ a)
            )[1]
        ),
        "it is in a loop",
    ),
    "second order": (square(second_order), "unknown which operands need gradients"),
}


def step_of_tensorflow(model):
    """The products of the frozen graph of the outputs and of their gradients."""
    held = list(model.trainable_variables)

    def step(x):
        with tf.GradientTape() as tape:
            output = model(x)
        return output, [part for part in tape.gradient(output, held) if part is not None]

    concrete = tf.function(step).get_concrete_function(SPEC)
    frozen = freezing.convert_variables_to_constants_v2(concrete, lower_control_flow=False)
    return executed(needed(frozen.graph.outputs), 3)


@pytest.mark.parametrize("name", EXACT)
def test_gradients_of_the_model_itself(name):
    """The step has the products of TensorFlow's graph, and nothing is left open."""
    model = EXACT[name]()
    step = crossflops.count(model, (SPEC,), train=True).training
    assert not step.uncounted
    assert step.macs == step_of_tensorflow(model)


@pytest.mark.parametrize("name", NAMED)
def test_gradients_that_are_not_followed(name):
    """They are named with the reason."""
    make, reason = NAMED[name]
    rows = crossflops.count(make(), (SPEC,), train=True).training.uncounted
    assert any(reason in row.reason for row in rows)


def test_products_of_a_gradient_by_hand():
    """x a, a product with b and one with c: forward 30 + 40 + 16.

    Back: 32 for both sides of the last one, 40 to the tanh, 120 for b, of which 80 are the
    function's own, and 30 for a.
    """
    model = OfFunction(
        lambda x, a, b, c: product(tf.tanh(x @ a), tf.identity(b)) @ c, (3, 5), (5, 4), (4, 2)
    )
    step = crossflops.count(model, (SPEC,), train=True).training
    assert (step.forward_macs, step.macs) == (86, 86 + 32 + 40 + 120 + 30)


@pytest.mark.parametrize(
    ("activation", "recomputed"),
    [(None, 0), ("tanh", 3 * 16)],  # the gradient of a product needs no result, that of tanh does
)
def test_layers_that_keras_runs_again(activation, recomputed):
    """A layer of 3 x 16 in a RematScope, and one of 16 x 4; x needs no gradient.

    Keras calls the layer with arguments by name, which TensorFlow refuses in a graph.
    """
    with keras.RematScope(mode="list_of_layers", layer_names=["again"]):
        x = keras.Input((3,))
        hidden = keras.layers.Dense(16, activation, name="again")(x)
        model = keras.Model(x, keras.layers.Dense(4)(hidden))
    step = crossflops.count(model, (tf.TensorSpec((1, 3)),), train=True).training
    assert (step.forward_macs, step.recomputed_macs) == (48 + 64, recomputed)
    assert step.macs == 2 * (48 + 64) + 64 + recomputed
    assert not step.uncounted


def test_operands_that_keras_hands_over_by_name():
    """Attention in a RematScope takes its values by name, from a layer of 8 x 8 on 5 rows.

    Forward 320, 4 projections of 320 and 2 products of 200; all but the last projection run again.
    Back: 5 weights and the inputs of 4 layers, the query's too, which is an argument; twice 400.
    """
    with keras.RematScope(mode="list_of_layers", layer_names=["again"]):
        x = keras.Input((5, 8))
        values = keras.layers.Dense(8)(x)
        model = keras.Model(
            x, keras.layers.MultiHeadAttention(2, 4, name="again")(x, value=values)
        )
    step = crossflops.count(model, (tf.TensorSpec((1, 5, 8)),), train=True).training
    forward, again = 5 * 320 + 400, 3 * 320 + 400
    assert (step.forward_macs, step.recomputed_macs) == (forward, again)
    assert not step.uncounted
