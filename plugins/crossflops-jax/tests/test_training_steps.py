"""What XLA counts for a training step: derived by hand, and explained to the last operation.

A product with a trained weight costs its forward MACs once more for the gradient of the weight,
and again for that of its input where something trained lies before it. XLA counts 2 for each.
"""

import pytest

import crossflops
from crossflops.errors import InputError

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
pytest.importorskip("jax2onnx")
nnx = pytest.importorskip("flax.nnx")

pytestmark = pytest.mark.jax
TOOLS = ("xla-lowered", "xla-compiled")
RANDOM = nnx.Rngs(0)
PADDED, UNIT, GRADIENTS = "conv.padding-valid-taps", "unit.mac-vs-flop", "scope.backward"


def spec(*shape, dtype="float32"):
    """An input of this shape."""
    return jax.ShapeDtypeStruct(shape, dtype)


def step(model, *specs, **options):
    """The comparison of a training step, in this process."""
    return crossflops.compare(
        model, specs, train=True, tools=list(TOOLS), isolate=False, **options
    )


def causes(report):
    """Amounts by cause of the program that XLA is given; of both the residual is 0."""
    assert report.residuals == dict.fromkeys(TOOLS, 0)
    account = report.reconciliation("xla-lowered")
    assert account.ours == report.training.macs
    return {row.cause: row.amount for row in account.explanations}


def perceptron():
    """On 7 rows 7 x 6 x 5 = 210 MACs and 7 x 5 x 4 = 140."""
    layers = (nnx.Linear(6, 5, rngs=RANDOM), nnx.relu, nnx.Linear(5, 4, rngs=RANDOM))
    return nnx.Sequential(*layers)


# 28 and 35 biases are added; their gradients are sums over 7 rows. ReLU takes 35 maxima and, for
# its gradient, compares 35 (forward) and selects 35.
FIRST, LAST = 7 * 5 - 5, 7 * 4 - 4


@pytest.mark.parametrize(
    ("frozen", "macs", "more"),
    [
        ((), 350 + 350 + 140, {"elementwise.native": 35, GRADIENTS: FIRST + 35 + LAST}),
        (("layers.0",), 350 + 140, {GRADIENTS: LAST}),
        (("layers.2",), 350 + 210 + 140, {"elementwise.native": 35, GRADIENTS: FIRST + 35}),
        (
            ("layers.*.kernel",),
            350 + 140,
            {"elementwise.native": 35, GRADIENTS: FIRST + 35 + LAST},
        ),
        (("*",), 350, {}),
    ],
)
def test_a_perceptron(frozen, macs, more):
    """All trained, the first or the last layer frozen, biases alone, and nothing trained."""
    report = step(perceptron(), spec(7, 6), frozen=frozen)
    assert report.training.macs == macs
    assert causes(report) == {UNIT: macs, "act.relu": 35, "bias.linear": 63} | more
    assert report.reconciliation("xla-lowered").theirs == 2 * macs + 35 + 63 + sum(more.values())


def convolution(*channels, groups=1, **more):
    """3 x 3, without a bias."""
    return nnx.Conv(
        *channels, (3, 3), feature_group_count=groups, use_bias=False, rngs=RANDOM, **more
    )


def test_a_strided_convolution_in_groups():
    """5 x 5 places x 8 channels x 2 x 9 = 3600; 13 of 15 taps along each axis are on the image.

    The gradient of the filter meets the same pairs.
    """
    report = step(convolution(4, 8, groups=2, strides=2, padding=1), spec(1, 9, 9, 4))
    valid = 13 * 13 * 8 * 2
    assert report.training.macs == 2 * 3600
    assert causes(report) == {PADDED: 2 * (valid - 3600), UNIT: 2 * valid}


def test_a_depthwise_convolution_behind_another():
    """6 x 6 x 3 x 9 x 4 = 3888 without padding, then 4 x 4 x 4 x 9 = 576, its input's too."""
    layers = convolution(3, 4, padding="VALID"), convolution(4, 4, groups=4, padding="VALID")
    report = step(nnx.Sequential(*layers), spec(1, 8, 8, 3))
    macs = 2 * 3888 + 3 * 576
    assert report.training.macs == macs
    assert causes(report) == {UNIT: macs}


def test_a_transposed_convolution():
    """5 x 5 x 4 x 6 x 9 = 5400, of which no product falls on a hole: its result is 11 x 11."""
    layer = nnx.ConvTranspose(
        4, 6, (3, 3), strides=(2, 2), padding="VALID", use_bias=False, rngs=RANDOM
    )
    report = step(layer, spec(1, 5, 5, 4))
    assert report.training.macs == 2 * 5400
    assert causes(report) == {UNIT: 2 * 5400}


