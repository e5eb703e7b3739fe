"""What the editions of thop share: how a rule is booked, and why a contraction is not seen."""

from typing import Any

from crossflops.ir.convention import Clause, Match
from crossflops.ir.trace import NESTED
from crossflops.tools import layers
from crossflops.tools.operators import VMAP

HOOKS, RNN, PROFILE = "thop/vision/basic_hooks.py", "thop/rnn_hooks.py", "thop/profile.py"
LINEAR = "thop.linear"


class Edition:
    """The clauses of one edition: what they share is written once."""

    def __init__(self, name: str, root_counts: bool) -> None:
        self._prefix = f"thop@{name}"
        self._root = None if root_counts else False

    def clause(
        self,
        name: str,
        cause: str,
        targets: tuple[str, ...],
        formula: str,
        *,
        factor: int = 1,
        core: bool = False,
        reference: str = HOOKS,
        **match: Any,
    ) -> Clause:
        """A rule: hooks see `__call__` only, and one module may be registered several times."""
        return Clause(
            id=f"{self._prefix}.{name}",
            cause=cause,
            level="module",
            match=Match(targets=targets, via="call", root=self._root, **match),
            kind="core" if core else "part",
            formula=formula,
            factor=factor,
            times="child_paths_squared",
            stands_for=layers.operators(targets) if core else (),
            reference=reference,
        )

    def vmapped(self, convolution: str) -> tuple[Clause, ...]:
        """The rules of layers once more: under `torch.vmap` a hook sees one example of many."""
        rows = (
            ("convolution", (*layers.CONVOLUTIONS, *layers.TRANSPOSED), convolution),
            ("linear", layers.LINEAR, LINEAR),
        )
        return tuple(
            self.clause(
                f"{name}.vmapped", "function.vmap", targets, formula, core=True, under=(VMAP,)
            )
            for name, targets, formula in rows
        )

    def nested(self, norm: int) -> tuple[Clause, ...]:
        """Padded positions, which an encoder drops on its way to a nested tensor: not counted.

        `norm` is what an element of a layer norm weighs, 0 without a rule for it.
        """
        cause, dropped = "attention.padding-skipped", (f"{NESTED}*",)
        linear = self.clause(
            "linear.nested", cause, layers.LINEAR, "thop.linear_nested", core=True, fused=dropped
        )
        normed = self.clause(
            "layer_norm.nested",
            cause,
            layers.LAYER_NORM,
            "thop.dropped_elements",
            factor=-norm,
            fused=dropped,
        )
        return (linear, normed) if norm else (linear,)

    def recurrent(self) -> tuple[Clause, ...]:
        """RNN, GRU, LSTM and their cells: the same in both editions, biases counted."""
        found = []
        for kind, targets in (("recurrent", layers.RECURRENT), ("cell", layers.CELLS)):
            found += [
                self.clause(kind, "rnn.fused", targets, f"thop.{kind}", core=True, reference=RNN),
                self.clause(
                    f"{kind}.gates",
                    "rnn.gate-elementwise",
                    targets,
                    f"thop.{kind}_gates",
                    reference=RNN,
                ),
                self.clause(
                    f"{kind}.bias",
                    "bias.rnn",
                    targets,
                    f"thop.{kind}_bias",
                    settings={"bias": True},
                    reference=RNN,
                ),
            ]
        return tuple(found)

    def upsample(self, factors: dict[str, int]) -> tuple[Clause, ...]:
        """n(y) x a constant by mode."""
        return tuple(
            self.clause(
                f"upsample.{mode}",
                "upsample.nearest" if mode == "nearest" else "upsample.linear",
                layers.UPSAMPLINGS,
                "output_elements",
                factor=factor,
                settings={"mode": mode},
            )
            for mode, factor in factors.items()
        )


def unseen() -> tuple[Clause, ...]:
    """Why contraction work is not seen, the most particular reason first."""
    rows = (
        ("hook", "module.hook-work", Match(under=("torch.nn.Module.*hook",))),
        ("root", "module.root-rule-ignored", Match(within=layers.CONTRACTING, root=True)),
        (
            "direct-forward",
            "module.direct-forward",
            Match(within=layers.CONTRACTING, via="forward"),
        ),
        (
            "unregistered",
            "module.unregistered",
            Match(within=layers.CONTRACTING, registered=False),
        ),
        ("subclass", "module.type-unmatched", Match(bases=layers.CONTRACTING)),
        (
            "attention",
            "attention.sdpa",
            Match(targets=("aten.scaled_dot_product_attention.default",)),
        ),
        (
            "operator",
            "matmul.operator-invisible",
            Match(entry=("torch.Tensor.__matmul__", "torch.Tensor.__rmatmul__")),
        ),
    )
    return tuple(
        Clause(
            id=f"thop.unseen.{name}",
            cause=cause,
            level="operator",
            match=match,
            kind="unseen",
            reference=f"{PROFILE}: register_hooks",
        )
        for name, cause, match in rows
    )
