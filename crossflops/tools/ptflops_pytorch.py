"""ptflops' backend "pytorch": hooks on modules of known type, and functions that it replaces.

What the hooks count is divided by the length of the model's input, what the functions count is
not; a module that calls a replaced function is counted by both. Sources: ptflops/pytorch_ops.py
and ptflops/pytorch_engine.py of 0.7.5.
"""

from typing import Any

from crossflops.ir.convention import Clause, Convention, Match, Parameters
from crossflops.ir.trace import NESTED
from crossflops.tools import layers
from crossflops.tools import ptflops_layers as known
from crossflops.tools.operators import CONTRACTIONS, HOOKS, VMAP
from crossflops.tools.ptflops_functions import FUNCTIONS

_OPS, _ENGINE = "ptflops/pytorch_ops.py", "ptflops/pytorch_engine.py"
_PRODUCTS = (
    *CONTRACTIONS["matmul"],
    *CONTRACTIONS["linear"],
    *CONTRACTIONS["scaled_dot_product_attention"],
)


def _module(
    name: str,
    cause: str,
    targets: tuple[str, ...],
    formula: str,
    *,
    kind: Any = "part",
    stands_for: tuple[str, ...] = (),
    **match: Any,
) -> Clause:
    """A hook: it sees `__call__` only, and what it counts is divided by the batch."""
    return Clause(
        id=f"ptflops-pytorch.{name}",
        cause=cause,
        level="module",
        match=Match(targets=targets, via="call", **match),
        kind=kind,
        formula=f"ptflops.{formula}" if formula != "output_elements" else formula,
        times="ptflops.paths",
        batch="ptflops.batch",
        stands_for=stands_for or (layers.operators(targets) if kind == "core" else ()),
        reference=f"{_OPS}: MODULES_MAPPING",
    )


def _layers() -> tuple[Clause, ...]:
    """Convolutions and linear layers: their products, under `torch.vmap` too, and their bias."""
    rows = (
        ("convolution", layers.CONVOLUTIONS, "conv.unbatched-axis", "bias.conv"),
        ("transposed", layers.TRANSPOSED, "conv.unbatched-axis", "bias.conv"),
        ("linear", layers.LINEAR, "matmul.leading-dims-lost", "bias.linear"),
    )
    found = []
    for name, targets, cause, bias in rows:
        vmapped = f"{name}.vmapped"
        found += [
            _module(vmapped, "function.vmap", targets, name, kind="core", under=(VMAP,)),
            _module(name, cause, targets, name, kind="core"),
            _module(
                f"{name}.bias", bias, targets, f"{name.replace('transposed', 'convolution')}_bias"
            ),
        ]
    return tuple(found)


def _recurrent() -> tuple[Clause, ...]:
    """RNN, GRU, LSTM and their cells; batch and steps are read off the first two axes."""
    found = []
    for name, targets in (("recurrent", layers.RECURRENT), ("cell", layers.CELLS)):
        found += [
            _module(name, "rnn.fused", targets, name, kind="core"),
            _module(f"{name}.gates", "rnn.gate-elementwise", targets, f"{name}_gates"),
            _module(f"{name}.bias", "bias.rnn", targets, f"{name}_bias"),
        ]
    return tuple(found)


def _attention() -> tuple[Clause, ...]:
    """Two rules for attention: PyTorch's with its projections, timm's without them."""
    scores = "attention.scale-or-softmax"
    products = tuple(one for one in _PRODUCTS if one not in CONTRACTIONS["linear"])
    return (
        _module(
            "attention",
            "attention.rule",
            known.ATTENTION,
            "attention",
            kind="core",
            stands_for=_PRODUCTS,
        ),
        _module("attention.scores", scores, known.ATTENTION, "attention_scores"),
        _module("attention.bias", "bias.attention-proj", known.ATTENTION, "attention_bias"),
        _module(
            "timm-attention",
            "attention.rule",
            known.TIMM,
            "timm_attention",
            kind="core",
            stands_for=products,
        ),
        _module("timm-attention.scores", scores, known.TIMM, "timm_attention_scores"),
    )


