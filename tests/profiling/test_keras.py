"""The callback for Keras' fit: the count of a training step, its time, and rates by epoch."""

import math

import pytest

pytestmark = pytest.mark.tensorflow

ROWS, STEPS = 4, 3  # of an epoch


def _fitted(callback, epochs=3):
    """16-8-2 trained on twelve rows, four a step: what fit returns."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((16,)), *layers])
    model.compile(optimizer="sgd", loss="mse")
    rows = np.ones((ROWS * STEPS, 16), "float32"), np.ones((ROWS * STEPS, 2), "float32")
    return model.fit(*rows, batch_size=ROWS, epochs=epochs, verbose=0, callbacks=callback)


def test_a_step_is_profiled_and_later_epochs_have_its_rates(tmp_path):
    """By hand; the losses are those of a training without it."""
    import crossflops

    page = tmp_path / "step.json"
    callback = crossflops.keras_callback(ROWS, step=2, peak_tflops=1, output_file=page)
    plain, watched = _fitted([]), _fitted([callback])
    assert watched.history["loss"] == plain.history["loss"]
    forward = ROWS * (16 * 8 + 8 * 2)
    profile = callback.profile
    assert profile.work.forward_macs == forward
    assert profile.backward_macs == forward + ROWS * 8 * 2  # the input needs no gradient
    assert profile.model_macs == profile.work.forward_macs + profile.backward_macs
    assert profile.latencies.iteration > 0
    assert b'"rates"' in page.read_bytes()
    rates = zip(*(watched.history[key] for key in ("tflops_per_second", "mfu")), strict=True)
    for (rate, share), samples in zip(rates, watched.history["samples_per_second"], strict=True):
        assert math.isclose(rate, 2 * profile.model_macs * samples / ROWS / 1e12)
        assert math.isclose(share, rate)
    assert len(watched.history["mfu"]) == 3  # the first epoch has one step behind the second


def test_a_training_that_ends_sooner_says_so():
    """Step 100 of nine."""
    import crossflops

    callback = crossflops.keras_callback(ROWS, step=100)
    with pytest.warns(crossflops.errors.CrossflopsWarning, match="before step 100"):
        _fitted([callback])
    assert callback.profile is None
