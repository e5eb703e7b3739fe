"""Targets of PyTorch that are built without numbers in their weights, and those that need them."""

import json
import subprocess
import sys

import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import InputError, TargetError

pytestmark = pytest.mark.torch

MODELS = """
import copy

import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

BEFORE = torch.arange(3.0)


def plain():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())


def weighted():
    return parametrizations.weight_norm(nn.Conv2d(3, 4, 3))


def compound():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(nn.Flatten(2), nn.Linear(16, 8), layer)


class Constants(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.ones(4)
        self.register_buffer("scale", torch.linspace(0, 1, 4))

    def forward(self, x):
        return x * self.table * self.scale


class ReadsItsWeight(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.times = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        for _ in range(int(self.times)):
            x = self.layer(x)
        return x


class Selects(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.keep = nn.Parameter(torch.tensor([1.0, -1.0, 1.0, -1.0]))

    def forward(self, x):
        return self.layer(x[..., self.keep > 0, :])


def copies_layers():
    layer = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
    layer[1].running_var.is_ours = True
    layers = copy.deepcopy(nn.ModuleList([layer, layer]))
    assert layers[0] is layers[1] is not layer and layers[0][1].running_var.is_ours
    return nn.Sequential(*layers, copy.deepcopy(layer))


def sets_a_storage():
    weight = torch.zeros(4, 4)
    weight.set_(torch.UntypedStorage(64), 0, (4, 4), (4, 1))
    layer = nn.Linear(4, 4, bias=False)
    layer.weight = nn.Parameter(weight)
    return layer


def reads_when_built():
    return nn.Linear(4, [int(rate) for rate in torch.rand(2).clamp(6, 6)][1])


def reads_a_range_when_built():
    widths = torch.linspace(1, 6, 6)
    first, second = widths.chunk(2)
    wide = int(second.flip(0)[0] + first.sum() - widths.new_tensor(6))
    return nn.Linear(4, wide)


def reads_a_range_that_is_drawn_into():
    widths = torch.linspace(1, 6, 6)
    widths[0].uniform_(6, 6)
    return nn.Linear(4, int(widths[0]))


def reads_what_was_computed_from_a_range_and_draws():
    return nn.Linear(4, int(torch.rand(1).clamp(6, 6) * torch.arange(2)[1]))


def hides_what_it_reads():
    try:
        wide = int(torch.rand(2).clamp(6, 6)[1])
    except Exception:
        wide = 1
    return nn.Linear(4, wide)


def pruned():
    return prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.5)


def lazy():
    return nn.LazyLinear(4)


def scripted():
    return torch.jit.script(nn.Linear(4, 4))


def imports_when_called():
    import beside

    return beside.make()


def fails():
    raise RuntimeError("no such thing")
"""
BESIDE = """
import torch

TABLE = torch.arange(4)


def make():
    return torch.nn.Linear(4, TABLE.tolist()[-1])
"""


@pytest.fixture
def target(tmp_path):
    """The target of a function of MODELS."""
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "beside.py").write_text(BESIDE)
    return lambda name: f"{tmp_path / 'models.py'}:{name}"


@pytest.mark.parametrize(
    ("name", "shape", "macs"),
    [
        ("plain", "1x3x8x8", 6 * 6 * 4 * 27),
        ("weighted", "1x3x8x8", 6 * 6 * 4 * 27),
        # 3 rows: 16 -> 8, q k v and out 4 * 64, scores and values 2 * 3 * 8, 8 -> 16 -> 8
        ("compound", "1x3x4x4", 3 * (16 * 8 + 4 * 64 + 2 * 3 * 8 + 2 * 8 * 16)),
        ("Constants", "1x4", 0),
        ("copies_layers", "1x3x2x2", 3 * 4 * 9),
        ("reads_a_range_when_built", "1x4", 24),  # 6 + (1 + 2 + 3) - 6 = 6 rows of 4
        ("imports_when_called", "1x4", 12),
    ],
)
def test_a_count_needs_no_weights(target, name, shape, macs):
    """It is that of the model with its weights, row for row."""
    fake = crossflops.count(target(name), shape)
    real = crossflops.count(target(name), shape, weights="real")
    assert (fake.weights.kind, fake.weights.reason) == ("fake", "")
    assert (real.weights.kind, real.weights.reason) == ("real", "")
    assert fake.macs == real.macs == macs
    assert (fake.totals, fake.nodes, fake.modules) == (real.totals, real.nodes, real.modules)
    assert fake.model == real.model


