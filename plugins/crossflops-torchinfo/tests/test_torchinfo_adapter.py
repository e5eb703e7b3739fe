"""The torchinfo adapter: what `summary` says, at its own grain."""

from typing import NamedTuple

import pytest
import torch
from crossflops_torchinfo import Torchinfo
from torch import nn

import crossflops
from crossflops.frontends.pytorch.program import record_torch_run
from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path
from crossflops.reconcile.parameters import reconcile_parameters
from crossflops.rules.prediction import PredictionError, predict
from crossflops.tools.registry import find_convention

pytestmark = pytest.mark.tools

IMAGE = torch.randn(1, 3, 16, 16)


def block():
    """3x3 convolution from 3 to 8 channels on 16x16, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


def profile(model, *args, setting=None, **kwargs):
    """What the adapter says."""
    return Torchinfo().profile(model, args, kwargs, setting or Setting())


def test_it_is_found_by_its_name():
    """The value of the entry point leads to a whole adapter."""
    assert (
        load_adapter_from_path("torchinfo", "crossflops_torchinfo:Torchinfo").name == "torchinfo"
    )


def test_totals_and_modules():
    """(27 + 1) parameters of 8 filters at 256 positions; the parameters of batch norm once."""
    conv, norm = 28 * 8 * 256, 16
    printed = profile(nn.Sequential(block()), IMAGE)
    assert (printed.total, type(printed.total)) == (conv + norm, int)
    assert (printed.tool, printed.printed_as) == ("torchinfo", "mult-adds")
    assert printed.setting == Setting(grad=False, hooked=True)
    assert printed.params == 3 * 8 * 9 + 8 + 2 * 8
    amounts = {entry.path: entry.amount for entry in printed.entries}
    whole = conv + norm
    assert amounts == {"": whole, "0": whole, "0.0": conv, "0.1": norm, "0.2": 0}


class Modes(nn.Module):
    """Another path in training."""

    def __init__(self):
        super().__init__()
        self.body, self.extra = nn.Linear(4, 5), nn.Linear(4, 6)
        self.frozen = nn.BatchNorm1d(4).eval()

    def forward(self, x):
        """The extra head in training alone."""
        x = self.frozen(x)
        return (self.body(x), self.extra(x)) if self.training else self.body(x)


def test_the_mode_that_is_asked_is_the_mode_that_runs():
    """2 rows of (4 + 1) x 5 and of (4 + 1) x 6, and 8 of the norm; every flag is as before."""
    model = Modes().eval().train()
    model.frozen.eval()
    x = torch.randn(2, 4)
    assert profile(model, x).total == 2 * (25 + 8)
    printed = profile(model, x, setting=Setting(training=True))
    assert printed.total == 2 * (25 + 30 + 8)
    assert printed.setting == Setting(training=True, grad=False, hooked=True)
    assert (model.training, model.frozen.training) == (True, False)


class Scaled(nn.Module):
    """A linear layer with other inputs, two of which bear names that `summary` knows."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x, mask=None, mode=None, *, scale=1):
        """Scale what the layer gives."""
        return self.layer(x) * scale


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((torch.randn(2, 4),), {"scale": 2}),
        ((), {"x": torch.randn(2, 4), "mask": None}),
        ((), {"x": torch.randn(2, 4), "mode": torch.ones(1)}),
        ((torch.randn(2, 4), None), {"mode": torch.ones(1)}),
        ((torch.randn(2, 4), "none"), {}),
    ],
)
def test_keyword_inputs(args, kwargs):
    """2 rows, (4 + 1) x 5: whatever `summary` calls its own arguments, and cannot add up."""
    assert profile(Scaled(), *args, **kwargs).total == 50


class Shared(nn.Module):
    """A layer under two parents."""

    def __init__(self):
        super().__init__()
        layer = nn.Linear(4, 4)
        self.first, self.second = nn.Sequential(layer), nn.Sequential(layer)

    def forward(self, x):
        """Both."""
        return self.second(self.first(x))


def test_a_shared_module_stands_under_its_first_name():
    """3 rows of 20 parameters, twice, although torchinfo shows both calls in the last place."""
    printed = profile(Shared(), torch.randn(3, 4))
    amounts = {entry.path: entry.amount for entry in printed.entries}
    assert amounts == {"": 120, "first": 120, "first.0": 120, "second": 0}


