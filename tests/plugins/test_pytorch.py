"""What adapters of PyTorch tools share."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from crossflops.errors import InputError
from crossflops.ir.profile import Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import is_module, under
from crossflops.targets.target import build_target
from crossflops.workers.jobs import read_model_contents, write_model_contents
from crossflops.workers.observe import run_tool_in_process

torch = pytest.importorskip("torch")
prune = pytest.importorskip("torch.nn.utils.prune")
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
    write_model_contents(
        tmp_path / "model", (torch.nn.Sequential(first, second), (inputs,), {"mask": None})
    )
    model, args, kwargs = read_model_contents(tmp_path / "model")
    assert model[0].weight is model[1].weight
    assert torch.equal(model[0].weight, first.weight)
    assert torch.equal(args[0], inputs)
    assert kwargs == {"mask": None}


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_a_torchvision_model_is_unpacked_where_nothing_was_imported(tmp_path):
    """Also beside a CPU build of PyTorch, on which torchvision does not import by itself."""
    resnet = build_target("torchvision.models:resnet18", {})[0]
    write_model_contents(tmp_path / "model", (resnet, (), {}))
    code = "import sys, pathlib; from crossflops.workers.jobs import read_model_contents; "
    code += "print(type(read_model_contents(pathlib.Path(sys.argv[1]))[0]).__name__)"
    line = [sys.executable, "-c", code, str(tmp_path / "model")]
    process = subprocess.run(line, capture_output=True, text=True, check=False)
    assert process.stdout == "ResNet\n", process.stderr


class Counts:
    """Answers with the parameters of the model, and meddles with what it was given."""

    name = convention = distribution = "counts"

    def accepts(self, model):
        return is_module(model)

    def profile(self, model, args, kwargs, setting):
        model(*args)
        with torch.no_grad():
            args[0].zero_()
            next(model.parameters()).zero_()
        total = sum(parameter.numel() for parameter in model.parameters())
        return Profile(tool="counts", version="1", setting=setting, total=total, printed_as="n")


def normed():
    """The older weight norm, which keeps a computed weight in the module."""
    return torch.nn.utils.weight_norm(torch.nn.Linear(2, 3))


def pruned():
    """Pruning, which keeps one too."""
    return prune.l1_unstructured(torch.nn.Linear(2, 3), "weight", 0.5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "total"), [(normed, 3 + 6 + 3), (pruned, 3 + 6)])
def test_a_model_with_computed_weights_is_copied(make, total):
    """Python's own copy refuses them; nothing of the caller's is touched."""
    model, x = make(), torch.ones(1, 2)
    before = [parameter.clone() for parameter in model.parameters()]
    answer = run_tool_in_process(Counts(), model, (x,), {}, Setting())
    assert isinstance(answer, Profile), answer
    assert answer.total == total
    assert torch.equal(x, torch.ones(1, 2))
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [normed, pruned])
def test_a_model_with_computed_weights_travels(make, tmp_path):
    """It works on the other side, and computes its weight anew."""
    write_model_contents(tmp_path / "model", (make(), (), {}))
    model, _, _ = read_model_contents(tmp_path / "model")
    assert model(torch.ones(1, 2)).shape == (1, 3)


def test_an_input_that_was_computed_is_copied():
    """The output of another model, with its gradient history."""
    x = torch.nn.Linear(2, 2)(torch.ones(1, 2))
    model = torch.nn.Linear(2, 3)
    assert isinstance(run_tool_in_process(Counts(), model, (x,), {}, Setting()), Profile)
