"""A real training step of a PyTorch model: the forward pass, and the backward pass from the loss.

Which outputs a loss is made of is told by a backward pass from it to them.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from crossflops.errors import InputError, ValuesNeededError, error_words
from crossflops.frontends.frontend import Source
from crossflops.frontends.pytorch.load.model import (
    copy_inputs,
    copy_torch_model,
    model_run_error,
    restoring_module_variables,
    set_training_mode,
    suppressing_output,
)
from crossflops.frontends.pytorch.load.tensors import to_exportable_result
from crossflops.frontends.seeds import restoring_random_states
from crossflops.ir.trace import Setting, StepSetting
from crossflops.ir.training import is_trained

if TYPE_CHECKING:
    from torch import nn


def run_torch_training_step(
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    backward_context: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Run the model; if the setting has a training step, also run the backward pass, inside
    `backward_context()`.

    It begins with gradients of ones at the outputs of the loss, which are those of their sum: the
    work depends on no value, so the loss does no work of its own here. The model is changed:
    parameters are frozen and trained as the step says, and have gradients.
    """
    if not setting.step:
        model(*args, **kwargs)
        return
    import torch

    set_requires_grad(model, setting.step)
    outputs = _torch_loss_outputs(model(*args, **kwargs), setting.step)
    if outputs:
        with backward_context():
            torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])


def set_requires_grad(model: "nn.Module", step: StepSetting) -> None:
    """Set `requires_grad` of each parameter as the step says; a parameter with several names by
    any of them.
    """
    names: dict[Any, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    for parameter, own in names.items():
        if parameter.is_floating_point() or parameter.is_complex():
            parameter.requires_grad_(is_trained(own, parameter.requires_grad, step))


def _torch_loss_outputs(result: Any, step: StepSetting) -> list[Any]:
    """Return the outputs of which the loss is the sum and that have a gradient."""
    import torch
    from torch.utils._pytree import tree_leaves

    outputs = [leaf for leaf in tree_leaves(to_exportable_result(result)) if torch.is_tensor(leaf)]
    reached = step.reached or (True,) * len(outputs)
    pairs = zip(outputs, reached, strict=True)
    return [output for output, is_reached in pairs if is_reached and output.requires_grad]


# Which outputs a loss is made of.

_HINT = "give a callable that maps the model's outputs to one number"
_FROM_OUTPUTS = "compute the loss from float outputs of the model, without detach() or no_grad()"


def torch_loss_dependence(
    source: Source, loss: Callable[[Any], Any], setting: Setting
) -> tuple[bool, ...]:
    """Return for each output, in flat order, True if the loss depends on it.

    A copy of the model runs once, with all of it trained. Raises InputError where the model or the
    loss raises, and for a loss that is not a number or depends on no output; ValuesNeededError for
    one that reads values, where the model has none.
    """
    import torch
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
    )
    from torch.utils._pytree import tree_leaves

    model = set_training_mode(copy_torch_model(source.model), setting.training)
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point() or parameter.is_complex())
    args, kwargs = copy_inputs(source.args, source.kwargs)
    with (
        restoring_random_states(),
        suppressing_output(),
        restoring_module_variables(model),
        torch.enable_grad(),
    ):
        try:
            result = model(*args, **kwargs)
        except Exception as error:
            raise model_run_error(error) from error
        outputs = [
            leaf for leaf in tree_leaves(to_exportable_result(result)) if torch.is_tensor(leaf)
        ]
        try:
            value = loss(result)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise ValuesNeededError("the loss reads tensor values") from error
        except Exception as error:
            raise InputError(f"the loss raised {error_words(error)}", _HINT) from error
        if not torch.is_tensor(value) or value.numel() != 1:
            raise InputError(
                f"the loss is {_output_value_label(value)}, but must be one number", _HINT
            )
        if not value.requires_grad:
            raise InputError("the loss depends on no output of the model", _FROM_OUTPUTS)
        graded = [index for index, leaf in enumerate(outputs) if leaf.requires_grad]
        gradients = torch.autograd.grad(
            value.sum(), [outputs[index] for index in graded], allow_unused=True
        )
    alive = {index for index, grad in zip(graded, gradients, strict=True) if grad is not None}
    return tuple(index in alive for index in range(len(outputs)))


def _output_value_label(value: Any) -> str:
    """Return the type and shape of a value as text for a message, such as "a Tensor of (2, 3)"."""
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + (f" of {tuple(shape)}" if shape is not None else "")
