"""What is heard of a training loop from outside: steps of optimizers, and the modules it calls."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

Undo: TypeAlias = Callable[[], Any]
Called: TypeAlias = "dict[nn.Module, None]"  # in the order of their first calls


def after_steps(hook: Callable[..., None]) -> Undo:
    """Calls the hook with every optimizer that has stepped, behind all hooks that are there."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    undo: Undo = register_optimizer_step_post_hook(hook).remove
    return undo


def keep_called(called: Called) -> Undo:
    """Keeps every module that is called."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    def before(module: "nn.Module", _: Any) -> None:
        called.setdefault(module)

    undo: Undo = register_module_forward_pre_hook(before).remove
    return undo


def trained_by(optimizer: "Optimizer", called: Called) -> "nn.Module":
    """Of the modules that were called, the outermost with most of the optimizer's parameters.

    Raises LookupError where none of them has any.
    """
    trained = {id(weight) for group in optimizer.param_groups for weight in group["params"]}

    def share(module: "nn.Module") -> int:
        return sum(id(weight) in trained for weight in module.parameters())

    model = max(called, key=share, default=None)  # the first of equals was called first
    if model is None or not share(model):
        raise LookupError("no module that was called has parameters of the optimizer")
    return model
