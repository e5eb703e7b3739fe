"""A training step of a framework whose traces do not say what is trained: refused, never zero."""

import pytest

import crossflops
from crossflops.errors import InputError


@pytest.mark.sklearn
def test_a_model_of_scikit_learn():
    """It is trained by an algorithm of its own, not by gradients; a rate takes 3 x forward."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    model = linear_model.LinearRegression().fit([[0.0, 1.0], [1.0, 0.0]], [0.0, 1.0])
    forward = crossflops.count(model, ["1x2"])
    with pytest.raises(InputError, match="scikit-learn is not counted yet") as caught:
        crossflops.count(model, ["1x2"], train=True)
    assert "and count that" in caught.value.hint
    options = {"train": True, "examples_per_second": 10.0, "peak_tflops": 1.0}
    report = crossflops.efficiency(model, ["1x2"], **options)
    [rate] = report.efficiency
    assert (rate.multiplier, rate.work) == (3, 6 * forward.macs)
    assert any("3 x forward is used" in warning for warning in rate.warnings)
    with pytest.raises(InputError, match="is not counted yet"):
        crossflops.efficiency(model, ["1x2"], backward="graph", **options)