class Pair(NamedTuple):
    """A result that is a tuple with names."""

    value: torch.Tensor
    other: torch.Tensor


class Returning(nn.Module):
    """A layer with a weight, that returns what it is told to."""

    def __init__(self, result):
        super().__init__()
        self.weight, self.result = nn.Parameter(torch.randn(4)), result

    def forward(self, x):
        """Something made of the scaled input."""
        return self.result(x * self.weight)


@pytest.mark.parametrize(
    ("result", "rows"),
    [
        (lambda y: y, 6),
        (lambda y: (y[:2], y), 2),
        (lambda y: Pair(y[:3], y), 3),
        (lambda y: {"a": y, "b": y[:5]}, 5),
        (lambda y: {"a": y, "b": [y[:1], y]}, 1),
        (lambda y: [[y[:4]], y], 4),
    ],
)
def test_one_shape_stands_for_the_result(result, rows):
    """The first tensor of a sequence, the last of a mapping: its first axis times 4 parameters.

    The convention says so before.
    """
    model, x = Returning(result), torch.randn(6, 4)
    assert profile(model, x).total == 4 * rows
    trace = record_torch_run(model, (x,), {}, Setting()).trace
    assert predict(find_convention("torchinfo"), trace, Setting()).total == 4 * rows


class Padded(nn.Module):
    """An encoder with a padding mask: without gradients PyTorch leaves the padding out."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)

    def forward(self, x):
        """The last three of ten tokens are padding."""
        mask = torch.zeros(x.shape[:2], dtype=torch.bool)
        mask[:, 7:] = True
        return self.encoder(x, src_key_padding_mask=mask)


def test_torchinfo_fails_on_nested_tensors():
    """They have no size, and the convention knows that one occurs."""
    model, x = Padded().eval(), torch.randn(2, 10, 32)
    with pytest.raises(RuntimeError, match="Failed to run torchinfo"):
        profile(model, x)
    convention = find_convention("torchinfo")
    view = convention.view(Setting())  # asked for by torchinfo alone
    trace = record_torch_run(model, (x,), {}, Setting(), [view]).trace
    with pytest.raises(PredictionError, match=r"torchinfo\.nested|TransformerEncoderLayer"):
        predict(convention, trace, Setting())


def test_torchinfo_keeps_a_model_and_the_next_one_is_counted_anew():
    """It stores the last run of every class of model, and reads it only when asked to."""
    assert profile(nn.Sequential(nn.Linear(4, 5)), torch.randn(2, 4)).total == 50
    assert profile(nn.Sequential(nn.Linear(4, 7)), torch.randn(2, 4)).total == 70


def test_a_comparison_leaves_the_model_alone():
    """Modes, hooks and attributes are those of before; the tool had a model of its own.

    2 rows, a layer of 4 x 4 and a norm that is not in training.
    """
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()
    model[1].eval()
    before = [
        (module.training, set(vars(module)), set(module._forward_hooks))
        for module in model.modules()
    ]
    report = crossflops.compare(model, torch.randn(2, 4), tools=["torchinfo"])
    assert report.residuals == {"torchinfo": 0}
    assert report.reconciliation("torchinfo").theirs == 2 * (20 + 8)
    after = [
        (module.training, set(vars(module)), set(module._forward_hooks))
        for module in model.modules()
    ]
    assert after == before


def test_only_modules_are_accepted():
    """A function is no model for torchinfo."""
    assert Torchinfo().accepts(nn.ReLU())
    assert not Torchinfo().accepts(torch.relu)


def test_torchscript_counts_again_in_what_is_around_it():
    """torchinfo lists it before what is called: 3x4 + 4 weights, once more in the model."""
    scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 4)).eval())
    model, x = nn.Sequential(scripted, nn.Linear(4, 5)).eval(), torch.ones(1, 3)
    rules, theirs = find_convention("torchinfo").parameters, profile(model, x).params
    assert theirs == 2 * (3 * 4 + 4) + 4 * 5 + 5
    trace = record_torch_run(model, (x,), {}, Setting()).trace
    assert reconcile_parameters(rules, trace, theirs).residual == 0
