"""Inputs that a model tells itself, where nobody names a shape."""

import json

import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsWarning, InputError


@pytest.fixture
def file(tmp_path):
    """Writes a file of models, and gives its path."""

    def write(code):
        path = tmp_path / "model.py"
        path.write_text(code)
        return str(path)

    return write


def count_as_json(capsys, *words):
    """The JSON of a count."""
    assert main(["count", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


LANGUAGE = """
from transformers import BertConfig, BertModel


def make():
    return BertModel(BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        vocab_size=100,
    ))
"""


@pytest.mark.tools
def test_a_model_of_transformers_tells_its_tokens(file, capsys):
    """8192 for a token and 64 for a pair of them, 32^2 at the end, for each text."""
    target = f"{file(LANGUAGE)}:make"
    answer = count_as_json(capsys, target, "--seq", "16", "--batch", "2")
    assert answer["totals"]["macs"] == 2 * (8192 * 16 + 64 * 16 * 16 + 1024)
    assert "from its config, model_type bert" in " ".join(answer["warnings"])
    assert main(["count", target, "--image-size", "8"]) == 2
    assert "--image-size has no effect on the input" in capsys.readouterr().err


LIGHTNING = """
import torch
from lightning import LightningModule
from torch import nn


class Net(LightningModule):
    def __init__(self, example=True):
        super().__init__()
        self.layer = nn.Linear(8, 4)
        if example:
            self.example_input_array = torch.zeros(3, 8)

    def forward(self, x):
        return self.layer(x)


class Parts(LightningModule):
    def training_step(self, batch, index):
        return batch
"""


@pytest.mark.tools
def test_a_lightning_module_tells_its_example(file, capsys):
    """[3, 8] x [8, 4]; without a forward the hint says what to count."""
    path = file(LIGHTNING)
    assert count_as_json(capsys, f"{path}:Net")["totals"]["macs"] == 96
    assert main(["count", f"{path}:Parts", "--input", "1x8"]) == 2
    assert "give the module a forward, or give a callable" in capsys.readouterr().err


@pytest.mark.sklearn
def test_an_estimator_tells_its_features(file, capsys):
    """Four columns: a row of them, or a batch of rows; of named columns nothing is assumed."""
    from sklearn.linear_model import LinearRegression

    model = LinearRegression().fit([[0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 2.0, 1.0]], [0.0, 1.0])
    with pytest.warns(CrossflopsWarning, match="from the features on which it was fitted"):
        report = crossflops.count(model)
    assert [spec.shape for spec in report.model.inputs] == [(1, 4)]
    assert report.macs == 4


@pytest.mark.tensorflow
def test_open_sizes_of_keras_have_options(file, capsys):
    """3 x 9 x 4 for each pixel of a side that the model leaves open; a fixed one stays."""
    target = file(
        "import keras\n"
        "def make(side=None):\n"
        "    return keras.Sequential([keras.Input((side, side, 3)), "
        "keras.layers.Conv2D(4, 3, padding='same')])\n"
    )
    answer = count_as_json(capsys, f"{target}:make", "--image-size", "8", "--batch", "2")
    assert answer["totals"]["macs"] == 2 * 108 * 64
    assert main(["count", f"{target}:make", "--arg", "side=8", "--image-size", "16"]) == 2
    assert "use --batch for its input" in capsys.readouterr().err


@pytest.mark.torch
def test_a_model_without_usual_inputs_has_no_sizes(file):
    """--batch has nothing to change."""
    from torch import nn

    path = file("from torch import nn\ndef make(): return nn.Linear(2, 2)\n")
    target = f"{path}:make"
    with pytest.raises(InputError, match="--batch changes the usual input of a model") as caught:
        crossflops.count(target, batch=2)
    assert "--input" in caught.value.hint
    with pytest.raises(InputError, match="missing a required argument"):
        crossflops.count(nn.Linear(2, 2))


@pytest.mark.torch
def test_weights_alone_say_what_to_give(tmp_path, capsys):
    """A state_dict, a checkpoint with one, and safetensors with and without a config."""
    import torch
    from torch import nn

    state = nn.Linear(2, 2).state_dict()
    for number, stored in enumerate((state, {"epoch": 3, "model": state})):
        path = tmp_path / f"{number}.pt"
        torch.save(stored, path)
        assert main(["count", str(path), "--allow-pickle"]) == 2
        assert "weights without the model: give the file.py:callable" in capsys.readouterr().err
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"")
    assert main(["count", str(path)]) == 2
    assert "file.py:callable" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{}")
    assert main(["count", str(path)]) == 2
    assert "give its folder, which has a config.json" in capsys.readouterr().err