def test_attention():
    """x A, x B, x C of 6 x 4 x 4 = 96 MACs; scores and values 6 x 6 x 4 = 144, no softmax."""
    weights = [jnp.ones((4, 4)) * place for place in range(1, 4)]

    def attention(x):
        query, key, value = (x @ weight for weight in weights)
        return (query @ key.T) @ value

    report = step(attention, spec(6, 4))
    macs = 2 * 3 * 96 + 3 * 2 * 144
    assert report.training.macs == macs
    assert causes(report) == {UNIT: macs}


def test_a_scan():
    """x_t W of 2 x 5 x 5 for each of 4 steps, and both gradients: XLA counts one step of a loop.

    There a row is added to the state; going back, the gradient of the sequence to that of the
    state, and that of the weight to those of other steps; each loop counts and compares.
    """
    weight = jnp.ones((5, 5))

    def recurrent(x):
        start = jnp.zeros((2, 5))
        return jax.lax.scan(lambda state, row: (state @ weight + row, None), start, x)[0]

    report = step(recurrent, spec(4, 2, 5))
    assert report.training.macs == 3 * 4 * 50
    amounts = causes(report)
    assert amounts["control.loop-body-once"] == -3 * 3 * 50
    assert amounts[UNIT] == 3 * 50
    assert amounts["elementwise.add-function"] == 10


def test_an_embedding_in_front():
    """3 x 8 x 4 = 96 MACs, whose input is looked up: a gradient of 24 sums goes to the table."""
    table, weight = jnp.ones((11, 8)), jnp.ones((8, 4))
    report = step(lambda words: table[words] @ weight, spec(3, dtype="int32"))
    assert report.training.macs == 3 * 96
    amounts = causes(report)
    assert amounts[UNIT] == 3 * 96
    assert amounts[GRADIENTS] == 3 * 8


def test_a_checkpoint():
    """sin(x W) V of 2 x 4 x 4 = 32 MACs each: x W is multiplied again, forward of its sine."""
    first, second = jnp.ones((4, 4)), 2 * jnp.ones((4, 4))
    report = step(jax.checkpoint(lambda x: jnp.sin(x @ first) @ second), spec(2, 4))
    macs = 2 * 32 + 3 * 32 + 32
    assert report.training.macs == macs
    # the cosine is multiplied; sine and cosine are no flops here
    assert causes(report) == {UNIT: macs, GRADIENTS: 2 * 4}


def test_parameters_that_are_an_argument():
    """x W1 tanh W2 of 2 x 3 x 5 and 2 x 5 x 4: gradients of W1, of W2 and of the tanh."""

    def function(params, x):
        return jnp.tanh(x @ params["a"]) @ params["b"]

    given = {"a": spec(3, 5), "b": spec(5, 4)}, spec(2, 3)
    for pattern, macs in (("0", 70 + 40 + 70), ("0.b", 70 + 40)):
        report = step(function, *given, trainable=[pattern])
        assert report.training.macs == macs
        assert causes(report)[UNIT] == macs
    with pytest.raises(InputError, match="has no parameters"):
        step(function, *given)


def test_a_loss_of_some_outputs():
    """x A of 2 x 3 x 5, then 2 x 5 x 5 towards the loss and 2 x 5 x 7 beside it."""
    first, second, third = jnp.ones((3, 5)), jnp.ones((5, 5)), jnp.ones((5, 7))

    def function(x):
        hidden = x @ first
        return {"a": hidden @ second, "b": hidden @ third}

    report = step(function, spec(2, 3), loss=lambda results: results["a"].sum())
    macs = 30 + 50 + 70 + 50 + 50 + 30
    assert report.training.macs == macs
    assert causes(report) == {UNIT: macs}


def test_in_a_worker(tmp_path):
    """The tool has what is frozen and what the loss is made of."""
    (tmp_path / "small.py").write_text(
        "import jax.numpy as jnp\n\n\ndef forward(params, x):\n"
        "    return jnp.tanh(x @ params['a']) @ params['b']\n\n\n"
        "def make():\n    return forward, ({'a': jnp.ones((3, 5)), 'b': jnp.ones((5, 4))},"
        " jnp.ones((2, 3)))\n"
    )
    report = crossflops.compare(
        f"{tmp_path / 'small.py'}:make", train=True, trainable=["0.b"], tools=["xla-lowered"]
    )
    assert report.reconciliation("xla-lowered").theirs == 2 * 110
    assert report.residuals == {"xla-lowered": 0}
