"""Fit the batch of a dataset to the parameters of a model.

A data loader gives more than a model takes: labels behind the inputs, columns of a tokenizer that
no layer reads, or one object with all of them. What is left out is said.
"""

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crossflops.errors import CrossflopsWarning, InputError
from crossflops.frontends.inputs import Arguments, to_call_arguments
from crossflops.frontends.misspelling import reject_misspelt_keywords, reject_misspelt_names

_LOADERS = {
    ("torch", "DataLoader"): "next(iter(loader))",
    ("tensorflow", "DatasetV2"): "next(iter(dataset))",
}


def fit_batch_to_model(forward: Callable[..., Any], inputs: Any, model: str) -> Arguments:
    """Return the inputs as (args, kwargs) that a model's `forward` takes.

    Inputs that fit are passed as they are. Else trailing items of a list or tuple are left out, as
    the labels of a dataset, and so are names in a dict or an object that are no parameters; a
    warning about the `model` names them. A model with one parameter gets an object whole.
    Inputs that fit in no way are returned as `to_call_arguments` does, for the error of the model.

    Raises InputError for a data loader, an image without a transform, lists of a tokenizer, and a
    name that is misspelt.
    """
    _reject_inputs_without_tensors(inputs)
    plain = to_call_arguments(inputs)
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (ValueError, TypeError):
        return plain
    named = _is_record(inputs) or _begins_with_named_inputs(parameters, inputs)
    if not named and _fits(parameters, *plain):
        args, kwargs = plain
        call = inspect.Signature(parameters).bind(*args, **kwargs)
        reject_misspelt_keywords(call, model)
        return plain
    kept = _fitting_arguments(parameters, inputs, model)
    return plain if kept is None else kept


def record_values(value: Any) -> dict[str, Any] | None:
    """Return the values by name of a dict, a named tuple, a dataclass, or an object with keys, as
    the Data of PyTorch Geometric; None for another value.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if is_keyed_object(value):
        return {name: value[name] for name in value.keys()}  # noqa: SIM118 - it is no dict
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def is_keyed_object(value: Any) -> bool:
    """Return whether a value is no dict and holds its values by key, as the Data of PyTorch
    Geometric.
    """
    kind = type(value)
    names = ("keys", "__getitem__", "__setitem__", "to_dict")
    is_plain = isinstance(value, Mapping | type) or hasattr(kind, "forward")
    return not is_plain and all(callable(getattr(kind, name, None)) for name in names)


def _is_record(value: Any) -> bool:
    """Return whether a value is a named tuple or an object with values by name, and no dict."""
    return not isinstance(value, Mapping) and record_values(value) is not None


def _reject_inputs_without_tensors(inputs: Any) -> None:
    """Raise InputError for values that are often given instead of a batch of tensors."""
    rows = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(inputs).__mro__]
    for row in rows:
        if row in _LOADERS:
            raise InputError(
                f"the inputs are a {type(inputs).__name__}, not a batch of it",
                f"give one batch: {_LOADERS[row]}",
            )
    if ("PIL", "Image") in rows:
        raise InputError(
            "the inputs are an image of PIL, not a tensor",
            "apply the transform of the model's library, such as weights.transforms()(image)"
            ".unsqueeze(0), or give the shape: 1x3x224x224",
        )
    if ("transformers", "BatchEncoding") in rows:
        for name, value in inputs.items():
            if isinstance(value, list):
                raise InputError(
                    f"the input {name!r} of the tokenizer is a list, not a tensor",
                    'let it return tensors: tokenizer(text, return_tensors="pt")',
                )


def _fits(
    parameters: Sequence[inspect.Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether parameters take these arguments."""
    try:
        inspect.Signature(parameters).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return True


def _fitting_arguments(
    parameters: Sequence[inspect.Parameter], inputs: Any, model: str
) -> Arguments | None:
    """Return the part of the inputs that the parameters take, with a warning about the rest; None
    if no part fits.
    """
    values = record_values(inputs)
    if values is not None:
        return _fitting_record(parameters, inputs, values, model)
    if not isinstance(inputs, list | tuple) or len(inputs) < 2:
        return None
    counts = range(len(inputs) - 1, 0, -1)
    for count in (1,) if _begins_with_named_inputs(parameters, inputs) else counts:
        used = tuple(inputs[:count])
        if count == 1 and (values := record_values(used[0])) is not None:
            arguments = _fitting_record(parameters, used[0], values, model)
        else:
            arguments = (used, {}) if _fits(parameters, used, {}) else None
        if arguments is not None:
            number = len(inputs) - count
            last = "the last item" if number == 1 else f"the last {number} items"
            _warn_of_unused(f"{last} of the batch, as labels are", model)
            return arguments
    return None


def _begins_with_named_inputs(parameters: Sequence[inspect.Parameter], inputs: Any) -> bool:
    """Return whether the first of several items has all inputs by name, as a batch of
    (columns of a tokenizer, labels).
    """
    if not isinstance(inputs, list | tuple) or len(inputs) < 2:
        return False
    values = record_values(inputs[0]) or {}
    names = _names_by_keyword(parameters)
    used = {name: value for name, value in values.items() if name in names}
    return bool(used) and _fits(parameters, (), used)


def _names_by_keyword(parameters: Sequence[inspect.Parameter]) -> list[str]:
    """Return the names of the parameters that can be given by keyword."""
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]


def _fitting_record(
    parameters: Sequence[inspect.Parameter], record: Any, values: Mapping[str, Any], model: str
) -> Arguments | None:
    """Return the arguments of a record: its values by name, or the record as the one argument."""
    names = _names_by_keyword(parameters)
    used = {name: value for name, value in values.items() if name in names}
    if used and _fits(parameters, (), used):
        unused = [name for name in values if name not in names]
        free = [name for name in names if name not in values]
        reject_misspelt_names(map(str, unused), free, model)
        if unused:
            _warn_of_unused(", ".join(map(repr, unused)), model)
        return (), used
    return ((record,), {}) if values and _fits(parameters, (record,), {}) else None


def _warn_of_unused(what: str, model: str) -> None:
    """Warn that a part of the batch is no input of the model."""
    warnings.warn(
        f"the model {model} is counted without {what}, which it does not take",
        CrossflopsWarning,
        stacklevel=2,
    )


def inputs_of_keras_batch(model: Any, batch: Any) -> Any:
    """Return the inputs of a batch for a Keras model, without the labels and the weights of
    examples behind them; a warning says so.

    Any other value is returned as it is.
    """
    _reject_inputs_without_tensors(batch)
    declared = getattr(model, "inputs", None)
    if not isinstance(declared, list | tuple) or not isinstance(batch, list | tuple):
        return batch
    has_all_inputs = len(declared) == 1 or isinstance(
        batch[0] if batch else None, list | tuple | Mapping
    )
    is_arguments = (
        len(batch) == 2 and isinstance(batch[0], list | tuple) and isinstance(batch[1], Mapping)
    )
    if not 2 <= len(batch) <= 3 or not has_all_inputs or is_arguments:
        return batch
    _warn_of_unused("the labels of the batch", type(model).__name__)
    inputs = batch[0]
    return inputs if isinstance(inputs, list | tuple | Mapping) else (inputs,)
