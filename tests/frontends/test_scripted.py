"""TorchScript, as a whole or inside another module, counts like the Python that it was made from.

The MACs are derived by hand from the sizes of the layers.
"""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch
from torch import nn

import crossflops
from crossflops.ir.trace import View
from tests.models import traced

pytestmark = pytest.mark.torch
X = torch.ones(1, 20)
MLP = 20 * 30 + 30 * 28  # 1440
WEIGHTS = 20 * 30 + 30 + 30 * 28 + 28


def mlp():
    """Two layers."""
    return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 28)).eval()


WAYS = {
    "scripted": lambda: torch.jit.script(mlp()),
    "traced": lambda: torch.jit.trace(mlp(), X),
}


class Around(nn.Module):
    """A head of its own behind what it was given."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.head = inner, nn.Linear(28, 5)

    def forward(self, x):
        """One after the other."""
        return self.head(self.inner(x))


@pytest.mark.parametrize("way", WAYS)
def test_a_whole_model_of_torchscript_is_counted(way):
    """Its parameters are those of the source."""
    report = crossflops.count(WAYS[way](), X)
    assert (report.macs, report.params, report.uncounted) == (MLP, WEIGHTS, ())


@pytest.mark.parametrize("way", WAYS)
def test_torchscript_inside_another_module_is_counted_there(way):
    """The work is that of the module, whose inside calls nothing in Python."""
    report = crossflops.count(Around(WAYS[way]()), X)
    macs = {row.path: row.macs for row in report.modules}
    assert (report.macs, macs["inner"], macs["head"]) == (MLP + 28 * 5, MLP, 28 * 5)
    assert report.params == WEIGHTS + 28 * 5 + 5


def test_frozen_torchscript_has_constants_in_place_of_parameters():
    """Its modules are gone, and with them the flag that says whether they are in training."""
    report = crossflops.count(torch.jit.freeze(WAYS["scripted"]()), X)
    assert (report.macs, report.params) == (MLP, 0)


def test_branches_and_loops_of_torchscript_run_as_the_sizes_tell():
    """A loop of three, a branch on the batch, a convolution, an LSTM."""

    class Rich(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
            self.cells, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 2)

        def forward(self, x):
            y = self.norm(self.conv(x)).relu()
            for _ in range(3):
                y = y + 1
            if y.shape[0] > 1:
                y = y * 2
            z, _state = self.cells(y.flatten(2).transpose(1, 2))
            return self.head(z)

    report = crossflops.count(torch.jit.script(Rich().eval()), torch.ones(2, 3, 6, 6))
    conv, cells, head = 2 * 4 * 16 * 27, 2 * 16 * 4 * 5 * (4 + 5), 2 * 16 * 5 * 2
    assert report.macs == conv + cells + head
    assert "Mul" in {row.op for row in report.by_op}


@pytest.mark.parametrize(("value", "macs"), [(1.0, 2 * 4 * 4), (-1.0, 0)])
def test_torchscript_that_decides_by_values_is_counted_as_it_runs(value, macs):
    """The layer runs where the sum of the input is positive."""

    class Deciding(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            if bool(x.sum() > 0):
                x = self.layer(x)
            return x

    scripted = torch.jit.script(Deciding().eval())
    assert crossflops.count(scripted, (torch.full((2, 4), value),)).macs == macs


@torch.jit.script_if_tracing
def resized(x: torch.Tensor, size: int) -> torch.Tensor:
    """Made TorchScript when it is first called under a tracer."""
    return nn.functional.interpolate(x, size=size, mode="nearest")


class Resizing(nn.Module):
    """A layer behind such a function."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x):
        """A line of three, as one of six."""
        return self.layer(resized(x, 6))


@pytest.mark.parametrize("level", ["jit", "traced"])
def test_a_function_may_be_compiled_while_it_is_watched(level):
    """Out of the functions of PyTorch, and not out of what stands in their place meanwhile."""
    x = torch.ones(1, 4, 3)
    seen = traced(Resizing().eval(), x, observed=(View(level=level),)).observed
    (linear,) = [call for call in seen if call.target == "aten::linear"]
    assert linear.inputs[0].shape == (1, 4, 6)
