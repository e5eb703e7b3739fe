"""Totals of models of frameworks as polynomials in named sizes, against formulas by hand."""

import json

import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsWarning, InputError
from crossflops.ir.polynomial import polynomial_text

CODE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.c = nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False)
        self.l = nn.Linear(width, 4)

    def forward(self, x):
        return self.l(self.c(x).mean((2, 3)))


class Alone(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x):
        return self.l(self.l(x)) if len(x) == 1 else self.l(x)


def pair(batch=4):
    return nn.Linear(8, 2, bias=False), (torch.zeros(batch, 8),)
"""


@pytest.fixture
def file(tmp_path):
    """A file of models."""
    path = tmp_path / "model.py"
    path.write_text(CODE)
    return str(path)


def macs_formula(report):
    """The polynomial of the MACs as a text."""
    return polynomial_text(report.formulas.macs)


@pytest.mark.torch
def test_a_size_is_named_in_a_shape(file):
    """A kernel of 27 for 8 channels at (side / 2)^2 places, then 8 x 4; odd sides have none."""
    report = crossflops.count(
        f"{file}:Net", "batchx3xsidexside", vary=["batch", "side"], dims={"batch": 2}
    )
    assert macs_formula(report) == "54 batch side^2 + 32 batch"
    batch, side = report.formulas.dimensions
    assert (batch.multiple_of, side.multiple_of) == (1, 2)
    assert report.formulas.at["batch"] == 2
    assert report.macs == 2 * (54 * report.formulas.at["side"] ** 2 + 32)


@pytest.mark.torch
def test_the_command_counts_at_the_given_size(file, capsys):
    """As text, and as JSON with the request that repeats it; without --vary the name is a size."""
    line = ["count", f"{file}:Net", "--input", "(n, 3, 16, 16)", "--dim", "n=2"]
    assert main([*line, "--vary", "n", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["formulas"]["macs"] == [{"coefficient": 54 * 256 + 32, "powers": {"n": 1}}]
    assert answer["request"]["inputs"] == ["(n, 3, 16, 16)"]
    assert answer["request"]["flags"]["dims"] == {"n": 2}
    assert main([*line, "--dim", "m=3"]) == 2
    assert "--dim m: no input has a size of this name" in capsys.readouterr().err
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["macs"] == 2 * (54 * 256 + 32)


@pytest.mark.torch
def test_a_model_object(file):
    """Its inputs are texts with names; tensors have none, which is said."""
    from torch import nn

    model = nn.Linear(8, 4)
    report = crossflops.count(model, ["rows,8"], vary="rows")
    assert macs_formula(report) == "32 rows"
    with pytest.raises(InputError, match="no input has a size of this name") as caught:
        crossflops.count(model, "2x8", vary=["rows"])
    assert "--input rowsx3x224x224" in caught.value.hint


@pytest.mark.torch
def test_an_argument_of_the_callable_varies(file):
    """The callable gets each size: one that makes its inputs, and one that makes the layers."""
    report = crossflops.count(f"{file}:pair", vary=["batch"])
    assert (macs_formula(report), report.macs) == ("16 batch", 64)
    report = crossflops.count(f"{file}:Net", "1x3x2x2", vary=["width"])
    assert (macs_formula(report), report.formulas.at) == ("31 width", {"width": 8})
    assert polynomial_text(report.formulas.params) == "31 width + 4"
    with pytest.raises(InputError, match="no shape has this one") as caught:
        crossflops.count(f"{file}:Net", "1x3x2x2", vary=["width"], dims={"width": 5})
    assert caught.value.hint == "write --arg width=5"


@pytest.mark.torch
def test_a_size_with_another_count_is_said(file):
    """One row runs the layer twice: the polynomial does not hold there, and a warning says so."""
    with pytest.warns(CrossflopsWarning, match="do not hold at n=1: they give 64 MACs") as caught:
        report = crossflops.count(f"{file}:Alone", "nx8", vary=["n"], dims={"n": 1})
    assert "the count has 128" in str(caught[0].message)
    assert (macs_formula(report), report.macs) == ("64 n", 128)


@pytest.mark.torch
def test_what_cannot_vary_is_refused(file):
    """A size that the model fixes, a name without a number, and a name that nothing has."""
    with pytest.raises(InputError, match="--vary n: the model cannot be counted at any size"):
        crossflops.count(f"{file}:Alone", "1xn", vary=["n"])
    with pytest.raises(InputError, match="cannot read the input '1xn'") as caught:
        crossflops.count(f"{file}:Alone", "1xn")
    assert "--dim batch=8 or --vary batch" in caught.value.hint
    with pytest.raises(InputError, match="--vary q: no input has a size") as caught:
        crossflops.count(f"{file}:pair", vary=["q"])
    assert "give the callable an argument q" in caught.value.hint


@pytest.mark.tools
def test_a_model_by_name(tmp_path):
    """A BERT of one layer: 4 x 32^2 + 2 x 32 x 64 for a token, 2 x 32 for a pair, 32^2 at the end.

    The usual batch is 1.
    """
    config = {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
        "vocab_size": 100, "max_position_embeddings": 256,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.warns(CrossflopsWarning):
        report = crossflops.count(f"hf:{tmp_path}", vary=["batch", "seq"], seq=20)
    assert macs_formula(report) == "64 batch seq^2 + 8192 batch seq + 1024 batch"
    assert report.formulas.at == {"batch": 1, "seq": 20}


@pytest.mark.jax
def test_a_function_of_jax(tmp_path):
    """[n, k] x [k, 4]."""
    path = tmp_path / "model.py"
    path.write_text("import jax.numpy as jnp\ndef product(x, w):\n    return jnp.tanh(x @ w)\n")
    report = crossflops.count(f"{path}:product", ["nxk", "kx4"], vary=["n", "k"])
    assert macs_formula(report) == "4 n k"


@pytest.mark.tensorflow
def test_a_model_of_keras(tmp_path):
    """3 x 9 x 4 for each pixel, 4 x 5 at the end."""
    path = tmp_path / "model.py"
    path.write_text(
        "import keras\n"
        "def make():\n"
        "    layers = keras.layers\n"
        "    return keras.Sequential([keras.Input((None, None, 3)), layers.Conv2D(4, 3, "
        "padding='same'), layers.GlobalAveragePooling2D(), layers.Dense(5)])\n"
    )
    report = crossflops.count(f"{path}:make", "batchxsidexsidex3", vary=["batch", "side"])
    assert macs_formula(report) == "108 batch side^2 + 20 batch"
