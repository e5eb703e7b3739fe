"""Observation of a training loop from outside: steps of optimizers, and the called modules."""

import gc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

Undo: TypeAlias = Callable[[], Any]
Called: TypeAlias = "dict[nn.Module, None]"  # in the order of their first calls


def register_optimizer_step_hook(hook: Callable[..., None]) -> Undo:
    """Register a hook that runs after each optimizer step; return the function that removes it."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    undo: Undo = register_optimizer_step_post_hook(hook).remove
    return undo


def record_called_modules(called: Called) -> Undo:
    """Add every module that is called to `called`, in order; return the function that stops
    this.
    """
    from torch.nn.modules.module import register_module_forward_pre_hook

    def record_called_module(module: "nn.Module", _: Any) -> None:
        """Record that a module is called, before its forward pass."""
        called.setdefault(module)

    undo: Undo = register_module_forward_pre_hook(record_called_module).remove
    return undo


def model_of_optimizer(optimizer: "Optimizer", called: Called) -> "nn.Module":
    """Return the model that an optimizer trains: the outermost called module with most of its
    parameters.

    A module around them that has more, whose parts the loop calls, goes over it. Raises
    LookupError where none that was called has any.
    """
    trained = {id(weight) for group in optimizer.param_groups for weight in group["params"]}

    def count_tensors_of_optimizer(module: "nn.Module") -> int:
        """Return how many parameter tensors of the module, not elements, the optimizer trains."""
        return sum(id(weight) in trained for weight in module.parameters())

    model = max(
        called, key=count_tensors_of_optimizer, default=None
    )  # the first of equals was called first
    if model is None or not count_tensors_of_optimizer(model):
        raise LookupError("no called module has parameters of the optimizer")
    if count_tensors_of_optimizer(model) == len(trained):
        return model
    enclosing = [
        module
        for module in _live_modules()
        if count_tensors_of_optimizer(module) > count_tensors_of_optimizer(model)
    ]
    return max(
        enclosing,
        key=lambda module: (count_tensors_of_optimizer(module), -_submodule_count(module)),
        default=model,
    )


def _live_modules() -> "Iterator[nn.Module]":
    """Yield all objects of this process that are torch modules."""
    from torch import nn

    return (value for value in gc.get_objects() if issubclass(type(value), nn.Module))


def _submodule_count(module: "nn.Module") -> int:
    """Return the number of submodules, with the module itself."""
    return sum(1 for _ in module.modules())
