"""Which outputs of a PyTorch model a loss is made of, by a backward pass from it to them."""

from collections.abc import Callable
from typing import Any

from crossflops.errors import InputError, ValuesNeededError
from crossflops.frontends.frontend import Source
from crossflops.frontends.pytorch.model import (
    duplicate,
    fresh,
    quiet,
    raised,
    switch,
    unremembered,
)
from crossflops.frontends.pytorch.tensors import exportable
from crossflops.frontends.seeds import generators
from crossflops.ir.trace import Setting

_HINT = "give a callable that takes what the model returns, and returns one number"


def reached(source: Source, loss: Callable[[Any], Any], setting: Setting) -> tuple[bool, ...]:
    """Of each output, flat and in their order, whether the loss depends on it.

    A copy of the model runs once, with all of it trained. Raises InputError where the model or
    the loss raises, and for a loss that is no number or depends on no output; ValuesNeededError
    for one that reads values, where the model has none.
    """
    import torch
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
    )
    from torch.utils._pytree import tree_leaves

    model = switch(duplicate(source.model), setting.training)
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point() or parameter.is_complex())
    args, kwargs = fresh(source.args, source.kwargs)
    with generators(), quiet(), unremembered(model), torch.enable_grad():
        try:
            result = model(*args, **kwargs)
        except Exception as error:
            raise raised(error) from error
        outputs = [leaf for leaf in tree_leaves(exportable(result)) if torch.is_tensor(leaf)]
        try:
            value = loss(result)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise ValuesNeededError("the loss reads values") from error
        except Exception as error:
            raise InputError(f"the loss raised {type(error).__name__}: {error}", _HINT) from error
        if not torch.is_tensor(value) or value.numel() != 1:
            raise InputError(f"the loss is {_named(value)}, and no number", _HINT)
        if not value.requires_grad:
            raise InputError("the loss depends on no output of the model", _HINT)
        graded = [place for place, leaf in enumerate(outputs) if leaf.requires_grad]
        gradients = torch.autograd.grad(
            value.sum(), [outputs[place] for place in graded], allow_unused=True
        )
    alive = {place for place, grad in zip(graded, gradients, strict=True) if grad is not None}
    return tuple(place in alive for place in range(len(outputs)))


def _named(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + (f" of {tuple(shape)}" if shape is not None else "")
