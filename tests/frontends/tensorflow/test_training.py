"""A training step of Keras and TensorFlow models: our count against the graph of its gradients."""

import pytest

import crossflops
from crossflops.errors import InputError
from tests.laws.tensorflow_macs import executed, needed

pytestmark = pytest.mark.tensorflow
keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")
convert_to_constants = pytest.importorskip("tensorflow.python.framework.convert_to_constants")
layers = keras.layers


def with_gradients(call, trained):
    """The sum of all outputs, and its gradients."""

    def step(*tensors):
        with tf.GradientTape() as tape:
            results = tf.nest.flatten(call(*tensors))
            loss = sum(tf.reduce_sum(result) for result in results)
        gradients = tape.gradient(loss, trained)
        return loss, [gradient for gradient in gradients if gradient is not None]

    return step


def step_of_tensorflow(call, given, trained, trips):
    """The products of the forward pass, and of it with the gradients of the summed outputs."""
    graphs = (
        tf.function(function, autograph=False).get_concrete_function(*given).graph
        for function in (lambda *tensors: call(*tensors), with_gradients(call, trained))
    )
    return tuple(executed(needed(graph.outputs), trips) for graph in graphs)


def profiled(call, given, trained):
    """What the profiler prints for the frozen graph of the sum and its gradients."""
    step = tf.function(with_gradients(call, trained), autograph=False)
    frozen = convert_to_constants.convert_variables_to_constants_v2(
        step.get_concrete_function(*given)
    )
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    return profiler.profile(frozen.graph, cmd="op", options=options).total_float_ops


def spec(*shape, dtype="float32"):
    """An input."""
    return tf.TensorSpec(shape, dtype)


def sequential(shape, *held):
    """These layers, one after the other."""
    return keras.Sequential([keras.Input(shape), *held])


def perceptron():
    """Products, a norm and an activation with a gradient of its own."""
    return sequential(
        (4,),
        layers.Dense(5, activation="silu", name="a"),
        layers.LayerNormalization(),
        layers.Dense(6, name="b"),
        layers.Dense(3, name="c"),
    )


def half_frozen():
    """The layer between the others is frozen."""
    model = perceptron()
    model.get_layer("b").trainable = False
    return model


