"""The batch of a dataset as inputs: what a model takes of it, and what is said of the rest."""

import dataclasses
import json
from typing import Any, NamedTuple

import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsWarning, InputError
from crossflops.frontends.batches import fit_batch_to_model, inputs_of_keras_batch


@dataclasses.dataclass
class Example:
    """An example as a dataclass."""

    x: Any
    label: Any = None


class Row(NamedTuple):
    """An example as a named tuple."""

    x: Any
    label: Any


class Data:
    """Values by key, as the Data of PyTorch Geometric stores them: not in its own attributes."""

    def __init__(self, **values):
        self.__dict__["_store"] = values

    def keys(self):
        """The names, as a list."""
        return list(self._store)

    def __getitem__(self, name):
        return self._store[name]

    def __setitem__(self, name, value):
        self._store[name] = value

    def __getattr__(self, name):
        if name in self.__dict__.get("_store", {}):
            return self._store[name]
        raise AttributeError(name)

    def __copy__(self):
        return Data(**self._store)

    def to_dict(self):
        """The values by name."""
        return dict(self._store)


def of_x(x):
    """A model of one input."""


def of_x_and_edges(x, edge_index, edge_weight=None):
    """A model of a graph."""


def of_all(batch):
    """A model that takes a batch whole."""


@pytest.mark.parametrize(
    ("forward", "batch", "used", "unused"),
    [
        (of_x, (1, 2), ((1,), {}), "the last item of the batch"),
        (of_x, [1, 2, 3], ((1,), {}), "the last 2 items of the batch"),
        (of_x, ({"x": 1}, 2), ((), {"x": 1}), "the last item of the batch"),
        (of_x, {"x": 1, "label": 2}, ((), {"x": 1}), "'label'"),
        (of_x_and_edges, ({"x": 1, "edge_index": 2}, 3), ((), {"x": 1, "edge_index": 2}), "last"),
        (of_x, Example(1, 2), ((), {"x": 1}), "'label'"),
        (of_x, Row(1, 2), ((), {"x": 1}), "'label'"),
        (
            of_x_and_edges,
            Data(x=1, edge_index=2, y=3),
            ((), {"x": 1, "edge_index": 2}),
            "'y'",
        ),
    ],
)
def test_a_model_gets_the_inputs_that_it_takes(forward, batch, used, unused):
    """The rest is named in a warning."""
    with pytest.warns(CrossflopsWarning, match="is counted without") as caught:
        assert fit_batch_to_model(forward, batch, "Net") == used
    assert unused in str(caught[0].message)


def of_x_and_mask(x, mask=None):
    """A model of one input and an optional one."""


def of_mask_and_more(x, mask=None, **more):
    """A model of one input, an optional one, and any others."""


@pytest.mark.parametrize(
    "batch",
    [
        {"x": 1, "maks": 2},
        [{"x": 1, "maks": 2}, 3, 4],
        Data(x=1, masks=2),
    ],
)
@pytest.mark.parametrize("forward", [of_x_and_mask, of_mask_and_more])
def test_a_misspelt_name_is_an_error(forward, batch):
    """It would be left out, or be taken by `**more`, and the count be another one."""
    with pytest.raises(InputError, match="no input for 'mask'") as caught:
        fit_batch_to_model(forward, batch, "Net")
    assert caught.value.hint == "rename the input to 'mask', or leave it out"


@pytest.mark.parametrize("batch", [{"x": 1, "other": 2}, {"x": 1, "mask": 2, "masks": 3}])
def test_a_further_name_is_no_misspelling(batch):
    """No parameter without an input is like it."""
    assert fit_batch_to_model(of_mask_and_more, batch, "Net") == ((), batch)


def test_an_empty_batch_is_no_record():
    """The model of one input gets nothing, so that its error names what is missing."""
    assert fit_batch_to_model(of_all, {}, "Net") == ((), {})


@pytest.mark.parametrize("batch", [{"a": 1}, Example(1), Row(1, 2), Data(a=1)])
def test_a_model_of_one_input_gets_a_record_whole(batch):
    """None of its names is the parameter: nothing is left out."""
    assert fit_batch_to_model(of_all, batch, "Net") == ((batch,), {})


@pytest.mark.parametrize(
    ("batch", "arguments"),
    [
        (1, ((1,), {})),
        ((1, 2), ((1, 2), {})),
        ({"x": 1, "edge_index": 2}, ((), {"x": 1, "edge_index": 2})),
        (((1,), {"edge_index": 2}), ((1,), {"edge_index": 2})),
        ({"edge_index": 2}, ((), {"edge_index": 2})),
    ],
)
def test_inputs_that_fit_or_cannot_fit_stay_as_they_are(batch, arguments):
    """No warning; of the last one, the model itself says what is missing."""
    assert fit_batch_to_model(of_x_and_edges, batch, "Net") == arguments


class Layers:
    """A Keras model, as far as its declared inputs go."""

    def __init__(self, inputs):
        self.inputs = [None] * inputs


