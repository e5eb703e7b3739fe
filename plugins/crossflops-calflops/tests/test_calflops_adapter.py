"""The calflops adapter: what calflops prints, at its own grain."""

import sys

import pytest
import torch
from crossflops_calflops import Calflops, CalflopsMacs
from torch import nn
from torch.nn import functional

from crossflops import compare
from crossflops.adapters.discovery import load_value
from crossflops.core.trace import Setting
from crossflops.errors import MissingExtraError

IMAGE = torch.randn(1, 3, 16, 16)


def block():
    """3x3 convolution from 3 to 8 channels on 16x16, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


def profile(model, *args, adapter=Calflops, setting=None, **kwargs):
    """What an adapter says."""
    return adapter().profile(model, args, kwargs, setting or Setting())


def test_both_are_found_by_their_names():
    """The values of the entry points lead to whole adapters."""
    assert load_value("calflops", "crossflops_calflops:Calflops").name == "calflops"
    found = load_value("calflops-macs", "crossflops_calflops:CalflopsMacs")
    assert found.name == "calflops-macs"


def test_flops_and_modules():
    """2*8*256*27 and a bias of 8*256; 2 per element of batch norm, 1 of ReLU."""
    found = profile(nn.Sequential(block()), IMAGE)
    convolution, norm, relu = 2 * 55296 + 2048, 2 * 2048, 2048
    total = convolution + norm + relu
    assert found.total == total
    assert type(found.total) is int
    assert (found.tool, found.printed_as, found.version) == ("calflops", "FLOPs", "0.3.2")
    assert found.params == 3 * 8 * 9 + 8 + 2 * 8
    amounts = {entry.path: entry.amount for entry in found.entries}
    inner = {"0.0": convolution, "0.1": norm, "0.2": relu}
    assert amounts == {"": total, "0": total, **inner}


def test_macs_are_those_of_the_convolution():
    """8*256*27."""
    found = profile(block(), IMAGE, adapter=CalflopsMacs)
    assert (found.total, found.printed_as) == (55296, "MACs")
    assert {entry.path: entry.amount for entry in found.entries} == {
        "": 55296, "0": 55296, "1": 0, "2": 0,
    }  # fmt: skip


def test_it_runs_in_eval_mode_whatever_is_asked():
    """The setting of the profile is the one in force, and the mode is as before."""
    model = block().train()
    found = profile(model, IMAGE, setting=Setting(training=True, grad=False))
    assert found.setting == Setting(training=False, grad=False, hooked=True)
    assert model.training
    assert model[1].num_batches_tracked == 0


class Scaled(nn.Module):
    """A linear layer and inputs that go by keyword only."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x, *, scale, flag=False):
        """Scale what the layer gives."""
        return torch.mul(self.layer(x), scale) if flag else x


def test_keyword_inputs_are_passed_by_keyword():
    """2 rows of 4 x 5, and 5 x 5 products: the shapes (2, 5) and (5,) aligned to the left."""
    x = torch.randn(2, 4)
    assert profile(Scaled(), x=x, scale=torch.ones(5), flag=True).total == 2 * 40 + 25


def test_functions_come_back_after_a_failure():
    """A keyword that calflops's own function does not have ends it, and leaves nothing behind."""

    class Pool(nn.Module):
        def forward(self, x):
            return functional.adaptive_avg_pool2d(x, output_size=1)

    before = functional.adaptive_avg_pool2d, torch.matmul, torch.Tensor.__matmul__
    with pytest.raises(TypeError, match="output_size"):
        profile(Pool(), IMAGE)
    assert (functional.adaptive_avg_pool2d, torch.matmul, torch.Tensor.__matmul__) == before
    assert profile(block(), IMAGE).total == 2 * 55296 + 2048 + 3 * 2048


def test_calflops_says_nothing(capfd):
    """Its table is not printed."""
    profile(block(), IMAGE)
    assert capfd.readouterr().out == ""


def test_frozen_parameters_are_not_counted():
    """Of 3*8*9 + 8 + 2*8 parameters, the convolution's are frozen."""
    model = block()
    model[0].requires_grad_(False)
    assert profile(model, IMAGE).params == 16


def test_a_shared_module_counts_in_both_parents():
    """2 rows of 4 x 4, called twice, under two parents: the tree is added up along both."""
    layer = nn.Linear(4, 4)
    model = nn.Sequential(nn.Sequential(layer), nn.Sequential(layer))
    assert profile(model, torch.randn(2, 4)).total == 2 * 2 * 2 * 32


def test_a_missing_transformers_is_said(monkeypatch):
    """calflops imports it without asking for it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "calflops"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match="calflops imports transformers") as caught:
        Calflops().load()
    assert caught.value.hint == "pip install transformers"


def test_the_model_of_the_caller_is_untouched():
    """It keeps its mode, gets no hooks, and a second answer is like the first."""
    model = block().train()
    first = compare(model, IMAGE, tools=["calflops", "calflops-macs"])
    assert [one.residual for one in first.reconciliations] == [0, 0]
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(vars(module).get("__flops__") for module in model.modules())
    second = compare(model, IMAGE, tools=["calflops", "calflops-macs"])
    assert second.reconciliations == first.reconciliations
