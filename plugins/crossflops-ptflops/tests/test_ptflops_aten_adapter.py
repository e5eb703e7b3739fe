"""The adapter of ptflops' backend "aten": what it prints for the model and its children."""

import copy
import sys

import pytest
import torch
from crossflops_ptflops import PtflopsAten
from torch import nn

import crossflops
from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path

pytestmark = pytest.mark.tools

FORCED = Setting(hooked="children")


def profile(model, *args, setting=None, **kwargs):
    """What the adapter says of a copy of the model."""
    return PtflopsAten().profile(copy.deepcopy(model), args, kwargs, setting or Setting())


class Net(nn.Module):
    """A convolution and batch norm, then a linear layer on the transposed map."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        """Rows of channels, not side by side."""
        return self.head(self.block(x).flatten(2).mT)


def amounts(printed):
    """Amount by path."""
    return {entry.path: entry.amount for entry in printed.entries}


def test_it_is_found_by_its_name():
    """The value of the entry point leads to a whole adapter."""
    adapter = load_adapter_from_path("ptflops-aten", "crossflops_ptflops:PtflopsAten")
    assert adapter.name == "ptflops-aten"


def test_children_have_what_was_dispatched_in_them():
    """2 examples: 8*256*28 of the convolution, 256 rows of 8*5 and no bias: mm, then add."""
    printed = profile(Net(), torch.randn(2, 3, 16, 16))
    block, head = 2 * 57344, 2 * 256 * 40
    assert amounts(printed) == {"": block + head, "block": block, "head": head}
    assert (printed.tool, printed.printed_as, printed.setting) == ("ptflops-aten", "MACs", FORCED)
    assert printed.params == 3 * 8 * 9 + 8 + 2 * 8 + 45


def test_the_bias_of_a_linear_layer_depends_on_strides():
    """6 rows from 4 to 5: 120, and 30 where the rows lie side by side."""
    layer, x = nn.Linear(4, 5), torch.randn(2, 3, 4)
    assert profile(layer, x).total == 150
    assert profile(layer, torch.randn(2, 4, 3).mT).total == 120


def test_one_class_of_the_engine_is_put_back():
    """The adapter watches ptflops by a class of its own."""
    profile(Net(), torch.randn(2, 3, 16, 16))
    mode = sys.modules["ptflops.aten_engine"].FlopCounterMode
    assert mode.__module__ == "ptflops.aten_engine"


def run_hooked(own, x):
    """Whether ptflops leaves hooks on the model that it is given."""
    PtflopsAten().profile(own, (x,), {}, Setting())
    return any(module._forward_hooks for module in own.modules())


def test_hooks_that_stay_on_reach_nobody_else():
    """ptflops leaves its hooks on the children. The model of the caller has none of them."""
    own, x = Net().train(), torch.randn(2, 3, 16, 16)
    assert run_hooked(copy.deepcopy(own), x)
    both = crossflops.compare(own, x, tools=["ptflops-aten", "ptflops-pytorch"])
    assert both.residuals == {"ptflops-aten": 0, "ptflops-pytorch": 0}
    assert own.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in own.modules())
