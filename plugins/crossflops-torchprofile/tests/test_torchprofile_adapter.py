"""The torchprofile adapter: what profile_macs prints."""

import copy

import pytest
import torch
from crossflops_torchprofile import Torchprofile
from torch import nn

from crossflops.ir.profile import Entry
from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path

pytestmark = pytest.mark.tools

IMAGE = torch.randn(1, 3, 16, 16)


def profile(model, *args, setting=None, **kwargs):
    """What the adapter says."""
    return Torchprofile().profile(model, args, kwargs, setting or Setting())


def block():
    """3x3 convolution from 3 to 8 channels on 16x16, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


def test_it_is_found_by_its_name():
    """The value of the entry point leads to a whole adapter."""
    adapter = load_adapter_from_path("torchprofile", "crossflops_torchprofile:Torchprofile")
    assert adapter.name == "torchprofile"


def test_the_total_is_all_that_it_reports():
    """8*256*27 for the convolution, 1 per element of batch norm; no parameters, no modules."""
    printed = profile(block(), IMAGE)
    assert (printed.total, type(printed.total)) == (55296 + 2048, int)
    assert (printed.tool, printed.printed_as, printed.params) == ("torchprofile", "MACs", None)
    assert printed.entries == (Entry("", 57344),)
    assert printed.setting == Setting()


def test_the_mode_is_as_asked_and_comes_back():
    """Batch norm counts the same in training; the statistics of a model that trains change."""
    model = block().eval()
    printed = profile(model, IMAGE, setting=Setting(training=True))
    assert printed.total == 57344
    assert not model.training


def test_keyword_inputs_go_by_position():
    """Itself it refuses them: 2*3*4 for the product."""

    class Product(nn.Module):
        def forward(self, a, b):
            return a @ b

    assert profile(Product(), b=torch.randn(3, 4), a=torch.randn(2, 3)).total == 24


def test_shape_arithmetic_is_counted():
    """Attention multiplies batch by heads: four times one.

    Beside 20*32*128 + 2*2*10*10*32, the scaled queries and the mean of the weights.
    """
    model = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x = torch.randn(2, 10, 32)
    assert profile(model, x, x, x).total == 81920 + 12800 + 640 + 200 + 4


def test_it_raises_on_attention_that_is_fused():
    """A result that was never made has no type."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x):
            return self.layer(x, x, x, need_weights=False)[0]

    with pytest.raises(AttributeError, match="lower"):
        profile(Attention().eval(), torch.randn(2, 10, 32), setting=Setting(grad=False))


def test_what_it_does_not_know_is_no_noise(capfd, recwarn):
    """Its warnings, one for each node, are what the convention says once."""
    assert profile(nn.Softplus(), IMAGE).total == 0
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


def test_the_model_is_as_it_was():
    """No hook, no buffer, no other mode."""
    model = block().eval()
    before = copy.deepcopy(model.state_dict())
    profile(model, IMAGE)
    assert list(model.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
