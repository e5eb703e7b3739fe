"""What adapters of PyTorch tools share."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from crossflops.adapters.parcel import pack, unpack
from crossflops.adapters.pytorch import is_module, under
from crossflops.core.trace import Setting
from crossflops.errors import InputError
from crossflops.normalize.targets import build

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def model():
    """A model with one frozen part, in train mode but for that part."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    model.train()
    model[0].eval()
    return model


def test_modules_are_told_from_the_rest():
    """A function is not a module, nor is a module's class."""
    assert is_module(torch.nn.ReLU())
    assert not is_module(torch.relu)
    assert not is_module(torch.nn.ReLU)


def test_nothing_is_a_module_before_torch_is_imported(monkeypatch):
    """The question imports nothing."""
    monkeypatch.delitem(sys.modules, "torch")
    assert not is_module(object())
    assert "torch" not in sys.modules


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_a_setting_holds_within_the_block_alone(model, training, grad):
    """Mode and gradients are as asked within; mode by part, gradients and generator as before."""
    before = torch.get_rng_state()
    with under(Setting(training=training, grad=grad), model):
        assert [module.training for module in model.modules()] == [training] * 3
        assert torch.is_grad_enabled() is grad
        torch.rand(1)
    assert [module.training for module in model.modules()] == [True, False, True]
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), before)


def test_an_exception_ends_the_setting_too(model):
    """A tool that raises leaves no mode behind."""
    with pytest.raises(ZeroDivisionError), under(Setting(grad=False), model):
        raise ZeroDivisionError
    assert [module.training for module in model.modules()] == [True, False, True]
    assert torch.is_grad_enabled()


def test_another_device_is_refused(model):
    """Counting on the CPU what was asked for on a GPU would be a lie."""
    with pytest.raises(InputError, match="cuda"), under(Setting(device="cuda"), model):
        pass


def test_a_parcel_keeps_what_is_shared(tmp_path):
    """Tied weights are one tensor on the other side, and values are the same."""
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.weight = first.weight
    inputs = torch.arange(3.0)
    pack(tmp_path / "model", (torch.nn.Sequential(first, second), (inputs,), {"mask": None}))
    model, args, kwargs = unpack(tmp_path / "model")
    assert model[0].weight is model[1].weight
    assert torch.equal(model[0].weight, first.weight)
    assert torch.equal(args[0], inputs)
    assert kwargs == {"mask": None}


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_a_torchvision_model_is_unpacked_where_nothing_was_imported(tmp_path):
    """Also beside a CPU build of PyTorch, on which torchvision does not import by itself."""
    resnet = build("torchvision.models:resnet18", {})[0]
    pack(tmp_path / "model", (resnet, (), {}))
    code = "import sys, pathlib; from crossflops.adapters.parcel import unpack; "
    code += "print(type(unpack(pathlib.Path(sys.argv[1]))[0]).__name__)"
    line = [sys.executable, "-c", code, str(tmp_path / "model")]
    found = subprocess.run(line, capture_output=True, text=True, check=False)
    assert found.stdout == "ResNet\n", found.stderr
