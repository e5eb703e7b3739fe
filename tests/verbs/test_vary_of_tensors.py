"""Totals as polynomials in named axes of tensors, against formulas by hand and single counts."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsWarning, InputError
from crossflops.ir.polynomial import evaluate_polynomial, polynomial_text
from crossflops.targets.axes import InputAxis, axes_from_mapping, parse_named_axes
from crossflops.targets.target import build_target, run_python_file

CODE = """
import torch
from torch import nn


def pair():
    return nn.Linear(8, 2, bias=False), (torch.zeros(4, 8),)


def layer(width=3):
    return nn.Linear(8, width, bias=False)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.l = nn.Linear(8, 8, bias=False)

    def forward(self, ids, mask=None):
        x = self.l(self.table(ids))
        scores = x @ x.transpose(1, 2)
        return (scores if mask is None else scores + mask) @ x
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


def load_module(file):
    """The module of a file of models."""
    return run_python_file(Path(file), "")


def test_axes_as_text_and_as_mapping():
    """Both ways to write them name the same; other forms are errors."""
    texts = ["batch=0", "seq=ids:1,mask:1,mask:-1", "width"]
    mapping = {"batch": 0, "seq": {"ids": 1, "mask": [1, -1]}, "width": None}
    assert dict(map(parse_named_axes, texts)) == axes_from_mapping(mapping)
    assert parse_named_axes("n=a:0") == ("n", (InputAxis("a", 0),))
    for text in ("n=", "n=a", "n=a:b", "n=1.5"):
        with pytest.raises(InputError, match="cannot read the axis"):
            parse_named_axes(text)
    for value in (True, "1", {"ids": "1"}, 1.5):
        with pytest.raises(InputError, match="must be whole numbers"):
            axes_from_mapping({"n": value})


def test_axes_of_a_file_are_refused(tmp_path):
    """An ONNX file has names, or gets them in a shape."""
    with pytest.raises(InputError, match="counted from shapes") as caught:
        crossflops.count(str(tmp_path / "model.onnx"), vary={"n": 0})
    assert "--input x=batchx64" in caught.value.hint


@pytest.mark.torch
def test_the_batch_of_tensors():
    """`batch` is the first axis; 8 x 4 for each row. `batch=5` is the size of the tables."""
    import torch
    from torch import nn

    model, rows = nn.Linear(8, 4), torch.zeros(2, 8)
    report = crossflops.count(model, rows, vary="batch")
    assert (macs_formula(report), report.formulas.at, report.macs) == (
        "32 batch",
        {"batch": 2},
        64,
    )
    report = crossflops.count(model, rows, vary=["batch"], batch=5)
    assert (report.formulas.at, report.macs) == ({"batch": 5}, 160)
    assert report.request.flags == {"batch": 5, "vary": ["batch=0"]}
    assert report.request.inputs == ("input=5x8:float32",)
    assert crossflops.count(model, rows, batch=7).macs == 7 * 32
    assert rows.shape == (2, 8)


@pytest.mark.torch
def test_axes_of_named_inputs(file):
    """A layer 8 x 8 for each token, two products 8 x seq x seq: 64 + 16 seq for each token.

    Single counts at random sizes, with tensors made for each, give what the polynomial says.
    """
    import torch

    model = load_module(file).Heads()
    ids, mask = torch.arange(10).reshape(2, 5), torch.zeros(1, 5, 5)
    axes = {"batch": {"ids": 0}, "seq": {"ids": 1, "mask": [1, 2]}}
    report = crossflops.count(model, {"ids": ids, "mask": mask}, vary=axes, dims={"seq": 7})
    assert macs_formula(report) == "16 batch seq^2 + 64 batch seq"
    assert report.formulas.at == {"batch": 2, "seq": 7}
    assert report.macs == 16 * 2 * 49 + 64 * 2 * 7
    assert report.request.flags["vary"] == ["batch=ids:0", "seq=ids:1,mask:1,mask:2"]
    assert report.request.flags["dims"] == {"seq": 7}
    rng = random.Random(5)
    for _ in range(2):
        batch, seq = rng.randint(2, 40), rng.randint(2, 40)
        inputs = {
            "ids": torch.zeros(batch, seq, dtype=torch.long),
            "mask": torch.zeros(1, seq, seq),
        }
        single = crossflops.count(model, inputs)
        sizes = {"batch": batch, "seq": seq}
        for kind in ("macs", "flops", "bytes_read", "bytes_written", "params"):
            value = evaluate_polynomial(getattr(report.formulas, kind), sizes)
            assert value == getattr(single.totals, kind), kind
    report = crossflops.count(model, (ids, mask), vary={"seq": {"ids": 1, "mask": [1, -1]}})
    assert macs_formula(report) == "32 seq^2 + 128 seq"


