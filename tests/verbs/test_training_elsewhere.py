"""A training step of a framework whose traces do not say what is trained: refused, never zero."""

import pytest

import crossflops
from crossflops.errors import InputError


def refused(model, inputs):
    """The sentence with which `count --train` refuses a model that counts without it."""
    assert crossflops.count(model, inputs).macs > 0
    with pytest.raises(InputError) as caught:
        crossflops.count(model, inputs, train=True)
    assert "and count that" in caught.value.hint
    return caught.value.message


@pytest.mark.tensorflow
def test_a_model_of_keras():
    """Its rate of training takes 3 x the forward pass, and says why: 3 x 24 FLOPs."""
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    assert "TensorFlow is not counted yet" in refused(model, ["1x4"])
    options = {"train": True, "examples_per_second": 10.0, "peak_tflops": 1.0}
    report = crossflops.efficiency(model, ["1x4"], **options)
    [rate] = report.efficiency
    assert (rate.multiplier, rate.work) == (3, 72)
    assert any("taken as 3 x forward" in warning for warning in rate.warnings)
    with pytest.raises(InputError, match="is not counted yet"):
        crossflops.efficiency(model, ["1x4"], backward="graph", **options)


@pytest.mark.sklearn
def test_a_model_of_scikit_learn():
    """It is trained by an algorithm of its own, not by gradients."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    model = linear_model.LinearRegression().fit([[0.0, 1.0], [1.0, 0.0]], [0.0, 1.0])
    assert "scikit-learn is not counted yet" in refused(model, ["1x2"])
