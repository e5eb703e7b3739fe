"""Every option of `count` changes the result of a model, or is refused by its name; so of `tools`.

As tests/laws/test_options.py does for files and reports. Of `bench`, whose times differ anyway,
only the options that a file cannot have are looked at: each is refused.
"""

import numpy as np
import pytest

from tests.laws.test_options import (
    LIMITS,
    flag_of,
    options_of,
    outcome,
    run,
    words_of,
    written,
)
from tests.onnx_files import saved, with_weights

TORCH = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(2, 4)
"""
KERAS = """
import keras
import numpy as np

def model():
    layers = [keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)]
    return keras.Sequential(layers), np.zeros((2, 4), "float32")
"""
JAX = """
import jax
import jax.numpy as jnp

def model():
    return lambda x: jax.nn.relu(x @ jnp.ones((4, 3))) @ jnp.ones((3, 2)), jnp.zeros((2, 4))
"""
LOSS = """
def loss(outputs):
    return outputs.mean()
"""
OF_TYPE = {"torch": TORCH, "keras": KERAS, "jax": JAX}
# What these models have, where the values of the other test name what files have.
OWN = {
    "--inputs": ["--inputs", "in.npz"],
    "--frozen": ["--frozen", "0"],
    "--loss": ["--loss", "loss.py:loss"],
}

# Of any report alike: held with files.
SHOWN = frozenset({"--by", "--top", "--depth", "--shapes", "--unit", "--output", "--as"})


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A folder with a model of each framework, and what options name."""
    monkeypatch.chdir(tmp_path)
    for name, text in OF_TYPE.items():
        (tmp_path / f"{name}_model.py").write_text(text)
    (tmp_path / "loss.py").write_text(LOSS)
    np.savez("in.npz", input=np.ones((3, 4), "float32"))
    saved(tmp_path, with_weights("g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }"), "a.onnx")
    return tmp_path


def silent(folder, base, skipped=frozenset()):
    """Return the options that neither change what the words print nor are refused."""
    status, page, err = run(base)
    assert status == 0, err
    before = (status, page), written(folder)
    found = {}
    for param in options_of(base[0]):
        flag = flag_of(param)
        if flag not in LIMITS | skipped and not any(opt in base for opt in param.opts):
            words = OWN.get(flag) or words_of(base[0], param)
            found[flag] = outcome(folder, before, [*base, *words], param.opts)
    return {flag: result for flag, result in found.items() if result not in ("effect", "refused")}


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("keras", marks=pytest.mark.tensorflow),
        pytest.param("jax", marks=pytest.mark.jax),
    ],
)
def test_of_a_model(framework, models):
    """Of a count in JSON. A file of other inputs is refused by what the model takes."""
    left = silent(models, ["count", f"{framework}_model.py:model", "--json"], SHOWN)
    assert set(left) <= {"--inputs"}, left
    assert "nothing" not in left.values()


@pytest.mark.parametrize("verb", ["tools", "doctor"])
def test_of_what_is_installed(verb, models):
    """Of both pages."""
    assert not silent(models, [verb])


@pytest.mark.onnxruntime
def test_of_a_file_that_is_timed(models):
    """What a file has not is refused before it runs."""
    base = ["bench", "a.onnx", "--seconds", "0.01", "--json"]
    refused = {"--arg", "--dim", "--trips", "--branch", "--no-grad", "--train-mode"}
    refused |= {"--allow-pickle", "--batch-dim", "--runtime", "--trace", "--top"}
    flags = {flag_of(param): param for param in options_of("bench")}
    for flag in sorted(refused):
        words = [*base, *words_of("bench", flags[flag])]
        status, _, err = run(words)
        assert status == 2, words
        assert any(opt in err for opt in flags[flag].opts), (flag, err)


ASKS = """
import torch
from torch import nn

class Asks(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(4, width)

    def forward(self, x):
        y = self.layer(x)
        if self.training:
            y = torch.cat([y, self.layer(x + 1)])
        if not torch.is_grad_enabled():
            y = torch.cat([y, self.layer(x + 2), self.layer(x + 3)])
        return y

def model(width=3):
    return Asks(width), torch.zeros(5, 4)
"""
# The layer is 5*4*3 multiply-accumulates. It runs once more in train() and twice more without
# gradients.
ASKED = {"": 60, "--arg width=7": 140, "--train-mode": 120, "--no-grad": 180, "--input 2x4": 24}


@pytest.mark.torch
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("count asks.py:model", lambda page: page["totals"]["macs"]),
        ("table asks.py:model", lambda page: page["rows"][0]["macs"]),
        (
            "efficiency asks.py:model --roofline --device v100-pcie --precision fp32",
            lambda page: page["efficiency"][0]["macs"],
        ),
    ],
)
def test_a_model_that_asks_how_it_runs(words, found, models):
    """What its Python asks for is answered as the options say, whatever the verb."""
    (models / "asks.py").write_text(ASKS)
    for options, macs in ASKED.items():
        status, page, err = run([*words.split(), *options.split(), "--json"])
        assert status == 0, err
        assert found(page) == macs, options
