"""The ultralytics-thop adapter: what it prints at its own grain, and whose `thop` it runs."""

import base64
import hashlib
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from crossflops_ultralytics_thop import UltralyticsThop
from torch import nn

import crossflops
from crossflops.errors import InputError, MissingExtraError
from crossflops.ir.profile import Entry
from crossflops.ir.trace import Setting
from crossflops.plugins import discovery

pytestmark = pytest.mark.ultralytics_thop

FORCED = Setting(training=False, grad=False, hooked=True)
IMAGE = torch.randn(1, 3, 16, 16)
SIBLING = Path(__file__).resolve().parents[2] / "crossflops-thop" / "src"


def block():
    """3x3 convolution from 3 to 8 channels on 16x16, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


def profile(model, *args, setting=None, **kwargs):
    """What the adapter says."""
    return UltralyticsThop().profile(model, args, kwargs, setting or Setting())


def test_it_is_found_by_its_name():
    """The value of the entry point leads to a whole adapter."""
    value = "crossflops_ultralytics_thop:UltralyticsThop"
    assert discovery.load_adapter_from_path("ultralytics-thop", value).name == "ultralytics-thop"


def test_totals_and_layers():
    """8*256*27 for the convolution; 4 per element of batch norm."""
    conv, norm = 55296, 4 * 2048
    printed = profile(nn.Sequential(block()), IMAGE)
    assert (printed.total, type(printed.total)) == (conv + norm, int)
    assert (printed.tool, printed.printed_as) == ("ultralytics-thop", "MACs")
    assert printed.setting == FORCED
    assert printed.params == 3 * 8 * 9 + 8 + 2 * 8
    layers = [("", conv + norm), ("0", conv + norm), ("0.0", conv), ("0.1", norm), ("0.2", 0)]
    assert printed.entries == tuple(Entry(path, amount) for path, amount in layers)


class Gram(nn.Module):
    """A product by an operator, in a module of its own."""

    def forward(self, x):
        """Every row with every row."""
        return x @ x.transpose(-1, -2)


def test_functions_are_in_the_total_alone():
    """4 rows of 8, each with each: 128; the linear layer before: 256."""
    printed = profile(nn.Sequential(nn.Linear(8, 8), Gram()), torch.randn(4, 8))
    assert printed.total == 128 + 256
    assert printed.entries == (Entry("", 384), Entry("0", 256), Entry("1", 0))


def test_it_runs_in_eval_mode_whatever_is_asked():
    """The setting of the profile is the one in force, and every mode is as before."""
    model = block().train()
    model[1].eval()
    printed = profile(model, IMAGE, setting=Setting(training=True, grad=True))
    assert printed.setting == FORCED
    assert [model.training, model[0].training, model[1].training] == [True, True, False]


def test_nothing_is_left_behind():
    """Neither hooks nor counters stay on the model, nor a mode on PyTorch."""
    model = block()
    before = [set(vars(module)) for module in model.modules()]
    profile(model, IMAGE)
    assert [set(vars(module)) for module in model.modules()] == before
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.overrides._get_current_function_mode() is None


class Scaled(nn.Module):
    """A linear layer with an input that can be passed only by keyword."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x, scale=None, *, flag=False):
        """Scale what the layer gives."""
        return self.layer(x) * (1 if scale is None else scale)


def test_keyword_inputs_are_passed_by_position():
    """4 inputs, 5 outputs, 2 rows; leaving an input out would count another model."""
    x = torch.randn(2, 4)
    assert profile(Scaled(), x=x, scale=torch.ones(5)).total == 40
    with pytest.raises(InputError, match="'flag' can be passed only by keyword"):
        profile(Scaled(), x, flag=True)


def installed_as(folder, name, version):
    """Install a distribution of this name whose package is called `thop`."""
    code = folder / "thop" / "__init__.py"
    code.parent.mkdir(parents=True)
    code.write_text(f"__version__ = {version!r}\n")
    digest = hashlib.sha256(code.read_bytes()).digest()
    encoded = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"thop/__init__.py,sha256={encoded},{code.stat().st_size}\n")


@pytest.fixture
def both(monkeypatch):
    """Both plugins are installed, whatever package `thop` may be."""
    monkeypatch.syspath_prepend(str(SIBLING))
    values = {
        "thop": "crossflops_thop:Thop",
        "ultralytics-thop": "crossflops_ultralytics_thop:UltralyticsThop",
    }
    points = {
        tool: EntryPoint(name=tool, value=value, group=discovery.GROUP)
        for tool, value in values.items()
    }
    monkeypatch.setattr(discovery, "plugin_entry_points", lambda: points)


@pytest.mark.parametrize(
    ("present", "version", "absent", "hint"),
    [
        ("thop", "0.1.1", "ultralytics-thop", "--python ultralytics-thop=PYTHON"),
        ("ultralytics-thop", "2.2.3", "thop", "pip uninstall ultralytics-thop"),
    ],
)
def test_of_two_plugins_one_answers(present, version, absent, hint, both, tmp_path, monkeypatch):
    """There is one package `thop`: the other tool is a failure that names it, and what to do."""
    installed_as(tmp_path, present, version)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "thop", raising=False)
    adapters, failures = discovery.adapters_and_failures(None)
    assert list(adapters) == [present]
    assert adapters[present].version() == version
    assert list(failures) == [absent]
    assert f"comes from {present} {version}" in failures[absent].message
    assert hint in failures[absent].hint


def test_without_the_tool_its_name_is_said(monkeypatch):
    """The plugin does not bring it along: it is under another license."""
    monkeypatch.setattr("crossflops.plugins.discovery._find_distribution", lambda name: None)
    with pytest.raises(MissingExtraError) as caught:
        UltralyticsThop().version()
    assert caught.value.message == "ultralytics-thop is not installed"
    assert caught.value.hint == "pip install ultralytics-thop"


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
    report = crossflops.compare(model, torch.randn(2, 4), tools=["ultralytics-thop"])
    assert report.residuals == {"ultralytics-thop": 0}
    assert report.reconciliation("ultralytics-thop").theirs == 2 * 16 + 4 * 8
    after = [
        (module.training, set(vars(module)), set(module._forward_hooks))
        for module in model.modules()
    ]
    assert after == before


def test_only_modules_are_accepted():
    """A function is no model for it."""
    assert UltralyticsThop().accepts(nn.ReLU())
    assert not UltralyticsThop().accepts(torch.relu)
