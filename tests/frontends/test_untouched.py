"""Counting a model leaves no trace: in the model, its inputs, PyTorch, or the random state."""

import copy
import functools
import importlib
import logging
import random
import subprocess
import sys
import types

import numpy as np
import pytest

import crossflops
from crossflops.errors import InputError, NormalizeError
from crossflops.ir.trace import Setting
from tests.models import Apply, Holder, encoder_layer, exported, nn, operators, torch, traced

pytestmark = pytest.mark.torch
ALL = (Setting(), Setting(grad=False), Setting(grad=False, hooked=True))


def attributes():
    """Everything that is wrapped while a model is recorded."""
    owners = (
        torch,
        torch.Tensor,
        torch.nn.functional,
        torch.linalg,
        torch.special,
        torch.fft,
        nn.Module,
        nn.Linear,
        nn.MultiheadAttention,
        nn.TransformerEncoderLayer,
        Apply,
        Holder,
    )
    # Modules of PyTorch that are imported on first use become attributes of it.
    return {
        owner: {
            name: id(value)
            for name, value in vars(owner).items()
            if not isinstance(value, types.ModuleType)
        }
        for owner in owners
    }


@pytest.fixture
def same_attributes():
    """PyTorch is as it was, attribute by attribute."""
    importlib.import_module("torch._dynamo")  # replaces torch.manual_seed, once and for good
    before = attributes()
    yield
    after = attributes()
    for owner, names in before.items():
        changed = [name for name, value in names.items() if after[owner].get(name) != value]
        assert changed == [], owner
        if owner is not torch:
            assert set(after[owner]) == set(names), owner


def model():
    """One with batch norm, dropout, mixed modes, a hook, and a forward of its own."""
    network = nn.Sequential(
        Holder(nn.BatchNorm1d(32)), nn.Linear(32, 32), nn.Dropout(0.5), encoder_layer()
    ).train()
    network[1].eval()
    network[3].linear1.eval()
    network[1].forward = types.MethodType(nn.Linear.forward, network[1])
    network[2].register_forward_hook(lambda *_: None)
    network[3].register_forward_pre_hook(lambda *_: None)
    return network


def state(network):
    """All that a caller can see of a model."""
    return [
        (
            name,
            module.training,
            sorted(vars(module)),
            dict(module._forward_hooks),
            dict(module._forward_pre_hooks),
            vars(module).get("forward"),
            {key: (id(value), value.grad) for key, value in module._parameters.items()
             if value is not None},
            {key: id(value) for key, value in module._buffers.items()},
        )
        for name, module in network.named_modules()
    ]  # fmt: skip


@pytest.mark.parametrize("setting", [Setting(), Setting(training=True), Setting(grad=False)])
def test_the_model_is_as_it_was(setting, same_attributes):
    """Weights, statistics, modes, hooks and attributes, after an export and four real runs."""
    network, x = model(), torch.randn(4, 32, 32)
    before, weights = state(network), copy.deepcopy(network.state_dict())
    traced(network, x, setting=setting, observed=(*ALL, Setting(training=True)))
    assert state(network) == before
    for name, value in network.state_dict().items():
        assert torch.equal(value, weights[name]), name


def test_the_export_changes_nothing_either(same_attributes):
    """The same for the whole way to a graph, and the modes of gradients stay."""
    network = model()
    before = state(network)
    with torch.no_grad():
        exported(network, torch.randn(4, 32, 32))
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    assert state(network) == before


def test_random_states_stay():
    """PyTorch's, NumPy's and Python's, although the model draws from all of them."""
    drawing = Apply(lambda s, x: s.d(x) * random.random() + np.random.rand() + torch.rand(1),
                    d=nn.Dropout())  # fmt: skip
    x = torch.randn(4, 4)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    exported(drawing, x, setting=Setting(training=True), observed=ALL)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]


def test_inputs_stay():
    """A first layer that works in place works on copies."""
    x, mask = -torch.ones(2, 4), -torch.ones(2, 4)
    network = Apply(lambda s, x, mask: s.relu(x) + mask.add_(1), relu=nn.ReLU(inplace=True))
    traced(network, x, mask=mask, observed=ALL)
    assert torch.equal(x, -torch.ones(2, 4))
    assert torch.equal(mask, -torch.ones(2, 4))
    with pytest.raises(InputError):
        traced(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 1)), x)
    assert torch.equal(x, -torch.ones(2, 4))


@pytest.mark.parametrize(
    ("found", "inputs", "message"),
    [
        (nn.Linear(5, 3), (torch.randn(2, 4),), "RuntimeError: mat1 and mat2 shapes"),
        (nn.Linear(5, 3), (), "TypeError: .*missing 1 required positional argument: 'input'"),
        (nn.Conv2d(3, 8, 3), (torch.randn(1, 4, 8, 8),), "RuntimeError: Given groups=1"),
        (Apply(lambda s, x: x.missing), (torch.randn(1),), "AttributeError"),
    ],
)
def test_a_model_that_raises_is_an_input_error(found, inputs, message, same_attributes):
    """What the model says is quoted in one line, and everything is put back."""
    before = logging.root.manager.disable
    with pytest.raises(InputError, match=f"the model raised on these inputs: {message}") as caught:
        traced(found, *inputs)
    assert "\n" not in caught.value.message
    assert "--input" in caught.value.hint
    assert logging.root.manager.disable == before


def test_a_model_that_raises_in_one_setting_only_is_an_input_error(same_attributes):
    """What an observed run raises names the setting."""

    def forward(self, x):
        if torch.compiler.is_exporting() or torch.is_grad_enabled():
            return x * 2
        raise ValueError("not without gradients")

    with pytest.raises(InputError, match=r"when run \(eval no_grad\): ValueError: not without"):
        traced(Apply(forward), torch.randn(2), observed=(Setting(grad=False),))


