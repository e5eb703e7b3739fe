"""The DeepSpeed adapter: what the profiler prints, at its own grain."""

import pytest
import torch
from crossflops_deepspeed import Deepspeed, DeepspeedMacs
from torch import nn
from torch.nn import functional

from crossflops import compare
from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path

pytestmark = pytest.mark.tools

IMAGE = torch.randn(1, 3, 16, 16)


def block():
    """3x3 convolution from 3 to 8 channels on 16x16, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


def profile(model, *args, adapter=Deepspeed, setting=None, **kwargs):
    """What an adapter says."""
    return adapter().profile(model, args, kwargs, setting or Setting())


def test_both_are_found_by_their_names():
    """The values of the entry points lead to whole adapters."""
    assert (
        load_adapter_from_path("deepspeed", "crossflops_deepspeed:Deepspeed").name == "deepspeed"
    )
    adapter = load_adapter_from_path("deepspeed-macs", "crossflops_deepspeed:DeepspeedMacs")
    assert adapter.name == "deepspeed-macs"


def test_flops_and_modules():
    """2*8*256*27 and a bias of 8*256; 2 per element of batch norm, 1 of ReLU."""
    printed = profile(nn.Sequential(block()), IMAGE)
    convolution, norm, relu = 2 * 55296 + 2048, 2 * 2048, 2048
    total = convolution + norm + relu
    assert printed.total == total
    assert type(printed.total) is int
    assert (printed.tool, printed.printed_as, printed.version) == ("deepspeed", "FLOPs", "0.19.8")
    assert printed.params == 3 * 8 * 9 + 8 + 2 * 8
    amounts = {entry.path: entry.amount for entry in printed.entries}
    inner = {"0.0": convolution, "0.1": norm, "0.2": relu}
    assert amounts == {"": total, "0": total, **inner}


def test_macs_are_those_of_the_convolution():
    """8*256*27."""
    printed = profile(block(), IMAGE, adapter=DeepspeedMacs)
    assert (printed.total, printed.printed_as) == (55296, "MACs")
    assert {entry.path: entry.amount for entry in printed.entries} == {
        "": 55296, "0": 55296, "1": 0, "2": 0,
    }  # fmt: skip


def test_it_runs_in_eval_mode_whatever_is_asked():
    """The setting of the profile is the one in force, and the mode is as before."""
    model = block().train()
    printed = profile(model, IMAGE, setting=Setting(training=True, grad=False))
    assert printed.setting == Setting(training=False, grad=False, hooked=True)
    assert model.training
    assert model[1].num_batches_tracked == 0


class Scaled(nn.Module):
    """A linear layer and inputs that go by keyword only."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x, *, scale, flag=False):
        """Scale what the layer gives."""
        return torch.mul(self.layer(x), scale) if flag else x


def test_keyword_inputs_are_passed_by_keyword():
    """2 rows of 4 x 5, and 10 products."""
    x = torch.randn(2, 4)
    assert profile(Scaled(), x=x, scale=torch.ones(5), flag=True).total == 2 * 40 + 10


def test_functions_come_back_after_a_failure():
    """A keyword that DeepSpeed's own function does not have ends it, and leaves nothing behind."""

    class Pool(nn.Module):
        def forward(self, x):
            return functional.adaptive_avg_pool2d(x, output_size=1)

    before = functional.adaptive_avg_pool2d, torch.matmul, torch.Tensor.__matmul__
    with pytest.raises(TypeError, match="output_size"):
        profile(Pool(), IMAGE)
    assert (functional.adaptive_avg_pool2d, torch.matmul, torch.Tensor.__matmul__) == before
    assert profile(block(), IMAGE).total == 2 * 55296 + 2048 + 3 * 2048


def test_deepspeed_says_nothing(capfd):
    """Its logger writes to stdout."""
    profile(block(), IMAGE)
    assert capfd.readouterr().out == ""


def test_the_model_of_the_caller_is_untouched():
    """It keeps its mode, gets no hooks, and a second answer is like the first."""
    model = block().train()
    first = compare(model, IMAGE, tools=["deepspeed", "deepspeed-macs"])
    assert [reconciliation.residual for reconciliation in first.reconciliations] == [0, 0]
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(vars(module).get("__flops__") for module in model.modules())
    second = compare(model, IMAGE, tools=["deepspeed", "deepspeed-macs"])
    assert second.reconciliations == first.reconciliations


