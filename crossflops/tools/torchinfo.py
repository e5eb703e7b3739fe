"""torchinfo 1.8.0: a hook on every module, and products of parameter elements with output sizes.

Only modules without children are summed. A layer is a convolution where its class is called so;
any other parameter named "weight" or "bias" counts once for each element of the first axis, and
one whose name only contains these words once for each of the first two. Sources:
torchinfo/layer_info.py (`calculate_macs`), torchinfo/model_statistics.py, torchinfo/torchinfo.py.
"""

from collections.abc import Iterable
from typing import Any

from crossflops.ir.convention import Clause, Convention, Match, Parameters
from crossflops.ir.trace import NESTED
from crossflops.tools import layers
from crossflops.tools.operators import HOOKS, VMAP

_LAYER, _SUM = "torchinfo/layer_info.py", "torchinfo/model_statistics.py"
_HOOKS = "torchinfo/torchinfo.py: apply_hooks"
_MACS = f"{_LAYER}: calculate_macs"
_CONV = ("*Conv*",)
_EMBEDDINGS = tuple(f"{layers.NN}.sparse.{name}" for name in ("Embedding", "EmbeddingBag"))


def _layer(
    name: str,
    cause: str,
    isa: tuple[str, ...] = (),
    formula: str = "parameters",
    *,
    kind: Any = "core",
    stands_for: tuple[str, ...] = (),
    **match: Any,
) -> Clause:
    """A line about leaf modules: hooks see `__call__`, and a shared module has one of them."""
    return Clause(
        id=f"torchinfo.{name}",
        cause=cause,
        level="module",
        match=Match(isa=isa, via="call", **match),
        kind=kind,
        formula=f"torchinfo.{formula}",
        times="registered_leaves",
        stands_for=stands_for,
        reference=_MACS,
    )


def _contracting() -> Iterable[Clause]:
    """Layers whose weights are their work, and their biases, which are told apart."""
    both = (*layers.CONVOLUTIONS, *layers.TRANSPOSED)
    for name, cause, isa, named in (
        ("transposed", "conv.transpose-output-size", layers.TRANSPOSED, _CONV),
        ("convolution", "conv.unbatched-axis", layers.CONVOLUTIONS, _CONV),
        ("unnamed", "conv.by-class-name", both, ()),
        ("linear", "matmul.leading-dims-lost", layers.LINEAR, ()),
        ("recurrent", "rnn.fused", layers.RECURRENT, ()),
        ("cell", "rnn.fused", layers.CELLS, ()),
    ):
        seen = layers.operators(isa)
        yield _layer(name, cause, isa, "weights", named=named, stands_for=seen)
    for name, isa in (
        ("conv", both),
        ("linear", layers.LINEAR),
        ("rnn", (*layers.RECURRENT, *layers.CELLS)),
    ):
        yield _layer(f"bias.{name}", f"bias.{name}", isa, "biases", kind="part")


def _others() -> Iterable[Clause]:
    """Layers whose parameters are no work, or not all of it."""
    norm = f"{layers.NN}.batchnorm._BatchNorm", f"{layers.NN}.instancenorm._InstanceNorm"
    own = "module.parameter-elements"
    yield _layer("batch_norm", "norm.batch", norm[:1])
    yield _layer("instance_norm", "norm.instance", norm[1:])
    yield _layer("layer_norm", "norm.layer", named=("*LayerNorm*",))
    yield _layer("group_norm", "norm.group", named=("*GroupNorm*",))
    yield _layer("rms_norm", "norm.rms", named=("*RMSNorm*",))
    yield _layer("embedding", "embedding.lookup", _EMBEDDINGS)
    yield _layer("prelu", "act.piecewise-other", (f"{layers.NN}.activation.PReLU",))
    for word in ("weight", "bias"):
        yield _layer(f"conv.{word}", "conv.by-class-name", named=_CONV, has=(f"*{word}*",))
        yield _layer(f"other.{word}", own, has=(f"*{word}*",))


def _unseen() -> Iterable[Clause]:
    """Why contraction work is not seen, the most particular reason first."""
    product = "torch.Tensor.__matmul__", "torch.Tensor.__rmatmul__"
    attention = ("aten.scaled_dot_product_attention.default",)
    rows = (
        ("hook", "module.hook-work", _HOOKS, Match(under=(HOOKS,))),
        ("direct-forward", "module.direct-forward", _HOOKS, Match(via="forward")),
        ("unregistered", "module.unregistered", _HOOKS, Match(registered=False)),
        ("attention", "attention.sdpa", _MACS, Match(targets=attention)),
        ("operator", "matmul.operator-invisible", _MACS, Match(entry=product)),
        ("own", "module.nonleaf-own-work", _SUM, Match(leaf=False, has=("weight",))),
    )
    for name, cause, reference, match in rows:
        yield Clause(
            id=f"torchinfo.unseen.{name}",
            cause=cause,
            level="operator",
            match=match,
            kind="unseen",
            reference=reference,
        )


_FAILS = (
    *(
        Clause(
            id=f"torchinfo.{name}",
            cause="op.unregistered-zero",
            level="module",
            match=Match(via="call", under=under),
            kind="part",
            formula=f"torchinfo.{name}",
            times="registered",
            reference=f"{_LAYER}: calculate_size",
        )
        for name, under in (("readable", ()), ("under_vmap", (VMAP,)))
    ),
    # An encoder makes a nested tensor of a padding mask, and that has no size.
    Clause(
        id="torchinfo.nested",
        cause="op.unregistered-zero",
        level="module",
        match=Match(via="call", fused=(f"{NESTED}*",)),
        kind="fails",
        reference=f"{_LAYER}: calculate_size",
    ),
)

CONVENTIONS = (
    Convention(
        tool="torchinfo",
        edition="1.8.0",
        verified=("1.8.0",),
        unit=1,
        printed_as="mult-adds",
        sees="module",
        counts_dead=True,
        unseen="functional.invisible",
        forces={"grad": False, "hooked": True},
        source=_MACS,
        clauses=(*_FAILS, *_contracting(), *_others(), *_unseen()),
        parameters=Parameters(
            extra="leaves_and_leftovers",
            reference="torchinfo/model_statistics.py; torchinfo/layer_info.py: leftover_params",
        ),
    ),
)