def test_what_runs_and_cannot_be_exported_is_another_error(same_attributes):
    """With another hint than a model that does not run."""
    network = Apply(lambda s, x: x + x.data_ptr())
    with pytest.raises(NormalizeError, match=r"torch\.export cannot trace the model") as caught:
        traced(network, torch.randn(2))
    assert "use PyTorch operators instead" in caught.value.hint


def test_a_model_that_cannot_be_copied_is_told_what_to_do():
    """A generator in an attribute has no copy."""
    network = Apply(lambda s, x: x)
    network.steps = (step for step in range(3))
    with pytest.raises(NormalizeError, match="the model cannot be copied") as caught:
        traced(network, torch.randn(2))
    assert "file.py:callable" in caught.value.hint


def test_a_copy_owns_parameters_and_buffers():
    """A run may write into either: nothing of it reaches the model of the caller."""
    from crossflops.frontends.pytorch.load.model import copy_torch_model

    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    copied = copy_torch_model(network)
    theirs, ours = network.state_dict(keep_vars=True), copied.state_dict(keep_vars=True)
    assert theirs.keys() == ours.keys()
    for name, tensor in theirs.items():
        assert ours[name].data_ptr() != tensor.data_ptr(), name
        assert torch.equal(ours[name], tensor), name


def test_a_copy_takes_memory_when_it_is_written():
    """Until then it has the numbers of the model, which stay where they are."""
    from crossflops.frontends.pytorch.load.model import using_model_copy_for_one_run

    network = nn.Linear(4, 4)
    numbers = network.weight.detach().numpy()  # the memory of the model itself
    before = numbers.copy()
    with using_model_copy_for_one_run(network, training=False) as own:
        assert torch._C._data_address(own.weight) == numbers.ctypes.data
        with torch.no_grad():
            own.weight.add_(1)
        assert torch.equal(own.weight, torch.from_numpy(before) + 1)
    assert (numbers == before).all()
    assert network.weight.data_ptr() == numbers.ctypes.data


def test_nothing_holds_a_model_that_was_exported():
    """PyTorch lists functions at the first export, among them none that records calls."""
    code = (
        "import gc, weakref\nimport torch\nimport crossflops\n"
        "model = torch.nn.Linear(4, 4)\nweight = weakref.ref(model.weight)\n"
        "assert crossflops.count(model, '1x4').totals.macs == 16\n"
        "del model\ngc.collect()\nassert weight() is None\n"
        "held = [o for o in gc.get_objects() if type(o) is torch.nn.Parameter]\n"
        "print(len(held))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_copy_shares_only_what_was_computed():
    """The legacy weight_norm keeps a weight that has a history, which Python cannot copy."""
    from crossflops.frontends.pytorch.load.model import copy_torch_model

    network = torch.nn.utils.weight_norm(nn.Linear(4, 4))
    copied = copy_torch_model(network)
    assert copied.weight is network.weight
    assert copied.weight_v.data_ptr() != network.weight_v.data_ptr()


def test_a_wrong_shape_writes_nothing_to_stderr():
    """PyTorch logs a traceback for it, which is nobody's business here."""
    code = (
        "import torch\n"
        "from crossflops import count\n"
        "from crossflops.errors import InputError\n"
        "try: count(torch.nn.Linear(5, 3), torch.ones(2, 4))\n"
        "except InputError as error: print(error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "check the number, the shapes and the types of --input\n"
    assert done.stderr == ""


def test_hooks_of_the_caller_run_on_the_copy():
    """What a hook changes in its module is changed in the copy; the work stays visible."""

    def mark(module, *_):
        module.marked = True

    network = Holder(nn.Linear(4, 4))
    network.inner.register_forward_hook(mark)
    trace = traced(network, torch.randn(2, 4), observed=ALL)
    assert not hasattr(network.inner, "marked")
    assert len(operators(trace, "aten.linear")) == 1


KEPT: dict[str, torch.Tensor] = {}


@functools.lru_cache(maxsize=8)
def anchors(size):
    """5 x 1 by 1 x 4: 20 MACs, in the first run alone."""
    return torch.arange(float(size))[:, None] @ torch.ones(1, 4)


class Remembering(nn.Module):
    """It computes tensors in its first run, and keeps them in all the places where code does."""

    mask: torch.Tensor | None = None

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x):
        """5 x 6 by 6 x 4 is 120; besides 20, 4 x 4 x 4 and 4 x 3 x 4 in the first run."""
        if "scale" not in KEPT:
            KEPT["scale"] = torch.ones(4, 4) @ torch.ones(4, 4)
        if Remembering.mask is None:
            Remembering.mask = torch.ones(4, 3) @ torch.ones(3, 4)
        return self.layer(x) + anchors(len(x)) + KEPT["scale"].sum() + Remembering.mask.sum()


def remembering():
    """The model, for the tools: each builds it in a process of its own."""
    return Remembering().eval(), (torch.randn(5, 6),)


def test_what_code_remembers_is_of_its_own_runs():
    """Each run is counted as the first one, and no tensor without values is left behind."""
    network, inputs = remembering()
    for _ in range(2):
        report = crossflops.count(network, inputs)
        assert (report.macs, report.totals.constant_macs) == (252, 132)
    assert (KEPT, Remembering.mask, anchors.cache_info().currsize) == ({}, None, 0)
    warm = network(*inputs)
    kept = KEPT["scale"]
    assert crossflops.count(network, inputs).macs == 120 + 20  # the caller's own variables stay
    assert KEPT["scale"] is kept
    assert torch.equal(network(*inputs), warm)
    KEPT.clear()
    Remembering.mask = None