def _others() -> tuple[Clause, ...]:
    """Activations n(y), norms n(x) or 2 n(x), pools n(x), and nn.Upsample."""
    families = (
        (known.ACTIVATIONS, "output_elements"),
        (known.NORMS, "norm"),
        (known.POOLS, "first_input"),
    )
    rows = [
        _module(cause, cause, targets, formula)
        for table, formula in families
        for cause, targets in table.items()
    ]
    modes = {"nearest": "nearest", "nearest-exact": "nearest"} | dict.fromkeys(
        ("linear", "bilinear", "bicubic", "trilinear"), "linear"
    )
    upsampled = (
        _module(
            f"upsample.{mode}", f"upsample.{kind}", known.UPSAMPLE, "first_example",
            settings={"mode": mode},
        )
        for mode, kind in modes.items()
    )  # fmt: skip
    return (*rows, *upsampled)


def _fails() -> tuple[Clause, ...]:
    """Hooks that look at what they are given, and are given nothing, or what has no shape.

    The inputs of the model itself may all go by keyword; an encoder makes nested tensors of a
    padding mask where no gradients are asked for.
    """
    others = {*known.UPSAMPLE, *(one for row in known.ACTIVATIONS.values() for one in row)}
    reads, cause = tuple(sorted(known.SUPPORTED - others)), "op.unregistered-zero"
    nested = Clause(
        id="ptflops-pytorch.fails.nested",
        cause=cause,
        level="module",
        match=Match(targets=reads, via="call", fused=(f"{NESTED}*",)),
        kind="fails",
        reference=f"{_OPS}: MODULES_MAPPING",
    )
    return (nested, _module("fails.keywords", cause, reads, "positional", root=True))


def _unseen() -> tuple[Clause, ...]:
    """Why contraction work is not seen, the most particular reason first."""
    contracting = (*layers.CONTRACTING, *known.ATTENTION)
    patched = tuple(f"torch.{name}" for name in ("matmul", "mm", "bmm", "addmm", "baddbmm"))
    rows = (
        ("hook", "module.hook-work", Match(under=(HOOKS,))),
        (
            "captured",
            "functional.captured-reference",
            Match(
                entry=(*patched, "torch.Tensor.*mm", "torch.Tensor.matmul"), reached="reference"
            ),
        ),
        ("direct-forward", "module.direct-forward", Match(within=contracting, via="forward")),
        ("unregistered", "module.unregistered", Match(within=contracting, registered=False)),
        ("timm", "module.rule-replaces-or-adds-children", Match(within=known.TIMM)),
        ("subclass", "module.type-unmatched", Match(bases=contracting)),
        (
            "attention",
            "attention.sdpa",
            Match(targets=("aten.scaled_dot_product_attention.default",)),
        ),
        ("operator", "matmul.operator-invisible", Match(entry=("torch.Tensor.__matmul__",))),
    )
    return tuple(
        Clause(
            id=f"ptflops-pytorch.unseen.{name}",
            cause=cause,
            level="operator",
            match=match,
            kind="unseen",
            reference=f"{_ENGINE}: start_flops_count, patch_tensor_ops",
        )
        for name, cause, match in rows
    )


CONVENTIONS = (
    Convention(
        tool="ptflops-pytorch",
        edition="0.7.5",
        verified=("0.7.5",),
        unit=1,
        printed_as="MACs",
        sees="module",
        counts_dead=True,
        unseen="functional.invisible",
        forces={"training": False, "hooked": True},
        source=_ENGINE,
        adds_up="ptflops.total",
        parameters=Parameters(trainable=True, reference=f"{_ENGINE}: get_model_parameters_number"),
        clauses=(
            *_fails(),
            *_layers(),
            *_recurrent(),
            *_attention(),
            *_others(),
            *FUNCTIONS,
            *_unseen(),
        ),
    ),
)
