"""The inputs and outputs of a run as arrays, and how much random numbers and rounding change
them.
"""

from collections.abc import Iterable
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.frontend import ModelRun, Source
from crossflops.frontends.pytorch.load.model import (
    copy_inputs,
    model_run_error,
    suppressing_output,
    using_model_copy_for_one_run,
)
from crossflops.frontends.seeds import restoring_random_states
from crossflops.ir.trace import Setting

_SEEDS = (0, 1)
_ROUNDINGS = (1, 2)  # seeds of what the weights and inputs are rounded by


def run_torch_copies_and_measure_rounding(source: Source, setting: Setting) -> ModelRun:
    """Run copies of the model; return its inputs and outputs as arrays, and how much random
    numbers and rounding change each output.

    Further runs have weights and inputs that differ by one rounding: a deep model on a small batch
    in training may amplify that. Raises InputError where the model raises.
    """
    first, other = (_run_seeded_copy(source, setting, seed) for seed in _SEEDS)
    rounded = [
        _run_seeded_copy(source, setting, _SEEDS[0], rounding=number) for number in _ROUNDINGS
    ]
    changes = [map(_relative_output_difference, first, outputs) for outputs in rounded]
    return ModelRun(
        inputs=tuple(
            map(_torch_output_array, _tensors_in_export_order((source.args, source.kwargs)))
        ),
        outputs=tuple(map(_torch_output_array, first)),
        drawn=tuple(not _is_close_output(*pair) for pair in zip(first, other, strict=True)),
        rounding=tuple(map(max, *changes)),
    )


def _relative_output_difference(output: Any, other: Any) -> float:
    """Return how much two outputs differ: the largest difference over the largest element, for
    integers the share of different ones.
    """
    import torch

    if output.shape != other.shape or not output.numel():
        return 0.0
    differs = (output != other) & ~((output != output) & (other != other))
    if not output.is_floating_point() and not output.is_complex():
        return float(differs.double().mean())
    gaps = (output - other).abs().double()[differs]
    sizes = output.abs().double()
    sizes = sizes[sizes.isfinite()]
    if not gaps.numel() or not sizes.numel() or not bool(torch.isfinite(gaps).all()):
        return 0.0
    largest = float(sizes.max())
    return float(gaps.max()) / largest if largest else 0.0


def _perturb_by_rounding_step(tensor: Any) -> Any:
    """Return the tensor with each number moved randomly by at most one rounding step; unchanged if
    it is of integers or sparse.
    """
    import torch

    is_real = tensor.is_floating_point()
    if not (is_real or tensor.is_complex()) or tensor.layout is not torch.strided:
        return tensor
    steps = torch.randint(-1, 2, tensor.shape) * torch.finfo(tensor.dtype).eps
    return tensor * (1 + steps).to(tensor.dtype)


def _run_seeded_copy(source: Source, setting: Setting, seed: int, rounding: int = 0) -> list[Any]:
    """Run a copy of the model with this random seed, and with inputs and weights rounded if
    `rounding` is not 0; return its output tensors.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    with (
        restoring_random_states(),
        suppressing_output(),
        using_model_copy_for_one_run(source.model, setting.training) as own,
    ):
        args, kwargs = copy_inputs(source.args, source.kwargs)
        if rounding:
            torch.manual_seed(rounding)
            for parameter in own.parameters():
                parameter.data = _perturb_by_rounding_step(parameter.data)
            args, kwargs = tree_map_only(torch.Tensor, _perturb_by_rounding_step, (args, kwargs))
        torch.manual_seed(seed)
        try:
            with torch.set_grad_enabled(setting.grad):
                results = own(*args, **kwargs)
        except Exception as error:  # whatever it is, it does not run on these
            raise model_run_error(error) from error
        return [tensor.detach().clone() for tensor in _tensors_in_export_order(results)]


def _tensors_in_export_order(values: Any) -> Iterable[Any]:
    """Return the tensors in a nested value, in the order of the outputs of an export."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _is_close_output(first: Any, second: Any) -> bool:
    """Return True if two output tensors have the same shape and nearly equal values."""
    import torch

    return bool(first.shape == second.shape and torch.allclose(first, second, equal_nan=True))


def _torch_output_array(tensor: Any) -> Any:
    """Return a tensor as a NumPy array, complex numbers as pairs on the last axis. Raises
    InputError if NumPy has no such type.
    """
    import torch

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise InputError(
            "--verify is not possible: onnxruntime does not accept sparse or quantized tensors",
            "leave out --verify",
        )
    if tensor.dtype is torch.bfloat16:
        raise InputError(
            "--verify is not possible: NumPy has no type bfloat16 for the outputs of the model",
            "leave out --verify",
        )
    return tensor.detach().resolve_neg().cpu().numpy()
