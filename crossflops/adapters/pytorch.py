"""What every adapter of a PyTorch tool needs, without importing PyTorch.

A model object exists only where its framework has been imported already, so PyTorch is looked
up among the loaded modules.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from crossflops.core.trace import Setting
from crossflops.errors import InputError


def is_module(model: object) -> bool:
    """Whether `model` is a torch.nn.Module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


@contextmanager
def repaired() -> Iterator[None]:
    """Functions of PyTorch that a tool replaces within this block are as before after it.

    So is what hides a function that tensors inherit.
    """
    torch = sys.modules.get("torch")
    owners = () if torch is None else (torch, torch.nn.functional, torch.Tensor, torch.nn.Module)
    before = [(owner, dict(vars(owner))) for owner in owners]
    try:
        yield
    finally:
        for owner, own in before:
            _repair(owner, own)


def _repair(owner: Any, before: Mapping[str, Any]) -> None:
    for name, value in tuple(vars(owner).items()):
        if name in before and value is not before[name] and callable(before[name]):
            setattr(owner, name, before[name])
        elif name not in before and isinstance(owner, type) and hasattr(super(owner, owner), name):
            delattr(owner, name)


@contextmanager
def under(setting: Setting, model: Any) -> Iterator[None]:
    """Run a module under a setting: its mode, gradients on or off, and generators at seed 0.

    What sizes depend on may be drawn: the export began there, too. Every training flag, the
    gradient mode and the state of the generators are as before when the block ends. Raises
    InputError for a device other than the CPU.
    """
    from crossflops.normalize.pytorch.untouched import seeded

    if setting.device != "cpu":
        raise InputError(f"cannot run on {setting.device!r}", "the tools are run on 'cpu'")
    torch = sys.modules["torch"]
    # Frozen TorchScript has no such flag.
    before = [(one, one.training) for one in model.modules() if hasattr(one, "training")]
    model.train(setting.training)
    try:
        with seeded(), torch.set_grad_enabled(setting.grad):
            yield
    finally:
        for module, training in before:
            module.training = training
