"""Grouped products in place of the loops of experts in transformers, for models whose weights have
no values.

Such a loop asks which experts were chosen, and a model without numbers cannot say. The rows of
tokens, sorted by expert, meet the same weights in one product of groups for each matrix: as many
products as the loop does, whatever was chosen.
Source: transformers/models/dbrx/modeling_dbrx.py.
"""

from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute


def make_expert_loops_grouped_products(model: Any) -> bool:
    """Make experts with a loop of their own run as grouped products, if their weights have no
    values; return True if any do.

    A model with values keeps its loop.
    """
    grouped = False
    for module in model.modules():
        forward = _FORWARDS.get(type(module).__qualname__)
        own = type(module).__module__.startswith("transformers.")
        if forward and own and all(weight.is_meta for weight in module.parameters()):
            patching_attribute(
                module, "forward", MethodType(forward, module), inventory.MODEL_METHODS
            ).patch_permanently()
            grouped = True
    return grouped


def _run_dbrx_experts_grouped(experts: Any, hidden: Any, chosen: Any, scores: Any) -> Any:
    """Return what DbrxExperts.forward returns, computed by grouped products."""
    import torch

    glu = experts.mlp
    rows = hidden.reshape(-1, experts.hidden_size)
    used = chosen.shape[-1]
    order = chosen.reshape(-1).argsort()
    numbers = torch.arange(experts.num_experts, device=chosen.device)
    sizes = (chosen.reshape(-1, 1) == numbers).sum(0)
    ends = sizes.cumsum(0).to(torch.int32)
    first, second, last = (
        weight.view(experts.num_experts, experts.ffn_hidden_size, experts.hidden_size)
        for weight in (glu.w1, glu.v1, glu.w2)
    )
    gathered = rows[order // used]
    gate = torch.nn.functional.grouped_mm(gathered, first.transpose(1, 2), offs=ends)
    up = torch.nn.functional.grouped_mm(gathered, second.transpose(1, 2), offs=ends)
    states = glu.activation_fn(gate) * up
    states = torch.nn.functional.grouped_mm(states, last, offs=ends)
    weighted = states * scores.reshape(-1, 1)[order]
    total = torch.zeros_like(rows).index_add(0, order // used, weighted)
    return total.view(hidden.shape[0], -1, experts.hidden_size)


_FORWARDS: Mapping[str, Callable[..., Any]] = {"DbrxExperts": _run_dbrx_experts_grouped}
