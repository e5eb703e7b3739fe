"""The adapter of ptflops' backend "pytorch": what it prints, and how inputs reach it."""

import copy
import sys

import pytest
import torch
from crossflops_ptflops import PtflopsPytorch
from torch import nn
from torch.nn import functional

import crossflops
from crossflops.frontends.pytorch.program import record_torch_run
from crossflops.ir.profile import Failure
from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path
from crossflops.rules.prediction import PredictionError, predict
from crossflops.tools.registry import find_convention
from crossflops.workers.observe import run_tool_in_process

pytestmark = pytest.mark.tools

IMAGE = torch.randn(2, 3, 16, 16)
FORCED = Setting(hooked=True)


def profile(model, *args, setting=None, **kwargs):
    """What the adapter says of a copy of the model."""
    return PtflopsPytorch().profile(copy.deepcopy(model), args, kwargs, setting or Setting())


def block():
    """3x3 convolution from 3 to 8 channels on 16x16, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


def amounts(printed):
    """Amount by path."""
    return {entry.path: entry.amount for entry in printed.entries}


def test_it_is_found_by_its_name():
    """The value of the entry point leads to a whole adapter."""
    adapter = load_adapter_from_path("ptflops-pytorch", "crossflops_ptflops:PtflopsPytorch")
    assert adapter.name == "ptflops-pytorch"


def test_modules_are_divided_and_functions_are_not():
    """Per example 8*256*28, 2*2048 and 2048 by hooks; and 2*2048 by F.relu for both."""
    printed = profile(nn.Sequential(block()), IMAGE)
    hooked = 57344 + 4096 + 2048
    assert printed.total == hooked + 4096
    assert type(printed.total) is int
    assert (printed.tool, printed.printed_as, printed.setting) == (
        "ptflops-pytorch",
        "MACs",
        FORCED,
    )
    assert printed.params == 3 * 8 * 9 + 8 + 2 * 8
    assert amounts(printed) == {
        "": hooked + 4096, "0": hooked, "0.0": 57344, "0.1": 4096, "0.2": 2048
    }  # fmt: skip


def test_frozen_parameters_are_no_parameters():
    """ptflops counts those that require gradients."""
    model = block()
    model[0].weight.requires_grad = False
    assert profile(model, IMAGE).params == 8 + 16


class Two(nn.Module):
    """A linear layer from 4 to 5 on two inputs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5, bias=False)

    def forward(self, a, b, *rest, scale=1):
        """Both, scaled."""
        return self.layer(a * scale) + self.layer(b) + sum(rest)


@pytest.mark.parametrize("more", [(), (1,), (1, 2)])
def test_several_inputs_go_by_keyword_and_nothing_is_divided(more):
    """3 rows twice, whatever follows them; what has no name gets one."""
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    assert profile(Two(), a, b, *more).total == 2 * 3 * 20
    assert profile(Two(), a, b, *more, scale=2).total == 2 * 3 * 20
    assert profile(Two(), a=a, b=b).total == 2 * 3 * 20


def test_one_tensor_goes_by_position_and_a_keyword_by_keyword():
    """3 rows of 20: 20 for each. By keyword there is no batch, and 60."""
    model, x = nn.Sequential(nn.Linear(4, 5, bias=False)), torch.randn(3, 4)
    assert profile(model, x).total == 20
    assert profile(model, input=x).total == 60


def test_a_dict_is_one_input_by_keyword():
    """It would be taken for the keywords of the model."""

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 5, bias=False)

        def forward(self, batch):
            return self.layer(batch["x"])

    assert profile(Named(), {"x": torch.randn(3, 4)}).total == 60


def test_what_ptflops_swallows_is_raised():
    """It prints the exception of the model and answers None."""
    answer = run_tool_in_process(
        PtflopsPytorch(), block(), (torch.randn(1, 4, 8, 8),), {}, Setting()
    )
    assert isinstance(answer, Failure)
    assert answer.stage == "run"
    assert "expected input[1, 4, 8, 8] to have 3 channels" in answer.message


