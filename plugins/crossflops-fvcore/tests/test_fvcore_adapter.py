"""The fvcore adapter: what FlopCountAnalysis prints, at its own grain."""

import pytest
import torch
from crossflops_fvcore import Fvcore
from torch import nn

from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path

pytestmark = pytest.mark.tools

IMAGE = torch.randn(1, 3, 16, 16)


def block():
    """3x3 convolution from 3 to 8 channels on 16x16, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


def profile(model, *args, setting=None, **kwargs):
    """What the adapter says."""
    return Fvcore().profile(model, args, kwargs, setting or Setting())


def test_it_is_found_by_its_name():
    """The value of the entry point leads to a whole adapter."""
    assert load_adapter_from_path("fvcore", "crossflops_fvcore:Fvcore").name == "fvcore"


def test_totals_and_modules():
    """8*256*27 for the convolution, and 2 per element of batch norm in eval mode."""
    printed = profile(nn.Sequential(block()), IMAGE)
    assert printed.total == 55296 + 2 * 2048
    assert type(printed.total) is int
    assert (printed.tool, printed.printed_as) == ("fvcore", "flops")
    assert printed.setting == Setting(hooked=True)
    assert printed.params == 3 * 8 * 9 + 8 + 2 * 8
    amounts = {entry.path: entry.amount for entry in printed.entries}
    assert amounts == {"": 59392, "0": 59392, "0.0": 55296, "0.1": 4096, "0.2": 0}
    assert {type(amount) for amount in amounts.values()} == {int}


def test_the_mode_that_is_asked_is_the_mode_that_is_traced():
    """In train mode fvcore counts 5 per element of an affine batch norm; the mode comes back."""
    model = block().eval()
    printed = profile(model, IMAGE, setting=Setting(training=True))
    assert printed.total == 55296 + 5 * 2048
    assert printed.setting == Setting(training=True, hooked=True)
    assert not model.training


class SelfAttention(nn.Module):
    """Attention of one tensor to itself: 4 heads, 32 features."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x):
        """Attend."""
        return self.attention(x, x, x)[0]


def test_gradients_off_switch_attention_to_its_fused_kernel():
    """Projections of 20 rows and two products of 10x10x32 in 2 samples; without gradients, 0."""
    x = torch.randn(2, 10, 32)
    assert profile(SelfAttention(), x).total == 20 * 32 * 128 + 2 * 2 * 10 * 10 * 32
    assert profile(SelfAttention(), x, setting=Setting(grad=False)).total == 0


class Residual(nn.Module):
    """A layer under two names, and an operator that fvcore does not know."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = self.first
        self.unused = nn.Linear(4, 4)

    def forward(self, x, y):
        """Use the layer twice, under both names."""
        return torch.sin(self.second(self.first(x))) + y


def test_a_shared_module_stands_under_its_first_name():
    """3 rows, 4 in, 4 out, twice; keyword inputs go by position."""
    x = torch.randn(3, 4)
    printed = profile(Residual(), x=x, y=x)
    assert printed.total == 2 * 48
    amounts = {entry.path: entry.amount for entry in printed.entries}
    assert amounts == {"": 96, "first": 96, "unused": 0}


def test_fvcore_says_nothing(capfd, caplog):
    """Neither the operator that it does not know nor the uncalled module is reported aloud."""
    x = torch.randn(3, 4)
    profile(Residual(), x, x)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_an_integral_float_becomes_an_int():
    """For this einsum fvcore returns floor(301 / 2) as a float, from a text of np.einsum_path."""

    class Chain(nn.Module):
        def forward(self, a, b, c):
            return torch.einsum("ij,jk,kl->il", a, b, c)

    printed = profile(Chain(), torch.randn(3, 5), torch.randn(5, 5), torch.randn(5, 5))
    assert (printed.total, type(printed.total)) == (150, int)