@pytest.mark.torch
def test_indices_stay_valid(file):
    """Values are repeated: token 9 of 10 is still one, at sizes beyond the given ones."""
    import torch

    model = load_module(file).Heads()
    report = crossflops.count(model, torch.full((1, 3), 9), vary={"seq": 1}, dims={"seq": 200})
    assert report.macs == 16 * 200**2 + 64 * 200


@pytest.mark.torch
def test_axes_that_are_not_there(file):
    """The message names the inputs that there are."""
    import torch

    model = load_module(file).Heads()
    inputs = {"ids": torch.zeros(2, 5, dtype=torch.long), "mask": torch.zeros(1, 5, 5)}
    for axes, message in (
        ({"n": {"idz": 0}}, "there is no input idz"),
        ({"n": {"ids": 2}}, "the input ids has no axis 2"),
        ({"n": 7}, "no input has an axis 7"),
        ({"n": {"ids": 0, "mask": 1}}, "do not have one size: ids has 2, mask has 5"),
        (["n"], "no input has a size of this name"),
        (["n=0", "n=1"], "names n twice"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            crossflops.count(model, inputs, vary=axes)
    with pytest.raises(InputError, match="no elements"):
        crossflops.count(model, torch.zeros(0, 5, dtype=torch.long), vary="batch")
    with pytest.raises(InputError) as caught:
        crossflops.count(model, inputs, vary={"n": {"idz": 0}})
    assert caught.value.hint == "the inputs are ids (2x5), mask (1x5x5)"


@pytest.mark.torch
def test_containers_keep_their_form():
    """A dataclass, a named tuple and a dict are of their own kind, with other tensors in them."""
    import dataclasses
    from collections import namedtuple

    import torch
    from torch import nn

    @dataclasses.dataclass
    class Batch:
        x: object
        more: object

    pair = namedtuple("pair", "left right")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(8, 4, bias=False)

        def forward(self, batch):
            return self.l(batch.x) * batch.more.right["scale"]

    def make_inputs(rows):
        """A batch with three tensors of this number of rows."""
        scale = {"scale": torch.zeros(rows, 1), "kind": "plain"}
        return Batch(torch.zeros(rows, 8), pair(torch.zeros(rows), scale))

    inputs = make_inputs(3)
    report = crossflops.count(Net(), inputs, vary="batch")
    assert (macs_formula(report), report.macs) == ("32 batch", 96)
    named = {"n": {"batch.x": 0, "batch.more.right.scale": 0}}
    assert macs_formula(crossflops.count(Net(), inputs, vary=named)) == "32 n"
    assert crossflops.count(Net(), make_inputs(6)).macs == 6 * 32
    assert inputs.x.shape == (3, 8)


@pytest.mark.torch
def test_the_inputs_of_a_callable(file, tmp_path):
    """Inputs that it returns, inputs of a file, and tensors with an argument of the callable."""
    import torch

    report = crossflops.count(f"{file}:pair", vary="batch")
    assert (macs_formula(report), report.formulas.at) == ("16 batch", {"batch": 4})
    assert crossflops.count(f"{file}:pair", batch=9).macs == 9 * 16
    report = crossflops.count(f"{file}:pair", vary=["rows=0"], dims={"rows": 6})
    assert (macs_formula(report), report.macs) == ("16 rows", 96)
    report = crossflops.count(f"{file}:layer", torch.zeros(3, 8), vary=["batch", "width"])
    assert macs_formula(report) == "8 batch width"
    assert report.formulas.at == {"batch": 3, "width": 3}
    np.savez(tmp_path / "in.npz", np.zeros((6, 8), np.float32))
    values = str(tmp_path / "in.npz")
    report = crossflops.count(f"{file}:layer", inputs_file=values, vary=["batch"])
    assert (macs_formula(report), report.macs) == ("24 batch", 144)
    assert crossflops.count(f"{file}:layer", inputs_file=values, batch=2).macs == 48
    with pytest.raises(InputError, match="returns its own inputs") as caught:
        crossflops.count(f"{file}:pair", vary=["seq"])
    assert "--vary seq=1" in caught.value.hint


@pytest.mark.torch
def test_the_command_names_axes(file, capsys):
    """As the text that the record of the report has."""
    assert main(["count", f"{file}:pair", "--vary", "rows=0", "--dim", "rows=5"]) == 0
    assert "16 rows" in capsys.readouterr().out
    assert main(["count", f"{file}:pair", "--vary", "rows=input:9"]) == 2
    assert "the input input has no axis 9" in capsys.readouterr().err


@pytest.mark.torch
def test_each_size_is_said(file):
    """`on_progress` gets a line for each count, and as many as the report says."""
    lines = []
    report = crossflops.count(f"{file}:pair", vary="rows=0", on_progress=lines.append)
    assert len(lines) == report.formulas.points
    assert lines[0] == "counting at rows=17 (size 1)"


@pytest.mark.tools
def test_the_usual_input_of_an_object(tmp_path):
    """A BERT of one layer, as in tests/verbs/test_vary_of_models.py; its usual batch is 1."""
    config = {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
        "vocab_size": 100, "max_position_embeddings": 256,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    model, _ = build_target(f"hf:{tmp_path}", {})
    with pytest.warns(CrossflopsWarning):
        report = crossflops.count(model, vary=["batch", "seq"], seq=20)
    assert macs_formula(report) == "64 batch seq^2 + 8192 batch seq + 1024 batch"
    assert report.formulas.at == {"batch": 1, "seq": 20}
    with pytest.raises(InputError, match="--image-size has no effect on the input of the model"):
        crossflops.count(model, image_size=9)


@pytest.mark.jax
def test_a_function_of_jax_with_parameters():
    """[n, 8] x [8, h]: `batch` is that of the array, and not of the tree of parameters."""
    import jax.numpy as jnp

    def product(params, x):
        """A layer without a bias."""
        return jnp.tanh(x @ params["w"])

    arrays = {"w": jnp.zeros((8, 4))}, jnp.zeros((3, 8))
    report = crossflops.count(product, arrays, vary="batch")
    assert (macs_formula(report), report.macs) == ("32 batch", 96)
    axes = {"n": {"x": 0}, "h": {"params.w": 1}}
    assert macs_formula(crossflops.count(product, arrays, vary=axes)) == "8 n h"
    assert crossflops.count(product, arrays, batch=7).macs == 7 * 32


@pytest.mark.tensorflow
def test_a_model_of_keras_with_arrays():
    """8 x 4 for each row, of arrays, and of the usual input of the model."""
    import keras

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    report = crossflops.count(model, np.zeros((3, 8), np.float32), vary="batch")
    assert (macs_formula(report), report.macs) == ("32 batch", 96)
    with pytest.warns(CrossflopsWarning, match="default input"):
        report = crossflops.count(model, vary="batch", batch=6)
    assert (macs_formula(report), report.macs) == ("32 batch", 192)


@pytest.mark.sklearn
def test_an_estimator_with_rows():
    """Four features, three classes: 12 for each row."""
    from sklearn.linear_model import LogisticRegression

    rows = np.random.default_rng(0).random((20, 4))
    model = LogisticRegression().fit(rows, np.arange(20) % 3)
    report = crossflops.count(model, rows, vary="batch")
    assert (macs_formula(report), report.macs) == ("12 batch", 240)
