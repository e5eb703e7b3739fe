"""The first lines of the libraries' own documentation, each followed by `crossflops count`."""

import json

import pytest

from crossflops.cli import main

TORCH = """
import torch
from torch import nn


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(
            nn.Linear(28 * 28, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
            nn.Linear(512, 10),
        )

    def forward(self, x):
        return self.linear_relu_stack(self.flatten(x))
"""
QUICKSTART = 784 * 512 + 512 * 512 + 512 * 10
JAX = """
import jax
import jax.numpy as jnp


@jax.jit
def predict(weights, x):
    return jnp.tanh(x @ weights)


def linen():
    from flax import linen as nn

    class MLP(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(10)(nn.relu(nn.Dense(32)(x)))

    return MLP()


def nnx_module():
    from flax import nnx

    return nnx.Linear(8, 4, rngs=nnx.Rngs(0))
"""
KERAS = """
import keras
from keras import layers


def sequential():
    return keras.Sequential([
        keras.Input((28, 28, 1)), layers.Conv2D(32, (3, 3), activation="relu"),
        layers.MaxPooling2D((2, 2)), layers.Flatten(), layers.Dense(10),
    ])


def functional():
    inputs = keras.Input((784,))
    x = layers.Dense(64, activation="relu")(inputs)
    return keras.Model(inputs, layers.Dense(10)(x))


def module():
    import tensorflow as tf

    class Dense(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(tf.zeros((3, 2)))

        @tf.function
        def __call__(self, x):
            return tf.nn.relu(tf.matmul(x, self.w))

    return Dense()
"""
SEQUENTIAL = 26 * 26 * 32 * 9 + 13 * 13 * 32 * 10


@pytest.fixture
def macs(tmp_path, monkeypatch, capsys):
    """Returns the MACs that the command prints for these words, in a folder with the file."""
    monkeypatch.chdir(tmp_path)

    def count(*words):
        assert main(["count", *words, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)["totals"]["macs"]

    return count


@pytest.mark.torch
def test_the_quickstart_of_pytorch(macs, tmp_path):
    """As a class, a saved module, TorchScript, an export and an ONNX file."""
    import torch

    (tmp_path / "quickstart.py").write_text(TORCH)
    names = {"__name__": "quickstart"}
    exec(TORCH, names)
    image = ["--input", "1x28x28"]
    assert macs("quickstart.py:NeuralNetwork", *image) == QUICKSTART
    model = names["NeuralNetwork"]().eval()
    example = (torch.zeros(1, 28, 28),)
    torch.jit.trace(model, example).save("traced.pt")
    assert macs("traced.pt", *image, "--allow-pickle") == QUICKSTART
    torch.export.save(torch.export.export(model, example), "model.pt2")
    assert macs("model.pt2", "--allow-pickle") == QUICKSTART
    torch.save(model.linear_relu_stack, "whole.pt")
    assert macs("whole.pt", "--input", "1x784", "--allow-pickle") == QUICKSTART
    torch.onnx.export(model, example, "model.onnx", dynamo=True, verbose=False)
    assert macs("model.onnx") == QUICKSTART


@pytest.mark.jax
def test_the_first_lines_of_jax(macs, tmp_path):
    """A jitted function, and modules of Flax."""
    (tmp_path / "first.py").write_text(JAX)
    assert macs("first.py:predict", "--input", "8x4", "--input", "2x8") == 64
    assert macs("first.py:linen", "--input", "1x8") == 8 * 32 + 32 * 10
    assert macs("first.py:nnx_module", "--input", "1x8") == 32


@pytest.mark.tensorflow
def test_the_first_lines_of_keras(macs, tmp_path):
    """Models as objects and in each of their files; a module of TensorFlow."""
    import keras

    (tmp_path / "first.py").write_text(KERAS)
    assert macs("first.py:sequential") == SEQUENTIAL
    assert macs("first.py:functional", "--batch", "4") == 4 * (784 * 64 + 64 * 10)
    assert macs("first.py:module", "--input", "1x3") == 6
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, (3, 3), activation="relu"),
            layers.MaxPooling2D((2, 2)),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    model.save("model.keras")
    assert macs("model.keras") == SEQUENTIAL
    model.export("saved", verbose=False)
    assert macs("saved") == SEQUENTIAL


@pytest.mark.sklearn
def test_the_first_lines_of_scikit_learn(macs, tmp_path):
    """A fitted pipeline of four features and two classes, in each of its files: 4 products."""
    import pickle

    import joblib
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = np.random.default_rng(0).random((20, 4))
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, rows[:, 0] > 0.5)
    joblib.dump(model, "model.joblib")
    assert macs("model.joblib", "--allow-pickle") == 4
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    assert macs("model.pkl", "--input", "8x4", "--allow-pickle") == 32
