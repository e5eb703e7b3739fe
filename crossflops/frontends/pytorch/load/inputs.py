"""The inputs of a PyTorch model: tensors from specs, and a check that the model accepts its
inputs.
"""

import inspect
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.batches import fit_batch_to_model
from crossflops.frontends.inputs import HINT, Arguments, arguments_from_npz, to_args_and_kwargs
from crossflops.frontends.misspelling import reject_misspelt_keywords
from crossflops.frontends.pytorch.load.fakes import is_fake_tensor, is_own_fake_tensor
from crossflops.frontends.pytorch.load.running_models import is_within_recorded_model
from crossflops.ir.graph import TensorSpec


def make_model_arguments(
    model: Any, specs: Sequence[TensorSpec], known: Mapping[str, Any] = {}
) -> Arguments:
    """Return positional and keyword arguments for a model, by specs: random floats, zeros of other
    types.

    Inputs in `known` have these values. They have no data where the model's weights have none
    (PyTorch's device "meta"). The caller's random state is not used. Raises InputError when a
    tensor cannot be made.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    weights = list(model.parameters()) if hasattr(model, "parameters") else []
    plain = bool(weights) and all(weight.is_meta for weight in weights)
    values = {spec.name: _tensor_from_spec(spec, None if plain else generator) for spec in specs}
    for name, rows in known.items():
        provided = torch.tensor(rows, dtype=values[name].dtype)
        values[name] = provided.to("meta") if plain else provided
    return to_args_and_kwargs(values)


def _tensor_from_spec(spec: TensorSpec, generator: Any) -> Any:
    """Return a tensor of this spec, without data if `generator` is None. Raises InputError if it
    cannot be made.
    """
    import torch

    dtype = getattr(torch, spec.dtype, None)
    if dtype is None:
        raise InputError(f"PyTorch has no tensors of the type {spec.dtype}", HINT)
    size = math.prod(spec.shape or ()) * dtype.itemsize
    if size > _largest_input_bytes():
        raise InputError(
            f"the input {spec.name!r} would take {size / 2**30:.3g} GiB, more than a quarter of "
            "the memory of this machine",
            "give a smaller input; the cost of convolutions is proportional to the area",
        )
    try:
        if generator is None:
            return torch.empty(spec.shape or (), dtype=dtype, device="meta")
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(spec.shape or (), generator=generator).to(dtype)
        return torch.zeros(spec.shape or (), dtype=dtype)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"cannot make the input {spec.name!r}: {error}", HINT) from error


def tensors_from_npz(path: str) -> Arguments:
    """Return the arrays of an .npz file as tensors, as arguments of a model. Raises InputError if
    it cannot be read.
    """
    import torch

    return arguments_from_npz(path, torch.from_numpy)


def tensors_of_batch(model: Any, values: Any) -> Arguments:
    """Return the inputs of a Python caller as arguments of a model, with tensors instead of arrays
    of NumPy.

    See `batches.fit_batch_to_model`.
    """
    args, kwargs = fit_batch_to_model(model.forward, values, type(model).__name__)
    return (
        tuple(map(_array_to_tensor, args)),
        {name: _array_to_tensor(value) for name, value in kwargs.items()},
    )


def _array_to_tensor(value: Any) -> Any:
    """Return an array of NumPy as a tensor of the same type; any other value as it is."""
    import numpy as np
    import torch

    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiubc":
        return value
    return torch.from_numpy(np.ascontiguousarray(value))


def check_model_call(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise InputError if the signature of a model's forward does not take these arguments.

    Raises InputError, also for tensors that no run can take. A model with hooks, which may change
    the arguments of forward, is not checked.
    """
    if is_within_recorded_model():
        raise InputError(
            "the model calls crossflops in its own forward while it is counted",
            "call crossflops outside of the model",
        )
    _check_tensor_kinds((*model.parameters(), *args, *kwargs.values()))
    if model._forward_pre_hooks:
        return
    try:
        signature = inspect.signature(model.forward)
    except (ValueError, TypeError):
        return
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        taken = ", ".join(signature.parameters)
        name = next((name for name in signature.parameters if name not in kwargs), "x")
        raise InputError(
            f"the inputs do not fit {type(model).__name__}.forward({taken}): {error}",
            f"give one --input for each required parameter, such as --input {name}=1x3x224x224",
        ) from error
    reject_misspelt_keywords(bound, type(model).__name__)


def _check_tensor_kinds(tensors: Iterable[Any]) -> None:
    """Raise InputError if one of the tensors is nested, or is a fake tensor that crossflops did
    not make.
    """
    for tensor in tensors:
        if getattr(tensor, "is_nested", False):
            raise InputError(
                "a nested tensor has no shape, which the count needs",
                "pad it with torch.nested.to_padded_tensor(tensor, 0.0)",
            )
        if is_fake_tensor(tensor) and not is_own_fake_tensor(tensor):
            raise InputError(
                "weights or inputs are FakeTensors of another FakeTensorMode, which cannot be "
                "counted",
                "create them in a context `with torch.device('meta')` instead",
            )


def _largest_input_bytes() -> int:
    """Return the most bytes that one input may have: a quarter of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return 1 << 33