def test_nothing_stays_replaced():
    """ptflops puts the functions back, and the adapter what it watches ptflops with."""
    before = (functional.relu, torch.bmm, torch.Tensor.add)
    profile(block(), IMAGE)
    engine = sys.modules["ptflops.pytorch_engine"]
    assert (functional.relu, torch.bmm, torch.Tensor.add) == before
    assert engine.compute_average_flops_cost.__module__ == "ptflops.pytorch_engine"


def test_the_model_of_the_caller_is_untouched():
    """ptflops leaves evaluation mode and methods behind; a comparison does not."""
    model = block().train()
    before = set(vars(model))
    alone = crossflops.compare(model, IMAGE, tools=["ptflops-pytorch"])
    assert alone.residuals == {"ptflops-pytorch": 0}
    assert model.training
    assert set(vars(model)) == before


def test_only_modules_are_accepted():
    """A function is no model for ptflops."""
    assert PtflopsPytorch().accepts(nn.ReLU())
    assert not PtflopsPytorch().accepts(torch.relu)


class Padded(nn.Module):
    """An encoder of one layer, whose last three of ten positions are padding."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)

    def forward(self, x):
        """The mask is made here."""
        mask = torch.zeros(x.shape[:2], dtype=torch.bool)
        mask[:, 7:] = True
        return self.encoder(x, src_key_padding_mask=mask)


def test_a_padding_mask_fails_without_gradients():
    """A nested tensor has no shape that a hook could read; with gradients there is none."""
    model, x = Padded().eval(), torch.randn(2, 10, 32)
    convention = find_convention("ptflops-pytorch")
    no_grad = Setting(grad=False)
    views = [convention.view(setting) for setting in (Setting(), no_grad)]
    trace = record_torch_run(model, (x,), {}, Setting(), views).trace
    with pytest.raises(RuntimeError, match="NestedTensorImpl"):
        profile(model, x, setting=no_grad)
    with pytest.raises(PredictionError):
        predict(convention, trace, no_grad)
    assert profile(model, x).total == predict(convention, trace, Setting()).total


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
    account = crossflops.compare(
        model, torch.randn(3, 5, 8), tools=[adapter.name]
    ).reconciliations[0]
    assert account.residual == 0
    assert {row.path: row.theirs for row in account.by_path} == {
        row.path: row.predicted for row in account.by_path
    }
    for row in account.by_path:
        assert row.predicted - row.ours == sum(row.causes.values())
    return {row.path: row.theirs for row in account.by_path}


def test_a_shared_module_stands_whole_in_each_of_its_parents():
    """15 rows: 64 of a linear layer, both calls under both parents, divided by a batch of 3.

    8 of nn.ReLU, which calls F.relu: once more, undivided, and of no module.
    """
    core = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU())
    linear, relu = 2 * 15 * 64 // 3, 2 * 15 * 8 // 3
    once = dict.fromkeys(("a", "b", "a.core"), linear + relu)
    both = {"": 2 * (linear + relu) + 2 * 15 * 8, "a.core.0": linear, "a.core.1": relu}
    assert rows(Shared(core), PtflopsPytorch()) == once | both


def test_parents_that_are_shared_themselves():
    """A layer that is called seven times, once for each chain that leads to it."""
    core = nn.Linear(8, 8, bias=False)
    model = nn.Sequential(Inner(Shared(core)), nn.Sequential())
    model[1].extend([Inner(model[0].core), model[0].core, core])
    chains = {"": 7, "0": 2, "0.core": 2, "0.core.a": 1, "0.core.a.core": 1, "0.core.b": 1}
    chains |= {"1": 5, "1.0": 2}
    by_path = rows(model, PtflopsPytorch())
    assert by_path == {path: n * 7 * 5 * 64 for path, n in chains.items()}
