"""Traps of the profiler, each under its own cause, in hand-derived numbers."""

import pytest

from crossflops.verbs.api import compare

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

pytestmark = pytest.mark.tensorflow
layers = keras.layers


def causes(model, *shapes):
    """The amounts by cause; nothing is left over."""
    inputs = tuple(tf.TensorSpec(shape) for shape in shapes)
    report = compare(model, inputs, tools=["tensorflow"], isolate=False)
    assert report.residuals == {"tensorflow": 0}
    account = report.reconciliation("tensorflow")
    return report.macs, {
        explanation.cause: explanation.amount for explanation in account.explanations
    }


@pytest.mark.parametrize(("least", "taken", "other"), [(-1e30, 256, 512), (1e30, 512, 256)])
def test_a_branch_that_is_not_taken(least, taken, other):
    """Both branches stand in the graph: 256 of one, 2 x 256 of the other; a run takes one."""
    run = tf.function(
        lambda x, w: tf.cond(x[0, 0] > least, lambda: x @ w, lambda: (x @ w) @ w), autograph=False
    )
    macs, amounts = causes(run, (4, 8), (8, 8))
    assert macs == taken
    assert (amounts["control.branch"], amounts["unit.mac-vs-flop"]) == (other, 768)


def test_a_dilated_convolution_in_one_dimension():
    """14 results of 20 places; cut into 3 rows of 7 places, which give 5 results each."""
    model = keras.Sequential(
        [layers.Input((20, 6)), layers.Conv1D(8, 3, dilation_rate=3, use_bias=False)]
    )
    macs, amounts = causes(model, (2, 20, 6))
    assert macs == 2 * 14 * 8 * 3 * 6
    assert amounts == {
        "conv.dilation-by-batches": 2 * (3 * 5 - 14) * 8 * 3 * 6,
        "unit.mac-vs-flop": 2 * 15 * 8 * 3 * 6,
    }


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_grouped_convolution(rank):
    """It is a function of its own, which the profiler does not look into."""
    layer = getattr(layers, f"Conv{rank}D")(8, 3, groups=2, use_bias=False)
    shape = (*(6,) * rank, 4)
    macs, amounts = causes(keras.Sequential([layers.Input(shape), layer]), (2, *shape))
    assert macs == 2 * 4**rank * 8 * 3**rank * 2
    assert amounts == {"graph.function-not-inlined": -macs}
