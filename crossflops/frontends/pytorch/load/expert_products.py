"""The choice of transformers' implementation for products of tokens with their experts.

"grouped_mm" is one product of all rows, sorted by expert, for which shapes are enough; "eager"
is a loop over the experts that were chosen, for which a run needs values. Both do the same
products. Source: transformers/integrations/moe.py.
"""

from collections.abc import Iterator
from typing import Any

GROUPED = "grouped_mm"  # the default of transformers
_LOOP = "eager"
_ALIGNED = 16  # bytes between rows, as PyTorch's kernel wants them


def set_expert_implementation(model: Any, has_values: bool) -> str:
    """Set the implementation by which the experts of a model run, and return its name; "" without
    experts.

    It is the loop where the kernel of the grouped product would refuse the weights. A model whose
    weights never have values keeps the grouped product: it needs shapes alone, and no kernel.
    """
    experts = list(_expert_modules(model))
    if not experts:
        return ""
    chosen = str(experts[0].config._experts_implementation)
    if chosen == GROUPED and has_values and not all(map(_accepts_grouped_kernel, experts)):
        model.set_experts_implementation(_LOOP)
        chosen = _LOOP
    return chosen


def _expert_modules(model: Any) -> Iterator[Any]:
    """Yield each module of experts that reads its implementation from the config."""
    for module in model.modules():
        implementation = getattr(getattr(module, "config", None), "_experts_implementation", None)
        if implementation is not None and hasattr(type(module), "_apply_gate"):
            yield module


def _accepts_grouped_kernel(experts: Any) -> bool:
    """Return True if PyTorch's kernel for grouped products accepts the weights of these
    experts.
    """
    import torch

    types = (torch.float32, torch.bfloat16, torch.float16)
    for weight in experts.parameters(recurse=False):
        if weight.dim() != 3:
            continue
        rows = weight.shape[-2:] if getattr(experts, "is_transposed", False) else weight.shape[-1:]
        if weight.dtype not in types or any(n * weight.element_size() % _ALIGNED for n in rows):
            return False
    return True
