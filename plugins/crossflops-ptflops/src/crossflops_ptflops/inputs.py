"""Arrange the inputs of a model as ptflops takes them: one tensor by position, or all inputs by
keyword.
"""

import inspect
import sys
from typing import Any

from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

_BY_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD


def build_ptflops_inputs(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the inputs as ptflops takes them: the only tensor, or {parameter name: input} for all
    inputs.

    ptflops calls `model(batch)`, or `model(**batch)` with a dict. Where an input has no name of
    its own (`forward(self, *args)`), the model gets a forward that takes it by one: nothing else
    of the model changes.
    """
    tensor = sys.modules["torch"].Tensor
    if len(args) == 1 and not kwargs and isinstance(args[0], tensor):
        return args[0]
    names = _forward_parameter_names(model, len(args))
    if names is None or not kwargs.keys().isdisjoint(names):
        names = tuple(f"crossflops_{place}" for place in range(len(args)))
        _rename_forward_parameters(model, names)
    return dict(zip(names, args, strict=True)) | kwargs


def _forward_parameter_names(model: Any, count: int) -> tuple[str, ...] | None:
    """Return the names of the first `count` parameters of the model's `forward`; None if one
    cannot be given by keyword.
    """
    parameters = list(inspect.signature(model.forward).parameters.values())[:count]
    if len(parameters) < count or any(parameter.kind is not _BY_NAME for parameter in parameters):
        return None
    return tuple(parameter.name for parameter in parameters)


def _rename_forward_parameters(model: Any, names: tuple[str, ...]) -> None:
    """Replace the model's `forward` by one that takes its positional inputs under these names."""
    forward = model.forward

    def call_forward_by_position(**inputs: Any) -> Any:
        """Call the original `forward` with the named inputs by position; return its result."""
        placed = [inputs.pop(name) for name in names]
        return forward(*placed, **inputs)

    patching_attribute(
        model, "forward", call_forward_by_position, inventory.MODEL_METHODS
    ).patch_permanently()
