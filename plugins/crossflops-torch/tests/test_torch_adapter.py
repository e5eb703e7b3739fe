"""The adapter of FlopCounterMode: what it prints, by module path."""

import os
import subprocess
import sys

import pytest
import torch
from crossflops_torch import TorchFlopCounter
from torch import nn

from crossflops.ir.profile import Entry
from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path

pytestmark = pytest.mark.tools

IMAGE = torch.randn(1, 3, 16, 16)


def profile(model, *args, setting=None, **kwargs):
    """What the adapter says."""
    return TorchFlopCounter().profile(model, args, kwargs, setting or Setting())


def amounts(printed):
    """Amount by path."""
    return {entry.path: entry.amount for entry in printed.entries}


def test_it_is_found_by_its_name():
    """The value of the entry point leads to a whole adapter."""
    adapter = load_adapter_from_path("torch-flop-counter", "crossflops_torch:TorchFlopCounter")
    assert adapter.name == "torch-flop-counter"


def test_the_version_is_the_public_one():
    """It is held against a list of versions, which knows no "+cpu"."""
    assert TorchFlopCounter().version() == torch.__version__.partition("+")[0]


class Net(nn.Module):
    """A child named like its parent's class, a module in a list, and a convolution in none."""

    def __init__(self):
        super().__init__()
        self.Net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.hidden = [nn.Conv2d(8, 4, 1)]
        self.weight = nn.Parameter(torch.randn(2, 4, 1, 1))

    def forward(self, x):
        """Run all three."""
        return nn.functional.conv2d(self.hidden[0](self.Net(x)), self.weight)


def test_totals_and_modules():
    """Twice 8*256*27, twice 4*256*8, twice 2*256*4; batch norm is not counted."""
    printed = profile(Net(), IMAGE)
    assert printed.total == 2 * (55296 + 8192 + 2048)
    assert type(printed.total) is int
    assert (printed.printed_as, printed.params, printed.setting) == ("FLOPs", None, Setting())
    assert amounts(printed) == {
        "": 131072,
        "Net": 110592,
        "Net.0": 110592,
        "(unregistered).Conv2d": 16384,
    }


def test_a_model_without_any_counted_operator():
    """Zero is what the tool prints, and it names no module but the whole."""
    printed = profile(nn.ReLU(), IMAGE)
    assert (printed.total, printed.entries) == (0, (Entry("", 0),))


def test_keyword_inputs_are_passed_by_keyword():
    """Also those that can be passed in no other way."""

    class Only(nn.Module):
        def forward(self, *, a, b):
            return a @ b

    printed = profile(Only(), a=torch.randn(2, 3), b=torch.randn(3, 4))
    assert printed.entries == (Entry("", 48),)


def test_gradients_off_switch_attention_to_its_fused_kernel():
    """Twice the MACs of 20 rows of projections and of both products; without gradients, 0."""
    model = nn.MultiheadAttention(32, 4, batch_first=True).train()
    x = torch.randn(2, 10, 32)
    assert profile(model, x, x, x, setting=Setting(grad=False)).total == 0
    assert profile(model, x, x, x).total == 2 * (20 * 32 * 128 + 2 * 2 * 10 * 10 * 32)
    assert model.training


def test_a_shared_module_stands_under_one_of_its_names():
    """3 rows, 4 in, 4 out, two calls."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = self.first

        def forward(self, x):
            return self.second(self.first(x))

    printed = profile(Twice(), torch.randn(3, 4))
    assert printed.total == 2 * 2 * 48
    assert amounts(printed) == {"": 192, "first": 192}


def test_nothing_is_left_to_import_for_the_run():
    """A worker loads early, so that a comparison does not wait for imports."""
    script = (
        "import sys, torch; from crossflops_torch import TorchFlopCounter as Counter\n"
        "from crossflops.ir.trace import Setting\n"
        "counter = Counter(); counter.load(); loaded = set(sys.modules)\n"
        "counter.profile(torch.nn.Linear(2, 2), (torch.ones(1, 2),), {}, Setting())\n"
        "sys.exit(sorted(set(sys.modules) - loaded) or 0)\n"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def _paths(seed):
    """The paths of the entries, in their order, from a process whose sets are ordered so."""
    script = """if True:
        import torch
        from crossflops_torch import TorchFlopCounter
        from crossflops.ir.trace import Setting
        from torch import nn

        inner = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 2)))
        model = nn.Sequential(nn.Linear(4, 4), inner, nn.Linear(2, 1))
        found = TorchFlopCounter().profile(model, (torch.zeros(1, 4),), {}, Setting())
        print([entry.path for entry in found.entries])
    """
    run = [sys.executable, "-c", script]
    env = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(run, env=env, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("seed", ["1", "2"])
def test_entries_stand_in_the_order_of_the_modules(seed):
    """The counter books in a set of modules, which each process orders in its own way."""
    assert _paths(seed) == "['', '0', '1', '1.0', '1.1', '1.1.0', '2']"
