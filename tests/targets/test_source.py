"""A model with the arguments that it is called with."""

import sys

import numpy as np
import pytest

from crossflops.errors import MissingExtraError, NormalizeError
from crossflops.ir.graph import TensorSpec
from crossflops.targets import load_target_source, source_from_object


def test_what_is_no_model_is_refused():
    """The kind of object is named, and what to give instead."""
    with pytest.raises(NormalizeError) as caught:
        source_from_object(object(), ())
    assert caught.value.message == "the model is of the type object, which crossflops cannot read"
    assert "a model of PyTorch, Keras, TensorFlow" in caught.value.hint


def test_a_callable_that_gives_no_model_is_refused():
    """The same for a target."""
    with pytest.raises(NormalizeError, match=r"the type fractions\.Fraction, which"):
        load_target_source("fractions:Fraction", {}, ())


@pytest.mark.torch
class TestModels:
    """What needs PyTorch."""

    @pytest.fixture(autouse=True)
    def _torch(self):
        self.torch = pytest.importorskip("torch")

    @pytest.fixture
    def target(self, tmp_path):
        """A callable that gives a model with its own inputs, and one that gives it alone."""
        path = tmp_path / "source_target.py"
        path.write_text(
            "import torch\n"
            "def both(): return torch.nn.Linear(4, 2), {'input': torch.ones(3, 4)}\n"
            "def alone(): return torch.nn.Linear(4, 2)\n"
            "instance = torch.nn.Linear(4, 2)\n"
        )
        return str(path)

    def test_the_target_brings_its_own_inputs(self, target):
        """They are used as Python callers give them."""
        source = load_target_source(f"{target}:both", {}, ())
        assert source.args == ()
        assert source.kwargs["input"].shape == (3, 4)

    def test_specs_stand_before_the_targets_own_inputs(self, target):
        """What the command line asks for holds."""
        source = load_target_source(f"{target}:both", {}, (TensorSpec("0", "float32", (7, 4)),))
        assert [arg.shape for arg in source.args] == [(7, 4)]
        assert source.kwargs == {}

    def test_a_file_stands_before_the_targets_own_inputs(self, target, tmp_path):
        """Real values are what the model is run on."""
        file = tmp_path / "v.npz"
        np.savez(file, np.full((2, 4), 5.0, np.float32))
        source = load_target_source(f"{target}:both", {}, (), str(file))
        assert source.args[0].tolist() == [[5.0] * 4] * 2

    def test_a_model_that_stands_in_the_file_is_not_called(self, target):
        """A module is callable, but it is the model itself."""
        source = load_target_source(
            f"{target}:instance", {}, (TensorSpec("0", "float32", (7, 4)),)
        )
        assert isinstance(source.model, self.torch.nn.Linear)
        assert [arg.shape for arg in source.args] == [(7, 4)]

    def test_a_missing_exporter_is_told(self, monkeypatch):
        """Without onnxscript there is no export, and the extra that brings it is named."""
        monkeypatch.setitem(sys.modules, "onnxscript", None)
        with pytest.raises(MissingExtraError) as caught:
            source_from_object(self.torch.nn.ReLU(), ())
        assert caught.value.message == "onnxscript is needed to export a PyTorch model"
        assert caught.value.hint == "pip install 'crossflops[torch]'"
