"""A training step of a loss that takes some of what a model returns."""

import functools
import json

import pytest

from crossflops import count, efficiency
from crossflops.cli import main
from crossflops.errors import InputError
from tests.onnx_files import saved, with_weights

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch
nn = torch.nn

TWO_HEADS = """
import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(4, 6)

    def forward(self, x):
        h = self.body(x)
        return {"first": self.first(h), "second": self.second(h)}


def of_first(result):
    return nn.functional.cross_entropy(result["first"], torch.tensor([1, 2]))
"""


def test_a_head_that_misses_the_loss_has_no_backward_pass(tmp_path, capsys):
    """Of two rows 24, 40 and 48 MACs: the second head has none backward, in all 48 x 2 fewer."""
    file = tmp_path / "heads.py"
    file.write_text(TWO_HEADS)
    given = ["count", f"{file}:Heads", "--input", "2x3", "--train", "--json"]
    assert main([*given, "--loss", f"{file}:of_first"]) == 0
    step = json.loads(capsys.readouterr().out)["training"]
    parts = [step[f"{part}_macs"] for part in ("forward", "backward_input", "backward_weight")]
    assert parts == [112, 40, 64]
    causes = {row["cause"]: row["macs"] for row in step["differences"]}
    assert causes == {"backward.first-layer": -24, "backward.cut": -96}


class Pair(nn.Module):
    """Two layers side by side."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(3, 5)

    def forward(self, x):
        return self.first(x), self.second(x)


def test_a_loss_is_asked_what_it_depends_on():
    """A callable: all of the pair, one of it, and PyTorch's answer of a product of both."""
    x = torch.ones(2, 3)

    def weights(loss):
        return count(Pair(), x, train=True, loss=loss).training.backward_weight_macs

    assert weights("") == weights(lambda pair: pair[0].sum() * pair[1].mean()) == 24 + 30
    assert weights(lambda pair: pair[1].square().mean()) == 30


def test_an_object_that_is_called_is_a_loss():
    """It has no name of its own: the report, which is written, has that of its class."""
    total = functools.partial(torch.Tensor.sum, dim=None)
    report = count(nn.Linear(3, 4), torch.ones(2, 3), train=True, loss=total)
    assert json.loads(report.to_json())["request"]["flags"]["loss"] == "partial"


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda pair: pair[0], "the loss is a Tensor of (2, 4), but must be one number"),
        (lambda pair: 3.0, "the loss is a float, but must be one number"),
        (lambda pair: pair[0].detach().sum(), "depends on no output"),
        (lambda pair: pair["first"], "the loss raised TypeError"),
    ],
)
def test_what_is_no_loss_is_refused(loss, message):
    """One line of what is wrong."""
    with pytest.raises(InputError) as caught:
        count(Pair(), torch.ones(2, 3), train=True, loss=loss)
    assert message in caught.value.message


def test_a_loss_is_for_training_of_a_model_that_runs(tmp_path):
    """Without --train it would change nothing, and a file returns nothing to a function."""
    with pytest.raises(InputError, match="requires --train"):
        count(Pair(), torch.ones(2, 3), loss=lambda pair: pair[0].sum())
    text = "g (float[2,3] x, float[3,4] w) => (float[2,4] y) { y = MatMul(x, w) }"
    path = saved(tmp_path, with_weights(text, "w"))
    with pytest.raises(InputError, match="cannot be used with an ONNX file"):
        count(str(path), train=True, loss="math:fsum")


def test_a_loss_that_reads_a_value(tmp_path, capsys):
    """Without values PyTorch cannot say what it reads: the model is built again with them."""
    file = tmp_path / "heads.py"
    file.write_text(
        f"{TWO_HEADS}\n\ndef scaled(result):\n"
        "    return result['first'].sum() / (1 + result['second'].abs().sum().item())"
    )
    given = ["count", f"{file}:Heads", "--input", "2x3", "--train", "--loss", f"{file}:scaled"]
    assert main([*given, "--json"]) == 0
    step = json.loads(capsys.readouterr().out)["training"]
    assert (step["backward_input_macs"], step["backward_weight_macs"]) == (40, 64)
    assert main([*given, "--weights", "fake"]) == 2
    assert "the loss reads tensor values" in capsys.readouterr().err


def test_a_rate_of_training_for_a_loss():
    """12 + 15 MACs forward and 12 for the weight of the first layer."""
    options = {"train": True, "examples_per_second": 10.0, "peak_tflops": 1.0}
    report = efficiency(Pair(), ["1x3"], loss=lambda pair: pair[0].sum(), **options)
    [rate] = report.efficiency
    assert rate.work == 2 * (12 + 15 + 12)
    with pytest.raises(InputError, match="requires --train"):
        efficiency(Pair(), ["1x3"], loss="a.py:b", **{**options, "train": False})