@pytest.mark.parametrize(
    ("inputs", "batch", "used", "says"),
    [
        (1, (5, 6), (5,), True),
        (1, (5, 6, 7), (5,), True),
        (2, ([5, 6], 7), [5, 6], True),
        (2, ({"a": 5, "b": 6}, 7), {"a": 5, "b": 6}, True),
        (2, (5, 6), (5, 6), False),
        (1, 5, 5, False),
    ],
)
def test_labels_behind_the_inputs_of_keras(inputs, batch, used, says, recwarn):
    """As `fit` takes a batch: (inputs, labels) or (inputs, labels, weights)."""
    assert inputs_of_keras_batch(Layers(inputs), batch) == used
    assert bool(recwarn) == says


@pytest.mark.torch
def test_batches_of_pytorch():
    """[2, 8] x [8, 4] of each batch; an object with keys is traced as the model takes it."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, data):
            return self.layer(data.x)

    x = torch.zeros(2, 8)
    loader = DataLoader(TensorDataset(torch.zeros(6, 8), torch.zeros(6)), batch_size=2)
    assert crossflops.count(Whole(), Data(x=x, y=torch.zeros(2))).macs == 64
    assert crossflops.count(nn.Linear(8, 4), x.numpy()).macs == 64
    with pytest.warns(CrossflopsWarning, match="is counted without the last item"):
        assert crossflops.count(nn.Linear(8, 4), next(iter(loader))).macs == 64
    with pytest.raises(InputError, match="are a DataLoader") as caught:
        crossflops.count(nn.Linear(8, 4), loader)
    assert "next(iter(loader))" in caught.value.hint


@pytest.mark.tools
def test_a_tokenizer_and_an_image():
    """A batch without tensors is refused with the line that makes some."""
    from PIL import Image
    from torch import nn
    from transformers import BatchEncoding

    with pytest.raises(InputError, match="'input_ids' of the tokenizer is a list") as caught:
        crossflops.count(nn.Linear(8, 4), BatchEncoding({"input_ids": [[1, 2]]}))
    assert 'return_tensors="pt"' in caught.value.hint
    with pytest.raises(InputError, match="are an image of PIL"):
        crossflops.count(nn.Conv2d(3, 4, 3), Image.new("RGB", (8, 8)))


@pytest.mark.torch
def test_the_command_takes_a_function_that_returns_a_batch(tmp_path, capsys):
    """--inputs file.py:batch, with the labels left out."""
    path = tmp_path / "data.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        "def model():\n    return nn.Linear(8, 4)\n"
        "def batch():\n    return torch.zeros(3, 8), torch.zeros(3)\n"
    )
    words = ["count", f"{path}:model", "--inputs", f"{path}:batch", "--json"]
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["totals"]["macs"] == 3 * 8 * 4
    assert "without the last item of the batch" in " ".join(answer["warnings"])
    assert main(["count", f"{path}:model", "--inputs", f"{path}:none"]) == 2
    assert "does not define 'none'" in capsys.readouterr().err
    path.write_text(f"{path.read_text()}def none():\n    pass\n")
    assert main(["count", f"{path}:model", "--inputs", f"{path}:none"]) == 2
    assert "none returned None, not the inputs of a model" in capsys.readouterr().err


@pytest.mark.torch
def test_a_misspelt_name_of_a_model_with_kwargs(tmp_path, capsys):
    """`**more` takes each --input by name."""
    path = tmp_path / "net.py"
    path.write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def forward(self, x, mask=None, **more):\n"
        "        return x @ x.mT\n"
    )
    words = ["count", f"{path}:Net", "--input", "x=2x3", "--input"]
    assert main([*words, "maks=2"]) == 2
    assert "no parameter 'maks', and no input for 'mask'" in capsys.readouterr().err
    assert main([*words, "other=2"]) == 0


@pytest.mark.jax
def test_a_batch_of_jax():
    """[2, 8] x [8, 4] of a function, whose labels are left out."""
    import jax
    import jax.numpy as jnp

    weights = jnp.zeros((8, 4))
    model = jax.jit(lambda x: x @ weights)
    with pytest.warns(CrossflopsWarning, match="without the last item"):
        assert crossflops.count(model, (jnp.zeros((2, 8)), jnp.zeros(2))).macs == 64


@pytest.mark.tensorflow
def test_a_batch_of_tensorflow():
    """[2, 8] x [8, 4] of a batch of tf.data; the dataset itself is refused."""
    import keras
    import tensorflow as tf

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    data = tf.data.Dataset.from_tensor_slices((tf.zeros((6, 8)), tf.zeros(6))).batch(2)
    with pytest.warns(CrossflopsWarning, match="without the labels of the batch"):
        assert crossflops.count(model, next(iter(data))).macs == 64
    with pytest.raises(InputError, match="not a batch of it"):
        crossflops.count(model, data)
