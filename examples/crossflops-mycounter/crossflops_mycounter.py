"""A counter that crossflops has never heard of: one FLOP per MAC of `nn.Linear`, biases too.

`count_flops` is the counter. `mycounter` is what is known of it, as rules; `MyCounter` runs it.
"""

from math import prod
from typing import Any

from crossflops.ir.profile import Profile
from crossflops.ir.trace import ONCE, Setting
from crossflops.plugins.adapter import is_module, under
from crossflops.rules.conditions import Site, called, has
from crossflops.rules.rule import Tool

VERSION = "1.0"


def count_flops(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The counter itself: hooks on every `nn.Linear`, by exact type."""
    from torch import nn

    flops = 0

    def hook(layer: Any, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal flops
        flops += inputs[0].numel() * layer.out_features
        flops += output.numel() if layer.bias is not None else 0

    handles = [m.register_forward_hook(hook) for m in model.modules() if type(m) is nn.Linear]
    model(*args, **kwargs)
    for handle in handles:
        handle.remove()
    return flops


mycounter = Tool(
    "mycounter",
    edition=VERSION,
    verified=(VERSION,),
    prints="FLOPs",
    per_mac=1,
    level="module",
    unseen="op.unregistered-zero",
    runs={"hooked": True},
    counts_dead_work=True,
    source="crossflops_mycounter.py: count_flops",
)
hooks = mycounter.rules("module", called(), times=ONCE, source="count_flops: hook")
LINEAR = "torch.nn.modules.linear.Linear"


@hooks.contraction(LINEAR, cause="matmul.leading-dims-lost")
def linear(call: Site) -> int:
    """n(x) x out_features."""
    return prod(call.shape("0")) * call.number("out_features")


@hooks.adds(LINEAR, has("bias"), cause="bias.linear")
def bias(call: Site) -> int:
    """n(y)."""
    return call.result.numel


class MyCounter:
    """Runs the counter for crossflops."""

    name = "mycounter"
    convention = mycounter.convention
    distribution = "crossflops-mycounter"

    def version(self) -> str:
        """The version of the counter."""
        return VERSION

    def load(self) -> None:
        """Import PyTorch."""
        import torch  # noqa: F401

    def accepts(self, model: object) -> bool:
        """Any torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """What `count_flops` returns."""
        with under(setting, model):
            total = count_flops(model, args, kwargs)
        return Profile(
            tool=self.name, version=VERSION, setting=setting, total=total, printed_as="FLOPs"
        )
