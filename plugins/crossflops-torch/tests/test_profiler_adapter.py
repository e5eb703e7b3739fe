"""The adapter of torch.profiler: the flops of all events."""

import pytest
import torch
from crossflops_torch import TorchProfiler
from torch import nn

from crossflops.ir.profile import Entry
from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path

pytestmark = pytest.mark.tools

IMAGE = torch.randn(1, 3, 16, 16)


def profile(model, *args, setting=None, **kwargs):
    """What the adapter says."""
    return TorchProfiler().profile(model, args, kwargs, setting or Setting())


class Function(nn.Module):
    """A function as a model."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        """Call it."""
        return self.function(*args, **kwargs)


def test_it_is_found_by_its_name():
    """The value of the entry point leads to a whole adapter."""
    adapter = load_adapter_from_path("torch-profiler", "crossflops_torch:TorchProfiler")
    assert adapter.name == "torch-profiler"


def test_the_total_is_all_that_it_reports():
    """Twice 8*256*27, and 2048 for the addition; batch norm is not counted."""
    layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8))
    printed = profile(Function(lambda x: layers(x) + 1), IMAGE)
    assert (printed.total, type(printed.total)) == (2 * 55296 + 2048, int)
    assert (printed.printed_as, printed.params, printed.setting) == ("FLOPs", None, Setting())
    assert printed.entries == (Entry("", 112640),)


def test_a_model_without_any_counted_operator():
    """Zero is what it prints."""
    assert profile(nn.ReLU(), IMAGE).total == 0


def test_the_first_operand_counts_and_nothing_in_place():
    """16 elements are added to 2048, then 2048 to as many, in place."""
    model = Function(lambda a, b: (a + b).add_(b))
    assert profile(model, torch.randn(16), b=torch.randn(1, 8, 16, 16)).total == 16


def test_convolutions_of_other_ranks_and_padding_by_name_count_nothing():
    """It knows aten::conv2d with numbers for its padding."""
    assert profile(nn.Conv1d(3, 8, 3), torch.randn(1, 3, 16)).total == 0
    assert profile(nn.Conv2d(3, 8, 3, padding="same"), IMAGE).total == 0


def test_the_mode_is_as_asked_and_comes_back():
    """Fused attention counts in full without gradients: 2 x (20*32*128 + 2*2*10*10*32), + biases.

    The fused kernel adds nothing that is seen; with gradients the products are in a CPU kernel
    that is not looked into.
    """
    model = nn.MultiheadAttention(32, 4, batch_first=True)
    x = torch.randn(2, 10, 32)
    fused = profile(model, x, x, x, setting=Setting(grad=False), need_weights=False)
    assert fused.total >= 2 * (20 * 32 * 128 + 2 * 2 * 10 * 10 * 32)
    assert model.training