class Inner(nn.Module):
    """Calls a module that others may hold as well."""

    def __init__(self, core):
        super().__init__()
        self.core = core

    def forward(self, x):
        """The first result."""
        output = self.core(x)
        return output[0] if isinstance(output, tuple) else output


class Shared(nn.Module):
    """One module in two parents: `core` is a.core and b.core."""

    def __init__(self, core):
        super().__init__()
        self.a, self.b = Inner(core), Inner(core)

    def forward(self, x):
        """Twice."""
        return self.b(self.a(x))


def rows(model, adapter):
    """What is predicted of each module, which is what the tool prints of it."""
    account = compare(model, torch.randn(3, 5, 8), tools=[adapter.name]).reconciliations[0]
    assert account.residual == 0
    assert {row.path: row.theirs for row in account.by_path} == {
        row.path: row.predicted for row in account.by_path
    }
    for row in account.by_path:
        assert row.predicted - row.ours == sum(row.causes.values())
    return {row.path: row.theirs for row in account.by_path}


def test_a_shared_module_stands_whole_in_each_of_its_parents():
    """15 rows: 2*64 and 8 of a linear layer, 8 of ReLU. Both calls under both parents."""
    core = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU())
    linear, relu = 2 * 2 * 15 * 64, 2 * 15 * 8
    whole = dict.fromkeys(("", "a", "b", "a.core"), linear + relu)
    assert rows(Shared(core), Deepspeed()) == whole | {"a.core.0": linear, "a.core.1": relu}
    macs = rows(Shared(core), DeepspeedMacs())
    assert macs == dict.fromkeys(("", "a", "b", "a.core", "a.core.0"), linear // 2)


def test_a_shared_layer_that_is_hooked_stands_in_each_of_its_parents():
    """An LSTM: 33120 is what DeepSpeed printed of both of its calls."""
    by_path = rows(Shared(nn.LSTM(8, 8, batch_first=True)), Deepspeed())
    assert by_path == dict.fromkeys(("", "a", "b", "a.core"), 33120)


def test_parents_that_are_shared_themselves():
    """The inner block is called seven times, and each of those around it has all of that."""
    core = nn.Linear(8, 8, bias=False)
    model = nn.Sequential(Inner(Shared(core)), nn.Sequential())
    model[1].extend([Inner(model[0].core), model[0].core, core])
    assert set(rows(model, DeepspeedMacs()).values()) == {7 * 15 * 64}


class Padded(nn.Module):
    """An encoder of two layers, on two rows of five positions, of which 2 and 4 are no padding."""

    def __init__(self, activation):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=activation)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x):
        """The mask is made here."""
        mask = torch.tensor([[False] * 2 + [True] * 3, [False] * 4 + [True]])
        return self.encoder(x, src_key_padding_mask=mask)


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.GELU()])
def test_padding_that_an_encoder_drops(activation):
    """6 of 10 positions: 8 to 16 and back, 5 per element of two norms, 1 of the activation."""
    model, x, names = Padded(activation), torch.randn(2, 5, 8), ["deepspeed", "deepspeed-macs"]
    setting = Setting(grad=False)
    report = compare(model, x, tools=names, setting=setting, isolate=False)
    macs, others = 2 * 8 * 16, 2 * 5 * 8 + 16
    prints = {"deepspeed": 2 * 6 * (2 * macs + others), "deepspeed-macs": 2 * 6 * macs}
    dropped = {"deepspeed": -2 * 4 * (macs + others), "deepspeed-macs": -2 * 4 * macs}
    for reconciliation in report.reconciliations:
        assert (reconciliation.theirs, reconciliation.residual) == (prints[reconciliation.tool], 0)
        assert all(row.theirs == row.predicted for row in reconciliation.by_path)
        skipped = [
            explanation.amount
            for explanation in reconciliation.explanations
            if "padding" in explanation.cause
        ]
        assert sum(skipped) == dropped[reconciliation.tool]
