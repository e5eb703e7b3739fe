"""Models that everybody has: what the profiler prints of them, explained to the last operation."""

import pytest
from crossflops_tensorflow import TensorFlowProfiler

from crossflops.frontends import normalize
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.reconcile.walk import reconcile
from crossflops.rules.prediction import predict
from crossflops.targets import source_from_object
from crossflops.tools.registry import find_convention

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

pytestmark = pytest.mark.tensorflow
layers = keras.layers


def explained(model, *specs):
    """The reconciliation of what the profiler prints; every node has a count."""
    source = source_from_object(model, (specs, {}))
    graph, trace = normalize(source, Setting())
    ledger = count(graph)
    assert not ledger.uncounted
    prediction = predict(find_convention("tensorflow"), trace, Setting(), ledger)
    answer = TensorFlowProfiler().profile(source.model, source.args, source.kwargs, Setting())
    return reconcile(prediction, trace, ledger, answer)


def test_resnet50():
    """Twice the MACs, biases, batch norm as 2 n and 6 per channel, 16 sums, a pool, a mean."""
    account = explained(keras.applications.ResNet50(weights=None), tf.TensorSpec((1, 224, 224, 3)))
    assert account.theirs == 7_755_299_312
    assert account.ours == (7_711_850_496 + 4_096_000) // 2
    assert {explanation.cause: explanation.amount for explanation in account.explanations} == {
        "unit.mac-vs-flop": account.ours,
        "bias.conv": 10_588_136 - 1000,
        "bias.linear": 1000,
        "elementwise.add-function": 5_519_360,
        "norm.batch": 16_133_056 - 5_519_360 + 10_640_256 + 53_120 + 26_560,
        "pool.max": 1_806_336,
        "reduce.mean": 100_352,
        "softmax": 5000,
    }
    assert account.residual == 0
    assert all(row.theirs in {None, row.predicted} for row in account.by_path)


def text_classifier(unroll):
    """Embedding, LSTM, and one probability."""
    return keras.Sequential(
        [
            layers.Input((16,), dtype="int32"),
            layers.Embedding(1000, 32),
            layers.LSTM(64, unroll=unroll),
            layers.Dense(1, activation="sigmoid"),
        ]
    )


@pytest.mark.parametrize("unroll", [False, True])
def test_a_text_classifier(unroll):
    """Unrolled every step counts, in a loop the input's product of one step alone."""
    account = explained(text_classifier(unroll), tf.TensorSpec((4, 16), "int32"))
    step = 4 * 4 * 64 * (32 + 64)
    assert account.ours == 16 * step + 4 * 64
    assert account.residual == 0
    looped = {explanation.cause: explanation.amount for explanation in account.explanations}.get(
        "control.loop-body-once", 0
    )
    assert looped == (0 if unroll else 4 * 4 * 64 * 32 - 16 * step)


def test_a_transformer_block():
    """Attention's two products are Einsum, for which nothing is registered."""
    x = first = layers.Input((20, 64))
    y = layers.LayerNormalization()(x)
    x = x + layers.MultiHeadAttention(4, 16)(y, y)
    y = layers.Dense(256, activation="gelu")(layers.LayerNormalization()(x))
    account = explained(keras.Model(first, x + layers.Dense(64)(y)), tf.TensorSpec((2, 20, 64)))
    products = 2 * 2 * 4 * 20 * 20 * 16
    assert account.ours == 40 * (4 * 64 * 64 + 2 * 64 * 256) + products
    causes = {explanation.cause: explanation.amount for explanation in account.explanations}
    assert causes["op.unregistered-zero"] == -products
    assert account.residual == 0
