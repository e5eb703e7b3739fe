"""What a model compiles is counted, and seen by tools, as the code that was compiled."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch
from torch import nn

import crossflops
from crossflops.frontends.pytorch.load.compiled import running_uncompiled
from crossflops.frontends.pytorch.load.model import copy_torch_model

pytestmark = pytest.mark.torch
TOOLS = ["torch-profiler", "torch-flop-counter", "thop"]


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(10, 10, bias=False)

    def forward(self, x):
        return 2 * self.linear(x)


class Part(nn.Module):
    """A compiled block: 2 x 100 MACs, and a head: 2 x 40."""

    def __init__(self, compile_block):
        super().__init__()
        self.body, self.head = compile_block(Twice()), nn.Linear(10, 4, bias=False)

    def forward(self, x):
        return self.head(self.body(x))


class Method(nn.Module):
    """A compiled method that calls its layer three times: 3 x 2 x 100 MACs."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(10, 10, bias=False)
        self.inner = torch.compile(self.repeat, fullgraph=True)

    def repeat(self, x):
        for _ in range(3):
            x = torch.tanh(self.linear(x))
        return x

    def forward(self, x):
        return self.inner(x)


def in_place(block):
    """Return the block, which compiles itself."""
    block.compile(backend="eager")
    return block


MODELS = {
    "block": (lambda: Part(torch.compile), 280, 140),
    "dynamic": (lambda: Part(lambda block: torch.compile(block, dynamic=True)), 280, 140),
    "nested": (lambda: Part(lambda block: torch.compile(nn.Sequential(torch.compile(block)))),
               280, 140),
    "in place": (lambda: Part(in_place), 280, 140),
    "method": (Method, 600, 100),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_count_is_that_of_the_code(name):
    """MACs and parameters are those of the model without a compiler."""
    make, macs, params = MODELS[name]
    counted = crossflops.count(make().eval(), torch.ones(2, 10))
    assert (counted.macs, counted.params) == (macs, params)


def test_a_copy_has_a_compiled_method_of_its_own():
    """A copy runs its own weights."""
    own = copy_torch_model(Method())
    with torch.no_grad():
        own.linear.weight.zero_()
    assert not own(torch.ones(2, 10)).any()


@pytest.mark.parametrize("fullgraph", [False, True])
def test_nothing_is_compiled_in_the_context(fullgraph):
    """The compiler is off in the context, and on again behind it."""
    compilations = []

    def backend(module, _inputs):
        compilations.append(module)
        return module.forward

    def double(x):
        return x + x

    run = torch.compile(double, backend=backend, fullgraph=fullgraph)
    with running_uncompiled():
        assert run(torch.ones(3)).tolist() == [2, 2, 2]
    assert not compilations
    run(torch.ones(3))
    assert len(compilations) == 1


@pytest.mark.parametrize("name", ["block", "method"])
def test_tools_are_explained(name):
    """No tool has a residual, and none counts what is traced."""
    model = MODELS[name][0]().eval()
    report = crossflops.compare(model, torch.ones(2, 10), tools=TOOLS, isolate=False)
    rows = {row.tool: row for row in report.reconciliations}
    assert rows["torch-profiler"].theirs == 2 * MODELS[name][1] + (20 if name == "block" else 0)
    assert all(row.residual == 0 for row in rows.values())


@pytest.mark.parametrize("path", ["", "0"])
def test_a_module_with_compile_called_on_it_is_counted(path):
    """On the model itself, or on a part."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 5))
    net.get_submodule(path).compile(backend="eager")
    report = crossflops.count(net, torch.ones(2, 3))
    assert {row.path: row.macs for row in report.modules} == {"": 2 * 32, "0": 2 * 12, "1": 2 * 20}
