"""What a model returns: the inputs and outputs of a run, as arrays."""

from collections.abc import Iterable
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.frontend import ModelRun, Source
from crossflops.frontends.pytorch.model import copied, fresh, generators, quiet, raised
from crossflops.ir.trace import Setting

_SEEDS = (0, 1)


def run_outputs(source: Source, setting: Setting) -> ModelRun:
    """Run copies of the model with other random numbers; what differs depends on these.

    Raises InputError where the model raises.
    """
    runs = [_run(source, setting, seed) for seed in _SEEDS]
    return ModelRun(
        inputs=tuple(map(_array, _tensors((source.args, source.kwargs)))),
        outputs=tuple(map(_array, runs[0])),
        drawn=tuple(not _same(*pair) for pair in zip(*runs, strict=True)),
    )


def _run(source: Source, setting: Setting, seed: int) -> list[Any]:
    import torch

    with generators(), quiet(), copied(source.model, setting.training) as own:
        torch.manual_seed(seed)
        args, kwargs = fresh(source.args, source.kwargs)
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

    return first.shape == second.shape and torch.allclose(first, second, equal_nan=True)


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
