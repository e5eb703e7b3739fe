"""A model of Keras that runs on JAX or PyTorch costs what it costs on TensorFlow."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.frameworks

MODELS = """
import keras
from keras import layers

def convolution():
    x = keras.Input((16, 16, 3))
    y = layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(x))
    return keras.Model(x, layers.Dense(3)(layers.GlobalAveragePooling2D()(y)))

def recurrent():
    x = keras.Input((5, 4))
    return keras.Model(x, layers.LSTM(8)(x))

def two():
    a, b = keras.Input((4,)), keras.Input((6,))
    return keras.Model([a, b], layers.Dense(2)(layers.Concatenate()([a, b])))

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.layer = layers.Dense(4)

    def call(self, x):
        return self.layer(x)

def unbuilt():
    return Own()

def said_to_be_built():
    model = Own()
    model.build((2, 8))
    return model

class OwnLayer(layers.Layer):
    def __init__(self):
        super().__init__()
        self.inner = Own()
        self.last = layers.Dense(3)

    def call(self, x):
        return self.last(self.inner(x))

def layer():
    return OwnLayer()

def nested():
    x = keras.Input((8,))
    return keras.Model(x, layers.Dense(2)(OwnLayer()(x)))

class Configured(Own):
    def __init__(self, **more):
        keras.Model.__init__(self, **more)
        self.layer = layers.Dense(4)

def configured():
    return Configured()

def by_name():
    a, b = keras.Input((6,), name="a"), keras.Input((4,), name="b")
    joined = layers.Concatenate()([a, b])
    return keras.Model({"a": a, "b": b}, layers.Dense(3)(joined))
"""
PRODUCTS = {
    "convolution": (["1x16x16x3"], 16 * 16 * 4 * 9 * 3 + 4 * 3, 0),
    "recurrent": (["1x5x4"], 5 * 4 * 8 * (4 + 8), 4 * 8 * 8),
    "two": (["1x4", "1x6"], 10 * 2, 0),
    "unbuilt": (["2x8"], 2 * 8 * 4, 0),
    "said_to_be_built": (["2x8"], 2 * 8 * 4, 0),
    "layer": (["2x8"], 2 * 8 * 4 + 2 * 4 * 3, 0),
    "nested": (["2x8"], 2 * 8 * 4 + 2 * 4 * 3 + 2 * 3 * 2, 0),
    "configured": (["2x8"], 2 * 8 * 4, 0),
    "by_name": (["a=2x6", "b=2x4"], 2 * 10 * 3, 0),
}
SCRIPT = """
import json, sys, warnings
warnings.simplefilter("ignore")
import crossflops
import numpy as np
printed = {}
for name, texts in json.loads(sys.argv[2]).items():
    totals = crossflops.count(f"{sys.argv[1]}:{name}", inputs=texts).totals
    printed[name] = totals.macs, totals.constant_macs
scope = {}
exec(open(sys.argv[1]).read(), scope)
a, b = np.ones((2, 6), np.float32), np.ones((2, 4), np.float32)
for given in ({"a": a, "b": b}, ({"a": a, "b": b},), (a, b), ([a, b],)):
    assert crossflops.count(scope["by_name"](), given).totals.macs == 60
try:
    crossflops.count(scope["by_name"](), a)
except crossflops.CrossflopsError as error:
    assert error.hint.endswith("of these inputs: --input a=1x6 --input b=1x4"), error.hint
print(json.dumps(printed))
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_model_of_keras_on_another_backend(backend, tmp_path):
    """The products by hand; of a recurrent layer those of the first state are constant."""
    file = tmp_path / "models.py"
    file.write_text(MODELS)
    asked = {name: texts for name, (texts, *_) in PRODUCTS.items()}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(file), json.dumps(asked)],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    printed = json.loads(run.stdout.splitlines()[-1])
    assert printed == {name: macs for name, (_, *macs) in PRODUCTS.items()}
