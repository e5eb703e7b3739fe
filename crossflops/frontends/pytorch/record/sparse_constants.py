"""A way to make torch.export accept the sparse tensors of a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def is_sparse(value: Any) -> bool:
    """Return True if a value is a tensor of a sparse layout."""
    return str(getattr(value, "layout", "")).startswith("torch.sparse")


def has_sparse(program: "ExportedProgram") -> bool:
    """Return True if any tensor of the program is sparse."""
    return any(is_sparse(node.meta.get("val")) for node in program.graph.nodes)


@contextmanager
def accepting_sparse_constants() -> Iterator[None]:
    """Make torch.export accept sparse constant tensors, and the product `smm`, inside the block.

    It reads the strides of such a constant, which compressed layouts lack. A product `smm` begins
    with an empty result, which has a size only where it has values. Source:
    torch/fx/experimental/proxy_tensor.py (extract_val), SparseTensorMath.cpp (smm).
    """
    import torch
    from torch._guards import detect_fake_mode
    from torch.fx.experimental import proxy_tensor

    usual = original_attribute(proxy_tensor, "extract_val", inventory.SYMBOLIC_VALUES)

    def extract_val_with_sparse_as_fake(value: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a sparse constant as a fake tensor; for another value what PyTorch's tracer
        returns.
        """
        mode = detect_fake_mode(value) if is_sparse(value) else None
        if mode is None or type(value) not in (torch.Tensor, torch.nn.Parameter):
            return usual(value, *args, **kwargs)
        return mode.from_tensor(value)

    with (
        patching_attribute(
            proxy_tensor, "extract_val", extract_val_with_sparse_as_fake, inventory.SYMBOLIC_VALUES
        ),
        patching_attribute(torch, "smm", _sparse_smm, inventory.SPARSE_PRODUCT),
        patching_attribute(torch.Tensor, "smm", _sparse_smm, inventory.SPARSE_PRODUCT),
    ):
        yield


def _sparse_smm(input: Any, mat: Any) -> Any:
    """Return `smm`, the product of a sparse and a dense matrix, as a sparse tensor."""
    import torch

    indices = torch.empty((2, 0), dtype=torch.long, device=input.device)
    values = torch.empty(0, dtype=input.dtype, device=input.device)
    empty = torch.sparse_coo_tensor(indices, values, (input.shape[0], mat.shape[1]))
    return torch.sspaddmm(empty, input, mat, beta=0)
