"""What a model returns: the inputs and outputs of a run, as arrays."""

import math
from collections.abc import Iterable
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.frontend import ModelRun, Source
from crossflops.frontends.pytorch.model import copied, fresh, quiet, raised
from crossflops.frontends.seeds import generators
from crossflops.ir.trace import Setting

_SEEDS = (0, 1)


def run_outputs(source: Source, setting: Setting) -> ModelRun:
    """Run copies of the model with other random numbers; what differs depends on these.

    A third run has other weights and inputs by one rounding: a deep model on a small batch in
    training may make another output of that. Raises InputError where the model raises.
    """
    first, other = (_run(source, setting, seed) for seed in _SEEDS)
    rounded = _run(source, setting, _SEEDS[0], rounded=True)
    return ModelRun(
        inputs=tuple(map(_array, _tensors((source.args, source.kwargs)))),
        outputs=tuple(map(_array, first)),
        drawn=tuple(not _same(*pair) for pair in zip(first, other, strict=True)),
        rounding=tuple(_change(*pair) for pair in zip(first, rounded, strict=True)),
    )


def _change(output: Any, other: Any) -> float:
    """By which share of its largest element an output changes; 0 where none can be told."""
    if not output.is_floating_point() or output.shape != other.shape or not output.numel():
        return 0.0
    gap = float((output.double() - other.double()).abs().max())
    largest = float(output.double().abs().max())
    return gap / largest if largest and math.isfinite(gap / largest) else 0.0


def _round_otherwise(tensor: Any) -> Any:
    """The tensor with each number moved by up to one step of its type."""
    import torch

    if not tensor.is_floating_point() or tensor.layout is not torch.strided:
        return tensor
    steps = torch.randint(-1, 2, tensor.shape) * torch.finfo(tensor.dtype).eps
    return tensor * (1 + steps).to(tensor.dtype)


def _run(source: Source, setting: Setting, seed: int, rounded: bool = False) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_map_only

    with generators(), quiet(), copied(source.model, setting.training) as own:
        torch.manual_seed(seed)
        args, kwargs = fresh(source.args, source.kwargs)
        if rounded:
            for parameter in own.parameters():
                parameter.data = _round_otherwise(parameter.data)
            args, kwargs = tree_map_only(torch.Tensor, _round_otherwise, (args, kwargs))
            torch.manual_seed(seed)
        try:
            with torch.set_grad_enabled(setting.grad):
                results = own(*args, **kwargs)
        except Exception as error:  # whatever it is, it does not run on these
            raise raised(error) from error
        return [tensor.detach().clone() for tensor in _tensors(results)]


def _tensors(values: Any) -> Iterable[Any]:
    """The tensors in a nest, in the order of an export."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _same(first: Any, second: Any) -> bool:
    import torch

    return bool(first.shape == second.shape and torch.allclose(first, second, equal_nan=True))


def _array(tensor: Any) -> Any:
    """The numbers as NumPy has them; complex ones are pairs, as the exporter writes them."""
    import torch

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise InputError(
            "a sparse or quantized tensor cannot be given to onnxruntime", "leave --verify out"
        )
    if tensor.dtype is torch.bfloat16:
        raise InputError("NumPy has no bfloat16 for onnxruntime", "leave --verify out")
    return tensor.detach().resolve_neg().cpu().numpy()
