"""ptflops' backend "pytorch": hooks on modules of known type, and functions that it replaces.

What the hooks count is divided by the length of the model's input, what the functions count is
not; a module that calls a replaced function is counted by both. Sources: ptflops/pytorch_ops.py
and ptflops/pytorch_engine.py of 0.7.5.
"""

from collections.abc import Sequence

from crossflops.ir.profile import Amount
from crossflops.rules.conditions import (
    HOOKS,
    by_forward,
    captured,
    inside,
    registered,
    subclass_of,
    through,
    under,
)
from crossflops.rules.rule import Parameters, Share, Tool
from crossflops.tools import layers
from crossflops.tools.ptflops import functions, modules

_ENGINE = "ptflops/pytorch_engine.py"


def total(shares: Sequence[Share]) -> Amount:
    """int(modules / batch + functions + methods), in floats and in this order.

    pytorch_engine.py: compute_average_flops_cost, get_flops_pytorch.
    """
    hooked = [share for share in shares if share.rule.batch]
    others = [share for share in shares if not share.rule.batch]
    count: Amount = sum(share.amount for share in hooked)
    count = count / hooked[0].divisor if hooked else 0.0
    count += sum(share.amount for share in others if _is_functional(share))
    count += sum(share.amount for share in others if not _is_functional(share))
    return int(count)


def _is_functional(share: Share) -> bool:
    return any(target.startswith("torch.nn.functional.") for target in share.rule.targets)


tool = Tool(
    "ptflops-pytorch",
    edition="0.7.5",
    verified=("0.7.5",),
    prints="MACs",
    per_mac=1,
    level="module",
    unseen="functional.invisible",
    runs={"training": False, "hooked": True},
    counts_dead_work=True,
    source=_ENGINE,
    adds_up=total,
    parameters=Parameters(trainable=True, reference=f"{_ENGINE}: get_model_parameters_number"),
)
tool.include(modules.failing, modules.hooked, functions.functional, functions.tensors)
unseen = tool.rules("operator", source=f"{_ENGINE}: start_flops_count, patch_tensor_ops")

# Why contraction work is not seen, the most particular reason first.

_CONTRACTING = (*layers.CONTRACTING, *modules.ATTENTION)
_PATCHED = tuple(f"torch.{name}" for name in ("matmul", "mm", "bmm", "addmm", "baddbmm"))
unseen.misses("hook", under(HOOKS), cause="module.hook-work")
unseen.misses(
    "captured",
    captured(),
    through(*_PATCHED, "torch.Tensor.*mm", "torch.Tensor.matmul"),
    cause="functional.captured-reference",
)
unseen.misses("direct-forward", by_forward(), inside(*_CONTRACTING), cause="module.direct-forward")
unseen.misses(
    "unregistered", inside(*_CONTRACTING), registered(False), cause="module.unregistered"
)
unseen.misses("timm", inside(*modules.TIMM), cause="module.rule-replaces-or-adds-children")
unseen.misses("subclass", subclass_of(*_CONTRACTING), cause="module.type-unmatched")
unseen.misses("attention", "aten.scaled_dot_product_attention.default", cause="attention.sdpa")
unseen.misses("operator", through("torch.Tensor.__matmul__"), cause="matmul.operator-invisible")
