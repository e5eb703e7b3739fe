"""A framework that is missing costs one line that names the extra; exit status 2."""

import sys

import pytest

from crossflops.cli import main
from crossflops.commands import localize_commands
from crossflops.errors import MissingExtraError
from crossflops.frontends.inputs import parse_inputs
from crossflops.targets import load_target_source, source_from_object

# Package -> extra, and a target in that package.
PACKAGES = {
    "torch": ("torch", "torch.nn:Identity"),
    "tensorflow": ("tensorflow", "tensorflow.keras:Model"),
    "keras": ("tensorflow", "keras.applications:ResNet50"),
    "jax": ("jax", "jax.numpy:sin"),
    "flax": ("jax", "flax.nnx:Linear"),
    "sklearn": ("sklearn", "sklearn.linear_model:LogisticRegression"),
}


@pytest.fixture
def without(monkeypatch):
    """Lets a package be missing, whether it is installed or not."""

    def remove(name):
        for loaded in list(sys.modules):
            if loaded == name or loaded.startswith(f"{name}."):
                monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, name, None)

    return remove


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_that_is_missing_is_named_with_its_extra(package, without, capsys):
    """The whole command: two lines, no traceback."""
    extra, target = PACKAGES[package]
    without(package)
    assert main(["count", target, "--input", "1x4"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"error: {package} is not installed",
        localize_commands(f"hint: pip install 'crossflops[{extra}]'"),
    ]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(
    "text", ["import {0}\ndef make(): return None\n", "def make():\n    import {0}\n"]
)
def test_a_file_that_needs_one_says_so(package, text, without, tmp_path):
    """Whether it imports at once, or when it is called."""
    path = tmp_path / "needs.py"
    path.write_text(text.format(package))
    without(package)
    with pytest.raises(MissingExtraError) as caught:
        load_target_source(f"{path}:make", {}, parse_inputs(["1x4"]))
    assert caught.value.message == f"{package} is not installed"
    assert caught.value.hint == f"pip install 'crossflops[{PACKAGES[package][0]}]'"


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("model.keras", "keras", "tensorflow"),
        ("model.pb", "tensorflow", "tensorflow"),
        ("model.pt", "torch", "torch"),
        ("model.pt2", "torch", "torch"),
        ("model.joblib", "joblib", "sklearn"),
    ],
)
def test_files_of_a_framework_need_it(name, package, extra, without, tmp_path):
    """Nothing is read before."""
    path = tmp_path / name
    path.write_bytes(b"anything")
    without(package)
    with pytest.raises(MissingExtraError, match=package) as caught:
        load_target_source(str(path), {}, parse_inputs(["1x4"]), allow_pickle=True)
    assert caught.value.hint == f"pip install 'crossflops[{extra}]'"


def _linear():
    import torch

    return torch.nn.Linear(4, 2), torch.zeros(1, 4)


def _keras():
    import keras

    return keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)]), ["1x4"]


def _flax():
    from flax import nnx

    return nnx.Linear(4, 2, rngs=nnx.Rngs(0)), ["1x4"]


def _estimator():
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), [[0.0]]


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("make", "converter", "extra"),
    [
        (_linear, "onnxscript", "torch"),
        (_keras, "tf2onnx", "tensorflow"),
        (_flax, "jax2onnx", "jax"),
        (_estimator, "skl2onnx", "sklearn"),
    ],
)
def test_a_model_without_its_converter_names_the_extra(make, converter, extra, without):
    """The framework is there, what makes ONNX of its models is not."""
    model, inputs = make()
    without(converter)
    with pytest.raises(MissingExtraError, match=f"{converter} is needed") as caught:
        source_from_object(model, inputs)
    assert caught.value.hint == f"pip install 'crossflops[{extra}]'"
