"""What crossflops needs of `mycounter`, a tool that it has never heard of: rules, a cause of their
own, and an adapter.

`first` and `second` are what is known of the two releases of the tool; `MyCounter` runs it.
"""

from importlib.metadata import version
from math import prod
from typing import Any

from crossflops.ir.profile import Profile
from crossflops.ir.reconciliation import Cause
from crossflops.ir.trace import ONCE, Setting
from crossflops.plugins.adapter import is_module, under
from crossflops.rules.conditions import Site, called, has
from crossflops.rules.rule import Tool


def edition(release: str) -> Tool:
    """Return a release of the tool, without rules yet."""
    return Tool(
        "mycounter",
        edition=release,
        verified=(release,),
        prints="FLOPs",
        per_mac=1,
        level="module",
        unseen="op.unregistered-zero",
        runs={"hooked": True},
        counts_dead_work=True,
        source="mycounter.py: count_flops",
    )


LINEAR = "torch.nn.modules.linear.Linear"

first = edition("1.0")
hooks = first.rules("module", called(), times=ONCE, source="count_flops: hook")


@hooks.contraction(LINEAR, cause="matmul.leading-dims-lost")
def linear(call: Site) -> int:
    """n(x) x out_features."""
    return prod(call.shape("0")) * call.number("out_features")


second = edition("1.1")
second.include(hooks)
more = second.rules("module", called(), times=ONCE, source="count_flops: hook")


@more.adds(LINEAR, has("bias"), cause="bias.linear")
def bias(call: Site) -> int:
    """n(y)."""
    return call.result.numel


@more.adds(LINEAR, cause="mycounter.row-lookup")
def row(call: Site) -> int:
    """n(x) / in_features."""
    return prod(call.shape("0")) // call.number("in_features")


CAUSES = (
    Cause(
        id="mycounter.row-lookup",
        title="a FLOP for each row of a linear layer",
        page="mycounter 1.1 adds one FLOP for each row that a linear layer is given. Nothing is "
        "computed there, and no other tool has it.",
        recognise="The amount is the number of rows, for any width of the layer.",
    ),
)


class MyCounter:
    """Runs the counter for crossflops."""

    name = "mycounter"
    convention = (second.convention, first.convention)
    distribution = "mycounter"

    def version(self) -> str:
        """The version of the installed counter."""
        return version(self.distribution)

    def load(self) -> None:
        """Import the counter and PyTorch."""
        import mycounter
        import torch  # noqa: F401

        del mycounter

    def accepts(self, model: object) -> bool:
        """Any torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """What `count_flops` returns."""
        from mycounter import count_flops

        with under(setting, model):
            total = count_flops(model, args, kwargs)
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=setting,
            total=total,
            printed_as="FLOPs",
        )
