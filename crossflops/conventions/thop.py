"""thop: a hook on every module whose exact class has a rule.

Two editions of one convention: 0.0.31, which printed 4.112 G for ResNet-50, and 0.1.1. They differ
in biases, batch norm, average pooling, and in whether the root's own rule counts. Sources:
thop/profile.py (`register_hooks`, `profile`, `dfs_count`), thop/vision/basic_hooks.py,
thop/vision/calc_func.py, thop/rnn_hooks.py of each release.
"""

from typing import Any

from crossflops.conventions import layers
from crossflops.conventions.operators import VMAP
from crossflops.core.convention import Clause, Convention, Match, Parameters

_HOOKS, _RNN, _PROFILE = "thop/vision/basic_hooks.py", "thop/rnn_hooks.py", "thop/profile.py"
_LINEAR = "thop.linear"


class _Edition:
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
        reference: str = _HOOKS,
        **match: Any,
    ) -> Clause:
        """A rule: hooks see `__call__` only, and one module may be registered several times."""
        return Clause(
            id=f"{self._prefix}.{name}",
            cause=cause,
            storey="module",
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
            ("linear", layers.LINEAR, _LINEAR),
        )
        return tuple(
            self.clause(
                f"{name}.vmapped", "function.vmap", targets, formula, core=True, under=(VMAP,)
            )
            for name, targets, formula in rows
        )

    def recurrent(self) -> tuple[Clause, ...]:
        """RNN, GRU, LSTM and their cells: the same in both editions, biases counted."""
        found = []
        for kind, targets in (("recurrent", layers.RECURRENT), ("cell", layers.CELLS)):
            found += [
                self.clause(kind, "rnn.fused", targets, f"thop.{kind}", core=True, reference=_RNN),
                self.clause(
                    f"{kind}.gates",
                    "rnn.gate-elementwise",
                    targets,
                    f"thop.{kind}_gates",
                    reference=_RNN,
                ),
                self.clause(
                    f"{kind}.bias",
                    "bias.rnn",
                    targets,
                    f"thop.{kind}_bias",
                    settings={"bias": True},
                    reference=_RNN,
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


def _unseen() -> tuple[Clause, ...]:
    """Why contraction work is not seen, the most particular reason first."""
    rows = (
        ("hook", "module.hook-work", Match(under=("torch.nn.Module.hook",))),
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
            storey="operator",
            match=match,
            kind="unseen",
            reference=f"{_PROFILE}: register_hooks",
        )
        for name, cause, match in rows
    )


def _v0_1_1() -> tuple[Clause, ...]:
    edition = _Edition("0.1.1", root_counts=True)
    norms = (
        ("batch_norm", "norm.batch", layers.BATCH_NORMS, "affine"),
        ("instance_norm", "norm.instance", layers.INSTANCE_NORMS, "affine"),
        ("layer_norm", "norm.layer", layers.LAYER_NORM, "elementwise_affine"),
    )
    return (
        *edition.vmapped("thop.convolution"),
        edition.clause(
            "convolution",
            "conv.unbatched-axis",
            layers.CONVOLUTIONS,
            "thop.convolution",
            core=True,
        ),
        edition.clause(
            "transposed",
            "conv.transpose-output-size",
            layers.TRANSPOSED,
            "thop.convolution",
            core=True,
        ),
        edition.clause("linear", "matmul.leading-dims-lost", layers.LINEAR, _LINEAR, core=True),
        *edition.recurrent(),
        *(
            edition.clause(
                f"{name}.{'affine' if affine else 'plain'}",
                cause,
                targets,
                "input_elements",
                factor=4 if affine else 2,
                settings={flag: affine},
            )
            for name, cause, targets, flag in norms
            for affine in (True, False)
        ),
        edition.clause(
            "prelu", "act.piecewise-other", (f"{layers.NN}.activation.PReLU",), "input_elements"
        ),
        edition.clause("softmax", "softmax", (f"{layers.NN}.activation.Softmax",), "thop.softmax"),
        edition.clause("average", "pool.avg", layers.AVERAGE_POOLS, "output_elements"),
        edition.clause(
            "adaptive", "pool.adaptive", layers.ADAPTIVE_POOLS, "thop.adaptive_average"
        ),
        *edition.upsample({"nearest": 1, "linear": 5, "bilinear": 11, "bicubic": 259}),
        *_unseen(),
    )


def _v0_0_31() -> tuple[Clause, ...]:
    edition = _Edition("0.0.31", root_counts=False)
    by_module = "thop.convolution_by_module"
    return (
        *edition.vmapped(by_module),
        edition.clause(
            "convolution", "conv.unbatched-axis", layers.CONVOLUTIONS, by_module, core=True
        ),
        edition.clause(
            "transposed", "conv.transpose-output-size", layers.TRANSPOSED, by_module, core=True
        ),
        edition.clause(
            "convolution.bias",
            "bias.conv",
            (*layers.CONVOLUTIONS, *layers.TRANSPOSED),
            "output_elements",
            has=("bias",),
        ),
        edition.clause("linear", "matmul.leading-dims-lost", layers.LINEAR, _LINEAR, core=True),
        *edition.recurrent(),
        edition.clause("batch_norm", "norm.batch", layers.BATCH_NORMS, "input_elements", factor=2),
        edition.clause(
            "leaky_relu",
            "act.piecewise-other",
            (f"{layers.NN}.activation.LeakyReLU",),
            "input_elements",
        ),
        edition.clause("average", "pool.avg", layers.AVERAGE_POOLS, "output_elements"),
        edition.clause(
            "adaptive", "pool.adaptive", layers.ADAPTIVE_POOLS, "thop.adaptive_average_floored"
        ),
        *edition.upsample({"linear": 5, "bilinear": 11, "bicubic": 259}),
        *_unseen(),
    )


def _convention(edition: str, verified: str, clauses: tuple[Clause, ...]) -> Convention:
    return Convention(
        tool="thop",
        edition=edition,
        verified=(verified,),
        unit=1,
        printed_as="MACs",
        sees="module",
        counts_dead=True,
        unseen="functional.invisible",
        forces={"training": False, "grad": False, "hooked": True},
        source=_PROFILE,
        clauses=clauses,
        parameters=Parameters(
            modules=tuple(
                sorted(
                    {
                        name
                        for one in clauses
                        for name in one.match.targets
                        if one.storey == "module"
                    }
                )
            ),
            called=True,
            reference=f"{_PROFILE}: dfs_count; {_HOOKS}: count_parameters",
        ),
    )


CONVENTIONS = (
    _convention("0.1.1", "0.1.1.post2209072238", _v0_1_1()),
    _convention("0.0.31", "0.0.31.post2005241907", _v0_0_31()),
)
