"""A training step of a PyTorch model as it is run: forward, and back from the loss."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from crossflops.frontends.pytorch.tensors import exportable
from crossflops.ir.trace import Setting, StepSetting
from crossflops.ir.training import is_trained

if TYPE_CHECKING:
    from torch import nn


def run(
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    going_back: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Run the model and, where the setting has a step, the backward pass, `going_back`.

    That begins with gradients of ones at the outputs that the loss is made of, which are those of
    their sum: what is run depends on no value, and so the loss does no work of its own here. The
    model is changed: parameters are frozen and trained as the step says, and have gradients.
    """
    if not setting.step:
        model(*args, **kwargs)
        return
    import torch

    train_as_said(model, setting.step)
    outputs = _reached(model(*args, **kwargs), setting.step)
    if outputs:
        with going_back():
            torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])


def train_as_said(model: "nn.Module", step: StepSetting) -> None:
    """Let parameters need gradients as the step says, a tied one by any of its names."""
    names: dict[Any, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    for parameter, own in names.items():
        if parameter.is_floating_point() or parameter.is_complex():
            parameter.requires_grad_(is_trained(own, parameter.requires_grad, step))


def _reached(result: Any, step: StepSetting) -> list[Any]:
    """The outputs that the loss is made of, and that have a gradient."""
    import torch
    from torch.utils._pytree import tree_leaves

    outputs = [leaf for leaf in tree_leaves(exportable(result)) if torch.is_tensor(leaf)]
    reached = step.reached or (True,) * len(outputs)
    pairs = zip(outputs, reached, strict=True)
    return [output for output, is_reached in pairs if is_reached and output.requires_grad]