def convolutions():
    """Strided, depthwise, separable and transposed ones."""
    return sequential(
        (8, 8, 3),
        layers.Conv2D(8, 3, strides=2, padding="same"),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.DepthwiseConv2D(3),
        layers.SeparableConv2D(6, 2),
        layers.Conv2DTranspose(5, 3, strides=2, padding="same"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(4),
    )


def in_groups():
    """Only the bias of the first convolution is trained, which the converter moves into it."""
    model = sequential(
        (8, 8, 4), layers.Conv2D(8, 3, groups=2), layers.Conv2D(8, 3, dilation_rate=2)
    )
    model.layers[0].kernel.trainable = False
    return model


def attention():
    """Of a layer with a norm behind it."""
    x = keras.Input((6, 8))
    y = layers.MultiHeadAttention(2, 4)(x, x)
    return keras.Model(x, layers.Dense(3)(layers.LayerNormalization()(x + y)))


def recurrent():
    """Two layers that the converter writes as one node each."""
    return sequential((5, 4), layers.LSTM(3, return_sequences=True), layers.GRU(3))


def words():
    """A table that looks words up."""
    return sequential((6,), layers.Embedding(11, 8), layers.Dense(4), layers.Dense(2))


def tied():
    """A table that looks words up, and whose transpose is the last layer."""
    words, table = keras.Input((6,), dtype="int32"), layers.ReversibleEmbedding(11, 8)
    return keras.Model(words, table(layers.Dense(8)(table(words)), reverse=True))


class Odd(keras.layers.Layer):
    """One way is stopped, the other one made anew for the gradients."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (layers.Dense(5) for _ in range(3))

    def build(self, _shape):
        for layer, size in ((self.a, 4), (self.b, 5), (self.c, 5)):
            layer.build((None, size))
        self.built = True

    def call(self, x):
        x = self.a(x)
        again = keras.remat(lambda y: self.c(keras.ops.tanh(self.b(y))))
        return self.b(keras.ops.stop_gradient(x)) + again(x)


class AnewWithActivation(keras.layers.Layer):
    """A product made anew, whose activation has a gradient of its own."""

    def __init__(self):
        super().__init__()
        self.a, self.b = layers.Dense(7, activation="silu"), layers.Dense(4)

    def build(self, _shape):
        self.a.build((None, 4))
        self.b.build((None, 7))
        self.built = True

    def call(self, x):
        return keras.remat(lambda y: self.b(self.a(y)))(x)


class Plain(tf.Module):
    """Two variables of one name, and one that is not trained."""

    def __init__(self):
        self.first, self.second = tf.Variable(tf.ones((4, 5))), tf.Variable(tf.ones((5, 3)))
        self.third = tf.Variable(tf.ones((3, 3)), trainable=False)

    def __call__(self, x):
        return tf.tanh(x @ self.first) @ self.second @ self.third


class OfFunction(tf.Module):
    """A function of x and of variables, which are read before anything else is done."""

    def __init__(self, function, *shapes):
        super().__init__()
        self.function, self.held = function, [tf.Variable(tf.ones(shape)) for shape in shapes]

    def __call__(self, x):
        result = self.function(x, *map(tf.convert_to_tensor, self.held))
        return tf.ensure_shape(result, result.shape)  # behind a loop it is not known any more


def five_times(step, first):
    """A loop that is run five times."""
    return tf.while_loop(lambda i, _: i < 5, lambda i, h: (i + 1, step(h)), (0, first))[1]


def looped(function):
    """Of x @ a, whatever the function does with b; and times c."""
    return lambda: OfFunction(
        lambda x, a, b, c: function(lambda h: tf.tanh(h @ b), x @ a) @ c, (3, 5), (5, 5), (5, 2)
    )


def nested(step, x):
    """A loop in a loop."""
    return five_times(lambda h: tf.tanh(five_times(step, h)), x)


def joined(step, rows):
    """The first row is the first state."""
    return tf.scan(lambda h, row: step(h) + row, rows)


def begun(step, rows):
    """The first state is there before the first row."""
    return tf.scan(lambda h, row: step(h + row), rows, initializer=tf.zeros_like(rows[0]))


def folded(step, rows):
    """Only the last state is kept."""
    return tf.foldl(lambda h, row: step(h + row), rows, initializer=tf.ones_like(rows[0]))


def convolved():
    """A convolution, and another one five times."""

    def function(x, first, second):
        x = tf.nn.conv2d(x, first, 1, "SAME")
        return five_times(lambda h: tf.nn.relu(tf.nn.conv2d(h, second, 1, "SAME")), x)

    return OfFunction(function, (3, 3, 3, 4), (3, 3, 4, 4))


def chosen():
    """One of two ways, which read variables."""

    def function(x, a, b):
        ways = [lambda: tf.tanh(x @ a) @ b] * 3
        return tf.switch_case(tf.cast(tf.reduce_sum(x) > 0, tf.int32), ways)

    return OfFunction(function, (3, 5), (5, 2))


def two_ways():
    """Cells in both directions."""
    both = layers.Bidirectional(layers.LSTM(3, return_sequences=True))
    return sequential((5, 4), both, layers.Bidirectional(layers.GRU(3)))


MODELS = {
    "perceptron": (perceptron, spec(2, 4), ()),
    "a frozen layer": (half_frozen, spec(2, 4), ()),
    "frozen by a pattern": (perceptron, spec(2, 4), ("a", "layer_norm*")),
    "convolutions": (convolutions, spec(2, 8, 8, 3), ()),
    "groups, a bias": (in_groups, spec(2, 8, 8, 4), ()),
    "attention": (attention, spec(2, 6, 8), ()),
    "recurrent": (recurrent, spec(2, 5, 4), ()),
    "words": (words, spec(2, 6, dtype="int32"), ()),
    "tied": (tied, spec(2, 6, dtype="int32"), ()),
    "stopped, made anew": (lambda: sequential((4,), Odd()), spec(2, 4), ()),
    "an activation made anew": (
        lambda: sequential((4,), layers.Dense(4), AnewWithActivation()),
        spec(2, 4),
        (),
    ),
    "tf.Module": (Plain, spec(2, 4), ()),
    "both directions": (two_ways, spec(2, 5, 4), ()),
    "while": (looped(five_times), spec(2, 3), ()),
    "a loop in a loop": (looped(nested), spec(2, 3), ()),
    "stopped behind a loop": (
        looped(lambda step, x: x + tf.stop_gradient(five_times(step, x))),
        spec(2, 3),
        (),
    ),
    "scan without a first state": (looped(joined), spec(6, 2, 3), ()),
    "scan": (looped(begun), spec(5, 2, 3), ()),
    "foldl": (looped(folded), spec(5, 2, 3), ()),
    "map_fn": (looped(tf.map_fn), spec(5, 2, 3), ()),
    "a loop of convolutions": (convolved, spec(2, 8, 8, 3), ()),
}


def of_tensorflow(model, frozen):
    """The model as a function, and what of it is trained."""
    if not isinstance(model, keras.Model):
        return model, model.trainable_variables
    fixed = [pattern.rstrip("*") for pattern in frozen]
    trained = [
        weight.value
        for weight in model.trainable_variables
        if not any(weight.path.split("/")[-2].startswith(f"{p}") for p in fixed)
    ]
    return lambda x: model(x, training=False), trained


@pytest.mark.parametrize("name", MODELS)
def test_what_tensorflow_runs(name):
    """Forward, and with the gradients, as the graph of tf.GradientTape says."""
    make, given, frozen = MODELS[name]
    model = make()
    call, trained = of_tensorflow(model, frozen)
    expected = step_of_tensorflow(call, [given], trained, 5)
    training = crossflops.count(model, (given,), train=True, frozen=frozen).training
    assert not training.uncounted
    assert (training.forward_macs, training.macs) == expected


# gradients through a variable that a loop or a function reads: TensorFlow does not freeze them
NOT_FROZEN = {"recurrent", "both directions", "groups, a bias"}


@pytest.mark.parametrize("name", MODELS)
def test_what_the_profiler_counts(name):
    """As of tf.GradientTape, without the adds that make one number of n outputs; residual 0."""
    make, given, frozen = MODELS[name]
    model = make()
    report = crossflops.compare(
        model, (given,), train=True, frozen=frozen, tools=["tensorflow"], isolate=False
    )
    account = report.reconciliation("tensorflow")
    assert (account.ours, account.residual) == (report.training.macs, 0)
    if name not in NOT_FROZEN:
        call, trained = of_tensorflow(model, frozen)
        [output] = tf.nest.flatten(tf.function(call).get_concrete_function(given).outputs)
        assert account.theirs == profiled(call, [given], trained) - output.shape.num_elements()


@pytest.mark.parametrize(
    ("pattern", "inputs", "weights"), [("0", 40, 70), ("0.b", 0, 40), ("bias", 0, 0)]
)
def test_parameters_that_are_an_argument(pattern, inputs, weights):
    """x A tanh B + bias: 2*3*5 and 2*5*4 products, and gradients of A, of B and of the tanh."""

    @tf.function
    def function(params, x, *, bias):
        return tf.tanh(x @ params["a"]) @ params["b"] + bias

    given = ({"b": spec(5, 4), "a": spec(3, 5)}, spec(2, 3)), {"bias": spec(4)}
    with pytest.raises(InputError, match="'a' matches no weight") as refused:
        crossflops.count(function, given, train=True, trainable=["a"])
    assert "such as '0.a'" in refused.value.hint
    report = crossflops.compare(
        function, given, train=True, trainable=[pattern], tools=["tensorflow"], isolate=False
    )
    step = report.training
    assert (step.backward_input_macs, step.backward_weight_macs) == (inputs, weights)
    assert report.reconciliation("tensorflow").residual == 0


def test_a_loss_of_some_outputs():
    """x A, of which two products are made: the loss reaches the one of 6 units."""
    x = keras.Input((4,))
    hidden = layers.Dense(5)(x)
    model = keras.Model(x, {"a": layers.Dense(6)(hidden), "b": layers.Dense(7)(hidden)})
    step = crossflops.count(
        model, (spec(2, 4),), train=True, loss=lambda results: tf.reduce_sum(results["a"])
    ).training
    assert (step.backward_input_macs, step.backward_weight_macs) == (60, 60 + 40)
    with pytest.raises(InputError, match="must be one number"):
        crossflops.count(model, (spec(2, 4),), train=True, loss=lambda results: results["a"])


@pytest.mark.parametrize("frozen", ["forward_layer", "backward_layer"])
def test_a_direction_that_is_frozen_alone(frozen):
    """Of 2 x 3 steps of 4 x 4 rows, of 5 inputs and 4 units: 480 and 384 MACs in each direction.

    The first layer makes 2 x 3 x 5 x 5 = 150. Back come the gradients of its weights, of the
    inputs and states of both directions, and of the weights of one.
    """
    both = layers.Bidirectional(layers.LSTM(4, return_sequences=True))
    model = sequential((3, 5), layers.Dense(5), both)
    getattr(both, frozen).trainable = False
    step = crossflops.count(model, (spec(2, 3, 5),), train=True).training
    assert not step.uncounted
    assert step.forward_macs == 150 + 2 * (480 + 384)
    assert step.backward_input_macs == 2 * (480 + 384)
    assert step.backward_weight_macs == 150 + 480 + 384


class Repeated(tf.Module):
    """A loop that AutoGraph writes, which reads a variable."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (
            tf.Variable(tf.ones(shape)) for shape in ((3, 5), (5, 5), (5, 2))
        )

    @tf.function
    def __call__(self, x):
        h = x @ self.a
        for _ in tf.range(4):
            h = tf.tanh(h @ self.b)
        return h @ self.c


