"""A tool that leaves hooks, buffers, a mode or patched functions behind reaches nobody else."""

import types

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch
from torch import nn

import crossflops
from crossflops.ir.profile import Profile
from crossflops.plugins.discovery import adapters_and_failures, plugin_entry_points

ELSEWHERE = {"tensorflow", "ultralytics-thop", "xla-lowered", "xla-compiled"}
TOOLS = sorted(set(plugin_entry_points()) - ELSEWHERE)
WITNESS = "torch-flop-counter"
pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(WITNESS not in TOOLS, reason="crossflops-torch is not installed"),
]
IMAGE = (1, 3, 8, 8)


def seen(module, args, result):
    """The caller's own hook."""


def model():
    """Batch norm with its buffers, modes of its own, the caller's hook, a part used twice."""
    shared = nn.Conv2d(4, 4, 3, padding=1, bias=False)
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), shared, nn.ReLU(), shared,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 2),
    )  # fmt: skip
    network[1].eval()
    network[8].register_forward_hook(seen)
    return network


def state(network):
    """All that a caller can see of a model."""
    return [
        (
            name,
            type(module),
            module.training,
            sorted(vars(module)),
            list(module._forward_hooks.values()),
            list(module._forward_pre_hooks.values()),
            [
                (key, id(value), value.tolist())
                for key, value in (*module._parameters.items(), *module._buffers.items())
                if value is not None
            ],
        )
        for name, module in network.named_modules()
    ]


def functions():
    """What tools patch."""
    owners = (torch, torch.Tensor, nn.functional, nn.Module, nn.Conv2d, nn.Linear)
    return {
        (owner, name): id(value)
        for owner in owners
        for name, value in vars(owner).items()
        if not isinstance(value, types.ModuleType)
    }


@pytest.fixture(scope="module")
def here(request):
    """The tools that can run here: all, in the environment that is to have them all."""
    adapters, failures = adapters_and_failures(TOOLS)
    assert not failures or not request.config.option.all_installed, failures
    return list(adapters)


def test_nobody_notices_that_every_tool_ran(here):
    """Neither the caller's model, nor PyTorch, nor a tool beside the others: each prints its own.

    What each prints was predicted before any of them began.
    """
    torch.fx.traceback  # noqa: B018 - imported on first use, so before the functions are listed
    network, image = model(), torch.zeros(IMAGE)
    crossflops.count(network, image)
    before, patched = state(network), functions()
    report = crossflops.compare(network, image, tools=here)
    assert {
        reconciliation.tool: reconciliation.residual for reconciliation in report.reconciliations
    } == dict.fromkeys(here, 0)
    assert state(network) == before
    assert functions().items() >= patched.items()


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_in_this_process_has_a_copy(tool, here):
    """Without a worker, too, it leaves the caller's model and PyTorch's functions alone."""
    if tool not in here:
        pytest.skip(f"{tool} is not installed")
    network, image = model(), torch.zeros(IMAGE)
    crossflops.count(network, image)
    before, patched = state(network), functions()
    report = crossflops.compare(network, image, tools=[tool], isolate=False)
    (profile,) = report.profiles
    assert isinstance(profile, Profile)
    assert profile.total > 0
    assert state(network) == before
    assert functions().items() >= patched.items()