@pytest.mark.parametrize(
    ("name", "shape", "macs"),
    [
        ("ReadsItsWeight", "1x4", 32),
        ("Selects", "4x4", 32),
        ("reads_when_built", "1x4", 24),
        ("sets_a_storage", "1x4", 16),
        ("reads_a_range_that_is_drawn_into", "1x4", 24),
        ("reads_what_was_computed_from_a_range_and_draws", "1x4", 24),
        ("hides_what_it_reads", "1x4", 24),
        ("pruned", "1x4", 16),
        ("lazy", "1x4", 16),
        ("scripted", "1x4", 16),
    ],
)
def test_a_model_whose_values_decide_is_built_with_them(target, name, shape, macs, capfd):
    """The report says why; without weights there is no count, and PyTorch prints nothing of it."""
    report = crossflops.count(target(name), shape)
    assert "fake_tensor" not in capfd.readouterr().err
    assert report.weights.kind == "real"
    assert report.weights.reason
    assert report.macs == macs
    with pytest.raises(InputError, match="needs its weights"):
        crossflops.count(target(name), shape, weights="fake")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Selects", "output sizes depend on tensor values"),
        ("pruned", "the number of pruned elements depends on the pruning mask of weight_orig"),
        ("reads_when_built", "building the model reads values (aten._local_scalar_dense.default)"),
        ("scripted", "parts of the model are TorchScript, which cannot run without values"),
    ],
)
def test_the_reason_is_what_needs_values(target, name, reason):
    """And not what PyTorch stumbled over."""
    assert crossflops.count(target(name), "4x4").weights.reason == reason


def test_what_is_wrong_is_told_as_ever(target):
    """By the model with its weights."""
    with pytest.raises(TargetError, match="raised RuntimeError: no such thing"):
        crossflops.count(target("fails"), "1x4")
    with pytest.raises(InputError, match="the model raised on these inputs"):
        crossflops.count(target("plain"), "1x5x8x8")


def test_weights_are_for_targets():
    """An object has the weights that it has."""
    from torch import nn

    with pytest.raises(InputError, match="weights cannot be used with a model object"):
        crossflops.count(nn.Linear(4, 4), "1x4", weights="fake")


def test_the_command_says_why_there_are_weights(target, capsys):
    """In its text and its JSON; nothing where there are none."""
    assert main(["count", target("Selects"), "--input", "4x4"]) == 0
    assert (
        "The model was built with its weights: output sizes depend on" in capsys.readouterr().out
    )
    assert main(["count", target("plain"), "--input", "1x3x8x8"]) == 0
    assert "weights" not in capsys.readouterr().out
    assert main(["count", target("plain"), "--input", "1x3x8x8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] == {"kind": "fake", "reason": ""}


def test_a_callable_that_imports_pytorch_itself_is_built_without_values(tmp_path):
    """Nothing has imported PyTorch before it is called: a process of its own shows it."""
    target = tmp_path / "late.py"
    target.write_text(
        "def net():\n    import torch\n\n    return torch.nn.Linear(4, 3), (torch.zeros(2, 4),)\n"
    )
    line = [sys.executable, "-m", "crossflops", "count", f"{target}:net", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=300)
    report = json.loads(done.stdout)
    assert (report["weights"]["kind"], report["totals"]["macs"]) == ("fake", 24)


def test_fake_weights_are_refused_where_another_file_imports_pytorch(tmp_path):
    """What the callable builds has values before PyTorch can be told to make none."""
    (tmp_path / "helper.py").write_text("import torch\n")
    target = tmp_path / "late.py"
    target.write_text(
        "def net():\n    import helper\n\n"
        "    return helper.torch.nn.Linear(4, 3), (helper.torch.zeros(2, 4),)\n"
    )
    line = [sys.executable, "-m", "crossflops", "count", f"{target}:net", "--weights"]
    options = {"capture_output": True, "text": True, "timeout": 300, "cwd": tmp_path}
    refused = subprocess.run([*line, "fake"], **options)
    assert refused.returncode == 2
    assert "creates weights with values before crossflops can prevent it" in refused.stderr
    counted = subprocess.run([*line, "real", "--json"], **options)
    assert json.loads(counted.stdout)["totals"]["macs"] == 24