def test_a_function_with_a_loop_is_derived():
    """30 MACs, 4 x 50 and 20, and 2 x 20, 2 x 200 and 30 back.

    The profiler knows the sizes of the first product and of the gradient of the last loop's
    result: 2 x 30 and 2 x 20.
    """
    given = (spec(2, 3),)
    report = crossflops.compare(Repeated(), given, train=True, tools=["tensorflow"], isolate=False)
    account = report.reconciliation("tensorflow")
    assert (account.ours, account.theirs, account.residual) == (250 + 470, 100, 0)
    causes = {row.cause: row.amount for row in account.explanations}
    assert causes["control.loop-body-once"] == -600


def test_a_choice_among_functions_that_read_variables():
    """All of its ways do the same: 30 and 20 MACs, 20 and 20 back to h and b, 30 to a."""
    step = crossflops.count(chosen(), (spec(2, 3),), train=True).training
    assert (step.forward_macs, step.macs, step.uncounted) == (50, 50 + 70, ())


@pytest.mark.parametrize(
    ("function", "shapes", "given", "cause", "amount"),
    [
        # x has no use for the gradient of 2 x 5 x 5 that is made with that of the weight
        (
            lambda x, b: tf.recompute_grad(lambda y, w: tf.tanh(y @ w) @ w)(x, b),
            [(5, 5)],
            spec(2, 5),
            "control.dead-code",
            50,
        ),
        # three products of 5 x 5 x 5 make the gradient of cholesky in TensorFlow, one and two
        # triangular solves, which the profiler does not know, in the count: 3 x 125 - 125
        (
            lambda x, b: tf.linalg.cholesky(
                tf.matmul(x, x, transpose_a=True) + tf.matmul(b, b, transpose_a=True)
            ),
            [(6, 5)],
            spec(7, 5),
            "graph.one-side-alone",
            250,
        ),
    ],
    ids=["recompute_grad", "cholesky"],
)
def test_products_beside_the_gradients(function, shapes, given, cause, amount):
    """They are in TensorFlow's graph, of sizes that are known, and not in the count."""
    report = crossflops.compare(
        OfFunction(function, *shapes), (given,), train=True, tools=["tensorflow"], isolate=False
    )
    account = report.reconciliation("tensorflow")
    assert account.residual == 0
    assert {row.cause: row.macs for row in account.explanations}[cause] == amount
