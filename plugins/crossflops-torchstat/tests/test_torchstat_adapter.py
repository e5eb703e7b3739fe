"""The torchstat adapters: what torchstat collects, where it runs, and what it leaves behind."""

import sys

import numpy
import pytest
import torch
from crossflops_torchstat import Flops, MAdd, MemRead, MemWrite, adapter
from torch import nn

from crossflops.errors import InputError, MissingExtraError
from crossflops.ir.profile import Entry
from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path
from crossflops.render.terminal import terminal
from crossflops.verbs import api

pytestmark = pytest.mark.tools

IMAGE = torch.randn(1, 3, 16, 16)


def block():
    """3x3 convolution from 3 to 8 channels on 16x16, batch norm, ReLU."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)), nn.ReLU()
    )


@pytest.mark.parametrize(
    ("column", "rows"),
    [
        (Flops, (2048 * 27 + 2048, 2 * 2048, 2048)),  # MACs and bias, 2 per element, 1
        (MAdd, (2048 * 54, 4 * 2048, 2048)),  # 27 products, 26 additions, 1 for the bias
        # bytes: image and 224 parameters; maps and two numbers for each channel; maps
        (MemRead, (4 * (768 + 224), 4 * (2048 + 16), 4 * 2048)),
        (MemWrite, (4 * 2048,) * 3),
    ],
)
def test_columns_of_a_block(column, rows):
    """Modules without children, in the tool's own unit, and their sum."""
    profile = column().profile(block().train(), (IMAGE,), {}, Setting(grad=False, training=True))
    names = ("0.0", "0.1", "1")
    assert profile.entries == tuple(Entry(*pair) for pair in zip(names, rows, strict=True))
    assert (profile.total, profile.params, profile.version) == (sum(rows), 216 + 8 + 16, "0.0.7")
    assert type(profile.total) is int
    assert profile.setting == Setting(grad=False)


def test_they_are_found_by_their_names():
    """The values of the entry points lead to whole adapters."""
    for name in ("Flops", "MAdd", "MemRead", "MemWrite"):
        loaded = load_adapter_from_path(
            getattr(adapter, name).name, f"crossflops_torchstat:{name}"
        )
        assert loaded.convention == loaded.name


def test_other_inputs_are_refused():
    """torchstat makes the input: it cannot be given another one."""
    for image in (IMAGE[0], IMAGE.double(), torch.ones(2, 3, 16, 16)):
        with pytest.raises(InputError, match="torchstat creates its own input"):
            Flops().profile(nn.ReLU(), (image,), {}, Setting())
    with pytest.raises(InputError, match="torchstat creates its own input"):
        Flops().profile(nn.Bilinear(16, 16, 2), (IMAGE, IMAGE), {}, Setting())


def test_keyword_inputs_go_by_position():
    """An image that is named is an image."""
    assert Flops().profile(nn.ReLU(), (), {"input": IMAGE}, Setting()).total == 768


def test_classes_are_as_before():
    """torchstat replaces `__call__` of classes; a second run in one process finds the original."""
    before = nn.Conv2d.__call__
    first = Flops().profile(block(), (IMAGE,), {}, Setting())
    assert nn.Conv2d.__call__ is before
    assert "__call__" not in vars(nn.Conv2d)
    assert lasting(Flops().profile(block(), (IMAGE,), {}, Setting())) == lasting(first)


def lasting(profile):
    """What of a profile is the same in every run."""
    return profile.total, profile.entries, profile.params


def test_it_runs_where_numpy_has_no_long(monkeypatch):
    """NumPy 1.24 to 1.26 have none, and torchstat asks for it."""
    monkeypatch.delattr(numpy, "long")
    assert Flops().profile(nn.ReLU(), (IMAGE,), {}, Setting()).total == 768
    assert not hasattr(numpy, "long")


def test_it_is_imported_where_there_is_no_pandas(monkeypatch):
    """Only its table needs pandas, and is not asked for."""
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("torchstat", "pandas")
    ]:
        monkeypatch.delitem(sys.modules, name)
    find = adapter.importlib.util.find_spec
    monkeypatch.setattr(
        adapter.importlib.util, "find_spec", lambda name: None if name == "pandas" else find(name)
    )
    Flops().load()
    assert "torchstat" in sys.modules
    assert "pandas" not in sys.modules


def test_without_torchstat_its_installation_is_told(monkeypatch):
    """The adapter is there, the tool is not."""
    monkeypatch.setattr(Flops, "distribution", "no-such-torchstat")
    with pytest.raises(MissingExtraError, match="torchstat is not installed"):
        Flops().version()


def test_the_model_of_the_caller_stays_as_it_is():
    """torchstat registers buffers and switches to eval mode: in its worker, for itself.

    A tool that counts bytes has no column of MACs.
    """
    model = block().train()
    kept = set(model.state_dict())
    tools = ["torchstat", "torchstat-memread"]
    report = api.compare(model, IMAGE, tools=tools, setting=Setting(training=True))
    assert set(report.residuals.items()) == {("torchstat", 0), ("torchstat-memread", 0)}
    assert set(model.state_dict()) == kept
    assert model.training
    assert "__call__" not in vars(nn.Conv2d)
    assert "torchstat-memread" in terminal(report, 100, False, "macs")


class Parts(nn.Module):
    """Parameters in layers, beside them, in a layer that is not called, and in a shared weight."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.other.weight = self.one.weight
        self.unused = nn.Linear(5, 7)
        self.scale = nn.Parameter(torch.ones(3, 1, 1))

    def forward(self, x):
        """Both convolutions, and the scale."""
        return self.other(self.one(x)) * self.scale


def test_parameters_are_those_of_leaves_that_ran():
    """9 + 3 and 9 + 3 of the convolutions; 3 of the scale and 42 of the layer are missing."""
    report = api.compare(Parts(), IMAGE, tools=["torchstat"], isolate=False)
    params = report.reconciliations[0].params
    assert (params.ours, params.theirs, params.residual) == (9 + 3 + 3 + 3 + 42, 24, 0)
    assert {explanation.cause: explanation.amount for explanation in params.explanations} == {
        "params.counted-again": 9,
        "params.nonleaf": -3,
        "params.uncalled": -42,
    }
